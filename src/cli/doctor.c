/* `caisson doctor`: what this host can do, what is missing and the command that fixes it; and the
 * proof, a sandbox that runs. Looks only; changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"

enum verdict { GOOD, WEAK, BAD };

struct finding {
	enum verdict verdict;
	char text[256];
	const char *fix; /* NULL: nothing to do, or nothing can be done */
};

static void say(struct finding *finding, enum verdict verdict, const char *fix, const char *format,
		...) PRINTF_LIKE(4, 5);

static void say(struct finding *finding, enum verdict verdict, const char *fix, const char *format,
		...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
	finding->verdict = verdict;
	finding->fix = fix;
}

static void check_kernel(struct finding *finding)
{
	struct utsname name;
	int major = 0, minor = 0;
	uname(&name);
	if (sscanf(name.release, "%d.%d", &major, &minor) != 2 || major < 5 ||
	    (major == 5 && minor < 19))
		say(finding, BAD, "install a newer kernel", "Linux %s; 5.19 or newer is needed",
		    name.release);
	else
		say(finding, GOOD, NULL, "Linux %s", name.release);
}

static void check_root(struct finding *finding)
{
	if (geteuid() == 0)
		say(finding, GOOD, NULL, "root");
	else
		say(finding, BAD, "sudo caisson serve",
		    "uid %d; the daemon of this version must be started by root", (int)geteuid());
}

/* Each namespace is tried in a child, since unshare() is for good. */
static void check_namespaces(struct finding *finding)
{
	pid_t child = fork();
	if (child == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
			      CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) == 0
			  ? 0
			  : errno);
	int status = 0;
	waitpid(child, &status, 0);
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : EINVAL;
	char restricted[16] = "";
	ssize_t got =
	    fd_read_small(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
			  restricted, sizeof(restricted));
	if (code == 0)
		say(finding, GOOD, NULL, "user, mount, pid, net, ipc, uts, cgroup");
	else if (got > 0 && restricted[0] == '1')
		say(finding, BAD, "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
		    "refused by AppArmor's restriction of user namespaces");
	else
		say(finding, BAD, "sysctl user.max_user_namespaces=15000", "refused: %s",
		    strerror(code));
}

static bool listed(const char *path, const char *word)
{
	char text[16384];
	if (fd_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	char *rest = text, *token;
	while ((token = strsep(&rest, " \t\n")))
		if (strcmp(token, word) == 0)
			return true;
	return false;
}

static void check_cgroups(struct finding *finding)
{
	static const char *const wanted[] = {"cpu", "memory", "pids"};
	char missing[64] = "", version[4] = "v2";
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		char path[64];
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/cgroup.procs", wanted[i]);
		bool first = access(path, F_OK) == 0;
		if (first)
			snprintf(version, sizeof(version), "v1");
		if (!first && !listed("/sys/fs/cgroup/cgroup.controllers", wanted[i])) {
			size_t used = strlen(missing);
			snprintf(missing + used, sizeof(missing) - used, " %s", wanted[i]);
		}
	}
	if (*missing)
		say(finding, WEAK, "mount the cgroup hierarchies (systemd does)",
		    "no controller for%s: those limits will not be enforced", missing);
	else
		say(finding, GOOD, NULL, "%s with cpu, memory and pids", version);
}

static void check_overlay(struct finding *finding)
{
	if (listed("/proc/filesystems", "overlay"))
		say(finding, GOOD, NULL, "overlay");
	else
		say(finding, BAD, "modprobe overlay", "the kernel has no overlay file system");
}

static void check_disk(struct finding *finding)
{
	if (access("/sbin/mke2fs", X_OK) < 0 && access("/usr/sbin/mke2fs", X_OK) < 0)
		say(finding, WEAK, "apt-get install e2fsprogs",
		    "mke2fs is missing: the disk limit will not be enforced");
	else if (access("/dev/loop-control", F_OK) < 0)
		say(finding, WEAK, "modprobe loop",
		    "no loop devices: the disk limit will not be enforced");
	else
		say(finding, GOOD, NULL, "an ext4 image of its own per sandbox, on a loop device");
}

static void check_seccomp(struct finding *finding)
{
	if (prctl(PR_GET_SECCOMP) < 0)
		say(finding, BAD, "a kernel with CONFIG_SECCOMP_FILTER",
		    "the kernel has no seccomp");
	else
		say(finding, GOOD, NULL, "seccomp filters");
}

