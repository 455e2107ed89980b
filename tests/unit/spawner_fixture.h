/* What the spawner's tests stand on: a fake driver, a spawner in a child, and this process as its
 * daemon. Included by test_spawner.c and test_boots.c. */
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "spawner/internal.h"
#include "test.h"
#include "tier/remove_tree.h"

/* ---- The fake driver: a "sandbox" is a process that waits, and exits with what `pids` says. */

#define FAIL_BOOT 100u /* limits.pids that make boot fail */
#define EXIT_AT_ONCE 101u
#define EXIT_DEADLINE 102u
#define KILL_STUCK 103u   /* a killed one goes on until the test ends it */
#define FREEZE_NEVER 104u /* it never stops */
#define FREEZE_SLOW 105u  /* it stops when it has been asked a few times */
#define RELEASE_SLOW 106u /* it lets go when it has been asked a few times */
#define BOOT_SLOW 107u    /* it takes as long as a test waits for an answer */
#define BOOT_CRASH 108u   /* its worker dies */
#define RECLAIM_SLOW 109u /* as long as a test waits */
#define RECLAIM_FAILS 110u
#define LIMITS_SLOW 111u
#define OVER 112u      /* it holds more memory than it may from the start */
#define OVER_SLOW 113u /* and ending that takes as long as a test waits */
#define SLOW_CALLS 4

/* A child of the worker's parent, the spawner, that is named before it can have ended. */
static pid_t fork_for_parent(struct process *ret_process)
{
	int pidfd = -1;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD, NULL, &pidfd, NULL, NULL);
	if (pid > 0)
		*ret_process = (struct process){.pid = pid, .pidfd = pidfd, .start_time = 1};
	return pid;
}

static int fake_boot(const struct host *host, struct guest *guest, const struct boot *boot,
		     struct error *error)
{
	(void)host;
	uint32_t order = boot->create->limits.pids;
	if (order == BOOT_SLOW)
		sleep(60);
	if (order == BOOT_CRASH)
		raise(SIGKILL);
	if (order == FAIL_BOOT)
		return error_set(error, ERROR_NO_SPACE, "the fake disk is full");
	/* The worker's parent's: the spawner's. */
	pid_t child = fork_for_parent(&guest->init);
	if (child == 0) {
		if (order == EXIT_AT_ONCE)
			_exit(0);
		if (order == EXIT_DEADLINE)
			_exit(END_DEADLINE);
		for (;;)
			pause();
	}
	guest->phases[0] = (struct spawn_phase){.name = "fake", .microseconds = 7};
	guest->phase_count = 1;
	guest->limit_reasons[LIMIT_CPU] = LIMIT_NO_CGROUP_CONTROLLER;
	return child > 0 ? 0 : error_set(error, ERROR_INTERNAL, "no process");
}

static int fake_adopt(const struct host *host, struct guest *guest, struct error *error)
{
	(void)host, (void)guest, (void)error;
	return 0;
}

static int fake_kill(const struct host *host, struct guest *guest, struct error *error)
{
	(void)host, (void)error;
	if (guest->init.pid > 0 && guest->limits.pids != KILL_STUCK)
		(void)!process_signal(&guest->init, SIGKILL);
	return 0;
}

/* 1 the first few times. */
static int slowly(void)
{
	static int calls;
	return ++calls % SLOW_CALLS != 0;
}

static int fake_release(const struct host *host, struct guest *guest, struct error *error)
{
	(void)host;
	if (process_alive(&guest->init))
		return error_set(error, ERROR_INTERNAL, "it is released and lives");
	return guest->limits.pids == RELEASE_SLOW ? slowly() : 0;
}

static int fake_set_limits(const struct host *host, struct guest *guest,
			   const struct limits *limits, struct error *error)
{
	(void)host;
	if (limits->pids == LIMITS_SLOW)
		sleep(60);
	if (limits->memory == 32 * MIB)
		return error_set(error, ERROR_LIMIT_EXCEEDED, "it uses more");
	guest->limits = *limits;
	return 0;
}

static int fake_freeze(const struct host *host, struct guest *guest, bool frozen,
		       struct error *error)
{
	(void)host, (void)error;
	if (frozen && guest->limits.pids == FREEZE_NEVER)
		return 1;
	return frozen && guest->limits.pids == FREEZE_SLOW ? slowly() : 0;
}

static int fake_counters(const struct host *host, struct guest *guest,
			 struct spawn_counters *counters, struct error *error)
{
	(void)host, (void)error;
	*counters = (struct spawn_counters){.memory = 4711, .cpu_ns = guest->limits.cpu_millis};
	counters->known[KNOWN_MEMORY] = counters->known[KNOWN_CPU] = 1;
	return 0;
}

