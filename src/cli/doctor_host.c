/* Limits of the host that many sandboxes meet, its clock, and who else serves the same directories.
 * Called by doctor.c; reads small files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/doctor.h"

/* 2026-01-01: a clock before that was never set. */
#define CLOCK_EARLIEST (1767225600LL * NSEC_PER_SEC)

static const struct limit_row {
	const char *path;   /* below /proc/sys */
	const char *name;   /* as sysctl calls it */
	int64_t few;        /* fewer than that are a warning */
	int64_t suggestion; /* what to set it to */
} limit_rows[] = {
    {"/proc/sys/kernel/pid_max", "kernel.pid_max", 32768, 4194304},
    {"/proc/sys/kernel/threads-max", "kernel.threads-max", 16384, 131072},
    {"/proc/sys/fs/file-max", "fs.file-max", 65536, 1048576},
    {"/proc/sys/fs/inotify/max_user_instances", "fs.inotify.max_user_instances", 128, 1024},
    {"/proc/sys/fs/inotify/max_user_watches", "fs.inotify.max_user_watches", 8192, 1048576},
};

DOCTOR_CHECK(check_limits)
{
	(void)client;
	struct rlimit files = {0};
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < 4096) {
		finding_say(finding, VERDICT_WARNING,
			    "open files: this user may have %llu; the daemon needs some for each "
			    "sandbox",
			    (unsigned long long)files.rlim_max);
		finding_remedy(finding, "LimitNOFILE=1048576 in caisson.service, or `ulimit -Hn`");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
		const struct limit_row *row = &limit_rows[i];
		int64_t value = doctor_file_number(row->path);
		if (value < 0 || value >= row->few)
			continue;
		finding_say(finding, VERDICT_WARNING, "%s is %" PRId64, row->name, value);
		finding_remedy(finding, "sysctl -w %s=%" PRId64, row->name, row->suggestion);
		return;
	}
	finding_say(finding, VERDICT_OK,
		    "%" PRId64 " pids, %" PRId64 " inotify instances and %" PRId64
		    " watches per user, %llu open files",
		    doctor_file_number(limit_rows[0].path), doctor_file_number(limit_rows[3].path),
		    doctor_file_number(limit_rows[4].path), (unsigned long long)files.rlim_max);
}

DOCTOR_CHECK(check_clock)
{
	(void)client;
	char text[CLOCK_TEXT_SIZE];
	struct timex state = {0};
	int64_t now = clock_wall();
	clock_text(now, text);
	int result = adjtimex(&state);
	if (now < CLOCK_EARLIEST) {
		finding_say(finding, VERDICT_WARNING,
			    "%s cannot be: times in records and tokens will be wrong", text);
		finding_remedy(finding, "timedatectl set-ntp true");
	} else {
		/* Time-outs run on a clock that cannot be set: they hold in any case. */
		finding_say(finding, VERDICT_OK, "%s, %s", text,
			    result < 0 || (state.status & STA_UNSYNC) ? "not synchronized"
								      : "synchronized");
	}
}

/* Who holds the lock of a directory, 0 when nobody does. Asking /proc/locks rather than the lock
 * itself leaves a daemon alone that starts at this moment. */
static int lock_holder(const char *directory)
{
	char path[300], line[256];
	struct stat info;
	int holder = 0;
	if (text_format(path, sizeof(path), "%s/lock", directory) < 0 || stat(path, &info) < 0)
		return 0;
	FILE *locks = fopen("/proc/locks", "re");
	while (locks && !holder && fgets(line, sizeof(line), locks)) {
		unsigned major_number, minor_number;
		unsigned long long inode;
		int pid;
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number,
			   &minor_number, &inode) == 4 &&
		    inode == (unsigned long long)info.st_ino &&
		    makedev(major_number, minor_number) == info.st_dev)
			holder = pid;
	}
	if (locks)
		fclose(locks);
	return holder;
}

DOCTOR_CHECK(check_instance)
{
	int state = lock_holder(client->config.state),
	    runtime = lock_holder(client->config.runtime);
	if (client->remote)
		finding_say(finding, VERDICT_INFORMATION,
			    "http://%s:%s (CAISSON_URL): the tiers below are that host's",
			    client->host, client->port);
	else if (state == 0 && runtime == 0)
		finding_say(finding, VERDICT_OK, "none serves %s and %s; one is started below",
			    client->config.state, client->config.runtime);
	else if (state == runtime)
		finding_say(finding, VERDICT_OK, "pid %d serves %s and %s", state,
			    client->config.state, client->config.runtime);
	else {
		const char *kept = state ? client->config.state : client->config.runtime;
		int holder = state ? state : runtime;
		finding_say(finding, VERDICT_WARNING,
			    "another caisson (pid %d) serves %s, with another %s directory", holder,
			    kept, state ? "runtime" : "state");
		finding_remedy(finding,
			       "use that one (set CAISSON_RUNTIME and CAISSON_STATE as it "
			       "has them), or end it with `kill %d`",
			       holder);
	}
}
