/* Checks the user, the subordinate ids that the user may give to sandboxes, and the cgroups that
 * enforce the limits. Called by doctor.c. Reads small files, and creates and removes one cgroup. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"

#define IDS_WANTED 65536
#define CGROUP_ROOT "/sys/fs/cgroup"
#define CONTROLLER_COUNT 3
static const char *const controllers[CONTROLLER_COUNT] = {"cpu", "memory", "pids"};

DOCTOR_CHECK(doctor_check_user)
{
	const struct passwd *user = getpwuid(geteuid());
	const char *name = user ? user->pw_name : "without a name";
	if (geteuid() != 0) {
		finding_set(finding, VERDICT_OK, "%s (uid %u): without root, in user namespaces",
			    name, (unsigned)geteuid());
		return;
	}
	bool named = client->config.user[0] != '\0';
	const char *wanted = named ? client->config.user : CONFIG_USER_DEFAULT;
	if (getpwnam(wanted)) {
		finding_set(finding, VERDICT_OK, "root; the API process runs as %s", wanted);
		return;
	}
	/* A configured user must exist: the daemon does not start without it. */
	if (named)
		finding_set(finding, VERDICT_FAILED,
			    "root; there is no user %s, which the configuration names for the API "
			    "process",
			    wanted);
	else
		finding_set(finding, VERDICT_INFORMATION,
			    "root; there is no user %s for the API process, a spare id is used",
			    wanted);
	finding_set_remedy(finding, "useradd --system --no-create-home %s", wanted);
}

/* The number of ids that a file like /etc/subuid grants to a user, by name or by number. */
static uint64_t subordinate_ids_count(const char *path, const char *name, unsigned uid)
{
	FILE *file = fopen(path, "re");
	char line[512], number[16];
	uint64_t total = 0;
	snprintf(number, sizeof(number), "%u", uid);
	while (file && fgets(line, sizeof(line), file)) {
		char *rest = line;
		const char *owner = strsep(&rest, ":");
		const char *start = rest ? strsep(&rest, ":") : NULL;
		uint64_t count;
		if (!start || !rest)
			continue;
		rest[strcspn(rest, "\r\n")] = '\0';
		if ((strcmp(owner, name) == 0 || strcmp(owner, number) == 0) &&
		    text_to_u64(rest, 1, UINT32_MAX, &count) == 0)
			total += count;
	}
	if (file)
		fclose(file);
	return total;
}

/* newuidmap must be privileged to map ids: setuid root, or with file capabilities. */
static bool program_may_map(const char *program)
{
	char path[128], value[64];
	struct stat info;
	if (!doctor_find_program(program, path) || stat(path, &info) < 0)
		return false;
	return ((info.st_mode & S_ISUID) && info.st_uid == 0) ||
	       getxattr(path, "security.capability", value, sizeof(value)) > 0;
}

DOCTOR_CHECK(doctor_check_subordinate_ids)
{
	(void)client;
	if (geteuid() == 0) {
		finding_set(finding, VERDICT_OK, "not needed: root gives ids from 1879048192 on");
		return;
	}
	unsigned uid = geteuid();
	const struct passwd *user = getpwuid(uid);
	const char *name = user ? user->pw_name : "";
	uint64_t uids = subordinate_ids_count("/etc/subuid", name, uid);
	uint64_t gids = subordinate_ids_count("/etc/subgid", name, uid);
	if (uids == 0 || gids == 0) {
		finding_set(finding, VERDICT_WARNING,
			    "%s grants no ids to %s: sandboxes have only one id, root, and no "
			    "other user inside",
			    uids == 0 ? "/etc/subuid" : "/etc/subgid", *name ? name : "this uid");
		if (*name)
			finding_set_remedy(finding,
					   "usermod --add-subuids 100000-165535 --add-subgids "
					   "100000-165535 %s   (as root; an unused range)",
					   name);
		return;
	}
	if (!program_may_map("newuidmap") || !program_may_map("newgidmap")) {
		finding_set(finding, VERDICT_WARNING,
			    "%llu ids are granted, but newuidmap and newgidmap are missing or have "
			    "no rights",
			    (unsigned long long)MIN(uids, gids));
		finding_set_remedy(finding, "apt-get install uidmap");
		return;
	}
	bool few = MIN(uids, gids) < IDS_WANTED;
	finding_set(finding, few ? VERDICT_WARNING : VERDICT_OK,
		    "%llu uids and %llu gids, given by newuidmap%s", (unsigned long long)uids,
		    (unsigned long long)gids, few ? "; 65536 of each are usual" : "");
}

