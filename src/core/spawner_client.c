/* The daemon's side of the socket to the spawner: requests out, replies matched by number, events
 * passed on. Called by sandbox*.c and core.c; never blocks. The spawner is trusted (it is root and
 * the same binary), but a message of another size or type means another version: then the socket is
 * abandoned, as after the spawner's death. */
#include "core/spawner_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "proto/spawn_fault.h"

/* Far more than the sandboxes of one host can cause at once. */
#define PENDING_MAX 16384
#define RECEIVE_BATCH 64

#ifdef CAISSON_FAULT_POINTS
FAULT_SET(daemon_request, "daemon.request", spawn_request_name, SPAWN_REPLY);
FAULT_SET(daemon_reply, "daemon.reply", spawn_request_name, SPAWN_REPLY);
FAULT_SET(daemon_notice, "daemon.notice", spawn_notice_name, SPAWN_TYPE_COUNT);
#endif

struct pending_request {
	struct list link; /* in client->pending, oldest first */
	uint32_t request;
	uint32_t type; /* enum spawn_type */
	int64_t began; /* CLOCK_BOOTTIME */
	int64_t until; /* CLOCK_BOOTTIME; INT64_MAX: it has passed, and `done` is NULL */
	void (*done)(void *data, const struct spawn_message *reply, const struct error *error);
	void *data;
	/* While the socket had no room for it. */
	struct list queued;
	struct spawn_message *message;
	int fds[SANDBOX_MOUNTS_MAX];
	size_t fd_count;
};

struct spawner_client {
	uv_poll_t poll;
	uv_timer_t timer;
	int fd;
	struct spawner_callbacks callbacks;
	void *data;
	struct list pending;
	struct list queue; /* struct pending_request by `queued` */
	uint32_t pending_count;
	uint32_t last_request;
	int64_t timer_at; /* 0: not running */
	bool lost, closing;
	unsigned open_handles;
};

static void socket_polled(uv_poll_t *poll, int status, int events);

static void pending_request_free(struct spawner_client *client, struct pending_request *pending)
{
	list_remove(&pending->link);
	list_remove(&pending->queued);
	client->pending_count--;
	for (size_t i = 0; i < pending->fd_count; i++)
		fd_close(&pending->fds[i]);
	free(pending->message);
	free(pending);
}

static void socket_watch(struct spawner_client *client)
{
	if (client->lost || client->closing)
		return;
	int events = UV_READABLE | (list_empty(&client->queue) ? 0 : UV_WRITABLE);
	uv_poll_start(&client->poll, events, socket_polled);
}

static void request_finish(struct spawner_client *client, struct pending_request *pending,
			   const struct spawn_message *reply, const struct error *error)
{
	void (*done)(void *, const struct spawn_message *, const struct error *) = pending->done;
	void *data = pending->data;
	uint32_t type = pending->type;
	pending_request_free(client, pending);
	if (done) {
		done(data, reply, error);
	} else if (reply) {
		log_info("a late reply of the spawner's, to a request of type %u", type);
		if (client->callbacks.late)
			client->callbacks.late(client->data, type, reply);
	}
}

/* Its caller gets TIMED_OUT; the entry stays for the reply, since the spawner still handles the
 * request. */
static void request_time_out(struct pending_request *pending)
{
	void (*done)(void *, const struct spawn_message *, const struct error *) = pending->done;
	struct error error;
	error_set(&error, ERROR_TIMED_OUT,
		  "the spawner did not answer in time (request %u of type %u)", pending->request,
		  pending->type);
	pending->until = INT64_MAX;
	pending->done = NULL;
	done(pending->data, NULL, &error);
}

static void requests_fail(struct spawner_client *client, const char *why)
{
	struct error error;
	error_set(&error, ERROR_SPAWNER_GONE, "the spawner is gone: %s", why);
	while (!list_empty(&client->pending))
		request_finish(client,
			       list_entry(client->pending.next, struct pending_request, link), NULL,
			       &error);
}

/* The socket is unusable: every request fails, then `lost` is called. */
static void spawner_give_up(struct spawner_client *client, const char *why)
{
	if (client->lost || client->closing)
		return;
	client->lost = true;
	uv_poll_stop(&client->poll);
	uv_timer_stop(&client->timer);
	requests_fail(client, why);
	if (!client->closing && client->callbacks.lost)
		client->callbacks.lost(client->data);
}

static void reply_handle(struct spawner_client *client, const struct spawn_message *reply)
{
	list_each (&client->pending, node) {
		struct pending_request *pending = list_entry(node, struct pending_request, link);
		if (pending->request != reply->request)
			continue;
		UNUSED uint32_t type = pending->type;
		struct error error;
		enum error_kind kind = (enum error_kind)reply->result;
		if (reply->result != ERROR_NONE)
			error_set(&error, kind < ERROR_KIND_COUNT ? kind : ERROR_INTERNAL, "%s",
				  reply->message);
		FAULT(daemon_reply, type, BEFORE);
		request_finish(client, pending, reply, reply->result == ERROR_NONE ? NULL : &error);
		FAULT(daemon_reply, type, AFTER);
		return;
	}
	log_warning("a reply of the spawner's that nobody asked for (request %u)", reply->request);
}

