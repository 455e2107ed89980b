/* The server and clients of http_fixture.h, and the handler that all the tests share. */
#include "http_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock_advance.h"
#include "http/connection.h"

#define PIECE (64 * 1024)

static struct http_fixture *fixture_of; /* handlers of one test at a time */

static void on_data(struct http_exchange *exchange, const char *data, size_t size)
{
	(void)data;
	fixture_of->received += size;
	if (strcmp(http_request(exchange)->path, "/hold") == 0)
		http_body_pause(exchange);
	if (strcmp(http_request(exchange)->path, "/early") == 0)
		http_respond(exchange, 202, NULL, NULL, 0, "early", 5);
	http_set_data(exchange, (void *)((size_t)http_data(exchange) + size));
}

static void on_end(struct http_exchange *exchange)
{
	char text[9000];
	fixture_of->ended++;
	int size = snprintf(text, sizeof(text), "%s %s %zu", http_request(exchange)->method,
			    http_request(exchange)->path, (size_t)http_data(exchange));
	http_respond(exchange, 200, "text/plain", NULL, 0, text, (size_t)size);
}

static void on_gone(struct http_exchange *exchange)
{
	fixture_of->gone++;
	if (fixture_of->pending == exchange)
		fixture_of->pending = NULL;
}

/* 8 MiB in pieces, as far as it is taken. */
static void produce(struct http_exchange *exchange)
{
	static char piece[PIECE];
	size_t left = (size_t)http_data(exchange);
	fixture_of->drained++;
	while (left > 0) {
		left -= PIECE;
		http_set_data(exchange, (void *)left);
		if (!http_stream_write(exchange, piece, PIECE) && left > 0)
			return;
	}
	http_stream_end(exchange);
}

static void raw_data(struct http_exchange *exchange, const char *data, size_t size)
{
	fixture_of->received += size;
	(void)http_stream_write(exchange, data, size);
	if (size >= 3 && memcmp(data, "bye", 3) == 0)
		http_stream_end(exchange);
}

static void raw_end(struct http_exchange *exchange)
{
	fixture_of->ended++;
	(void)http_stream_write(exchange, "END", 3);
	http_stream_end(exchange);
}

/* Says how many descriptors came, writes to the first and keeps it. */
static void answer_fds(struct http_exchange *exchange)
{
	struct http_request *request = (struct http_request *)http_request(exchange);
	char text[64];
	int size = snprintf(text, sizeof(text), "%zu", request->fd_count);
	if (request->fd_count > 0) {
		if (write(request->fds[0], "hi", 2) != 2)
			size = 0;
		close(request->fds[0]);
		request->fds[0] = -1;
	}
	http_respond(exchange, 200, NULL, NULL, 0, text, (size_t)size);
}

static void stream_hello(struct http_exchange *exchange, int64_t length)
{
	http_stream_begin(exchange, 200, "text/plain", length, NULL, 0);
	(void)http_stream_write(exchange, "hello ", 6);
	(void)http_stream_write(exchange, "world", 5);
	http_stream_end(exchange);
}

static bool handle_stream(struct http_exchange *exchange, const char *path)
{
	static const struct http_callbacks producer = {.on_drain = produce, .on_gone = on_gone};
	static const struct http_callbacks raw = {
	    .on_data = raw_data, .on_end = raw_end, .on_gone = on_gone};
	if (strcmp(path, "/stream") == 0) {
		stream_hello(exchange, -1);
	} else if (strcmp(path, "/length") == 0) {
		stream_hello(exchange, 11);
	} else if (strcmp(path, "/short") == 0) {
		stream_hello(exchange, 12);
	} else if (strcmp(path, "/long") == 0) {
		stream_hello(exchange, 10);
	} else if (strcmp(path, "/abort") == 0) {
		http_stream_begin(exchange, 200, NULL, -1, NULL, 0);
		(void)http_stream_write(exchange, "part", 4);
		http_stream_abort(exchange);
	} else if (strcmp(path, "/large") == 0) {
		http_set_callbacks(exchange, &producer);
		http_set_data(exchange, (void *)(size_t)(8 * 1024 * 1024));
		http_stream_begin(exchange, 200, NULL, -1, NULL, 0);
		produce(exchange);
	} else if (strcmp(path, "/upgrade") == 0) {
		http_set_callbacks(exchange, &raw);
		http_upgrade(exchange, "raw", NULL, 0);
	} else if (strcmp(path, "/pause") == 0) {
		http_set_callbacks(exchange, &raw);
		http_body_pause(exchange);
		http_upgrade(exchange, "raw", NULL, 0);
	} else {
		return false;
	}
	return true;
}