/* In a worker. */
static int fake_reclaim(const struct host *host, struct guest *guest,
			struct spawn_reclaimed *reclaimed, struct error *error)
{
	(void)host;
	if (guest->limits.pids == RECLAIM_SLOW)
		sleep(60);
	if (guest->limits.pids == RECLAIM_FAILS)
		return error_set(error, ERROR_UNSUPPORTED, "there is no way");
	*reclaimed = (struct spawn_reclaimed){.done = 1, .before = 4711, .after = 11};
	return 0;
}

/* What is urgent on a socket stands for an event; a file, for memory above the limit. */
static int fake_over_open(const struct host *host, const struct guest *guest)
{
	int pair[2];
	(void)host;
	if (guest->limits.pids != OVER && guest->limits.pids != OVER_SLOW)
		return -EOPNOTSUPP;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	/* Its other end stays open: it is the kernel's. */
	return send(pair[1], "!", 1, MSG_OOB) == 1 ? pair[0] : -errno;
}

static int fake_over_read(const struct host *host, const struct guest *guest, int events)
{
	char path[300], byte;
	if (recv(events, &byte, 1, MSG_OOB) < 0 && errno != EINVAL)
		return -errno;
	snprintf(path, sizeof(path), "%s/over-%u", host->state, guest->limits.pids);
	return access(path, F_OK) == 0;
}

/* In a worker. */
static int fake_over_end(const struct host *host, struct guest *guest, struct error *error)
{
	char path[300];
	if (guest->limits.pids == OVER_SLOW)
		sleep(60);
	snprintf(path, sizeof(path), "%s/over-%u", host->state, guest->limits.pids);
	return unlink(path) == 0 ? 0 : error_set(error, ERROR_INTERNAL, "it is not there");
}

static int fake_sweep(const struct host *host, bool (*known)(void *data, const struct id *id),
		      void *data, struct error *error)
{
	(void)host, (void)known, (void)data, (void)error;
	return 0;
}

static bool probe_slow;

static void fake_probe(const struct host *host, struct spawn_probe *probe)
{
	char path[300];
	if (probe_slow) {
		usleep(300 * 1000);
		snprintf(path, sizeof(path), "%s/probed", host->state);
		CHECK_INT(fd_write_small(AT_FDCWD, path, "yes"), 0);
	}
	probe->available = 1;
}

static const struct driver fake_driver = {
    .tier = TIER_NAMESPACE,
    .name = "namespace",
    .probe = fake_probe,
    .boot = fake_boot,
    .adopt = fake_adopt,
    .set_limits = fake_set_limits,
    .freeze = fake_freeze,
    .counters = fake_counters,
    .kill = fake_kill,
};

static const struct jail fake_jail = {
    .reclaim = fake_reclaim,
    .memory_events_open = fake_over_open,
    .memory_events_read = fake_over_read,
    .memory_limit_enforce = fake_over_end,
    .release = fake_release,
    .sweep = fake_sweep,
};

static const struct driver *fake_driver_of(enum tier tier)
{
	return tier == TIER_NAMESPACE ? &fake_driver : NULL;
}

/* ---- A spawner in a child, and this process as its daemon. */

#define DAEMON_UID 64998

static char root[64];
static pid_t child;
static int link_fd = -1;
static char allow[256];
static uint32_t sandboxes_max = 8, pool_max;
static int64_t patience; /* for what never happens; 0: as long as ever */

/* Moves the time of the spawner too, and wakes it. */
static void pass_time(int64_t nanoseconds)
{
	*clock_advance += (uint64_t)nanoseconds;
	kill(child, SIGCHLD);
}

/* Before the first spawner is there. */
__attribute__((constructor)) static void share_clock(void)
{
	void *memory = mmap(NULL, sizeof(*clock_advance), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	clock_advance = memory;
}

static void run_spawner(int socket)
{
	struct config config;
	struct error error;
	config_defaults(&config);
	config.sandboxes_max = sandboxes_max;
	config.pool_max = pool_max;
	config.maximum.memory = 1 * GIB;
	(void)!text_copy(config.mounts_allow, sizeof(config.mounts_allow), allow);
	log_setup("spawner", LOG_ERROR, false);
	if (!getenv("VERBOSE"))
		close(STDERR_FILENO);
	struct spawner *spawner = spawner_new(&config);
	(void)!text_format(spawner->host.state, sizeof(spawner->host.state), "%s/state", root);
	(void)!text_format(spawner->host.runtime, sizeof(spawner->host.runtime), "%s/run", root);
	spawner->host.daemon_uid = DAEMON_UID;
	spawner->driver_of = fake_driver_of;
	spawner->jail = &fake_jail;
	spawner->socket = socket;
	spawner->end_timeout = spawner->freeze_timeout = patience;
	if (spawner_loop_open(spawner, &error) < 0 || spawner_loop_watch(spawner, &error) < 0)
		_exit(99);
	adopt_guests(spawner);
	spawner_loop_run(spawner);
	workers_finish_probes(spawner);
	trash_wait(spawner);
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		(void)!process_signal(&spawner->entries[i].guest.init, SIGKILL);
	spawner_free(spawner);
#ifdef __SANITIZE_ADDRESS__
	_exit(__lsan_do_recoverable_leak_check() ? 98 : 0);
#endif
	_exit(0);
}

static void begin(void)
{
	static int count;
	char path[128];
	static const char *const directories[] = {
	    "",        "/state",         "/state/sandboxes", "/state/trash", "/run", "/run/guests",
	    "/shared", "/shared/inside", "/sharedx"};
	int pair[2];
	snprintf(root, sizeof(root), "/tmp/caisson-test-spawner-%d-%d", (int)getpid(), count++);
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		snprintf(path, sizeof(path), "%s%s", root, directories[i]);
		CHECK_INT(mkdir(path, 0700), 0);
	}
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	CHECK_INT(fd_set_nonblocking(pair[1]), 0);
	child = fork();
	if (child == 0) {
		close(pair[0]);
		run_spawner(pair[1]);
	}
	close(pair[1]);
	link_fd = pair[0];
}