static void message_handle(struct spawner_client *client, struct spawn_message *message)
{
	const struct spawner_callbacks *callbacks = &client->callbacks;
	message->message[sizeof(message->message) - 1] = '\0';
	message->sandbox.text[ID_LENGTH] = '\0';
	switch ((enum spawn_type)message->type) {
	case SPAWN_REPLY:
		reply_handle(client, message);
		return;
	case SPAWN_LISTED:
		if (callbacks->listed)
			callbacks->listed(client->data, &message->sandbox, &message->listed);
		return;
	case SPAWN_ENDED:
		if (callbacks->ended)
			callbacks->ended(client->data, &message->sandbox, &message->ended);
		return;
	case SPAWN_COUNTED:
		if (callbacks->counted)
			callbacks->counted(client->data, &message->sandbox, &message->counters);
		return;
	case SPAWN_RELOAD:
		if (callbacks->reload)
			callbacks->reload(client->data);
		return;
	case SPAWN_QUIT:
		if (callbacks->quit)
			callbacks->quit(client->data);
		return;
	case SPAWN_HELLO:
	case SPAWN_CREATE:
	case SPAWN_START:
	case SPAWN_KILL:
	case SPAWN_DESTROY:
	case SPAWN_FREEZE:
	case SPAWN_THAW:
	case SPAWN_LIMITS:
	case SPAWN_COUNTERS:
	case SPAWN_LIST:
	case SPAWN_PROBE:
	case SPAWN_RECLAIM:
	case SPAWN_OWN:
		break;
	}
	spawner_give_up(client, "it sent a message of an unknown type");
}

static void socket_read(struct spawner_client *client)
{
	for (int i = 0; i < RECEIVE_BATCH && !client->lost && !client->closing; i++) {
		struct spawn_message message;
		ssize_t got = fd_receive(client->fd, &message, sizeof(message), NULL, NULL);
		if (got == -EAGAIN)
			return;
		if (got == sizeof(message)) {
			FAULT(daemon_notice, message.type, BEFORE);
			message_handle(client, &message);
			FAULT(daemon_notice, message.type, AFTER);
		} else if (got == 0)
			spawner_give_up(client, "it closed its socket");
		else
			spawner_give_up(client,
					got < 0 ? strerror((int)-got) : "a message is cut short");
	}
}

/* Is the socket itself unusable, or was only this message not sent (no free descriptor, too many in
 * transit)? */
static bool socket_broken(int result)
{
	return result == -EPIPE || result == -ECONNRESET || result == -ENOTCONN ||
	       result == -ECONNREFUSED || result == -EBADF;
}

static void requests_flush(struct spawner_client *client)
{
	while (!client->lost && !client->closing && !list_empty(&client->queue)) {
		struct pending_request *pending =
		    list_entry(client->queue.next, struct pending_request, queued);
		ssize_t sent = fd_send(client->fd, pending->message, sizeof(*pending->message),
				       pending->fds, pending->fd_count);
		if (sent == -EAGAIN)
			return;
		if (sent < 0 && socket_broken((int)sent)) {
			spawner_give_up(client, strerror((int)-sent));
			return;
		}
		if (sent < 0) {
			struct error error;
			error_set_errno(&error, error_kind_of_errno((int)-sent), (int)sent,
					"sending to the spawner");
			request_finish(client, pending, NULL, &error);
			continue;
		}
		list_remove(&pending->queued);
		for (size_t i = 0; i < pending->fd_count; i++)
			fd_close(&pending->fds[i]);
		pending->fd_count = 0;
		free(pending->message);
		pending->message = NULL;
	}
}

static void socket_polled(uv_poll_t *poll, int status, int events)
{
	struct spawner_client *client = container_of(poll, struct spawner_client, poll);
	if (status < 0) {
		spawner_give_up(client, uv_strerror(status));
		return;
	}
	if (events & UV_READABLE)
		socket_read(client);
	if ((events & UV_WRITABLE) && !client->closing) {
		requests_flush(client);
		socket_watch(client);
	}
}

static void spawner_timer_due(uv_timer_t *timer);

/* Lets the timer fire at `until` unless it fires earlier anyway. */
static void spawner_timer_arm(struct spawner_client *client, int64_t until)
{
	if (client->timer_at != 0 && client->timer_at <= until)
		return;
	client->timer_at = until;
	int64_t delay = MAX(until - clock_boot(), 0) / NSEC_PER_MSEC + 1;
	uv_timer_start(&client->timer, spawner_timer_due, (uint64_t)delay, 0);
}