static void handle(void *context, struct http_exchange *exchange)
{
	static const struct http_callbacks reader = {
	    .on_data = on_data, .on_end = on_end, .on_gone = on_gone};
	struct http_fixture *fixture = context;
	const char *path = http_request(exchange)->path;
	fixture->handled++;
	http_set_callbacks(exchange, &reader);
	if (handle_stream(exchange, path))
		return;
	if (strcmp(path, "/later") == 0)
		fixture->pending = exchange;
	else if (strcmp(path, "/unread") == 0)
		http_respond(exchange, 200, NULL, NULL, 0, "unread", 6);
	else if (strcmp(path, "/none") == 0)
		http_respond(exchange, 204, NULL, NULL, 0, NULL, 0);
	else if (strcmp(path, "/fds") == 0)
		answer_fds(exchange);
	else if (strcmp(path, "/small") == 0)
		http_body_read(exchange, 10);
	else
		http_body_read(exchange, UINT64_MAX);
	if (strcmp(path, "/hold") == 0)
		fixture->pending = exchange;
}

static int bound_tcp(int *ret_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 64) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		abort();
	*ret_port = ntohs(address.sin_port);
	return fd;
}

static struct sockaddr_un unix_address(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static int bound_unix(const char *path)
{
	struct sockaddr_un address = unix_address(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 64) < 0)
		abort();
	return fd;
}

void fixture_start(struct http_fixture *fixture, const struct http_settings *settings, void *tls)
{
	struct http_handlers handlers = {.handle = handle, .context = fixture};
	struct error error;
	memset(fixture, 0, sizeof(*fixture));
	fixture_of = fixture;
	snprintf(fixture->unix_path, sizeof(fixture->unix_path), "/tmp/http-test-%d.sock",
		 (int)getpid());
	unlink(fixture->unix_path);
	uv_loop_init(&fixture->loop);
	fixture->server = http_server_new(&fixture->loop,
					  settings ? settings : &http_default_settings, &handlers);
	if (http_server_listen(fixture->server, bound_tcp(&fixture->port), tls, &error) < 0 ||
	    http_server_listen(fixture->server, bound_unix(fixture->unix_path), NULL, &error) < 0)
		abort();
}

static uid_t pretended_uid;
static const char *pretended_address;

static void identify(int fd, struct http_peer *peer, struct sockaddr_storage *ret_from)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret_from;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_from;
	http_peer_identify(fd, peer, ret_from);
	if (peer->is_unix && pretended_uid != (uid_t)-1)
		peer->uid = pretended_uid;
	if (peer->is_unix || !pretended_address)
		return;
	memset(ret_from, 0, sizeof(*ret_from));
	if (inet_pton(AF_INET, pretended_address, &v4->sin_addr) == 1)
		ret_from->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, pretended_address, &v6->sin6_addr) == 1)
		ret_from->ss_family = AF_INET6;
	else
		abort();
}

void fixture_pretend(struct http_fixture *fixture, uid_t uid, const char *address)
{
	pretended_uid = uid;
	pretended_address = address;
	fixture->server->identify = identify;
}

void fixture_stop(struct http_fixture *fixture)
{
	http_server_free(fixture->server);
	uv_run(&fixture->loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&fixture->loop) != 0)
		abort();
	unlink(fixture->unix_path);
}

void fixture_pump(struct http_fixture *fixture)
{
	for (int i = 0; i < 4; i++)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
}

void fixture_wait(struct http_fixture *fixture, int ms)
{
	/* In steps, as timers set each other; and the kernel has its time. */
	for (int turns = 0; turns < 10; turns++) {
		*clock_advance += (uint64_t)ms * 100 * 1000;
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
}

static int connected(int family, const void *address, socklen_t size)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, address, size) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		abort();
	return fd;
}

int client_tcp(struct http_fixture *fixture)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)fixture->port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = connected(AF_INET, &address, sizeof(address)), on = 1;
	/* Else the kernel joins single bytes to larger pieces. */
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		abort();
	fixture_pump(fixture);
	return fd;
}

