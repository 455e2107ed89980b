/* Checks limits of the host that many sandboxes share, its clock, and other daemons that serve the
 * same directories. Called by doctor.c; reads small files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"
#include "cli/client/instance.h"

/* 2026-01-01: a clock before that was never set. */
#define CLOCK_EARLIEST (1767225600LL * NSEC_PER_SEC)

static const struct limit_row {
	const char *path;   /* below /proc/sys */
	const char *name;   /* as sysctl calls it */
	int64_t few;        /* a smaller value is a warning */
	int64_t suggestion; /* recommended value */
} limit_rows[] = {
    {"/proc/sys/kernel/pid_max", "kernel.pid_max", 32768, 4194304},
    {"/proc/sys/kernel/threads-max", "kernel.threads-max", 16384, 131072},
    {"/proc/sys/fs/file-max", "fs.file-max", 65536, 1048576},
    {"/proc/sys/fs/inotify/max_user_instances", "fs.inotify.max_user_instances", 128, 1024},
    {"/proc/sys/fs/inotify/max_user_watches", "fs.inotify.max_user_watches", 8192, 1048576},
};

DOCTOR_CHECK(doctor_check_limits)
{
	(void)client;
	struct rlimit files = {0};
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < 4096) {
		finding_set(finding, VERDICT_WARNING,
			    "open files: this user may have %llu; the daemon needs some for each "
			    "sandbox",
			    (unsigned long long)files.rlim_max);
		finding_set_remedy(finding,
				   "LimitNOFILE=1048576 in caisson.service, or `ulimit -Hn`");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
		const struct limit_row *row = &limit_rows[i];
		int64_t value = doctor_read_number(row->path);
		if (value < 0 || value >= row->few)
			continue;
		finding_set(finding, VERDICT_WARNING, "%s is %" PRId64, row->name, value);
		finding_set_remedy(finding, "sysctl -w %s=%" PRId64, row->name, row->suggestion);
		return;
	}
	finding_set(finding, VERDICT_OK,
		    "%" PRId64 " pids, %" PRId64 " inotify instances and %" PRId64
		    " watches per user, %llu open files",
		    doctor_read_number(limit_rows[0].path), doctor_read_number(limit_rows[3].path),
		    doctor_read_number(limit_rows[4].path), (unsigned long long)files.rlim_max);
}

DOCTOR_CHECK(doctor_check_clock)
{
	(void)client;
	char text[CLOCK_TEXT_SIZE];
	struct timex state = {0};
	int64_t now = clock_wall();
	clock_text(now, text);
	int result = adjtimex(&state);
	if (now < CLOCK_EARLIEST) {
		finding_set(finding, VERDICT_WARNING,
			    "%s is wrong: times in records and tokens will be wrong too", text);
		finding_set_remedy(finding, "timedatectl set-ntp true");
	} else {
		/* Time-outs use the monotonic clock, so they are right in any case. */
		finding_set(finding, VERDICT_OK, "%s, %s", text,
			    result < 0 || (state.status & STA_UNSYNC) ? "not synchronized"
								      : "synchronized");
	}
}

DOCTOR_CHECK(doctor_check_instance)
{
	struct instance of_state, of_runtime;
	const char *state = client->config.state, *runtime = client->config.runtime;
	instance_read(state, &of_state);
	instance_read(runtime, &of_runtime);
	if (client->remote) {
		finding_set(finding, VERDICT_INFORMATION,
			    "http://%s:%s (CAISSON_URL): the tiers below are that host's",
			    client->host, client->port);
	} else if (of_runtime.pid && of_runtime.state[0] &&
		   !instance_same_directory(of_runtime.state, state)) {
		finding_set(finding, VERDICT_WARNING, "pid %d at %s serves %s, not %s",
			    of_runtime.pid, runtime, of_runtime.state, state);
		finding_set_remedy(finding,
				   "unset CAISSON_STATE: it names another daemon's directory");
	} else if (of_runtime.pid) {
		/* The state directory of another user's daemon is not ours to read. */
		bool known = of_runtime.state[0];
		finding_set(finding, VERDICT_OK, "pid %d serves %s%s%s", of_runtime.pid,
			    known ? state : "", known ? " and " : "", runtime);
	} else if (of_state.pid) {
		finding_set(finding, VERDICT_WARNING,
			    "another caisson (pid %d) serves %s, with another runtime directory",
			    of_state.pid, state);
		finding_set_remedy(finding,
				   "use that one (CAISSON_RUNTIME=%s), or give this one a state "
				   "directory of its own with CAISSON_STATE",
				   of_state.runtime[0] ? of_state.runtime : "its directory");
	} else {
		finding_set(finding, VERDICT_OK, "no daemon serves %s and %s; one is started below",
			    state, runtime);
	}
}
