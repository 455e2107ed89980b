/* Runs the slow operations of drivers in forked processes, so that the spawner never waits for a
 * boot and several run at once. A worker sends its result in one message, with the descriptors that
 * it made. The guest's process is a child of the spawner from the start (CLONE_PARENT). A worker
 * dies with the spawner and holds its locks until then, so that the next spawner finds nothing that
 * is still being made.
 *
 * Called by boots.c and requests.c; starting one costs a fork. */
#include "spawner/internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

/* Shorter than the daemon waits at its start. */
#define PROBE_PATIENCE (20 * NSEC_PER_SEC)
#define PROBE_FINISH (3 * NSEC_PER_SEC)

/* Closes descriptors that other processes wait to see closed: a copy here would keep them
 * open. */
static void worker_close_inherited(struct spawner *spawner, int keep)
{
	fd_close(&spawner->socket);
	fd_close(&spawner->unix_listener);
	fd_close(&spawner->tcp_listener);
	fd_close(&spawner->signals);
	fd_close(&spawner->epoll);
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (entry->worker_socket != keep)
			fd_close(&entry->worker_socket);
		if (entry->change.socket != keep)
			fd_close(&entry->change.socket);
		fd_close(&entry->memory_events);
	}
	for (size_t i = 0; i < TIER_COUNT; i++)
		if (spawner->probes[i].socket != keep)
			fd_close(&spawner->probes[i].socket);
}

pid_t worker_fork(struct spawner *spawner, int *socket)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid_t parent = getpid(), child = fork();
	if (child < 0) {
		int saved = errno;
		close(pair[0]);
		close(pair[1]);
		return -saved;
	}
	if (child > 0) {
		close(pair[1]);
		*socket = pair[0];
		return child;
	}
	close(pair[0]);
	*socket = pair[1];
	spawner_loop_reset_signals();
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	worker_close_inherited(spawner, pair[1]);
	return 0;
}

int worker_watch(struct spawner *spawner, pid_t worker, int *socket, uint64_t data,
		 const char *doing, struct error *error)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
	if (epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, *socket, &event) == 0)
		return 0;
	int saved = errno;
	kill(worker, SIGKILL);
	worker_reap_later(spawner, worker);
	fd_close(socket);
	return error_set_errno(error, error_kind_of_errno(saved), saved, "%s", doing);
}

static _Noreturn void worker_run_boot(struct spawner *spawner, struct guest_entry *entry,
				      int socket)
{
	const struct boot_order *order = entry->order;
	struct work_result result = {.guest = entry->guest};
	const struct boot boot = {.create = &order->create,
				  .mounts = order->mounts,
				  .origin = order->origin,
				  .for_parent = true};
	result.result = entry->driver->boot(&spawner->host, &result.guest, &boot, &result.error);
	int pidfd = result.guest.init.pidfd;
	_exit(fd_send(socket, &result, sizeof(result), &pidfd, pidfd >= 0) < 0);
}

int worker_boot(struct spawner *spawner, struct guest_entry *entry, struct error *error)
{
	int socket;
	pid_t worker = worker_fork(spawner, &socket);
	if (worker == 0)
		worker_run_boot(spawner, entry, socket);
	if (worker < 0)
		return error_set_errno(error, error_kind_of_errno(worker), worker,
				       "a process to make the sandbox");
	entry->worker = worker;
	entry->worker_socket = socket;
	if (worker_watch(spawner, worker, &entry->worker_socket, LOOP_WORKER | entry->guest.slot,
			 "watching a worker", error) == 0)
		return 0;
	entry->worker = 0;
	return -1;
}

int worker_receive_boot(struct spawner *spawner, struct guest_entry *entry,
			struct work_result *ret_result)
{
	int pidfd = -1;
	size_t count = 1;
	ssize_t got =
	    fd_receive(entry->worker_socket, ret_result, sizeof(*ret_result), &pidfd, &count);
	epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, entry->worker_socket, NULL);
	fd_close(&entry->worker_socket);
	worker_reap_later(spawner, entry->worker);
	entry->worker = 0;
	if (got <= 0 || count == 0)
		pidfd = -1;
	if (got != (ssize_t)sizeof(*ret_result)) {
		fd_close(&pidfd);
		return -EPIPE;
	}
	ret_result->guest.init.pidfd = pidfd;
	return 0;
}

