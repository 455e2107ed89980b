/* The locks of an instance's two directories. Each lock file names the process that serves the
 * state directory, and its runtime directory. Called by main.c at the start; waits a few seconds
 * for another spawner that is about to end. */
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
#include "tier/live_guests.h"

#define LOCK_PAUSE (5 * 1000 * 1000)
#define LOCK_TURNS 600 /* three seconds */
/* A spawner that was asked to end waits for its daemon, which sends its last answers and ends
 * its pool. */
#define LEAVE_TURNS 2000
#define IDLE_WORD "idle-exit "
#define RUNTIME_WORD "runtime "

/* The text of a lock file, one line each: the pid of the holder or last holder; the state
 * directory (in the runtime directory's lock, whose sandboxes run there); "idle-exit" and a
 * start time if a client started it, which makes the pid unambiguous; and the runtime directory.
 * Clients find the server of a state directory by it (cli/client/instance.c), and the next start
 * finds running sandboxes. */
struct holder {
	uint64_t pid; /* 0: unknown */
	char state[SPAWNER_PATH_MAX], runtime[SPAWNER_PATH_MAX];
	uint64_t start_time; /* 0: it may not be asked to end */
};

/* The file of another user is ignored. The first runtime directory counts: leftovers of a longer
 * text may follow, see holder_write(). */
