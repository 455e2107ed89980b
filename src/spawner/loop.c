/* The spawner's event loop: the daemon's socket, signals, the ends of sandboxes, and timers
 * (restart the daemon, stop waiting for it to quit, check transitions of sandboxes). Nothing
 * here waits for the daemon: unsent messages stay in the outbox, and no request is read
 * meanwhile. Nothing waits for a sandbox either (guests.c). */
#include "spawner/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "spawner/fault.h"

#define QUIT_SECONDS 10 /* clients get three of them */
#define EVENTS_MAX 64

static const int handled_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};

static void signal_ignore(int number)
{
	(void)number;
}

void spawner_loop_reset_signals(void)
{
	sigset_t none;
	sigemptyset(&none);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

int spawner_loop_open(struct spawner *spawner, struct error *error)
{
	sigset_t signals;
	/* A handler instead of SIG_IGN, which children would inherit through exec. */
	struct sigaction pipe = {.sa_handler = signal_ignore};
	sigemptyset(&signals);
	for (size_t i = 0; i < ARRAY_SIZE(handled_signals); i++)
		sigaddset(&signals, handled_signals[i]);
	if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0 || sigaction(SIGPIPE, &pipe, NULL) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "signals");
	spawner->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	spawner->epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = LOOP_SIGNALS};
	if (spawner->signals < 0 || spawner->epoll < 0 ||
	    epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, spawner->signals, &event) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "the loop");
	spawner->outbox = calloc(OUTBOX_MAX, sizeof(*spawner->outbox));
	if (!spawner->outbox)
		return error_set(error, ERROR_NO_MEMORY, "no memory for messages");
	return 0;
}

int spawner_loop_watch(struct spawner *spawner, struct error *error)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = LOOP_DAEMON};
	if (epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, spawner->socket, &event) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "watching the daemon");
	return 0;
}

/* Requests are only read while the outbox is empty. */
static void daemon_socket_update_interest(struct spawner *spawner)
{
	struct epoll_event event = {.events = spawner->outbox_count > 0 ? EPOLLOUT : EPOLLIN,
				    .data.u64 = LOOP_DAEMON};
	if (spawner->socket >= 0)
		epoll_ctl(spawner->epoll, EPOLL_CTL_MOD, spawner->socket, &event);
}

static void outbox_flush(struct spawner *spawner)
{
	while (spawner->outbox_count > 0 && spawner->socket >= 0) {
		const struct spawn_message *message = &spawner->outbox[spawner->outbox_first];
		ssize_t sent = fd_send(spawner->socket, message, sizeof(*message), NULL, 0);
		if (sent == -EAGAIN)
			break;
		if (sent < 0) {
			daemon_child_drop(spawner, strerror((int)-sent));
			return;
		}
		spawner->outbox_first = (spawner->outbox_first + 1) % OUTBOX_MAX;
		spawner->outbox_count--;
	}
	daemon_socket_update_interest(spawner);
}

void spawner_loop_send(struct spawner *spawner, const struct spawn_message *message)
{
	if (spawner->socket < 0)
		return;
	FAULT_SEND(message, BEFORE);
	if (spawner->outbox_count == OUTBOX_MAX) {
		daemon_child_drop(spawner, "it does not read its messages");
		return;
	}
	size_t at = (spawner->outbox_first + spawner->outbox_count) % OUTBOX_MAX;
	spawner->outbox[at] = *message;
	spawner->outbox_count++;
	/* Queued messages go first; the loop sends them when the socket has room. */
	if (spawner->outbox_count == 1)
		outbox_flush(spawner);
	FAULT_SEND(message, AFTER);
}