static void check_vm(struct finding *finding)
{
	bool flags = listed("/proc/cpuinfo", "vmx") || listed("/proc/cpuinfo", "svm");
	if (access("/dev/kvm", F_OK) < 0)
		say(finding, WEAK, NULL, "not available: no /dev/kvm");
	else if (!flags)
		say(finding, WEAK, NULL,
		    "not available: /dev/kvm is there, but the cpu shows neither VMX nor SVM");
	else
		say(finding, WEAK, NULL, "this host could run it; this version has no vm tier yet");
}

static void check_gvisor(struct finding *finding)
{
	bool there =
	    access("/usr/bin/runsc", X_OK) == 0 || access("/usr/local/bin/runsc", X_OK) == 0;
	say(finding, WEAK, NULL,
	    there ? "runsc is there; this version has no gvisor tier yet"
		  : "not available: no runsc; this version has no gvisor tier yet");
}

static const struct check {
	const char *name;
	void (*look)(struct finding *finding);
} checks[] = {
    {"kernel", check_kernel},   {"user", check_root},          {"namespaces", check_namespaces},
    {"cgroups", check_cgroups}, {"overlay", check_overlay},    {"disk limit", check_disk},
    {"seccomp", check_seccomp}, {"tier gvisor", check_gvisor}, {"tier vm", check_vm},
};

static const char *const verdict_names[] = {"ok", "--", "MISSING"};

/* The proof: a sandbox, a command in it, and what its record says of its limits. */
static int prove(struct client *client, json_t *answer, struct error *error)
{
	json_t *record = NULL, *result = NULL;
	create_options.timeout = "60";
	if (create_sandbox(client, 0, &record, error) < 0)
		return -1;
	DONE_BUFFER struct buffer path = BUFFER(4096), remove = BUFFER(4096);
	const char *id = member_text(record, "id");
	json_t *body = json_pack("{s:[s]}", "argv", "/bin/true");
	int outcome = sandbox_path(&path, id, "/exec", error);
	if (outcome == 0)
		outcome = client_json(client, "POST", path.data, body, NULL, 0, &result, error);
	struct error ignored;
	if (sandbox_path(&remove, id, "", &ignored) == 0 &&
	    client_json(client, "DELETE", remove.data, NULL, NULL, 0, NULL, &ignored) < 0)
		fprintf(stderr, "caisson doctor: %s was not removed: %s\n", id, ignored.message);
	json_decref(body);
	if (outcome == 0 && member_integer(result, "exit_code") != 0)
		outcome = error_set(error, ERROR_INTERNAL, "the probe sandbox ran, but not right");
	if (outcome == 0) {
		json_object_set(answer, "proof", record);
		if (!cli_json) {
			printf("%-12s %-8s a sandbox ran: tier %s, ready in %.1f ms\n", "proof",
			       "ok", member_text(record, "isolation"),
			       json_number_value(json_object_get(record, "boot_ms")));
			const char *name;
			json_t *limit;
			json_object_foreach(json_object_get(record, "limits"), name, limit)
			{
				bool enforced = json_is_true(json_object_get(limit, "enforced"));
				printf("  limit %-10s %s%s%s\n", name,
				       enforced ? "enforced" : "NOT enforced", enforced ? "" : ": ",
				       enforced ? "" : member_text(limit, "reason"));
			}
		}
	}
	json_decref(record);
	json_decref(result);
	return outcome;
}

static int run_doctor(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "doctor takes no argument (\"%s\")", argv[1]);
	int bad = 0;
	json_t *answer = json_object(), *list = json_array();
	json_object_set_new(answer, "checks", list);
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		struct finding finding = {0};
		checks[i].look(&finding);
		bad += finding.verdict == BAD;
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:s*}", "name", checks[i].name,
						"verdict", verdict_names[finding.verdict], "text",
						finding.text, "fix", finding.fix));
		if (cli_json)
			continue;
		printf("%-12s %-8s %s\n", checks[i].name, verdict_names[finding.verdict],
		       finding.text);
		if (finding.fix)
			printf("%-12s %-8s fix: %s\n", "", "", finding.fix);
	}
	struct error proof;
	int proven = prove(client, answer, &proof);
	if (proven < 0) {
		json_object_set_new(answer, "proof_error", json_string(proof.message));
		if (!cli_json)
			printf("%-12s %-8s no sandbox could be run: %s\n", "proof", "MISSING",
			       proof.message);
	}
	if (cli_json)
		print_json(answer);
	json_decref(answer);
	return bad > 0 || proven < 0 ? 1 : 0;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "Check what this host can isolate, and prove it",
    .help =
	"Looks at the kernel, namespaces, cgroups, file systems and tiers, says what is missing "
	"and\n"
	"how to mend it, and proves the rest by running a command in a sandbox. Exits with 1 when\n"
	"something needed is missing.",
    .run = run_doctor,
};
