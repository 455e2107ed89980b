/* The connection to one init, on a raw non-blocking Unix stream socket (descriptors travel with
 * EXEC). Called by core/sandbox/link.c; never blocks. Received data is split into frames and their
 * types are checked here; the receiver of a frame checks its payload. Data to send is queued up to
 * a maximum.
 *
 * `closed` is never called from within a function of this file: a failure while sending is reported
 * in the next turn of the loop. */
#include "core/guest_link_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

#define QUEUE_MAX (4 * MIB)
/* The maximum for bulk data, so that control frames always find room below QUEUE_MAX. */
#define QUEUE_HIGH (1 * MIB)
#define QUEUE_LOW (256 * KIB)
#define READ_SIZE (64 * 1024)
/* A guest may send many tiny frames: one piece of work handles at most so many. */
#define FRAMES_PER_PIECE 128
#define CONNECT_RETRY_MS 5
#define FRAME_FDS_MAX 4
#define PARTS_MAX 32
/* More data than this is sent at once instead of at the end of the loop's turn. */
#define GATHERED_MAX (32 * KIB)

struct outgoing_frame {
	struct list link;
	size_t size, sent;
	int fds[FRAME_FDS_MAX];
	size_t fd_count;
	uint8_t data[];
};

static void link_polled(uv_poll_t *poll, int status, int events);
static void link_timer_due(uv_timer_t *timer);

void error_from_failure(struct error *error, const struct failure *failure)
{
	enum error_kind kind = (enum error_kind)failure->kind;
	/* An init may not claim the other kinds (about rights, the store or the host). */
	bool allowed = kind >= ERROR_PROGRAM_NOT_FOUND && kind <= ERROR_CANCELLED;
	if (!allowed && kind != ERROR_INVALID && kind != ERROR_UNSUPPORTED &&
	    kind != ERROR_TOO_LARGE && kind != ERROR_LIMIT_EXCEEDED && kind != ERROR_BUSY &&
	    kind != ERROR_GUEST_PROTOCOL && kind != ERROR_ARCHIVE_INVALID)
		kind = ERROR_INTERNAL;
	error_set(error, kind, "%s", failure->message);
	error->errnum = (int)failure->errnum;
}

static void link_watch(struct guest_link *link)
{
	if (link->state == LINK_FAILED || !link->poll_open)
		return;
	int events = UV_READABLE | (link->blocked ? UV_WRITABLE : 0);
	uv_poll_start(&link->poll, events, link_polled);
}

void guest_link_fail(struct guest_link *link, const struct error *error)
{
	if (link->state == LINK_FAILED || link->freed)
		return;
	link->state = LINK_FAILED;
	link->error = *error;
	if (link->poll_open)
		uv_poll_stop(&link->poll);
	uv_timer_stop(&link->timer);
	work_wait(&link->telling, link->share);
}

void guest_link_fail_gone(struct guest_link *link, const char *why)
{
	struct error error;
	error_set(&error, ERROR_GUEST_GONE, "the sandbox's init does not answer: %s", why);
	guest_link_fail(link, &error);
}

void guest_link_fail_protocol(struct guest_link *link, const char *why)
{
	struct error error;
	error_set(&error, ERROR_GUEST_PROTOCOL, "the sandbox's init broke the protocol: %s", why);
	guest_link_fail(link, &error);
}

static void outgoing_close_fds(struct outgoing_frame *outgoing)
{
	while (outgoing->fd_count > 0)
		fd_close(&outgoing->fds[--outgoing->fd_count]);
}

static void outgoing_free(struct guest_link *link, struct outgoing_frame *outgoing)
{
	list_remove(&outgoing->link);
	link->queued -= outgoing->size - outgoing->sent;
	outgoing_close_fds(outgoing);
	free(outgoing);
}