static void request_receive(struct spawner *spawner)
{
	/* One request per iteration, so that ends and signals are handled soon. */
	struct spawn_message message;
	int fds[SANDBOX_MOUNTS_MAX];
	size_t fd_count = ARRAY_SIZE(fds);
	ssize_t got = fd_receive(spawner->socket, &message, sizeof(message), fds, &fd_count);
	if (got == -EAGAIN)
		return;
	if (got == 0 && fd_count == 0) {
		daemon_child_lost(spawner);
		return;
	}
	if (got == (ssize_t)sizeof(message))
		requests_serve(spawner, &message, fds, fd_count);
	else if (got < 0)
		daemon_child_drop(spawner, got == -EMSGSIZE ? "it sent a message that is too large"
							    : strerror((int)-got));
	else
		daemon_child_drop(spawner, "it sent a message of a wrong size");
	for (size_t i = 0; got >= 0 && i < fd_count; i++)
		fd_close(&fds[i]);
}

static void quit_begin(struct spawner *spawner)
{
	const struct spawn_message quit = {.type = SPAWN_QUIT};
	if (spawner->quitting) {
		spawner->done = true;
		return;
	}
	log_info("quitting; sandboxes run on");
	spawner->quitting = true;
	spawner->quit_until = clock_monotonic() + QUIT_SECONDS * NSEC_PER_SEC;
	spawner_loop_send(spawner, &quit);
	if (spawner->daemon <= 0)
		spawner->done = true;
}

/* The spawner enforces the maxima and the allowed mounts of the file. Everything else that can
 * change is the daemon's. */
static void config_reload(struct spawner *spawner)
{
	const struct spawn_message message = {.type = SPAWN_RELOAD};
	struct config changed;
	struct error error;
	config_defaults(&changed);
	if (spawner->config_path &&
	    (config_read_file(&changed, spawner->config_path, true, &error) < 0 ||
	     config_check(&changed, &error) < 0)) {
		log_error("the configuration stays as it was: %s", error.message);
		return;
	}
	/* The paths stay those of the start. */
	if (tls_files_load(spawner, &error) < 0) {
		log_error("the configuration stays as it was: %s", error.message);
		return;
	}
	spawner->config.maximum = changed.maximum;
	spawner->config.sandboxes_max = changed.sandboxes_max;
	spawner->config.pool_max = changed.pool_max;
	memcpy(spawner->config.mounts_allow, changed.mounts_allow, sizeof(changed.mounts_allow));
	if (!spawner->config.log_level_fixed && spawner->config_path) {
		spawner->config.log_level = changed.log_level;
		log_set_level(changed.log_level);
	}
	log_info("the configuration was reloaded");
	spawner_loop_send(spawner, &message);
}

static bool child_is_known(const struct spawner *spawner, pid_t pid)
{
	bool known = pid == spawner->daemon || pid == spawner->trash_worker;
	for (uint32_t i = 0; i < spawner->ended_worker_count; i++)
		known |= spawner->ended_workers[i] == pid;
	for (size_t i = 0; i < TIER_COUNT; i++)
		known |= spawner->probes[i].worker == pid && spawner->probes[i].socket >= 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		known |= spawner->entries[i].worker == pid ||
			 spawner->entries[i].change.worker == pid ||
			 spawner->entries[i].guest.init.pid == pid;
	return known;
}

/* Reaps inits whose worker was killed before it could report them. While a worker runs, an
 * unknown child may be the init that it will report. */
static void children_reap_unknown(const struct spawner *spawner)
{
	enum { STRAYS_MAX = 16 };
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		if (spawner->entries[i].worker_socket >= 0)
			return;
	for (int i = 0; i < STRAYS_MAX; i++) {
		siginfo_t info = {0};
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0 ||
		    child_is_known(spawner, info.si_pid))
			return;
		waitpid(info.si_pid, NULL, WNOHANG);
	}
}

static void children_reap(struct spawner *spawner)
{
	int status;
	/* By pid, never waitpid(-1): the end of a sandbox's init is read through its pidfd. */
	if (spawner->daemon > 0 && waitpid(spawner->daemon, &status, WNOHANG) > 0)
		daemon_child_ended(spawner, status);
	trash_reap(spawner);
	workers_reap(spawner);
	children_reap_unknown(spawner);
}

