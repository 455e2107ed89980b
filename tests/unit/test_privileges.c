/* What the daemon cannot do any more once it has narrowed itself. Each check runs in a child, which
 * exits with 0 when it was refused as it should be. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/privileges.h"

TEST_MAIN

#if defined(__SANITIZE_ADDRESS__)
#define FILTERED 0
#else
#define FILTERED 1
#endif

static char state[] = "/tmp/caisson-narrow-XXXXXX";

/* The child's wait status after narrowing and then `check`; bit patterns as of waitpid(). */
static int narrowed(int (*check)(void))
{
	pid_t child = fork();
	if (child == 0) {
		struct config config;
		struct error error;
		config_defaults(&config);
		log_setup("test", LOG_ERROR, false);
		snprintf(config.state, sizeof(config.state), "%s", state);
		if (privileges_drop(&config, "", &error) < 0) {
			fprintf(stderr, "# %s\n", error.message);
			_exit(99);
		}
		_exit(check());
	}
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

static bool has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
}

static int own_files(void)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/db/file", state);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1 || ftruncate(fd, 0) < 0 || unlink(path) < 0)
		return 1;
	snprintf(path, sizeof(path), "%s/logs/sandbox", state);
	return mkdir(path, 0700) < 0 || rmdir(path) < 0;
}

static int other_files(void)
{
	char path[64];
	if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		return 1;
	snprintf(path, sizeof(path), "%s/elsewhere", state);
	return open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0 || errno != EACCES;
}

static int sockets(void)
{
	if (socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0)
		return 1;
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0 || errno != EPERM;
}

static int processes(void)
{
	if (fork() >= 0 || errno != EPERM)
		return 1;
	return kill(getppid(), 0) == 0 || errno != EPERM;
}

static int code(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0;
}

static void *in_thread(void *data)
{
	*(int *)data = 42;
	return NULL;
}

static int threads(void)
{
	pthread_t thread;
	int value = 0;
	return pthread_create(&thread, NULL, in_thread, &value) != 0 ||
	       pthread_join(thread, NULL) != 0 || value != 42;
}

static int another_program(void)
{
	char *const arguments[] = {"true", NULL};
	execv("/bin/true", arguments);
	return 1;
}

TEST(narrowing)
{
	char path[64];
	SKIP_WITHOUT_FILTERS;
	CHECK(mkdtemp(state) != NULL);
	snprintf(path, sizeof(path), "%s/db", state);
	CHECK(mkdir(path, 0700) == 0);
	snprintf(path, sizeof(path), "%s/logs", state);
	CHECK(mkdir(path, 0700) == 0);

	CHECK_INT(narrowed(own_files), 0);
	CHECK_INT(narrowed(threads), 0);
	if (has_landlock())
		CHECK_INT(narrowed(other_files), 0);
	if (FILTERED) {
		CHECK_INT(narrowed(sockets), 0);
		CHECK_INT(narrowed(processes), 0);
		CHECK_INT(narrowed(code), 0);
		int status = narrowed(another_program);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	}

	CHECK(rmdir(path) == 0);
	snprintf(path, sizeof(path), "%s/db", state);
	CHECK(rmdir(path) == 0);
	CHECK(rmdir(state) == 0);
}
