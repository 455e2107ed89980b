/* The connection: its inbox and outbox, and the dispatch of requests. Called by the loop; never
 * blocks. While the outbox is more than half full, no request is served and no DATA, OUTPUT or
 * PROGRESS is queued. The other half is for frames that the init sends by itself: a bounded
 * number of small ones. */
#include "init/connection.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/setup/configuration.h"
#include "init/setup/configure.h"
#include "init/exec/exec.h"
#include "init/runner/runners.h"
#include "init/loop.h"
#include "init/relay.h"
#include "init/request.h"
#include "init/exec/proc_scan.h"

#define OUTBOX_SIZE (1024 * 1024)
#define OUTBOX_BUSY (512 * 1024)
/* Requests served in one turn of the loop. */
#define REQUESTS_PER_TURN 64
/* Descriptors that were received and whose frames were not served yet. */
#define FDS_MAX 32
#define FDS_PER_MESSAGE 4

static struct {
	int listener;
	int fd; /* -1: no connection */
	uint32_t generation;
	uint32_t watched;
	bool hello;
	bool closing; /* closes when the outbox is empty */
	bool lasts;   /* a channel that one connection after another uses: see FRAME_BEGIN */
	size_t out_start, out_end;
	int fds[FDS_MAX];
	size_t fd_count;
} connection = {.listener = -1, .fd = -1};

/* Not in the struct: its initializer would put these buffers into the executable. */
static struct inbox inbox;
static uint8_t outbox[OUTBOX_SIZE];

static int64_t ready_at;

int connection_listen(int listener)
{
	connection.listener = listener;
	ready_at = clock_boot();
	if (listen(listener, 4) < 0)
		return -errno;
	int result = fd_set_nonblocking(listener);
	return result < 0 ? result : loop_add(listener, EPOLLIN, EVENT_LISTENER, 0, 0);
}

int connection_use_channel(int channel)
{
	connection.lasts = true;
	connection.fd = channel;
	connection.watched = EPOLLIN;
	ready_at = clock_boot();
	int result = fd_set_nonblocking(channel);
	return result < 0 ? result : loop_add(channel, EPOLLIN, EVENT_CONNECTION, 0, 0);
}

bool connection_is_permanent(void)
{
	return connection.lasts;
}

static void connection_close(void)
{
	/* The process at the other end of the channel has ended: nothing can reach this sandbox
	 * any more. */
	if (connection.lasts)
		_exit(INIT_EXIT_FAILED);
	fd_close(&connection.fd);
	for (size_t i = 0; i < connection.fd_count; i++)
		close(connection.fds[i]);
	connection.fd_count = 0;
	connection.hello = connection.closing = false;
	connection.watched = 0;
	connection.out_start = connection.out_end = 0;
	inbox.start = inbox.end = 0;
	relay_cancel_all();
}

/* The kernel shows the pid of a peer inside the sandbox, and 0 for a peer outside of it. */
static bool peer_is_outside(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0;
}

