/* enosys CALL[,CALL...] -- COMMAND [ARGUMENT...]: runs the command under a system call filter that
 * answers ENOSYS to the named calls, for it and all its children: how an old kernel or a container
 * runtime would. `fallbacks` stands for all calls that Caisson can do without; `layers-by-fd` is no
 * call but a way of using one, which kernels before 6.13 refuse with EINVAL. For the tests. */
#include <errno.h>
#include <linux/mount.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LAYERS_BY_FD "layers-by-fd"

static const char *const fallbacks[] = {
    "openat2",    "clone3",
    "execveat",   "close_range",
    "statx",      "faccessat2",
    "fchmodat2",  "epoll_pwait2",
    "mseal",      "landlock_create_ruleset",
    "statmount",  "landlock_add_rule",
    "listmount",  "landlock_restrict_self",
    LAYERS_BY_FD,
};

/* Calls that the libseccomp at hand is too old for; their numbers are the same everywhere. */
static const struct {
	const char *name;
	int number;
} newer[] = {
    {"landlock_create_ruleset", 444},
    {"landlock_add_rule", 445},
    {"landlock_restrict_self", 446},
    {"fchmodat2", 452},
    {"statmount", 457},
    {"listmount", 458},
    {"mseal", 462},
};

static int number_of(const char *name)
{
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		if (strcmp(newer[i].name, name) == 0)
			return newer[i].number;
	return seccomp_syscall_resolve_name(name);
}

static int add(scmp_filter_ctx filter, const char *name)
{
	int number = number_of(name);
	if (strcmp(name, LAYERS_BY_FD) == 0)
		return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(fsconfig), 1,
					SCMP_A1(SCMP_CMP_EQ, FSCONFIG_SET_FD));
	if (number < 0) {
		fprintf(stderr, "enosys: there is no call %s\n", name);
		return -1;
	}
	int result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), number, 0);
	if (result < 0)
		fprintf(stderr, "enosys: %s: %s\n", name, strerror(-result));
	return result;
}

static int add_all(scmp_filter_ctx filter, char *names)
{
	for (char *name; (name = strsep(&names, ","));) {
		if (strcmp(name, "fallbacks") != 0) {
			if (add(filter, name) < 0)
				return -1;
			continue;
		}
		for (size_t i = 0; i < sizeof(fallbacks) / sizeof(fallbacks[0]); i++)
			if (add(filter, fallbacks[i]) < 0)
				return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 4 || strcmp(argv[2], "--") != 0) {
		fprintf(stderr, "usage: enosys CALL[,CALL...] -- COMMAND [ARGUMENT...]\n");
		return 2;
	}
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	/* Root needs no no_new_privs, and a daemon without root needs newuidmap's setuid bit. */
	if (!filter || seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, geteuid() != 0) < 0 ||
	    seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW) < 0 ||
	    add_all(filter, argv[1]) < 0)
		return 2;
	int result = seccomp_load(filter);
	if (result < 0) {
		fprintf(stderr, "enosys: the filter cannot be set: %s\n", strerror(-result));
		return 2;
	}
	execvp(argv[3], argv + 3);
	fprintf(stderr, "enosys: %s: %s\n", argv[3], strerror(errno));
	return 127;
}