/* The cgroup of this process in a hierarchy; "" names the unified one. */
static bool own_cgroup_path(const char *controller, char path[256])
{
	char text[4096];
	if (fd_read_small(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
		return false;
	char *rest = text, *line;
	while ((line = strsep(&rest, "\n"))) {
		char *names = strchr(line, ':'), *place = names ? strchr(names + 1, ':') : NULL;
		if (!place)
			continue;
		*place++ = '\0';
		char *name = names + 1, *word;
		bool found = !*controller && !*name;
		while (*controller && !found && (word = strsep(&name, ",")))
			found = strcmp(word, controller) == 0;
		if (found)
			return text_copy(path, 256, place) == 0;
	}
	return false;
}

static bool cgroups_are_unified(void)
{
	return access(CGROUP_ROOT "/cgroup.controllers", F_OK) == 0;
}

/* True if the controller has a v1 hierarchy. */
static bool controller_is_v1(const char *controller)
{
	char path[256];
	return text_format(path, sizeof(path), CGROUP_ROOT "/%s/cgroup.procs", controller) == 0 &&
	       access(path, F_OK) == 0;
}

DOCTOR_CHECK(doctor_check_cgroups)
{
	(void)client;
	char missing[64] = "";
	bool unified = cgroups_are_unified(), first = false;
	for (size_t i = 0; i < CONTROLLER_COUNT; i++) {
		bool there = unified && doctor_file_has_word(CGROUP_ROOT "/cgroup.controllers",
							     controllers[i]);
		if (!there && controller_is_v1(controllers[i]))
			there = first = true;
		size_t used = strlen(missing);
		if (!there)
			snprintf(missing + used, sizeof(missing) - used, " %s", controllers[i]);
	}
	if (!*missing) {
		finding_set(finding, VERDICT_OK, "version %s with cpu, memory and pids",
			    first ? "1" : "2");
		return;
	}
	finding_set(finding, VERDICT_WARNING,
		    "no controller for%s: those limits will not be enforced", missing);
	if (unified)
		finding_set_remedy(finding,
				   "enable them for the cgroup that caisson runs in: `systemctl "
				   "edit caisson.service` with Delegate=cpu memory pids");
	else
		finding_set_remedy(finding,
				   "mount the cgroup hierarchies (systemd does), or boot with "
				   "systemd.unified_cgroup_hierarchy=1");
}

/* Creates a cgroup below ours and removes it. Returns 0 or an errno. */
static int cgroup_try(const char *directory)
{
	char path[600];
	if (text_format(path, sizeof(path), "%s/caisson-doctor-%d", directory, (int)getpid()) < 0)
		return ENAMETOOLONG;
	if (mkdir(path, 0755) < 0)
		return errno;
	return rmdir(path) < 0 ? errno : 0;
}

static void unified_delegation_check(struct finding *finding)
{
	char place[256], directory[400], path[450], missing[64] = "";
	if (!own_cgroup_path("", place) ||
	    text_format(directory, sizeof(directory), CGROUP_ROOT "%s", place) < 0) {
		finding_set(finding, VERDICT_WARNING, "this process has no cgroup of version 2");
		return;
	}
	int failure = cgroup_try(directory);
	if (failure) {
		finding_set(finding, VERDICT_WARNING,
			    "no cgroup can be made in %s (%s): cpu, memory and process limits will "
			    "not be enforced",
			    place, strerror(failure));
		finding_set_remedy(
		    finding, geteuid() == 0 ? "mount /sys/fs/cgroup writable (inside a container: "
					      "--privileged, or --cgroupns=private with a "
					      "writable mount)"
					    : "systemd-run --user --scope -p Delegate=yes caisson "
					      "serve   (or `loginctl enable-linger` and the user "
					      "unit)");
		return;
	}
	snprintf(path, sizeof(path), "%s/cgroup.controllers", directory);
	for (size_t i = 0; i < CONTROLLER_COUNT; i++) {
		size_t used = strlen(missing);
		if (!doctor_file_has_word(path, controllers[i]))
			snprintf(missing + used, sizeof(missing) - used, " %s", controllers[i]);
	}
	if (!*missing) {
		finding_set(finding, VERDICT_OK, "%s is ours, with cpu, memory and pids", place);
		return;
	}
	finding_set(finding, VERDICT_WARNING, "%s is ours, but without%s", place, missing);
	finding_set_remedy(finding,
			   "as root: `systemctl edit user@%u.service` with "
			   "[Service] Delegate=cpu cpuset io memory pids, then log in again",
			   (unsigned)geteuid());
}

DOCTOR_CHECK(doctor_check_delegation)
{
	(void)client;
	char path[512], place[256], refused[64] = "";
	int failure = 0;
	size_t first = 0;
	for (size_t i = 0; i < CONTROLLER_COUNT; i++) {
		if (!controller_is_v1(controllers[i]))
			continue;
		first++;
		/* Root's daemon leaves the cgroup in which it was started; an ordinary user's
		 * cannot. */
		bool root = geteuid() == 0;
		snprintf(path, sizeof(path), CGROUP_ROOT "/%s%s", controllers[i],
			 !root && own_cgroup_path(controllers[i], place) ? place : "");
		int result = cgroup_try(path);
		size_t used = strlen(refused);
		if (result)
			snprintf(refused + used, sizeof(refused) - used, " %s", controllers[i]);
		failure = result ? result : failure;
	}
	if (first == 0) {
		unified_delegation_check(finding);
		return;
	}
	if (!failure) {
		finding_set(finding, VERDICT_OK, "cgroups can be made in each hierarchy");
		return;
	}
	finding_set(finding, VERDICT_WARNING, "no cgroup can be made for%s: %s", refused,
		    strerror(failure));
	finding_set_remedy(
	    finding, geteuid() == 0
			 ? "mount the hierarchies writable"
			 : "have root make cgroups in these hierarchies that are yours and start "
			   "the daemon in them; or boot with version 2 "
			   "(systemd.unified_cgroup_hierarchy=1), where systemd does that");
}
