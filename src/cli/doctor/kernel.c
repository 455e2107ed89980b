/* Checks the kernel: its version, the required system calls, seccomp, Landlock, nftables. Called by
 * doctor.c. Each check is a few system calls, in a child if its effect cannot be undone. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "cli/doctor/doctor.h"

#define TIMEOUT_MS 5000
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 19

DOCTOR_CHECK(doctor_check_kernel)
{
	(void)client;
	struct utsname name;
	int major = 0, minor = 0;
	if (uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2) {
		finding_set(finding, VERDICT_FAILED, "the kernel's version cannot be read");
		return;
	}
	bool known = strcmp(name.machine, "x86_64") == 0 || strcmp(name.machine, "aarch64") == 0;
	bool old = major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR);
	if (old) {
		finding_set(finding, VERDICT_FAILED, "Linux %s on %s; %d.%d or newer is needed",
			    name.release, name.machine, KERNEL_MAJOR, KERNEL_MINOR);
		finding_set_remedy(finding,
				   "install a newer kernel and boot it (Debian 12 has 6.1)");
	} else if (!known) {
		finding_set(finding, VERDICT_FAILED,
			    "Linux %s on %s; the system call filters are for x86_64 and aarch64",
			    name.release, name.machine);
	} else {
		finding_set(finding, VERDICT_OK, "Linux %s on %s", name.release, name.machine);
	}
}

/* An existing system call answers invalid arguments with another error than ENOSYS. */
DOCTOR_CHECK(doctor_check_calls)
{
	(void)client;
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC};
	CLOSE_FD int pidfd = sys_pidfd_open(getpid(), 0);
	/* Without RESOLVE_IN_ROOT the fallback of the wrapper is not used, so this shows the
	 * kernel's own answer. */
	CLOSE_FD int file = sys_openat2(AT_FDCWD, "/", &how);
	const struct needed_call *other = sys_find_missing_call();
	const struct {
		const char *name;
		int result;
		bool needed; /* false: there is a fallback */
	} calls[] = {
	    {"pidfd_open", pidfd, true},
	    {"clone3", (int)sys_result(syscall(__NR_clone3, NULL, 0)), false},
	    {"openat2", file, false},
	    {"open_tree", sys_open_tree(-1, NULL, ~0U), true},
	    {"mount_setattr", (int)sys_result(syscall(__NR_mount_setattr, -1, "", ~0U, NULL, 0)),
	     true},
	    {"close_range", (int)sys_result(syscall(__NR_close_range, 1, 0, 0)), false},
	    /* An empty name unless another required call is missing. */
	    {other ? other->name : "", other ? -ENOSYS : 0, true},
	};
	char missing[128] = "";
	bool needed = false;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		/* A container's seccomp filter answers EPERM to calls that it does not know. */
		bool absent =
		    calls[i].result == -ENOSYS ||
		    (calls[i].result == -EPERM && strcmp(calls[i].name, "open_tree") != 0);
		if (!absent || strstr(missing, calls[i].name))
			continue;
		size_t used = strlen(missing);
		snprintf(missing + used, sizeof(missing) - used, " %s", calls[i].name);
		needed = needed || calls[i].needed;
	}
	if (!*missing) {
		finding_set(finding, VERDICT_OK,
			    "pidfd_open, clone3, openat2, open_tree, mount_setattr, close_range");
		return;
	}
	finding_set(finding, needed ? VERDICT_FAILED : VERDICT_WARNING, "not allowed or missing:%s",
		    missing);
	finding_set_remedy(finding, "inside a container: start it with `--security-opt "
				    "seccomp=unconfined`; else a newer kernel");
}

/* Installs a filter that makes getppid() fail, and checks that it does. */
static int seccomp_try(void *data, char *text, size_t room)
{
	(void)data;
	(void)text;
	(void)room;
	struct sock_filter program[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getppid, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = ARRAY_SIZE(program), .filter = program};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		return errno;
	return syscall(__NR_getppid) == -1 && errno == EDOM ? 0 : EINVAL;
}