static void queue_flush(struct guest_link *link)
{
	link->blocked = false;
	while (link->state != LINK_FAILED && !list_empty(&link->queue)) {
		struct outgoing_frame *first =
		    list_entry(link->queue.next, struct outgoing_frame, link);
		struct iovec parts[PARTS_MAX];
		size_t count = 0;
		/* Frames are sent together, except those with descriptors, which travel with a
		 * frame's first byte. */
		list_each (&link->queue, node) {
			struct outgoing_frame *outgoing =
			    list_entry(node, struct outgoing_frame, link);
			if (count == PARTS_MAX || (count > 0 && outgoing->fd_count > 0))
				break;
			parts[count++] = (struct iovec){outgoing->data + outgoing->sent,
							outgoing->size - outgoing->sent};
			if (outgoing->fd_count > 0)
				break;
		}
		ssize_t sent = fd_send_parts(link->fd, parts, count, first->fds, first->fd_count);
		if (sent == -EAGAIN) {
			link->blocked = true;
			return;
		}
		if (sent < 0) {
			guest_link_fail_gone(link, strerror((int)-sent));
			return;
		}
		outgoing_close_fds(first);
		for (size_t left = (size_t)sent; left > 0;) {
			struct outgoing_frame *outgoing =
			    list_entry(link->queue.next, struct outgoing_frame, link);
			size_t part = MIN(left, outgoing->size - outgoing->sent);
			outgoing->sent += part;
			link->queued -= part;
			left -= part;
			if (outgoing->sent == outgoing->size)
				outgoing_free(link, outgoing);
		}
	}
}

/* Sends the queue, and waits if the socket is full. */
static void queue_send(struct guest_link *link)
{
	queue_flush(link);
	if (link->blocked)
		link_watch(link);
}

static void link_turn_come(uv_idle_t *turn)
{
	struct guest_link *link = container_of(turn, struct guest_link, turn);
	uv_idle_stop(turn);
	if (!link->blocked)
		queue_send(link);
}

int guest_frame_queue(struct guest_link *link, enum frame_type type, uint64_t id,
		      const void *payload, size_t size, const int *fds, size_t fd_count,
		      struct error *error)
{
	if (size > FRAME_PAYLOAD_MAX || fd_count > FRAME_FDS_MAX)
		return error_set(error, ERROR_TOO_LARGE,
				 "a frame of %zu bytes is too long for the sandbox's init", size);
	if (link->queued + FRAME_HEADER_SIZE + size > QUEUE_MAX) {
		guest_link_fail_gone(link, "it does not read");
		*error = link->error;
		return -1;
	}
	struct outgoing_frame *outgoing = calloc(1, sizeof(*outgoing) + FRAME_HEADER_SIZE + size);
	if (!outgoing)
		abort();
	outgoing->size = FRAME_HEADER_SIZE + size;
	frame_header_write(outgoing->data, (uint16_t)type, id, (uint32_t)size);
	if (size > 0)
		memcpy(outgoing->data + FRAME_HEADER_SIZE, payload, size);
	list_append(&link->queue, &outgoing->link);
	link->queued += outgoing->size;
	for (size_t i = 0; i < fd_count; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
		if (fd < 0) {
			int errnum = errno;
			outgoing_free(link, outgoing);
			return error_set_errno(error, error_kind_of_errno(errnum), errnum,
					       "duplicating a descriptor");
		}
		outgoing->fds[outgoing->fd_count++] = fd;
	}
	link->unanswered = true;
	/* The first frame of a turn of the loop is sent at once, so that the init can begin; the
	 * others are sent together at the turn's end. */
	bool later = uv_is_active((uv_handle_t *)&link->turn) && link->queued <= GATHERED_MAX;
	if (!link->blocked && !later && link->state != LINK_CONNECTING) {
		queue_send(link);
		if (!link->blocked)
			uv_idle_start(&link->turn, link_turn_come);
	}
	if (link->state == LINK_FAILED) {
		*error = link->error;
		return -1;
	}
	guest_ping_arm(link);
	return 0;
}

int guest_link_send(struct guest_link *link, enum frame_type type, uint64_t id, const void *payload,
		    size_t size, const int *fds, size_t fd_count, struct error *error)
{
	if (link->state == LINK_FAILED || link->freed) {
		*error = link->error;
		return -1;
	}
	/* Before HELLO is answered, the peer is unknown. */
	if (link->state != LINK_OPEN)
		return error_set(error, ERROR_GUEST_GONE,
				 "the connection to the sandbox's init is being made");
	return guest_frame_queue(link, type, id, payload, size, fds, fd_count, error);
}

