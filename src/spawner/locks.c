/* The locks of the two directories of an instance, and what their files say: who serves the state
 * directory, from which runtime directory. Called by main.c at the start; waits a few seconds for
 * another that is about to end. */
#include "spawner/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "tier/living.h"

#define LOCK_PAUSE (5 * 1000 * 1000)
#define LOCK_TURNS 600 /* three seconds */
/* One that was asked to leave waits for its daemon's last answers and ends its pool. */
#define LEAVE_TURNS 2000
#define IDLE_WORD "idle-exit "

/* What a lock file says of who has it, or had it last: the pid, whose sandboxes are in the
 * directory (a state directory), whether it is one that a client has started ("idle-exit", and the
 * start time that makes the pid certain), and the runtime directory, by which clients find who
 * serves a state directory (cli/instance.c). A line each. */
struct holder {
	uint64_t pid; /* 0: unknown */
	char state[SPAWNER_PATH_MAX];
	uint64_t start_time; /* 0: nobody's but its own to end */
};

static void holder_read(int lock, struct holder *holder)
{
	char text[2 * SPAWNER_PATH_MAX + 128], *rest = text;
	ssize_t got = pread(lock, text, sizeof(text) - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	*holder = (struct holder){.pid = 0};
	const char *pid = strsep(&rest, "\n"), *state = strsep(&rest, "\n");
	const char *idle = strsep(&rest, "\n");
	if (text_to_u64(pid, 1, INT32_MAX, &holder->pid) < 0)
		holder->pid = 0;
	if (state && text_copy(holder->state, sizeof(holder->state), state) < 0)
		holder->state[0] = '\0';
	if (idle && text_starts(idle, IDLE_WORD) &&
	    text_to_u64(idle + strlen(IDLE_WORD), 1, UINT64_MAX, &holder->start_time) < 0)
		holder->start_time = 0;
}

/* Our own name in it. */
static int holder_write(const struct spawner *spawner, int lock, const char *directory,
			struct error *error)
{
	char text[2 * SPAWNER_PATH_MAX + 128], idle[48] = "";
	uint64_t start_time;
	if (spawner->config.idle_exit_seconds > 0 && process_start_time(getpid(), &start_time) == 0)
		snprintf(idle, sizeof(idle), IDLE_WORD "%llu\n", (unsigned long long)start_time);
	int length = snprintf(text, sizeof(text), "%d\n%s\n%sruntime %s\n", (int)getpid(),
			      spawner->host.state, idle, spawner->host.runtime);
	if (pwrite(lock, text, (size_t)length, 0) != length || ftruncate(lock, length) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s/lock",
				       directory);
	return 0;
}

static int lock_conflict(const struct holder *holder, const char *what, const char *directory,
			 struct error *error)
{
	char pid[24] = "PID";
	if (holder->pid)
		snprintf(pid, sizeof(pid), "%llu", (unsigned long long)holder->pid);
	return error_set(
	    error, ERROR_DAEMON_CONFLICT,
	    "another caisson (pid %s) serves the %s directory %s: use that one, end it "
	    "with `kill %s`, or give this one directories of its own with --state and "
	    "--runtime",
	    holder->pid ? pid : "unknown", what, directory, pid);
}

/* One that a client has started serves until somebody does for good: it is asked to end, once, and
 * its sandboxes run on. Whether it will. */
static bool ask_to_leave(const struct spawner *spawner, const struct holder *holder,
			 uint64_t *asked)
{
	struct process process = PROCESS_NONE;
	if (spawner->config.idle_exit_seconds > 0 || holder->start_time == 0)
		return false;
	if (holder->pid == *asked)
		return true;
	if (process_open((pid_t)holder->pid, holder->start_time, &process) < 0)
		return false;
	int result = process_signal(&process, SIGTERM);
	process_done(&process);
	if (result < 0)
		return false;
	log_info("pid %u, which a client has started, serves %s: it is asked to leave",
		 (unsigned)holder->pid, spawner->host.state);
	*asked = holder->pid;
	return true;
}

struct lock_wait {
	int turns;
	uint64_t asked; /* a pid; 0: none */
};

/* A process that was killed and not reaped yet still answers kill(pid, 0). */
static bool holder_has_ended(const struct holder *holder)
{
	struct process process = PROCESS_NONE;
	if (!holder->pid)
		return false;
	int result = process_open((pid_t)holder->pid, 0, &process);
	bool ended = result == -ESRCH || (result == 0 && !process_alive(&process));
	process_done(&process);
	return ended;
}

/* The lock is another's: 0 when it will be free soon. */
static int wait_for_holder(const struct spawner *spawner, int lock, const char *what,
			   const char *directory, struct lock_wait *wait, struct error *error)
{
	struct holder holder;
	holder_read(lock, &holder);
	/* A worker of one that was killed holds it until the kernel has ended it too. */
	bool gone = holder_has_ended(&holder);
	bool leaves = !gone && ask_to_leave(spawner, &holder, &wait->asked);
	if ((!gone && !leaves) || ++wait->turns > (wait->asked ? LEAVE_TURNS : LOCK_TURNS))
		return lock_conflict(&holder, what, directory, error);
	nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE}, NULL);
	return 0;
}

