/* CONNECT: carries bytes between a port inside the sandbox and the outside. Called by a runner,
 * which is in the sandbox's network namespace; blocks only in poll(), so that it always notices
 * a CANCEL. */
#include "init/tunnel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/request.h"
#include "proto/init_messages.h"

#define CONNECT_TIMEOUT_MS 10000
#define CREDIT_STEP (FILE_WINDOW / 4)

static struct {
	int link; /* to PID 1 */
	int port;
	uint64_t send_credit;
	uint32_t owed;      /* credit to be returned */
	bool outside_ended; /* DATA_END came */
	bool write_shut;    /* and was passed on to the port */
	bool port_ended;    /* the port sends no more */
	size_t waiting;     /* bytes for the port */
	uint8_t bytes[FILE_WINDOW];
} tunnel;

static void tunnel_send_frame(enum frame_type type, const void *payload, size_t size)
{
	uint8_t header[FRAME_HEADER_SIZE];
	frame_header_write(header, type, 0, (uint32_t)size);
	struct iovec parts[2] = {{header, sizeof(header)}, {(void *)payload, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	if (sendmsg(tunnel.link, &message, MSG_NOSIGNAL) < 0)
		_exit(0);
}

_Noreturn static void tunnel_fail(enum error_kind kind, int errnum, const char *message)
{
	uint8_t payload[sizeof(struct failure) + 16];
	struct writer writer = writer_on(payload, sizeof(payload));
	struct failure failure = {.kind = kind, .errnum = (uint32_t)errnum};
	snprintf(failure.message, sizeof(failure.message), "%s%s%s", message, errnum ? ": " : "",
		 errnum ? strerror(errnum) : "");
	failure_write(&writer, &failure);
	tunnel_send_frame(FRAME_FAILED, payload, writer.size);
	_exit(0);
}

/* Parses an IP address or "localhost"; other names are not resolved. 0 if it is neither. */
static socklen_t address_parse(const char *text, uint16_t port,
			       struct sockaddr_storage *ret_address)
{
	struct sockaddr_in *four = (struct sockaddr_in *)ret_address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret_address;
	memset(ret_address, 0, sizeof(*ret_address));
	if (!text[0] || strcmp(text, "localhost") == 0)
		text = "127.0.0.1";
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		return sizeof(*four);
	}
	if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
		return sizeof(*six);
	}
	return 0;
}

static void tunnel_open_port(const struct request *request)
{
	struct sockaddr_storage address;
	int one = 1, error = 0;
	socklen_t size = address_parse(request->connect.address, request->connect.port, &address);
	if (size == 0)
		tunnel_fail(ERROR_INVALID, 0, "not an address");
	tunnel.port = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (tunnel.port < 0)
		tunnel_fail(ERROR_RESOURCE_LIMIT, errno, "the connection cannot be made");
	setsockopt(tunnel.port, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(tunnel.port, (struct sockaddr *)&address, size) == 0)
		return;
	if (errno != EINPROGRESS)
		tunnel_fail(ERROR_INVALID, errno, "the port cannot be reached");
	struct pollfd poll_fd = {.fd = tunnel.port, .events = POLLOUT};
	if (poll(&poll_fd, 1, CONNECT_TIMEOUT_MS) <= 0)
		tunnel_fail(ERROR_TIMED_OUT, ETIMEDOUT, "the port did not answer");
	size = sizeof(error);
	if (getsockopt(tunnel.port, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
		tunnel_fail(ERROR_INVALID, error, "the port cannot be reached");
}

static void tunnel_receive(void)
{
	static uint8_t room[FRAME_HEADER_SIZE + FILE_CHUNK_MAX];
	struct frame frame;
	ssize_t got = recv(tunnel.link, room, sizeof(room), MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || frame_parse(room, (size_t)got, &frame) != got)
		_exit(0);
	struct reader reader = reader_on(frame.payload, frame.size);
	if (frame.type == FRAME_CANCEL)
		tunnel_fail(ERROR_CANCELLED, 0, "cancelled");
	if (frame.type == FRAME_CREDIT)
		tunnel.send_credit += read_u32(&reader);
	if (frame.type == FRAME_DATA_END)
		tunnel.outside_ended = true;
	if (frame.type == FRAME_DATA) {
		if (frame.size > sizeof(tunnel.bytes) - tunnel.waiting)
			_exit(1);
		memcpy(tunnel.bytes + tunnel.waiting, frame.payload, frame.size);
		tunnel.waiting += frame.size;
	}
}

static void tunnel_write_port(void)
{
	if (tunnel.waiting > 0) {
		ssize_t sent =
		    send(tunnel.port, tunnel.bytes, tunnel.waiting, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (sent < 0)
			tunnel_fail(ERROR_INVALID, errno, "the connection was broken");
		memmove(tunnel.bytes, tunnel.bytes + sent, tunnel.waiting - (size_t)sent);
		tunnel.waiting -= (size_t)sent;
		tunnel.owed += (uint32_t)sent;
	}
	if (tunnel.owed >= CREDIT_STEP) {
		uint8_t number[4];
		struct writer writer = writer_on(number, sizeof(number));
		write_u32(&writer, tunnel.owed);
		tunnel.owed = 0;
		tunnel_send_frame(FRAME_CREDIT, number, sizeof(number));
	}
	if (tunnel.waiting == 0 && tunnel.outside_ended && !tunnel.write_shut) {
		shutdown(tunnel.port, SHUT_WR);
		tunnel.write_shut = true;
	}
}

static void tunnel_read_port(void)
{
	static uint8_t room[FILE_CHUNK_MAX];
	size_t most = MIN(tunnel.send_credit, sizeof(room));
	ssize_t got = recv(tunnel.port, room, most, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got < 0)
		tunnel_fail(ERROR_INVALID, errno, "the connection was broken");
	if (got == 0) {
		tunnel.port_ended = true;
		tunnel_send_frame(FRAME_DATA_END, NULL, 0);
		return;
	}
	tunnel.send_credit -= (size_t)got;
	tunnel_send_frame(FRAME_DATA, room, (size_t)got);
}

static void tunnel_carry(void)
{
	struct pollfd polls[2] = {{.fd = tunnel.link, .events = POLLIN}, {.fd = tunnel.port}};
	if (tunnel.waiting > 0)
		polls[1].events |= POLLOUT;
	if (!tunnel.port_ended && tunnel.send_credit > 0)
		polls[1].events |= POLLIN;
	/* poll() reports a hang-up even if no events are requested, so an idle port is left
	 * out. */
	if (polls[1].events == 0)
		polls[1].fd = -1;
	if (poll(polls, 2, -1) < 0 && errno != EINTR)
		_exit(1);
	if (polls[0].revents)
		tunnel_receive();
	tunnel_write_port();
	if ((polls[1].events & POLLIN) && (polls[1].revents & (POLLIN | POLLHUP | POLLERR)))
		tunnel_read_port();
}

void tunnel_run(int socket, const struct frame *frame)
{
	static struct request request;
	tunnel.link = socket;
	tunnel.send_credit = FILE_WINDOW;
	if (request_parse(frame, &request) < 0)
		_exit(1);
	tunnel_open_port(&request);
	while (!(tunnel.port_ended && tunnel.write_shut))
		tunnel_carry();
	tunnel_send_frame(FRAME_RESULT, NULL, 0);
	_exit(0);
}