void guest_link_set_share(struct guest_link *link, struct work_share *share)
{
	work_share_release(link->share);
	link->share = share;
}

uint32_t guest_link_version(const struct guest_link *link)
{
	return link->version;
}

size_t guest_link_room(struct guest_link *link)
{
	size_t room = link->queued < QUEUE_HIGH ? QUEUE_HIGH - link->queued : 0;
	if (link->state == LINK_FAILED || room < FRAME_HEADER_SIZE + FILE_CHUNK_MAX)
		room = 0;
	link->throttled |= room == 0;
	return room;
}

static void link_hello_reply_came(struct guest_link *link, const struct frame *frame)
{
	struct hello_reply reply;
	if (frame->type == FRAME_REFUSED) {
		struct failure failure;
		struct error error;
		if (failure_read(frame, &failure) < 0) {
			guest_link_fail_protocol(link, "REFUSED does not parse");
			return;
		}
		error_from_failure(&error, &failure);
		error_prepend(&error, "the sandbox's init refused the connection");
		guest_link_fail(link, &error);
		return;
	}
	if (frame->type != FRAME_HELLO_REPLY || hello_reply_read(frame, &reply) < 0) {
		guest_link_fail_protocol(link, "it did not answer HELLO");
		return;
	}
	if (reply.version < INIT_PROTOCOL_OLDEST || reply.version > INIT_PROTOCOL_VERSION) {
		struct error error;
		error_set(&error, ERROR_GUEST_PROTOCOL,
			  "the sandbox's init speaks version %u of the protocol, this daemon "
			  "versions %d to %d",
			  reply.version, INIT_PROTOCOL_OLDEST, INIT_PROTOCOL_VERSION);
		guest_link_fail(link, &error);
		return;
	}
	link->state = LINK_OPEN;
	link->version = reply.version;
	uv_timer_stop(&link->timer);
	link->callbacks.connected(link->data, &reply);
}

static void frame_handle(struct guest_link *link, const struct frame *frame)
{
	struct error error;
	link->unanswered = false;
	if (link->state == LINK_GREETING) {
		link_hello_reply_came(link, frame);
		return;
	}
	switch (frame->type) {
	case FRAME_PONG:
		guest_ping_answered(link, frame);
		return;
	/* The frames that an init may send once the connection is open. */
	case FRAME_CONFIGURED:
	case FRAME_REFUSED:
	case FRAME_STARTED:
	case FRAME_START_FAILED:
	case FRAME_PROGRESS:
	case FRAME_EXITED:
	case FRAME_LISTED:
	case FRAME_LIST_END:
	case FRAME_LEFT_RUNNING:
	case FRAME_GONE:
	case FRAME_DATA:
	case FRAME_DATA_END:
	case FRAME_CREDIT:
	case FRAME_RESULT:
	case FRAME_FAILED:
		if (link->callbacks.frame(link->data, frame, &error) < 0)
			guest_link_fail(link, &error);
		return;
	default:
		guest_link_fail_protocol(link, "a frame of a type that it may not send");
	}
}

/* Handles the complete received frames, up to one piece of work. Keeps only an incomplete last
 * frame: thousands of idle links must not keep a buffer each. False: the frame is longer than the
 * maximum. */
static bool frames_take(struct guest_link *link, const char *data, size_t size)
{
	bool kept = link->in.size > 0;
	if (kept && size > 0 && buffer_append(&link->in, data, size) < 0)
		return false;
	if (kept) {
		data = link->in.data;
		size = link->in.size;
	}
	size_t at = 0;
	link->more = false;
	for (unsigned frames = 0; at < size && link->state != LINK_FAILED && !link->freed;
	     frames++) {
		struct frame frame;
		if (frames == FRAMES_PER_PIECE) {
			link->more = true;
			break;
		}
		int64_t length = frame_parse(data + at, size - at, &frame);
		if (length < 0)
			guest_link_fail_protocol(link, "a frame that does not parse");
		if (length <= 0)
			break;
		frame_handle(link, &frame);
		at += (size_t)length;
	}
	if (link->state == LINK_FAILED || link->freed)
		return true;
	if (!kept)
		return at == size || buffer_append(&link->in, data + at, size - at) == 0;
	buffer_consume(&link->in, at);
	if (link->in.size == 0)
		buffer_done(&link->in);
	return true;
}