static void spawner_timer_due(uv_timer_t *timer)
{
	struct spawner_client *client = container_of(timer, struct spawner_client, timer);
	int64_t now = clock_boot();
	client->timer_at = 0;
	/* A callback may remove any of them: begin again after each. */
	bool again = true;
	while (again && !client->closing && !client->lost) {
		again = false;
		list_each (&client->pending, node) {
			struct pending_request *pending =
			    list_entry(node, struct pending_request, link);
			if (pending->until > now)
				continue;
			request_time_out(pending);
			again = true;
			break;
		}
	}
	if (client->closing || client->lost)
		return;
	list_each (&client->pending, node) {
		int64_t until = list_entry(node, struct pending_request, link)->until;
		if (until != INT64_MAX)
			spawner_timer_arm(client, until);
	}
}

struct spawner_client *spawner_client_new(uv_loop_t *loop, int fd,
					  const struct spawner_callbacks *callbacks, void *data)
{
	struct spawner_client *client = calloc(1, sizeof(*client));
	if (!client)
		abort();
	client->fd = fd;
	client->callbacks = *callbacks;
	client->data = data;
	list_init(&client->pending);
	list_init(&client->queue);
	client->open_handles = 2;
	uv_timer_init(loop, &client->timer);
	if (fd_set_nonblocking(fd) < 0 || uv_poll_init(loop, &client->poll, fd) < 0)
		abort();
	socket_watch(client);
	return client;
}

static void handle_closed(uv_handle_t *handle)
{
	struct spawner_client *client = handle->data;
	if (--client->open_handles > 0)
		return;
	free(client);
}

void spawner_client_free(struct spawner_client *client)
{
	if (!client || client->closing)
		return;
	client->closing = true;
	requests_fail(client, "the daemon is stopping");
	client->poll.data = client->timer.data = client;
	uv_close((uv_handle_t *)&client->poll, handle_closed);
	uv_close((uv_handle_t *)&client->timer, handle_closed);
	fd_close(&client->fd);
}

int64_t spawner_client_waiting(const struct spawner_client *client)
{
	if (client->lost)
		return INT64_MAX;
	list_each (&client->pending, node) {
		const struct pending_request *pending =
		    list_entry(node, struct pending_request, link);
		if (pending->type == SPAWN_COUNTERS)
			return clock_boot() - pending->began;
	}
	return 0;
}

/* Keeps a copy of the message, and of the descriptors, until the socket has room. */
static int request_queue(struct spawner_client *client, struct pending_request *pending,
			 const struct spawn_message *message, const int *fds, size_t fd_count)
{
	pending->message = malloc(sizeof(*message));
	if (!pending->message)
		abort();
	*pending->message = *message;
	for (size_t i = 0; i < fd_count; i++) {
		pending->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
		if (pending->fds[i] < 0)
			return -errno;
		pending->fd_count++;
	}
	list_append(&client->queue, &pending->queued);
	socket_watch(client);
	return 0;
}

int spawner_request(struct spawner_client *client, struct spawn_message *message, const int *fds,
		    size_t fd_count, uint32_t timeout_ms,
		    void (*done)(void *data, const struct spawn_message *reply,
				 const struct error *error),
		    void *data, struct error *error)
{
	if (client->lost || client->closing)
		return error_set(error, ERROR_SPAWNER_GONE, "the spawner is gone");
	if (client->pending_count >= PENDING_MAX)
		return error_set(error, ERROR_BUSY, "too many requests wait for the spawner");
	if (fd_count > SANDBOX_MOUNTS_MAX)
		return error_set(error, ERROR_INTERNAL, "too many descriptors for the spawner");
	struct pending_request *pending = calloc(1, sizeof(*pending));
	if (!pending)
		abort();
	pending->request = message->request = ++client->last_request;
	pending->type = message->type;
	pending->began = clock_boot();
	pending->until = pending->began + timeout_ms * NSEC_PER_MSEC;
	pending->done = done;
	pending->data = data;
	list_init(&pending->queued);
	list_append(&client->pending, &pending->link);
	client->pending_count++;

	FAULT(daemon_request, message->type, BEFORE);
	ssize_t sent = -EAGAIN;
	if (list_empty(&client->queue))
		sent = fd_send(client->fd, message, sizeof(*message), fds, fd_count);
	if (sent == -EAGAIN)
		sent = request_queue(client, pending, message, fds, fd_count);
	if (sent < 0) {
		pending_request_free(client, pending);
		/* The poll reports a broken socket by itself, outside of this call. */
		return error_set_errno(error,
				       socket_broken((int)sent) ? ERROR_SPAWNER_GONE
								: error_kind_of_errno((int)-sent),
				       (int)sent, "sending to the spawner");
	}
	FAULT(daemon_request, message->type, AFTER);
	spawner_timer_arm(client, pending->until);
	return 0;
}
