/* Between the process of a file operation and PID 1: frames, credit, cancelling, and the
 * dispatch to the operation's function. Called by a runner that serves a FILE request.
 * Everything here may block: it waits for credit, for data, or for room in the socket. */
#include "init/file/operation.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "init/file/internal.h"

/* Credit goes back in pieces of this size: the sender always has three quarters of its window,
 * and a small frame does not cause a message. */
#define CREDIT_STEP (FILE_WINDOW / 4)

static int socket_wait(int socket, short events)
{
	struct pollfd poll_fd = {.fd = socket, .events = events};
	if (poll(&poll_fd, 1, -1) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

/* Sends a frame; data of operation_send_last() goes before it, in the same message. */
static int frame_send(struct operation *operation, uint16_t type, const void *payload, size_t size)
{
	uint8_t headers[2][FRAME_HEADER_SIZE];
	const void *payloads[2] = {operation->last, payload};
	const size_t sizes[2] = {operation->last_size, size};
	struct iovec parts[4];
	int first = operation->last ? 0 : 1;
	for (int i = first; i < 2; i++) {
		frame_header_write(headers[i], i == 0 ? FRAME_DATA : type,
				   operation->stays ? OPERATION_STAYS : 0, (uint32_t)sizes[i]);
		parts[2 * i] = (struct iovec){headers[i], FRAME_HEADER_SIZE};
		parts[2 * i + 1] = (struct iovec){(void *)payloads[i], sizes[i]};
	}
	struct msghdr message = {.msg_iov = parts + 2 * first, .msg_iovlen = 4 - 2 * first};
	operation->last = NULL;
	while (sendmsg(operation->socket, &message, MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN && socket_wait(operation->socket, POLLOUT) == 0)
			continue;
		if (errno != EINTR) {
			operation->cancelled = true;
			return -ECANCELED;
		}
	}
	return 0;
}

void operation_send_last(struct operation *operation, const void *data, size_t size)
{
	operation->last = data;
	operation->last_size = size;
}

/* Receives a whole message, or with MSG_PEEK its header only. Returns the frame's type, -EAGAIN,
 * or -ECANCELED (then every later call does, too). */
static int frame_receive(struct operation *operation, int flags, uint8_t header[FRAME_HEADER_SIZE],
			 void *payload, uint32_t *ret_size)
{
	struct iovec parts[2] = {{header, FRAME_HEADER_SIZE}, {payload, FILE_CHUNK_MAX}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = payload ? 2 : 1};
	ssize_t got;
	for (;;) {
		got = recvmsg(operation->socket, &message, flags);
		if (got >= 0 || (errno != EINTR && errno != EAGAIN))
			break;
		if (errno == EAGAIN && (flags & MSG_DONTWAIT))
			return -EAGAIN;
		if (errno == EAGAIN && socket_wait(operation->socket, POLLIN) < 0)
			break;
		message.msg_flags = 0;
	}
	struct reader reader = reader_on(header, got > 0 ? MIN((size_t)got, FRAME_HEADER_SIZE) : 0);
	uint32_t size = read_u32(&reader);
	uint16_t type = read_u16(&reader);
	bool whole = (flags & MSG_PEEK) || (!(message.msg_flags & MSG_TRUNC) &&
					    (size_t)got == FRAME_HEADER_SIZE + (size_t)size);
	if (got < FRAME_HEADER_SIZE || reader.bad || !whole) {
		operation->cancelled = true;
		return -ECANCELED;
	}
	*ret_size = size;
	return type;
}

/* Handles a frame that is not data: adds credit; anything else cancels. 0 or -ECANCELED. */
static int control_frame_handle(struct operation *operation, int type, const void *payload,
				uint32_t size)
{
	struct reader reader = reader_on(payload, size);
	if (type == FRAME_CREDIT) {
		operation->send_credit += read_u32(&reader);
		if (reader_finish(&reader) == 0 && operation->send_credit <= 16 * FILE_WINDOW)
			return 0;
	}
	operation->cancelled = true;
	return -ECANCELED;
}

/* Data for any other operation is dropped and its credit not returned, so at most one window of
 * it arrives. */
bool operation_takes_data(const struct operation *operation)
{
	return operation->request.operation == FILE_WRITE ||
	       operation->request.operation == FILE_APPEND ||
	       operation->request.operation == FILE_UNPACK;
}

bool operation_cancelled(struct operation *operation)
{
	while (!operation->cancelled) {
		uint8_t header[FRAME_HEADER_SIZE], payload[FRAME_HEADER_SIZE];
		uint32_t size;
		int type = frame_receive(operation, MSG_DONTWAIT | MSG_PEEK, header, NULL, &size);
		bool data = type == FRAME_DATA || type == FRAME_DATA_END;
		/* Data stays in the socket for operation_receive(). */
		if (type < 0 || (data && operation_takes_data(operation)))
			break;
		struct iovec parts[2] = {{header, sizeof(header)}, {payload, sizeof(payload)}};
		struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
		if (recvmsg(operation->socket, &message, MSG_DONTWAIT) < 0 ||
		    (!data && size > sizeof(payload)))
			operation->cancelled = true;
		else if (!data)
			(void)!control_frame_handle(operation, type, payload, size);
	}
	return operation->cancelled;
}

int operation_send(struct operation *operation, const void *data, size_t size)
{
	while (!operation_cancelled(operation) && operation->send_credit < size) {
		if (socket_wait(operation->socket, POLLIN) < 0)
			operation->cancelled = true;
	}
	if (operation->cancelled)
		return -ECANCELED;
	operation->send_credit -= size;
	return frame_send(operation, FRAME_DATA, data, size);
}

static int credit_return(struct operation *operation, size_t size)
{
	operation->unreturned += size;
	if (operation->unreturned < CREDIT_STEP)
		return 0;
	uint8_t payload[4];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, (uint32_t)operation->unreturned);
	operation->unreturned = 0;
	return frame_send(operation, FRAME_CREDIT, payload, sizeof(payload));
}

ssize_t operation_receive(struct operation *operation, void *data)
{
	while (!operation->cancelled) {
		uint8_t header[FRAME_HEADER_SIZE];
		uint32_t size;
		int type = frame_receive(operation, 0, header, data, &size);
		if (type == FRAME_DATA_END)
			return 0;
		if (type == FRAME_DATA && size == 0)
			continue;
		if (type == FRAME_DATA)
			return credit_return(operation, size) < 0 ? -ECANCELED : (ssize_t)size;
		if (type < 0 || control_frame_handle(operation, type, data, size) < 0)
			break;
	}
	return -ECANCELED;
}

/* Discards messages that arrive after the answer. (A process that stays discards them while it
 * waits for the next request.) If a Unix socket is closed with unread messages (data, credit),
 * the peer's next receive fails with ECONNRESET before it gets the answer. So the receiving side
 * is shut first (EPIPE for the peer), and then the messages are read. */
static void operation_close_receiving(struct operation *operation)
{
	uint8_t byte;
	operation->cancelled = true;
	if (operation->stays)
		return;
	(void)!shutdown(operation->socket, SHUT_RD);
	while (recv(operation->socket, &byte, sizeof(byte), MSG_DONTWAIT) > 0)
		;
}

void operation_result(struct operation *operation, const void *payload, size_t size)
{
	(void)!frame_send(operation, FRAME_RESULT, payload, size);
	operation_close_receiving(operation);
}

void operation_failed(struct operation *operation, enum error_kind kind, int errnum,
		      const char *message)
{
	struct failure failure = {.kind = kind, .errnum = (uint32_t)errnum};
	size_t size = strlen(message);
	memcpy(failure.message, message, MIN(size, sizeof(failure.message) - 1));
	uint8_t payload[sizeof(failure) + 64];
	struct writer writer = writer_on(payload, sizeof(payload));
	failure_write(&writer, &failure);
	(void)!frame_send(operation, FRAME_FAILED, payload, writer.size);
	operation_close_receiving(operation);
}

static int (*const operations[])(struct operation *, struct failure *) = {
    [FILE_STAT] = file_stat,       [FILE_LIST] = file_list,         [FILE_READ] = file_read,
    [FILE_WRITE] = file_write,     [FILE_APPEND] = file_append,     [FILE_MKDIR] = file_mkdir,
    [FILE_REMOVE] = file_remove,   [FILE_RENAME] = file_rename,     [FILE_COPY] = file_copy,
    [FILE_SYMLINK] = file_symlink, [FILE_READLINK] = file_readlink, [FILE_CHMOD] = file_chmod,
    [FILE_CHOWN] = file_chown,     [FILE_GLOB] = file_glob,         [FILE_GREP] = file_grep,
    [FILE_REPLACE] = file_replace, [FILE_WATCH] = file_watch,       [FILE_PACK] = file_pack,
    [FILE_UNPACK] = file_unpack,
};

void operation_run(struct operation *operation)
{
	/* A write past RLIMIT_FSIZE, or to a socket without a peer, must return an error that is
	 * reported, and not end the process. */
	static bool ignored;
	if (!ignored) {
		signal(SIGXFSZ, SIG_IGN);
		signal(SIGPIPE, SIG_IGN);
		ignored = true;
	}

	struct failure failure = {0};
	unsigned which = operation->request.operation;
	if (which >= ARRAY_SIZE(operations) || !operations[which]) {
		operation_failed(operation, ERROR_INVALID, 0, "unknown file operation");
		return;
	}
	if (operations[which](operation, &failure) < 0)
		operation_failed(operation, (enum error_kind)failure.kind, (int)failure.errnum,
				 failure.message);
}