bool guest_link_read(struct guest_link *link)
{
	static char arrived[READ_SIZE];
	if (link->state == LINK_FAILED || link->freed)
		return false;
	if (link->more) {
		(void)frames_take(link, NULL, 0);
		return true;
	}
	/* Without a control buffer the kernel drops any received descriptor. */
	ssize_t got;
	do
		got = recv(link->fd, arrived, READ_SIZE, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return false;
	if (got <= 0)
		guest_link_fail_gone(link, got < 0 ? strerror(errno) : "it closed its connection");
	else if (!frames_take(link, arrived, (size_t)got))
		guest_link_fail_protocol(link, "a frame longer than the maximum");
	return got == READ_SIZE || link->more;
}

/* libuv reports again while the socket has more data, but not for data that was read already. */
static void link_turn_to_read(struct work *work)
{
	struct guest_link *link = container_of(work, struct guest_link, work);
	(void)guest_link_read(link);
	if (link->more && link->state != LINK_FAILED && !link->freed)
		work_wait(work, link->share);
}

static void link_polled(uv_poll_t *poll, int status, int events)
{
	struct guest_link *link = container_of(poll, struct guest_link, poll);
	if (status < 0) {
		guest_link_fail_gone(link, uv_strerror(status));
		return;
	}
	if (events & UV_READABLE)
		work_run(&link->work, link->share);
	if (link->freed || !(events & UV_WRITABLE))
		return;
	queue_flush(link);
	link_watch(link);
	/* Only a full socket exhausts the room, so this is where it comes back. */
	if (link->throttled && link->queued < QUEUE_LOW && link->state == LINK_OPEN) {
		link->throttled = false;
		if (link->callbacks.drained)
			link->callbacks.drained(link->data);
	}
}

static void link_greet(struct guest_link *link)
{
	uint8_t room[8];
	struct writer writer = writer_on(room, sizeof(room));
	struct error error;
	hello_write(&writer, &(struct hello){INIT_PROTOCOL_OLDEST, INIT_PROTOCOL_VERSION});
	link->state = LINK_GREETING;
	if (guest_frame_queue(link, FRAME_HELLO, 0, room, sizeof(room), NULL, 0, &error) < 0)
		guest_link_fail(link, &error);
	link_watch(link);
}

/* 0: connected, -EAGAIN: the backlog of the init is full, else -errno. */
static int link_try_connect(struct guest_link *link)
{
	int result;
	do
		result =
		    connect(link->fd, (struct sockaddr *)&link->address, sizeof(link->address));
	while (result < 0 && errno == EINTR);
	if (result < 0)
		return -errno;
	link_greet(link);
	return 0;
}

static void link_connect_timer_due(struct guest_link *link)
{
	if (clock_boot() >= link->until) {
		guest_link_fail_gone(link, link->state == LINK_CONNECTING
					       ? "its queue is full"
					       : "no answer to HELLO in time");
		return;
	}
	int result = link_try_connect(link);
	if (result < 0 && result != -EAGAIN) {
		guest_link_fail_gone(link, strerror(-result));
		return;
	}
	int64_t left = (link->until - clock_boot()) / NSEC_PER_MSEC + 1;
	if (link->state == LINK_CONNECTING)
		left = MIN(left, CONNECT_RETRY_MS);
	if (link->state != LINK_FAILED)
		uv_timer_start(&link->timer, link_timer_due, (uint64_t)MAX(left, 1), 0);
}

static void link_timer_due(uv_timer_t *timer)
{
	struct guest_link *link = container_of(timer, struct guest_link, timer);
	switch (link->state) {
	case LINK_CONNECTING:
		link_connect_timer_due(link);
		break;
	case LINK_GREETING:
		guest_link_fail_gone(link, "no answer to HELLO in time");
		break;
	case LINK_OPEN:
		guest_ping_check(link);
		break;
	case LINK_FAILED: /* it was stopped */
		break;
	}
}

void guest_link_set_timer(struct guest_link *link, uint64_t milliseconds)
{
	uv_timer_start(&link->timer, link_timer_due, milliseconds, 0);
}

static void link_turn_to_tell(struct work *work)
{
	struct guest_link *link = container_of(work, struct guest_link, telling);
	link->callbacks.closed(link->data, &link->error);
}

static struct guest_link *link_new(uv_loop_t *loop, int fd, uint32_t timeout_ms,
				   const struct guest_link_callbacks *callbacks, void *data)
{
	struct guest_link *link = calloc(1, sizeof(*link));
	if (!link)
		abort();
	link->fd = fd;
	link->callbacks = *callbacks;
	link->data = data;
	link->in = BUFFER(FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX + READ_SIZE);
	list_init(&link->queue);
	list_init(&link->echoes);
	link->until = clock_boot() + timeout_ms * NSEC_PER_MSEC;
	link->work.run = link_turn_to_read;
	link->telling.run = link_turn_to_tell;
	struct work_queue *queue = work_queue_of(loop);
	link->share = work_share_get(queue, "guests");
	work_queue_release(queue);
	uv_timer_init(loop, &link->timer);
	uv_idle_init(loop, &link->turn);
	link->open_handles = 2;
	if (uv_poll_init(loop, &link->poll, fd) == 0) {
		link->poll_open = true;
		link->open_handles = 3;
	}
	return link;
}

int guest_link_open(uv_loop_t *loop, const char *socket_path, uint32_t timeout_ms,
		    const struct guest_link_callbacks *callbacks, void *data,
		    struct guest_link **ret_link, struct error *error)
{
	CLOSE_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "socket");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (text_copy(address.sun_path, sizeof(address.sun_path), socket_path) < 0)
		return error_set(error, ERROR_INTERNAL,
				 "the path of the init's socket is too long");
	struct guest_link *link = link_new(loop, TAKE_FD(fd), timeout_ms, callbacks, data);
	link->address = address;
	int result = link->poll_open ? link_try_connect(link) : -EMFILE;
	if (result < 0 && result != -EAGAIN) {
		guest_link_free(link);
		return error_set_errno(error, ERROR_GUEST_GONE, result,
				       "connecting to the sandbox's init");
	}
	if (link->state != LINK_FAILED)
		uv_timer_start(&link->timer, link_timer_due,
			       result == 0 ? timeout_ms : CONNECT_RETRY_MS, 0);
	*ret_link = link;
	return 0;
}