void connection_accept(void)
{
	int fd = accept4(connection.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	if (!peer_is_outside(fd)) {
		close(fd);
		return;
	}
	connection_close();
	connection.generation++;
	if (loop_add(fd, EPOLLIN, EVENT_CONNECTION, 0, connection.generation) < 0) {
		close(fd);
		return;
	}
	connection.fd = fd;
	connection.watched = EPOLLIN;
	exec_connection_changed();
}

bool connection_ready(void)
{
	return connection.hello && !connection.closing;
}

bool connection_has_room(void)
{
	return connection.fd >= 0 && connection.out_end - connection.out_start < OUTBOX_BUSY;
}

uint8_t *connection_reserve(void)
{
	if (OUTBOX_SIZE - connection.out_end < FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX) {
		size_t used = connection.out_end - connection.out_start;
		memmove(outbox, outbox + connection.out_start, used);
		connection.out_start = 0;
		connection.out_end = used;
	}
	return outbox + connection.out_end;
}

void connection_commit(size_t size)
{
	connection.out_end += size;
}

static void frame_queue(enum frame_type type, uint64_t id, const void *payload, size_t size)
{
	uint8_t *place = connection_reserve();
	if (OUTBOX_SIZE - connection.out_end < FRAME_HEADER_SIZE + size) {
		/* Cannot happen: half of the outbox is reserved. A daemon would connect again
		 * and ask with LIST. */
		connection_close();
		return;
	}
	frame_header_write(place, type, id, (uint32_t)size);
	if (size > 0)
		memcpy(place + FRAME_HEADER_SIZE, payload, size);
	connection_commit(FRAME_HEADER_SIZE + size);
}

void connection_send(enum frame_type type, uint64_t id, const void *payload, size_t size)
{
	if (connection_ready())
		frame_queue(type, id, payload, size);
}

void connection_send_number(enum frame_type type, uint64_t id, uint32_t number)
{
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	write_u32(&writer, number);
	connection_send(type, id, room, writer.size);
}

static void failure_queue(enum frame_type type, uint64_t id, const struct failure *failure)
{
	uint8_t room[sizeof(*failure) + 16];
	struct writer writer = writer_on(room, sizeof(room));
	failure_write(&writer, failure);
	frame_queue(type, id, room, writer.size);
}

void connection_send_failure(enum frame_type type, uint64_t id, enum error_kind kind, int errnum,
			     const char *message)
{
	struct failure failure = {.kind = kind, .errnum = (uint32_t)errnum};
	snprintf(failure.message, sizeof(failure.message), "%s", message);
	if (connection_ready())
		failure_queue(type, id, &failure);
}

void connection_refuse(const char *message)
{
	struct failure failure = {.kind = ERROR_GUEST_PROTOCOL};
	if (connection.fd < 0 || connection.closing)
		return;
	snprintf(failure.message, sizeof(failure.message), "%s", message);
	failure_queue(FRAME_REFUSED, 0, &failure);
	connection.closing = true;
}

static void hello_serve(const struct request *request)
{
	const struct hello ours = {INIT_PROTOCOL_OLDEST, INIT_PROTOCOL_VERSION};
	struct hello theirs = request->hello;
	uint32_t version = protocol_agree(ours, theirs);
	if (version == 0) {
		char message[128];
		snprintf(message, sizeof(message),
			 "this init speaks versions %u to %u of the protocol, the daemon %u to %u",
			 ours.oldest, ours.newest, theirs.oldest, theirs.newest);
		connection_refuse(message);
		return;
	}
	struct hello_reply reply = {.version = version,
				    .configured = configuration.configured,
				    .boot_ns = (uint64_t)ready_at};
	uint8_t room[32];
	struct writer writer = writer_on(room, sizeof(room));
	hello_reply_write(&writer, &reply);
	connection.hello = true;
	connection_send(FRAME_HELLO_REPLY, 0, room, writer.size);
}

static void configure_request_serve(const struct request *request)
{
	struct failure failure = {.kind = ERROR_SANDBOX_STATE,
				  .message = "the sandbox is already configured"};
	if (configuration.configured || configure(&request->configure, &failure) < 0)
		failure_queue(FRAME_REFUSED, 0, &failure);
	else
		connection_send(FRAME_CONFIGURED, 0, NULL, 0);
}

/* Descriptors arrive in the order of the frames that they belong to; an exec's are its logs. */
static void exec_request_serve(const struct request *request)
{
	int logs[2] = {-1, -1};
	size_t wanted =
	    request->exec.flags & EXEC_LOG ? (request->exec.flags & EXEC_TTY ? 1 : 2) : 0;
	if (connection.fd_count < wanted || exec_find(request->id)) {
		connection_refuse(connection.fd_count < wanted
				      ? "EXEC without its logs"
				      : "the key of an exec was used twice");
		return;
	}
	memcpy(logs, connection.fds, wanted * sizeof(int));
	connection.fd_count -= wanted;
	memmove(connection.fds, connection.fds + wanted, connection.fd_count * sizeof(int));
	exec_begin(request, logs);
}

static void metrics_send(uint64_t id)
{
	uint8_t room[16];
	struct writer writer = writer_on(room, sizeof(room));
	scan_processes();
	struct guest_metrics metrics = {.processes = scan_count_all(),
					.uptime_ns = (uint64_t)(clock_boot() - ready_at)};
	guest_metrics_write(&writer, &metrics);
	connection_send(FRAME_RESULT, id, room, writer.size);
}

static void operation_request_serve(const struct request *request)
{
	switch (request->type) {
	case FRAME_FILE:
	case FRAME_CONNECT:
		relay_begin(request);
		break;
	case FRAME_DATA:
		relay_data(request);
		break;
	case FRAME_DATA_END:
		relay_data_end(request->id);
		break;
	case FRAME_CANCEL:
		relay_cancel(request->id);
		break;
	case FRAME_METRICS:
		metrics_send(request->id);
		break;
	case FRAME_CREDIT:
		if (request->id & OPERATION_ID_BIT)
			relay_credit(request->id, request->credit);
		else
			exec_credit(request->id, request->credit);
		break;
	case FRAME_FREEZE:
	case FRAME_THAW:
		connection_send_failure(
		    request->type == FRAME_FREEZE ? FRAME_FAILED : FRAME_REFUSED, request->id,
		    ERROR_UNSUPPORTED, 0, "this tier has no snapshots of memory");
		break;
	default:
		connection_refuse("a frame that only an init sends");
		break;
	}
}

static void request_serve(const struct request *request)
{
	switch (request->type) {
	case FRAME_HELLO:
		hello_serve(request);
		break;
	case FRAME_CONFIGURE:
		configure_request_serve(request);
		break;
	case FRAME_DEADLINE:
		loop_set_deadline(request->deadline ? request->deadline : NEVER);
		break;
	case FRAME_PING:
		connection_send(FRAME_PONG, 0, request->frame.payload, request->frame.size);
		break;
	case FRAME_SHUTDOWN:
		loop_shut_down(request->grace_ms);
		break;
	case FRAME_EXEC:
		exec_request_serve(request);
		break;
	case FRAME_STDIN:
		exec_input(request);
		break;
	case FRAME_STDIN_CLOSE:
		exec_input_close(request->id);
		break;
	case FRAME_SIGNAL:
		exec_signal(request);
		break;
	case FRAME_RESIZE:
		exec_resize(request);
		break;
	case FRAME_CONSUMED:
		exec_consumed(request);
		break;
	case FRAME_FORGET:
		exec_forget(request->id);
		break;
	case FRAME_LIST:
		exec_send_list();
		break;
	case FRAME_LEFT_RUNNING:
		exec_send_left_running(request->id);
		break;
	default:
		operation_request_serve(request);
		break;
	}
}

/* The daemon of the last connection is gone. Frames that are queued for it stay queued, because
 * OUTPUT may be among them. */
static void connection_restart(const struct frame *frame)
{
	connection.hello = connection.closing = false;
	relay_cancel_all();
	exec_connection_changed();
	frame_queue(FRAME_BEGIN, 0, frame->payload, MIN(frame->size, 4));
}

/* Checks the order of requests: HELLO first and once, CONFIGURE before anything runs. Returns
 * NULL, or the violation. */
static const char *request_order_problem(uint16_t type)
{
	if (connection.lasts && type == FRAME_CREDIT)
		return NULL;
	if ((type == FRAME_HELLO) == connection.hello)
		return connection.hello ? "HELLO twice" : "a request before HELLO";
	bool runs = type == FRAME_EXEC || type == FRAME_FILE || type == FRAME_CONNECT;
	if (runs && !configuration.configured)
		return "a command before CONFIGURE";
	return NULL;
}

/* Serves the frame at the front of the inbox. False if there is none, or if it has to wait. */
static bool request_serve_next(void)
{
	static struct request request;
	struct frame frame;
	if (connection.fd < 0 || (connection.closing && !connection.lasts) ||
	    !connection_has_room())
		return false;
	int64_t length = inbox_front(&inbox, &frame);
	if (length == 0)
		return false;
	if (length < 0 && connection.lasts)
		connection_close();
	bool begins = connection.lasts && frame.type == FRAME_BEGIN;
	if (begins)
		connection_restart(&frame);
	if (begins || connection.closing) {
		inbox.start += (size_t)length;
		return true;
	}
	if (length < 0 || request_parse(&frame, &request) < 0) {
		connection_refuse("an invalid frame");
		return false;
	}
	const char *problem = request_order_problem(frame.type);
	if (problem) {
		connection_refuse(problem);
		return false;
	}
	bool runs =
	    frame.type == FRAME_EXEC || frame.type == FRAME_FILE || frame.type == FRAME_CONNECT;
	if (runs && !runner_request_has_room())
		return false;
	uint32_t generation = connection.generation;
	request_serve(&request);
	if (connection.fd >= 0 && connection.generation == generation)
		inbox.start += (size_t)length;
	return true;
}

static void inbox_receive(void)
{
	uint8_t *place;
	size_t room = inbox_room(&inbox, &place);
	size_t fds = MIN(FDS_MAX - connection.fd_count, (size_t)FDS_PER_MESSAGE);
	if (room == 0 || fds < FDS_PER_MESSAGE)
		return;
	ssize_t got =
	    fd_receive(connection.fd, place, room, connection.fds + connection.fd_count, &fds);
	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		connection_close();
		return;
	}
	connection.fd_count += fds;
	inbox.end += (size_t)got;
}