DOCTOR_CHECK(doctor_check_seccomp)
{
	(void)client;
	char text[16];
	int result = doctor_run_child(seccomp_try, NULL, TIMEOUT_MS, text, sizeof(text));
	if (result == 0) {
		finding_set(finding, VERDICT_OK, "filters work");
		return;
	}
	finding_set(finding, VERDICT_FAILED, "a system call filter cannot be set: %s",
		    strerror(result < 0 ? -result : result));
	finding_set_remedy(finding, "a kernel with CONFIG_SECCOMP_FILTER=y");
}

#ifndef __NR_landlock_create_ruleset
#define __NR_landlock_create_ruleset 444
#endif

DOCTOR_CHECK(doctor_check_landlock)
{
	(void)client;
	enum { WHICH_VERSION = 1 };
	long version = syscall(__NR_landlock_create_ruleset, NULL, 0, WHICH_VERSION);
	if (version > 0)
		finding_set(finding, VERDICT_OK, "ABI %ld", version);
	else
		finding_set(finding, VERDICT_INFORMATION,
			    "unavailable (%s); nothing here depends on it", strerror(errno));
}

struct table_request {
	struct nlmsghdr head;
	struct nfgenmsg family;
	struct nlattr attribute;
	char name[8];
};

/* Sends a batch that creates one table, as nft would. The kernel answers with an errno. */
static int nftables_table_add(int netlink)
{
	struct {
		struct nlmsghdr begin;
		struct nfgenmsg begin_family;
		struct table_request table;
		struct nlmsghdr end;
		struct nfgenmsg end_family;
	} batch = {
	    .begin = {.nlmsg_len = sizeof(struct nlmsghdr) + sizeof(struct nfgenmsg),
		      .nlmsg_type = NFNL_MSG_BATCH_BEGIN,
		      .nlmsg_flags = NLM_F_REQUEST},
	    .begin_family = {.res_id = __builtin_bswap16(NFNL_SUBSYS_NFTABLES)},
	    .table = {.head = {.nlmsg_len = sizeof(struct table_request),
			       .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE,
			       .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK,
			       .nlmsg_seq = 1},
		      .family = {.nfgen_family = 1 /* NFPROTO_INET */},
		      .attribute = {.nla_len = sizeof(struct nlattr) + sizeof("caisson"),
				    .nla_type = NFTA_TABLE_NAME},
		      .name = "caisson"},
	    .end = {.nlmsg_len = sizeof(struct nlmsghdr) + sizeof(struct nfgenmsg),
		    .nlmsg_type = NFNL_MSG_BATCH_END,
		    .nlmsg_flags = NLM_F_REQUEST},
	    .end_family = {.res_id = __builtin_bswap16(NFNL_SUBSYS_NFTABLES)},
	};
	char answer[1024];
	if (send(netlink, &batch, sizeof(batch), 0) < 0)
		return errno;
	ssize_t got = recv(netlink, answer, sizeof(answer), 0);
	if (got < 0)
		return errno;
	struct nlmsghdr head;
	struct nlmsgerr result;
	if ((size_t)got < sizeof(head) + sizeof(result))
		return EPROTO;
	memcpy(&head, answer, sizeof(head));
	memcpy(&result, answer + sizeof(head), sizeof(result));
	return head.nlmsg_type == NLMSG_ERROR ? -result.error : EPROTO;
}

static int nftables_try(void *data, char *text, size_t room)
{
	(void)data;
	(void)text;
	(void)room;
	int failure = doctor_enter_namespaces(CLONE_NEWNET);
	if (failure)
		return failure;
	CLOSE_FD int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	return netlink < 0 ? errno : nftables_table_add(netlink);
}

DOCTOR_CHECK(doctor_check_nftables)
{
	(void)client;
	char text[16];
	int result = doctor_run_child(nftables_try, NULL, TIMEOUT_MS, text, sizeof(text));
	if (result == 0) {
		finding_set(finding, VERDICT_OK, "a table was made in a network namespace");
		return;
	}
	/* Sandboxes of this version have no network, so nothing depends on it. */
	finding_set(finding, VERDICT_INFORMATION,
		    "no table can be made in a network namespace: %s; sandboxes without a network "
		    "do not need it",
		    strerror(result < 0 ? -result : result));
	finding_set_remedy(finding, "modprobe nf_tables");
}