struct guest_link *guest_link_open_fd(uv_loop_t *loop, int fd, uint32_t timeout_ms,
				      const struct guest_link_callbacks *callbacks, void *data)
{
	struct guest_link *link = link_new(loop, fd, timeout_ms, callbacks, data);
	if (!link->poll_open || fd_set_nonblocking(fd) < 0)
		guest_link_fail_gone(link, "its socket cannot be polled");
	else
		link_greet(link);
	if (link->state != LINK_FAILED)
		uv_timer_start(&link->timer, link_timer_due, timeout_ms, 0);
	return link;
}

void guest_link_set_callbacks(struct guest_link *link, const struct guest_link_callbacks *callbacks,
			      void *data)
{
	link->callbacks = *callbacks;
	link->data = data;
}

static void link_handle_closed(uv_handle_t *handle)
{
	struct guest_link *link = handle->data;
	if (--link->open_handles > 0)
		return;
	buffer_done(&link->in);
	work_share_release(link->share);
	free(link);
}

void guest_link_free(struct guest_link *link)
{
	if (!link || link->freed)
		return;
	guest_echoes_lose(link);
	/* The data that waits for the turn's end was announced. */
	if (uv_is_active((uv_handle_t *)&link->turn))
		queue_flush(link);
	link->freed = true;
	work_cancel(&link->work);
	work_cancel(&link->telling);
	while (!list_empty(&link->queue))
		outgoing_free(link, list_entry(link->queue.next, struct outgoing_frame, link));
	link->poll.data = link->timer.data = link->turn.data = link;
	if (link->poll_open)
		uv_close((uv_handle_t *)&link->poll, link_handle_closed);
	uv_close((uv_handle_t *)&link->timer, link_handle_closed);
	uv_close((uv_handle_t *)&link->turn, link_handle_closed);
	fd_close(&link->fd);
}
