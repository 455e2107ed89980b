/* Checks namespaces as the spawner and the init need them: creates each kind, finds what restricts
 * them, mounts a fresh /proc and an overlay. Called by doctor.c. Everything is done in children and
 * ends with them. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"

#define TIMEOUT_MS 5000
#define APPARMOR_SYSCTL "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#define CLONE_SYSCTL "/proc/sys/kernel/unprivileged_userns_clone"
#define COUNT_SYSCTL "/proc/sys/user/max_user_namespaces"

static const struct kind {
	const char *name;
	int flag;
} kinds[] = {
    {"user", 0},
    {"mount", CLONE_NEWNS},
    {"pid", CLONE_NEWPID},
    {"net", CLONE_NEWNET},
    {"ipc", CLONE_NEWIPC},
    {"uts", CLONE_NEWUTS},
    {"cgroup", CLONE_NEWCGROUP},
};

static int namespace_kind_try(void *data, char *text, size_t room)
{
	const struct kind *kind = data;
	(void)text;
	(void)room;
	int failure = doctor_enter_namespaces(kind->flag);
	if (failure)
		return failure;
	/* AppArmor may allow a namespace and take its capabilities away. */
	if (kind->flag == CLONE_NEWNS && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return errno;
	if (kind->flag == CLONE_NEWUTS && sethostname("doctor", 6) < 0)
		return errno;
	return 0;
}

static void namespace_remedy_set(struct finding *finding, int failure)
{
	if (doctor_read_number(COUNT_SYSCTL) == 0)
		finding_set_remedy(finding, "sysctl -w user.max_user_namespaces=15000");
	else if (doctor_read_number(CLONE_SYSCTL) == 0 && geteuid() != 0)
		finding_set_remedy(finding, "sysctl -w kernel.unprivileged_userns_clone=1");
	else if (doctor_read_number(APPARMOR_SYSCTL) == 1)
		finding_set_remedy(finding,
				   "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, "
				   "or an AppArmor profile for caisson with `userns,`");
	else if (failure == ENOSPC)
		finding_set_remedy(finding, "sysctl -w user.max_user_namespaces=15000 (and "
					    "user.max_*_namespaces of the kinds named)");
	else
		finding_set_remedy(finding,
				   "inside a container: start it with `--privileged`, or with "
				   "`--security-opt seccomp=unconfined --security-opt "
				   "apparmor=unconfined`");
}

DOCTOR_CHECK(doctor_check_namespaces)
{
	(void)client;
	char text[16], good[128] = "", bad[256] = "";
	int first = 0;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		int result = doctor_run_child(namespace_kind_try, (void *)&kinds[i], TIMEOUT_MS,
					      text, sizeof(text));
		char *list = result == 0 ? good : bad;
		size_t used = strlen(list), room = result == 0 ? sizeof(good) : sizeof(bad);
		int failure = result < 0 ? -result : result;
		if (result == 0)
			snprintf(list + used, room - used, "%s%s", used ? ", " : "", kinds[i].name);
		else
			snprintf(list + used, room - used, "%s%s (%s)", used ? ", " : "",
				 kinds[i].name, strerror(failure));
		first = first ? first : failure;
	}
	if (!*bad) {
		finding_set(finding, VERDICT_OK, "%s", good);
		return;
	}
	finding_set(finding, VERDICT_FAILED, "refused: %s", bad);
	namespace_remedy_set(finding, first);
}

/* Finds settings that forbid user namespaces, whatever the checks above have found: root may create
 * them where an ordinary user may not. */