/* ---- Probes. */

int worker_probe(struct spawner *spawner, enum tier tier, struct error *error)
{
	struct probe *probe = &spawner->probes[tier];
	const struct driver *driver = spawner->driver_of(tier);
	int socket;
	pid_t worker = worker_fork(spawner, &socket);
	if (worker == 0) {
		struct spawn_probe result = {.tier = tier};
		driver->probe(&spawner->host, &result);
		_exit(fd_send(socket, &result, sizeof(result), NULL, 0) < 0);
	}
	if (worker < 0)
		return error_set_errno(error, error_kind_of_errno(worker), worker,
				       "a process for the probe");
	probe->worker = worker;
	probe->socket = socket;
	probe->until = clock_monotonic() + PROBE_PATIENCE;
	return worker_watch(spawner, worker, &probe->socket, LOOP_PROBE | tier, "watching a probe",
			    error);
}

void worker_take_probe(struct spawner *spawner, enum tier tier)
{
	struct probe *probe = &spawner->probes[tier];
	struct spawn_message reply = {.type = SPAWN_REPLY};
	if (probe->socket < 0)
		return;
	ssize_t got = fd_receive(probe->socket, &probe->result, sizeof(probe->result), NULL, NULL);
	epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, probe->socket, NULL);
	fd_close(&probe->socket);
	worker_reap_later(spawner, probe->worker);
	if (got != (ssize_t)sizeof(probe->result)) {
		probe->result = (struct spawn_probe){.tier = tier};
		(void)!snprintf(probe->result.missing, sizeof(probe->result.missing),
				"its probe ended without an answer");
	}
	reply.probe = probe->result;
	for (uint32_t i = 0; i < probe->waiting_count; i++) {
		reply.request = probe->waiting[i];
		spawner_loop_send(spawner, &reply);
	}
	probe->waiting_count = 0;
}

int64_t workers_check_probes(struct spawner *spawner)
{
	int64_t now = clock_monotonic(), next = 0;
	for (size_t i = 0; i < TIER_COUNT; i++) {
		struct probe *probe = &spawner->probes[i];
		if (probe->socket < 0 || probe->until == 0)
			continue;
		if (now >= probe->until) {
			/* The loop is told of its end next. */
			probe->until = 0;
			kill(probe->worker, SIGKILL);
		} else if (next == 0 || probe->until < next) {
			next = probe->until;
		}
	}
	return next;
}

/* A probe makes a sandbox and removes it. Killed in between, it would leave a directory and
 * cgroups until the next start. */
void workers_finish_probes(struct spawner *spawner)
{
	int64_t until = clock_monotonic() + PROBE_FINISH;
	for (size_t i = 0; i < TIER_COUNT; i++) {
		struct probe *probe = &spawner->probes[i];
		if (probe->socket < 0)
			continue;
		struct pollfd poll_fd = {.fd = probe->socket, .events = POLLIN};
		int64_t left = (until - clock_monotonic()) / NSEC_PER_MSEC;
		if (poll(&poll_fd, 1, (int)MAX(left, 0)) <= 0)
			kill(probe->worker, SIGKILL);
		fd_close(&probe->socket);
		waitpid(probe->worker, NULL, 0);
	}
}

/* ---- Workers that have sent their result. */

void worker_reap_later(struct spawner *spawner, pid_t worker)
{
	if (worker <= 0 || waitpid(worker, NULL, WNOHANG) != 0)
		return;
	if (spawner->ended_worker_count < ARRAY_SIZE(spawner->ended_workers))
		spawner->ended_workers[spawner->ended_worker_count++] = worker;
	else
		waitpid(worker, NULL, 0);
}

void workers_reap(struct spawner *spawner)
{
	uint32_t left = 0;
	for (uint32_t i = 0; i < spawner->ended_worker_count; i++)
		if (waitpid(spawner->ended_workers[i], NULL, WNOHANG) == 0)
			spawner->ended_workers[left++] = spawner->ended_workers[i];
	spawner->ended_worker_count = left;
}