/* Takes <directory>/lock; returns the descriptor that holds it. */
static int lock_directory(const struct spawner *spawner, const char *what, const char *directory,
			  struct error *error)
{
	char path[SPAWNER_PATH_MAX];
	struct lock_wait wait = {0};
	if (text_format(path, sizeof(path), "%s/lock", directory) < 0)
		return error_set(error, ERROR_CONFIG, "%s: the path is too long", directory);
	for (;;) {
		struct stat held, named;
		CLOSE_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return error_set_errno(error, error_kind_of_errno(errno), errno, "%s",
					       path);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return error_set_errno(error, ERROR_INTERNAL, errno, "%s", path);
			if (wait_for_holder(spawner, fd, what, directory, &wait, error) < 0)
				return -1;
			continue;
		}
		/* Another that was just ending may have removed the file we opened. */
		if (fstat(fd, &held) < 0 || stat(path, &named) < 0 || held.st_ino != named.st_ino ||
		    held.st_dev != named.st_dev)
			continue;
		return TAKE_FD(fd);
	}
}

/* Sandboxes that live are known by the runtime directory, their files by the state directory: with
 * another's state they would all look like strays, and be ended. */
static int check_runtime(const struct spawner *spawner, struct error *error)
{
	const struct host *host = &spawner->host;
	struct holder last;
	holder_read(spawner->runtime_lock, &last);
	/* Of a state that was removed nobody else can take care. */
	if (last.state[0] == '\0' || strcmp(last.state, host->state) == 0 ||
	    access(last.state, F_OK) < 0 || !living(host->runtime, NULL))
		return 0;
	return error_set(error, ERROR_DAEMON_CONFLICT,
			 "in the runtime directory %s sandboxes of the state directory %s are "
			 "running, not of %s: serve it with --state %s (for a client "
			 "CAISSON_STATE), or name another runtime directory with --runtime",
			 host->runtime, last.state, host->state, last.state);
}

int locks_take(struct spawner *spawner, struct error *error)
{
	const struct host *host = &spawner->host;
	spawner->state_lock = lock_directory(spawner, "state", host->state, error);
	if (spawner->state_lock < 0 ||
	    holder_write(spawner, spawner->state_lock, host->state, error) < 0)
		return -1;
	spawner->runtime_lock = lock_directory(spawner, "runtime", host->runtime, error);
	if (spawner->runtime_lock < 0 || check_runtime(spawner, error) < 0)
		return -1;
	return holder_write(spawner, spawner->runtime_lock, host->runtime, error);
}