DOCTOR_CHECK(doctor_check_restrictions)
{
	(void)client;
	char profile[128] = "";
	ssize_t length =
	    fd_read_small(AT_FDCWD, "/proc/self/attr/current", profile, sizeof(profile));
	profile[length > 0 ? strcspn(profile, "\n") : 0] = '\0';
	int64_t count = doctor_read_number(COUNT_SYSCTL);
	bool for_users = false;
	char words[256] = "";
	if (count == 0)
		snprintf(words, sizeof(words), "user.max_user_namespaces is 0");
	else if (doctor_read_number(CLONE_SYSCTL) == 0)
		for_users =
		    snprintf(words, sizeof(words), "kernel.unprivileged_userns_clone is 0") > 0;
	else if (doctor_read_number(APPARMOR_SYSCTL) == 1)
		for_users = snprintf(words, sizeof(words),
				     "AppArmor restricts user namespaces of ordinary users") > 0;
	if (!*words) {
		bool confined = *profile && strcmp(profile, "unconfined") != 0;
		finding_set(finding, VERDICT_OK, "none (at most %lld user namespaces%s%s)",
			    (long long)count, confined ? ", AppArmor profile " : "",
			    confined ? profile : "");
		return;
	}
	bool concerns_us = !for_users || geteuid() != 0;
	finding_set(finding, concerns_us ? VERDICT_FAILED : VERDICT_INFORMATION, "%s%s", words,
		    concerns_us ? "" : "; root's daemon is not affected");
	if (concerns_us)
		namespace_remedy_set(finding, 0);
}

/* Runs a step as PID 1 of a new pid namespace and returns its exit code. */
static int step_run_as_pid1(int (*step)(void))
{
	pid_t first = fork();
	if (first == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(step());
	}
	int status;
	while (first > 0 && waitpid(first, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return first < 0 ? EAGAIN : WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static int proc_mount(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return errno;
	return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno
											  : 0;
}

static int proc_try(void *data, char *text, size_t room)
{
	(void)data;
	(void)text;
	(void)room;
	int failure = doctor_enter_namespaces(CLONE_NEWNS | CLONE_NEWPID);
	return failure ? failure : step_run_as_pid1(proc_mount);
}

/* True if something is mounted over a part of our /proc. The kernel then refuses a fresh /proc to a
 * process that is root only in its own user namespace. */
static bool proc_is_masked(void)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char line[4096], point[1024];
	bool masked = false;
	while (mounts && !masked && fgets(line, sizeof(line), mounts))
		masked = sscanf(line, "%*s %*s %*s %*s %1023s", point) == 1 &&
			 text_starts(point, "/proc/") &&
			 strcmp(point, "/proc/sys/fs/binfmt_misc") != 0;
	if (mounts)
		fclose(mounts);
	return masked;
}

DOCTOR_CHECK(doctor_check_proc)
{
	(void)client;
	char text[16];
	int result = doctor_run_child(proc_try, NULL, TIMEOUT_MS, text, sizeof(text));
	if (result == 0) {
		finding_set(finding, VERDICT_OK, "a fresh one can be mounted in new namespaces");
		return;
	}
	bool masked = proc_is_masked();
	finding_set(finding, VERDICT_FAILED, "a fresh one cannot be mounted: %s%s",
		    strerror(result < 0 ? -result : result),
		    masked ? "; parts of ours are masked, as in a container" : "");
	if (masked)
		finding_set_remedy(finding, "start the container with `--security-opt "
					    "systempaths=unconfined` (or `--privileged`)");
}

/* Mounts the overlay with its upper layer on a new tmpfs, over a directory that every host has. */
static int overlay_try(void *data, char *text, size_t room)
{
	static const char *const directories[] = {"/tmp/lower", "/tmp/upper", "/tmp/work",
						  "/tmp/merged"};
	(void)data;
	(void)text;
	(void)room;
	int failure = doctor_enter_namespaces(CLONE_NEWNS);
	if (failure)
		return failure;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("doctor", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700") < 0)
		return errno;
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (mkdir(directories[i], 0700) < 0)
			return errno;
	if (mount("doctor", "/tmp/merged", "overlay", MS_NOSUID | MS_NODEV,
		  "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr") < 0)
		return errno;
	return mkdir("/tmp/merged/new", 0700) < 0 || access("/tmp/upper/new", F_OK) < 0 ? errno : 0;
}

DOCTOR_CHECK(doctor_check_overlay)
{
	(void)client;
	char text[16];
	int result = doctor_run_child(overlay_try, NULL, TIMEOUT_MS, text, sizeof(text));
	if (result == 0) {
		finding_set(finding, VERDICT_OK, "mounted in a user namespace, with userxattr");
		return;
	}
	finding_set(finding, VERDICT_FAILED, "cannot be mounted in a user namespace: %s",
		    strerror(result < 0 ? -result : result));
	if (!doctor_file_has_word("/proc/filesystems", "overlay"))
		finding_set_remedy(finding, "modprobe overlay");
}