/* After the one before has ended. */
static void restart_again(void)
{
	int pair[2];
	fd_close(&link_fd);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	CHECK_INT(fd_set_nonblocking(pair[1]), 0);
	child = fork();
	if (child == 0) {
		close(pair[0]);
		run_spawner(pair[1]);
	}
	close(pair[1]);
	link_fd = pair[0];
}

static void restart(void)
{
	int status;
	fd_close(&link_fd);
	waitpid(child, &status, 0);
	CHECK_INT(status, 0);
	restart_again();
}

static void end(void)
{
	int status = -1;
	fd_close(&link_fd);
	waitpid(child, &status, 0);
	CHECK_INT(status, 0);
	CHECK_INT(remove_tree(AT_FDCWD, root), 0);
	allow[0] = '\0';
	sandboxes_max = 8;
	pool_max = 0;
	probe_slow = false;
	patience = 0;
}

/* 1: a message, 0: the connection has ended, -1: nothing for twenty seconds. */
static int receive(struct spawn_message *message)
{
	struct pollfd poll_fd = {.fd = link_fd, .events = POLLIN};
	if (poll(&poll_fd, 1, 20000) <= 0)
		return -1;
	ssize_t got = recv(link_fd, message, sizeof(*message), 0);
	if (got == 0 || (got < 0 && errno == ECONNRESET))
		return 0;
	CHECK_INT(got, sizeof(*message));
	return 1;
}

static void post(const struct spawn_message *message, const int *fds, size_t fd_count)
{
	CHECK_INT(fd_send(link_fd, message, sizeof(*message), fds, fd_count), sizeof(*message));
}

static uint32_t ask_with(struct spawn_message *message, const int *fds, size_t fd_count,
			 struct spawn_message *reply)
{
	static uint32_t number;
	message->request = ++number;
	post(message, fds, fd_count);
	do {
		if (receive(reply) != 1) {
			test_fail(__FILE__, __LINE__, "no reply to type %u", message->type);
			return ERROR_KIND_COUNT;
		}
	} while (reply->type == SPAWN_LISTED);
	CHECK_INT(reply->type, SPAWN_REPLY);
	CHECK_INT(reply->request, number);
	CHECK(reply->result == ERROR_NONE || reply->message[0]);
	return reply->result;
}

static uint32_t ask(struct spawn_message *message)
{
	struct spawn_message reply;
	return ask_with(message, NULL, 0, &reply);
}

static struct spawn_message creation(const struct id *id)
{
	return (struct spawn_message){
	    .type = SPAWN_CREATE,
	    .sandbox = *id,
	    .create = {.tier = TIER_NAMESPACE,
		       .rootfs.kind = ROOTFS_HOST,
		       .limits = {.memory = 64 * MIB,
				  .disk = 64 * MIB,
				  .inodes = 4096,
				  .cpu_millis = 500,
				  .pids = 64,
				  .files = 256}},
	};
}

static uint32_t simple(uint32_t type, const struct id *id)
{
	struct spawn_message message = {.type = type};
	if (id)
		message.sandbox = *id;
	return ask(&message);
}

static int count_files(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int count_files(const char *format, ...)
{
	char path[256];
	va_list args;
	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	DIR *entries = opendir(path);
	int count = 0;
	for (struct dirent *entry; entries && (entry = readdir(entries));)
		count += entry->d_name[0] != '.';
	if (entries)
		closedir(entries);
	return entries ? count : -1;
}

/* Descriptors of the spawner, between two requests: an answer comes before its request is tidied
 * up. */
static int count_descriptors(void)
{
	CHECK_INT(simple(SPAWN_LIST, NULL), ERROR_NONE);
	return count_files("/proc/%d/fd", (int)child);
}

/* Erasing happens in a process of its own. */
static void wait_for_files(int wanted, const char *below)
{
	for (int i = 0; i < 2000 && count_files("%s/%s", root, below) != wanted; i++)
		usleep(10 * 1000);
	CHECK_INT(count_files("%s/%s", root, below), wanted);
}