int client_unix(struct http_fixture *fixture)
{
	struct sockaddr_un address = unix_address(fixture->unix_path);
	int fd = connected(AF_UNIX, &address, sizeof(address));
	fixture_pump(fixture);
	return fd;
}

bool client_send(struct http_fixture *fixture, int fd, const char *data, size_t size, size_t piece)
{
	int stuck = 0;
	while (size > 0) {
		ssize_t sent = send(fd, data, size < piece ? size : piece, MSG_NOSIGNAL);
		if (sent < 0 && (errno != EAGAIN || ++stuck > 200))
			return false;
		if (sent > 0) {
			data += sent;
			size -= (size_t)sent;
			stuck = 0;
		}
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
	}
	fixture_pump(fixture);
	return true;
}

bool client_text(struct http_fixture *fixture, int fd, const char *text)
{
	return client_send(fixture, fd, text, strlen(text), strlen(text));
}

void client_receive(struct http_fixture *fixture, int fd, struct http_seen *seen)
{
	for (int quiet = 0; quiet < 3 && !seen->closed && seen->size < sizeof(seen->data) - 1;) {
		fixture_pump(fixture);
		ssize_t got =
		    recv(fd, seen->data + seen->size, sizeof(seen->data) - 1 - seen->size, 0);
		if (got > 0)
			seen->size += (size_t)got;
		else if (got == 0 || errno != EAGAIN)
			seen->closed = true;
		quiet = got > 0 ? 0 : quiet + 1;
	}
	seen->data[seen->size] = '\0';
}

struct http_seen *client_ask(struct http_fixture *fixture, int fd, const char *text)
{
	static struct http_seen seen;
	seen.size = 0;
	seen.closed = false;
	(void)client_text(fixture, fd, text);
	client_receive(fixture, fd, &seen);
	return &seen;
}

/* Decodes a chunked body in place of a real client: its size, and where it ends. */
static bool chunked_body(const char *data, size_t size, size_t *ret_used, size_t *ret_size)
{
	size_t at = 0, total = 0;
	for (;;) {
		char *end;
		if (at >= size)
			return false;
		size_t length = strtoul(data + at, &end, 16);
		at = (size_t)(end - data) + 2 + length + 2;
		if (at > size)
			return false;
		total += length;
		if (length == 0)
			break;
	}
	*ret_used = at;
	*ret_size = total;
	return true;
}

static bool parse_answer(const char *data, size_t size, struct http_answer *answer, size_t *used)
{
	static char head[8192];
	const char *end = memmem(data, size, "\r\n\r\n", 4);
	if (!end || sscanf(data, "HTTP/1.1 %d", &answer->status) != 1)
		return false;
	size_t head_size = (size_t)(end - data) + 4;
	snprintf(head, sizeof(head), "%.*s", (int)head_size, data);
	answer->head = head;
	answer->body = data + head_size;
	answer->body_size = 0;
	answer->whole = true;
	*used = head_size;
	const char *length = strcasestr(head, "\r\nContent-Length: ");
	if (length) {
		answer->body_size = strtoul(length + 18, NULL, 10);
		answer->whole = answer->body_size <= size - head_size;
		*used += answer->whole ? answer->body_size : size - head_size;
	} else if (strcasestr(head, "\r\nTransfer-Encoding: chunked")) {
		size_t chunks = size - head_size;
		answer->whole =
		    chunked_body(data + head_size, size - head_size, &chunks, &answer->body_size);
		*used += chunks;
	}
	return true;
}

bool answer_next(const struct http_seen *seen, size_t *at, struct http_answer *ret_answer)
{
	size_t used;
	do {
		if (*at >= seen->size ||
		    !parse_answer(seen->data + *at, seen->size - *at, ret_answer, &used))
			return false;
		*at += used;
	} while (ret_answer->status / 100 == 1);
	return true;
}

int answer_status(const struct http_seen *seen)
{
	struct http_answer answer;
	size_t at = 0;
	return answer_next(seen, &at, &answer) ? answer.status : 0;
}

bool seen_has(const struct http_seen *seen, const char *text)
{
	return memmem(seen->data, seen->size, text, strlen(text)) != NULL;
}