static void outbox_send(void)
{
	while (connection.fd >= 0 && connection.out_start < connection.out_end) {
		ssize_t sent =
		    send(connection.fd, outbox + connection.out_start,
			 connection.out_end - connection.out_start, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN)
			return;
		if (sent < 0) {
			connection_close();
			return;
		}
		connection.out_start += (size_t)sent;
	}
	connection.out_start = connection.out_end = 0;
	if (connection.closing && !connection.lasts)
		connection_close();
}

/* Reading stops while the inbox or the list of descriptors is full: the peer then waits. */
static void connection_watch(void)
{
	uint8_t *place;
	if (connection.fd < 0)
		return;
	uint32_t events = connection.out_start < connection.out_end ? EPOLLOUT : 0;
	bool fds_fit = FDS_MAX - connection.fd_count >= FDS_PER_MESSAGE;
	if (fds_fit && inbox_room(&inbox, &place) > 0)
		events |= EPOLLIN;
	if (events == connection.watched)
		return;
	if (loop_modify(connection.fd, events, EVENT_CONNECTION, 0, connection.generation) < 0)
		connection_close();
	else
		connection.watched = events;
}

void connection_event(uint32_t generation, uint32_t events)
{
	if (connection.fd < 0 || generation != connection.generation)
		return;
	/* The peer is gone. Closing must not wait until there is room to read: epoll would report
	 * the hang-up on every wait, whichever events are requested. */
	if ((events & EPOLLHUP) && !(connection.watched & EPOLLIN))
		connection_close();
	else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		inbox_receive();
}

void connection_serve(void)
{
	for (int i = 0; i < REQUESTS_PER_TURN && request_serve_next(); i++)
		;
}

void connection_flush(void)
{
	if (connection_has_room())
		relay_resume();
	exec_send_pending();
	outbox_send();
	struct frame frame;
	if (connection.fd >= 0 && FDS_MAX - connection.fd_count < FDS_PER_MESSAGE &&
	    inbox_front(&inbox, &frame) == 0) {
		connection_refuse("descriptors without frames");
		outbox_send();
	}
	connection_watch();
}

bool connection_has_request(void)
{
	struct frame frame;
	return connection.fd >= 0 && (!connection.closing || connection.lasts) &&
	       connection_has_room() && runner_request_has_room() &&
	       inbox_front(&inbox, &frame) != 0;
}