static void signals_handle(struct spawner *spawner)
{
	struct signalfd_siginfo info;
	while (read(spawner->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTERM:
		case SIGINT:
			quit_begin(spawner);
			break;
		case SIGHUP:
			config_reload(spawner);
			break;
		case SIGCHLD:
			children_reap(spawner);
			break;
		default:
			break;
		}
	}
}

static void event_handle(struct spawner *spawner, const struct epoll_event *event)
{
	uint64_t kind = event->data.u64 >> 32 << 32;
	if (kind == LOOP_SIGNALS) {
		signals_handle(spawner);
	} else if (kind == LOOP_GUEST) {
		guests_check_process(spawner, (uint32_t)event->data.u64);
	} else if (kind == LOOP_WORKER) {
		boots_take_result(spawner, (uint32_t)event->data.u64);
	} else if (kind == LOOP_PROBE) {
		worker_take_probe(spawner, (enum tier)(uint32_t)event->data.u64);
	} else if (kind == LOOP_CHANGE) {
		changes_take_result(spawner, (uint32_t)event->data.u64);
	} else if (kind == LOOP_MEMORY) {
		memory_limit_take_event(spawner, (uint32_t)event->data.u64);
	} else if (kind == LOOP_DAEMON && spawner->socket >= 0) {
		if (event->events & EPOLLOUT)
			outbox_flush(spawner);
		else
			request_receive(spawner);
	}
}

static void timers_handle(struct spawner *spawner)
{
	int64_t now = clock_monotonic();
	struct error error;
	if (spawner->quitting && now >= spawner->quit_until) {
		log_warning("the daemon did not quit in %d seconds", QUIT_SECONDS);
		daemon_child_drop(spawner, "it did not quit");
		spawner->done = true;
	}
	if (spawner->daemon_kill_at != 0 && now >= spawner->daemon_kill_at) {
		spawner->daemon_kill_at = 0;
		daemon_child_drop(spawner, "it closed its socket and did not exit");
	}
	if (spawner->daemon_restart_at == 0 || now < spawner->daemon_restart_at)
		return;
	spawner->daemon_restart_at = 0;
	if (spawner->start_daemon(spawner, &error) < 0) {
		log_error("%s", error.message);
		spawner->daemon_restart_at = now + NSEC_PER_SEC;
	}
}

static int timers_next_timeout(struct spawner *spawner)
{
	const int64_t timers[] = {spawner->daemon_restart_at, spawner->daemon_kill_at,
				  spawner->quitting ? spawner->quit_until : 0, spawner->check_at,
				  workers_check_probes(spawner)};
	int64_t until = INT64_MAX;
	for (size_t i = 0; i < ARRAY_SIZE(timers); i++)
		if (timers[i] != 0)
			until = MIN(until, timers[i]);
	if (until == INT64_MAX)
		return -1;
	int64_t left = (until - clock_monotonic() + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
	return (int)MAX(left, 0);
}

void spawner_loop_run(struct spawner *spawner)
{
	struct epoll_event events[EVENTS_MAX];
	while (!spawner->done) {
		/* At least one iteration passes between the end of a daemon and the start of the
		 * next. */
		if (spawner->socket < 0)
			guests_forget_requests(spawner);
		int count = epoll_wait(spawner->epoll, events, EVENTS_MAX,
				       FAULT_TIMEOUT(timers_next_timeout(spawner)));
		if (count < 0 && errno != EINTR) {
			log_error("epoll: %s", strerror(errno));
			spawner->exit_code = 1;
			return;
		}
		for (int i = 0; i < count && !spawner->done; i++)
			event_handle(spawner, &events[i]);
		guests_check_due(spawner);
		timers_handle(spawner);
	}
}
