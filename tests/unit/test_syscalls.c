/* What stands in for a system call that is not there does what the call does. Each test runs once
 * with the call as reference, then in a child whose kernel answers ENOSYS to it. */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "test.h"

static bool forbid(int call)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	bool done = filter && seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), call, 0) == 0 &&
		    seccomp_load(filter) == 0;
	seccomp_release(filter);
	return done;
}

/* Runs a function without a call, in a child; its checks print, its failure is reported here. */
static void without(int call, void (*function)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(20);
		test_failures = 0;
		CHECK(forbid(call));
		function();
		fflush(stdout);
		_exit(test_failures != 0);
	}
	int status = -1;
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

static char root[] = "/tmp/caisson-syscalls-XXXXXX";

static void put_link(const char *text, const char *name)
{
	CHECK(symlink(text, name) == 0);
}

/* A tree with links of all kinds; the working directory is its root. */
static bool tree_make(void)
{
	if (!mkdtemp(root) || chdir(root) < 0 || mkdir("a", 0755) < 0 || mkdir("a/b", 0755) < 0 ||
	    mkdir("a/b/c", 0755) < 0 || mkdir("proc", 0755) < 0)
		return false;
	int fd = open("a/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	close(fd);
	put_link("b/c", "a/down");
	put_link("../a/b", "a/around");
	put_link("../../../../../../etc", "a/out");
	put_link("/a/b", "absolute");
	put_link("/etc/passwd", "a/passwd");
	put_link("loop", "loop");
	put_link("nothing/here", "dangling");
	put_link("a/file", "to-file");
	put_link("/proc/self/root", "magic");
	put_link("a/", "slashed");
	return fd >= 0;
}

static void tree_remove(void)
{
	static const char *const names[] = {"a/b/made", "a/made",   "a/b/c", "a/b",      "a/file",
					    "a/down",   "a/around", "a/out", "a/passwd", "a",
					    "proc",     "absolute", "loop",  "dangling", "to-file",
					    "magic",    "slashed"};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (unlink(names[i]) < 0)
			rmdir(names[i]);
	CHECK(chdir("/") == 0);
	CHECK(rmdir(root) == 0);
}

static const char *const paths[] = {
    "",           ".",          "..",           "/",           "a",          "/a/b/c",
    "a//b///c/",  "a/./b/../b", "../../a/file", "a/down",      "a/around/c", "a/down/..",
    "a/out",      "absolute",   "absolute/c",   "a/passwd",    "loop",       "dangling",
    "to-file",    "to-file/",   "a/file/x",     "a/none",      "a/none/..",  "magic",
    "slashed/b",  "slashed",    "a/b/..",       "a/b/../file", "/..",        "a/around/../file",
    "to-file/..",
};

#define RESOLVES 4
static const uint64_t resolves[RESOLVES] = {
    RESOLVE_IN_ROOT, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,
    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
static const uint64_t flag_sets[] = {O_PATH, O_PATH | O_DIRECTORY, O_RDONLY, O_PATH | O_NOFOLLOW};

static struct answer {
	int result; /* 0 or -errno */
	dev_t device;
	ino_t inode;
} answers[RESOLVES][ARRAY_SIZE(flag_sets)][ARRAY_SIZE(paths)];

static struct answer ask(const char *path, uint64_t flags, uint64_t resolve)
{
	const struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	struct stat status = {0};
	CLOSE_FD int fd = sys_openat2(AT_FDCWD, path, &how);
	if (fd >= 0)
		CHECK(fstat(fd, &status) == 0);
	return (struct answer){MIN(fd, 0), status.st_dev, status.st_ino};
}

static void compare_answers(void)
{
	for (size_t r = 0; r < RESOLVES; r++) {
		for (size_t f = 0; f < ARRAY_SIZE(flag_sets); f++) {
			for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
				struct answer now = ask(paths[i], flag_sets[f], resolves[r]);
				const struct answer *then = &answers[r][f][i];
				if (now.result != then->result || now.inode != then->inode ||
				    now.device != then->device)
					test_fail(__FILE__, __LINE__,
						  "\"%s\" flags %#llx resolve %#llx: %d, not %d",
						  paths[i], (unsigned long long)flag_sets[f],
						  (unsigned long long)resolves[r], now.result,
						  then->result);
			}
		}
	}
}

static void create_files(void)
{
	const struct open_how how = {.flags = O_RDWR | O_CREAT | O_CLOEXEC,
				     .mode = 0640,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
	struct stat status;
	CLOSE_FD int made = sys_openat2(AT_FDCWD, "a/made", &how);
	CHECK(made >= 0 && fstat(made, &status) == 0);
	CHECK_INT(status.st_mode, S_IFREG | 0640);
	/* There already, and so is the way. */
	CLOSE_FD int again = sys_openat2(AT_FDCWD, "/a/b/../made", &how);
	CHECK(again >= 0);
	CHECK_INT(sys_openat2(AT_FDCWD, "to-file", &how), -ELOOP);
	CHECK_INT(sys_openat2(AT_FDCWD, "a/down/made", &how), -ELOOP);
	CHECK_INT(sys_openat2(AT_FDCWD, "a", &how), -EISDIR);
	CHECK(unlink("a/made") == 0);
	/* What is no confinement has no substitute, and says so. */
	const struct open_how plain = {.flags = O_PATH | O_CLOEXEC};
	int free_fd = sys_openat2(AT_FDCWD, "a", &plain);
	CHECK(free_fd >= 0 || free_fd == -ENOSYS);
	fd_close(&free_fd);
}

TEST(openat2)
{
	umask(0);
	CHECK(tree_make());
	for (size_t r = 0; r < RESOLVES; r++)
		for (size_t f = 0; f < ARRAY_SIZE(flag_sets); f++)
			for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
				answers[r][f][i] = ask(paths[i], flag_sets[f], resolves[r]);

	create_files();
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
		/* qemu's user mode has neither filters nor openat2(): that was the substitute. */
		tree_remove();
		return;
	}
	without(SCMP_SYS(openat2), compare_answers);
	without(SCMP_SYS(openat2), create_files);
	tree_remove();
}

static void magic_links(void)
{
	const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	CHECK_INT(sys_openat2(AT_FDCWD, "/proc/self/cwd", &how), -ELOOP);
	CHECK_INT(sys_openat2(AT_FDCWD, "/proc/1/root/etc", &how), -ELOOP);
	const struct open_how inside = {.flags = O_PATH | O_CLOEXEC,
					.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_XDEV};
	CHECK_INT(sys_openat2(AT_FDCWD, "/proc/version", &inside), -EXDEV);
}

TEST(openat2_and_proc)
{
	SKIP_WITHOUT_FILTERS;
	CHECK(chdir("/") == 0);
	without(SCMP_SYS(openat2), magic_links);
}

static void close_some(void)
{
	int fds[40];
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = fcntl(STDIN_FILENO, F_DUPFD, 100 + (int)i * 3);
	CHECK_INT(sys_close_range(150, 180, CLOSE_RANGE_CLOEXEC), 0);
	CHECK_INT(sys_close_range(181, ~0U, 0), 0);
	CHECK_INT(sys_close_range(5, 4, 0), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		int expected = fds[i] < 150 ? 0 : fds[i] <= 180 ? FD_CLOEXEC : -1;
		CHECK_INT(fcntl(fds[i], F_GETFD), expected);
		close(fds[i]);
	}
}

TEST(close_range)
{
	SKIP_WITHOUT_FILTERS;
	without(SCMP_SYS(close_range), close_some);
}

static void clone_one(void)
{
	int pidfd = -1;
	struct clone_args args = {
	    .flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD};
	int pid = sys_clone3(&args);
	if (pid == 0)
		_exit(7);
	int status = 0;
	CHECK(pid > 0 && pidfd >= 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(WEXITSTATUS(status), 7);
	fd_close(&pidfd);
	/* What clone() cannot do is not done by halves. */
	args.flags = CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
	pid = sys_clone3(&args);
	if (pid == 0)
		_exit(0);
	CHECK(pid == -ENOSYS || waitpid(pid, &status, 0) == pid);
	fd_close(&pidfd);
	/* A cgroup that cannot be entered: no child is left. */
	CLOSE_FD int directory = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	args.flags = CLONE_PIDFD | CLONE_INTO_CGROUP;
	args.cgroup = (uint64_t)directory;
	pid = sys_clone3(&args);
	if (pid == 0)
		for (;;)
			pause();
	CHECK(pid < 0);
	CHECK(waitpid(-1, &status, WNOHANG) < 0 && errno == ECHILD);
}

TEST(clone3)
{
	SKIP_WITHOUT_FILTERS;
	clone_one();
	without(SCMP_SYS(clone3), clone_one);
}

/* A cgroup of version 2 of our own; false where none can be made. */
static char cgroup[256];

static bool cgroup_make(void)
{
	char line[1024], place[200];
	bool found = false;
	FILE *mounts = fopen("/proc/self/mounts", "re");
	while (mounts && !found && fgets(line, sizeof(line), mounts))
		found = sscanf(line, "cgroup2 %199s cgroup2", place) == 1;
	if (mounts)
		fclose(mounts);
	return found &&
	       text_format(cgroup, sizeof(cgroup), "%s/caisson-syscalls-%d", place, getpid()) ==
		   0 &&
	       mkdir(cgroup, 0755) == 0;
}

static void clone_into_cgroup(void)
{
	int gate[2];
	char text[512], path[64];
	CHECK(pipe2(gate, O_CLOEXEC) == 0);
	CLOSE_FD int directory = open(cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct clone_args args = {
	    .flags = CLONE_INTO_CGROUP, .cgroup = (uint64_t)directory, .exit_signal = SIGCHLD};
	int pid = sys_clone3(&args);
	if (pid == 0) {
		close(gate[1]);
		_exit((int)read(gate[0], text, 1));
	}
	CHECK(pid > 0);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	ssize_t size = fd_read_small(AT_FDCWD, path, text, sizeof(text));
	CHECK(size > 0 && strstr(text, strrchr(cgroup, '/')));
	close(gate[0]);
	close(gate[1]);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

TEST(clone3_into_cgroup)
{
	SKIP_WITHOUT_FILTERS;
	if (!cgroup_make())
		SKIP("no cgroup of version 2 can be made here");
	clone_into_cgroup();
	without(SCMP_SYS(clone3), clone_into_cgroup);
	CHECK(rmdir(cgroup) == 0);
}

static void execute_descriptor(void)
{
	static char *const words[] = {"true", NULL}, *const none[] = {NULL};
	CLOSE_FD int program = open("/bin/true", O_PATH | O_CLOEXEC);
	pid_t pid = fork();
	if (pid == 0) {
		sys_execveat(program, "", words, none, AT_EMPTY_PATH);
		_exit(9);
	}
	int status = -1;
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

TEST(execveat)
{
	SKIP_WITHOUT_FILTERS;
	without(SCMP_SYS(execveat), execute_descriptor);
}

static void nothing_missing(void)
{
	const struct needed_call *missing = sys_find_missing_call();
	CHECK(missing == NULL);
}

static const char *expected_missing;

static void one_missing(void)
{
	const struct needed_call *missing = sys_find_missing_call();
	CHECK_TEXT(missing ? missing->name : NULL, expected_missing);
}

TEST(needed_calls)
{
	SKIP_WITHOUT_FILTERS;
	static const struct {
		int number;
		const char *name;
	} calls[] = {
	    {SCMP_SYS(pidfd_send_signal), "pidfd_send_signal"},
	    {SCMP_SYS(open_tree), "open_tree"},
	    {SCMP_SYS(move_mount), "move_mount"},
	    {SCMP_SYS(fsopen), "fsopen"},
	    {SCMP_SYS(fsconfig), "fsconfig"},
	    {SCMP_SYS(fsmount), "fsmount"},
	    {SCMP_SYS(pidfd_open), "pidfd_open"},
	    {SCMP_SYS(mount_setattr), "mount_setattr"},
	};
	without(SCMP_SYS(clone3), nothing_missing);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		expected_missing = calls[i].name;
		without(calls[i].number, one_missing);
	}
}

TEST(mount_ids)
{
	CLOSE_FD int here = open("/", O_PATH | O_CLOEXEC),
		     there = open("/proc", O_PATH | O_CLOEXEC);
	uint64_t one = 0, other = 0, again = 0;
	CHECK_INT(sys_mount_id(here, &one), 0);
	CHECK_INT(sys_mount_id(here, &again), 0);
	CHECK_INT(sys_mount_id(there, &other), 0);
	CHECK(one == again && one != other);
	CHECK(sys_mount_id(1000000, &one) < 0);
}

TEST_MAIN