static void holder_read(int lock, struct holder *holder)
{
	char text[2 * SPAWNER_PATH_MAX + 128], *rest = text;
	struct stat info;
	*holder = (struct holder){.pid = 0};
	if (fstat(lock, &info) < 0 || info.st_uid != geteuid())
		return;
	ssize_t got = pread(lock, text, sizeof(text) - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	const char *pid = strsep(&rest, "\n"), *state = strsep(&rest, "\n");
	const char *line = strsep(&rest, "\n");
	if (text_to_u64(pid, 1, INT32_MAX, &holder->pid) < 0)
		holder->pid = 0;
	if (state && text_copy(holder->state, sizeof(holder->state), state) < 0)
		holder->state[0] = '\0';
	if (line && text_starts(line, IDLE_WORD)) {
		if (text_to_u64(line + strlen(IDLE_WORD), 1, UINT64_MAX, &holder->start_time) < 0)
			holder->start_time = 0;
		line = strsep(&rest, "\n");
	}
	if (line && text_starts(line, RUNTIME_WORD) &&
	    text_copy(holder->runtime, sizeof(holder->runtime), line + strlen(RUNTIME_WORD)) < 0)
		holder->runtime[0] = '\0';
}

/* Writes our own text. One write: a kill leaves the old text or the new one, possibly followed
 * by the end of the old one. Not synced: after a power failure no sandbox runs. */
static int holder_write(const struct spawner *spawner, int lock, const char *directory,
			struct error *error)
{
	char text[2 * SPAWNER_PATH_MAX + 128], idle[48] = "";
	uint64_t start_time;
	if (spawner->config.idle_exit_seconds > 0 && process_start_time(getpid(), &start_time) == 0)
		snprintf(idle, sizeof(idle), IDLE_WORD "%llu\n", (unsigned long long)start_time);
	int length = snprintf(text, sizeof(text), "%d\n%s\n%s" RUNTIME_WORD "%s\n", (int)getpid(),
			      spawner->host.state, idle, spawner->host.runtime);
	if (pwrite(lock, text, (size_t)length, 0) != length || ftruncate(lock, length) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s/lock",
				       directory);
	return 0;
}

static bool directory_same(const char *a, const char *b)
{
	struct stat first, second;
	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

struct guest_filter {
	const char *state;
	bool served;
};

/* A daemon that is asked to end destroys its pool. So pool members do not count while a daemon
 * serves. */
static bool guest_counts_as_running(const void *data, const char *name)
{
	const struct guest_filter *of = data;
	char path[SPAWNER_PATH_MAX], text[64];
	if (!of->served ||
	    text_format(path, sizeof(path), "%s/sandboxes/%s/slot", of->state, name) < 0 ||
	    fd_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return true;
	/* The slot of a pool member has a third word. */
	text[strcspn(text, "\n")] = '\0';
	const char *space = strchr(text, ' ');
	return !space || !strchr(space + 1, ' ');
}

/* Whether a sandbox of the state runs from the runtime directory. */
static bool runtime_has_running_guests(const char *runtime, const char *state, bool served)
{
	return live_guests_any(runtime, guest_counts_as_running,
			       &(struct guest_filter){state, served});
}

/* Whether the records in a runtime directory belong to our state. A directory of another user has
 * none of ours. Records of a state that was removed or moved are ours, because no other spawner
 * can handle them. */
static bool runtime_holds_our_records(const char *runtime, const char *state)
{
	struct stat info;
	struct holder holder = {.pid = 0};
	CLOSE_FD int directory = open(runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0 || fstat(directory, &info) < 0 || info.st_uid != geteuid())
		return false;
	CLOSE_FD int lock = openat(directory, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (lock >= 0)
		holder_read(lock, &holder);
	return holder.state[0] == '\0' || access(holder.state, F_OK) < 0 ||
	       directory_same(holder.state, state);
}

/* Running sandboxes are only known by their records in the runtime directory. From another
 * runtime directory they would look ended, and would be started a second time on the same files.
 * `last`: the text of the state directory's lock. */
static int runtime_check_last(const struct spawner *spawner, const struct holder *last, bool served,
			      struct error *error)
{
	const struct host *host = &spawner->host;
	if (last->runtime[0] == '\0' || directory_same(last->runtime, host->runtime) ||
	    !runtime_holds_our_records(last->runtime, host->state) ||
	    !runtime_has_running_guests(last->runtime, host->state, served))
		return 0;
	return error_set(error, ERROR_DAEMON_CONFLICT,
			 "sandboxes of the state directory %s are running from the runtime "
			 "directory %s, not from %s: serve it with --runtime %s (for a client "
			 "CAISSON_RUNTIME), or stop them there first",
			 host->state, last->runtime, host->runtime, last->runtime);
}

/* Running sandboxes are known by the runtime directory, their files by the state directory. With
 * another state they would all look like strays and be killed. `last`: the text of the runtime
 * directory's lock. */
static int state_check_last(const struct spawner *spawner, const struct holder *last, bool served,
			    struct error *error)
{
	const struct host *host = &spawner->host;
	/* Only we can handle sandboxes of a state that was removed. */
	if (last->state[0] == '\0' || strcmp(last->state, host->state) == 0 ||
	    access(last->state, F_OK) < 0 ||
	    !runtime_has_running_guests(host->runtime, last->state, served))
		return 0;
	return error_set(error, ERROR_DAEMON_CONFLICT,
			 "in the runtime directory %s sandboxes of the state directory %s are "
			 "running, not of %s: serve it with --state %s (for a client "
			 "CAISSON_STATE), or name another runtime directory with --runtime",
			 host->runtime, last->state, host->state, last->state);
}

static int lock_set_conflict(const struct spawner *spawner, const struct holder *holder,
			     const char *what, const char *directory, struct error *error)
{
	char pid[24] = "PID", use[SPAWNER_PATH_MAX + 32] = "";
	if (holder->runtime[0] && !directory_same(holder->runtime, spawner->host.runtime))
		snprintf(use, sizeof(use), " (CAISSON_RUNTIME=%s)", holder->runtime);
	if (holder->pid)
		snprintf(pid, sizeof(pid), "%llu", (unsigned long long)holder->pid);
	return error_set(
	    error, ERROR_DAEMON_CONFLICT,
	    "another caisson (pid %s) serves the %s directory %s: use that one%s, end it "
	    "with `kill %s`, or give this one directories of its own with --state and "
	    "--runtime",
	    holder->pid ? pid : "unknown", what, directory, use, pid);
}

/* A spawner that a client started serves until a permanent one is started. It is asked to end
 * once, and its sandboxes run on. */
static bool holder_can_be_asked(const struct spawner *spawner, const struct holder *holder)
{
	return spawner->config.idle_exit_seconds == 0 && holder->start_time != 0;
}

/* Asks the holder to end. Returns whether it will. */
static bool holder_ask_to_end(const struct spawner *spawner, const struct holder *holder,
			      uint64_t *asked)
{
	struct process process = PROCESS_NONE;
	if (!holder_can_be_asked(spawner, holder))
		return false;
	if (holder->pid == *asked)
		return true;
	if (process_open((pid_t)holder->pid, holder->start_time, &process) < 0)
		return false;
	int result = process_signal(&process, SIGTERM);
	process_done(&process);
	if (result < 0)
		return false;
	log_info("pid %u, which a client started, serves %s: asking it to quit",
		 (unsigned)holder->pid, spawner->host.state);
	*asked = holder->pid;
	return true;
}

/* A directory that is to be locked. */
struct lock_target {
	const char *what, *path;
	/* Whether the sandboxes of its last holder allow us to take it. `served`: that holder
	 * still serves. */
	int (*check)(const struct spawner *spawner, const struct holder *last, bool served,
		     struct error *error);
};

struct lock_wait {
	int turns;
	uint64_t asked; /* a pid; 0: none */
};

/* A process that was killed and is not reaped yet still answers kill(pid, 0). */
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

/* The lock is held by another process: 0 if it will be free soon. */
static int holder_wait(const struct spawner *spawner, int lock, const struct lock_target *target,
		       struct lock_wait *wait, struct error *error)
{
	struct holder holder;
	holder_read(lock, &holder);
	/* Workers of a killed spawner hold the lock until the kernel has ended them too. */
	bool gone = holder_has_ended(&holder);
	/* The holder is not asked to end if our start would be refused afterwards. */
	if (!gone && holder_can_be_asked(spawner, &holder) && holder.pid != wait->asked &&
	    target->check(spawner, &holder, true, error) < 0)
		return -1;
	bool leaves = !gone && holder_ask_to_end(spawner, &holder, &wait->asked);
	if ((!gone && !leaves) || ++wait->turns > (wait->asked ? LEAVE_TURNS : LOCK_TURNS))
		return lock_set_conflict(spawner, &holder, target->what, target->path, error);
	nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE}, NULL);
	return 0;
}

/* Takes <path>/lock and checks its last holder; returns the descriptor that holds the lock. */
static int directory_lock(const struct spawner *spawner, const struct lock_target *target,
			  struct error *error)
{
	char path[SPAWNER_PATH_MAX];
	struct lock_wait wait = {0};
	if (text_format(path, sizeof(path), "%s/lock", target->path) < 0)
		return error_set(error, ERROR_CONFIG, "%s: the path is too long", target->path);
	for (;;) {
		struct stat held, named;
		struct holder last;
		CLOSE_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return error_set_errno(error, error_kind_of_errno(errno), errno, "%s",
					       path);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return error_set_errno(error, ERROR_INTERNAL, errno, "%s", path);
			if (holder_wait(spawner, fd, target, &wait, error) < 0)
				return -1;
			continue;
		}
		/* Another spawner that was just ending may have removed the file that we opened. */
		if (fstat(fd, &held) < 0 || stat(path, &named) < 0 || held.st_ino != named.st_ino ||
		    held.st_dev != named.st_dev)
			continue;
		/* From here on no other process can start anything there. */
		holder_read(fd, &last);
		if (target->check(spawner, &last, false, error) < 0)
			return -1;
		return TAKE_FD(fd);
	}
}

int locks_take(struct spawner *spawner, struct error *error)
{
	const struct host *host = &spawner->host;
	const struct lock_target state = {"state", host->state, runtime_check_last};
	const struct lock_target runtime = {"runtime", host->runtime, state_check_last};
	spawner->state_lock = directory_lock(spawner, &state, error);
	if (spawner->state_lock < 0)
		return -1;
	spawner->runtime_lock = directory_lock(spawner, &runtime, error);
	/* Written last: a start that is refused or killed before must leave the name of the
	 * runtime directory that the sandboxes run from. */
	if (spawner->runtime_lock < 0 ||
	    holder_write(spawner, spawner->state_lock, host->state, error) < 0)
		return -1;
	return holder_write(spawner, spawner->runtime_lock, host->runtime, error);
}
