/* A whole connection, over a socketpair: the input's first byte says in which pieces the rest is
 * sent, and how the client behaves; the handler does something else for each letter of the path.
 * Beyond not crashing: every exchange ends exactly once, and no connection is left. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "http/connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct http_server *server;
static struct http_exchange *open_exchange; /* one connection: one exchange at a time */
static int produced;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void done(struct http_exchange *exchange)
{
	require(open_exchange == exchange);
	open_exchange = NULL;
}

static void answer(struct http_exchange *exchange)
{
	done(exchange);
	if (http_request(exchange)->path[1] == 'b')
		http_stream_end(exchange);
	else
		http_respond(exchange, 200, "text/plain", NULL, 0, "ok", 2);
}

static void on_data(struct http_exchange *exchange, const char *data, size_t size)
{
	require(open_exchange == exchange && size > 0);
	switch (data[0]) {
	case 'p':
		http_body_pause(exchange);
		break;
	case 'a':
		answer(exchange);
		break;
	case 'x':
		done(exchange);
		http_stream_abort(exchange);
		break;
	default:
		break;
	}
}

static void raw_data(struct http_exchange *exchange, const char *data, size_t size)
{
	require(open_exchange == exchange && size > 0);
	(void)http_stream_write(exchange, data, size);
	if (data[0] == 'p')
		http_body_pause(exchange);
	if (data[0] == 'e') {
		done(exchange);
		http_stream_end(exchange);
	}
}

static void raw_end(struct http_exchange *exchange)
{
	done(exchange);
	http_stream_end(exchange);
}

static void produce(struct http_exchange *exchange)
{
	static char piece[40000];
	require(open_exchange == exchange);
	while (produced-- > 0)
		if (!http_stream_write(exchange, piece, sizeof(piece)))
			return;
	done(exchange);
	http_stream_end(exchange);
}

static const struct http_callbacks reader = {
    .on_data = on_data, .on_end = answer, .on_drain = produce, .on_gone = done};
static const struct http_callbacks raw = {.on_data = raw_data, .on_end = raw_end, .on_gone = done};

static void handle_more(struct http_exchange *exchange, char what)
{
	switch (what) {
	case 's': /* a stream */
		http_stream_begin(exchange, 200, NULL, -1, NULL, 0);
		produced = 20;
		produce(exchange);
		break;
	case 'l': /* a stream that ends too early */
		http_stream_begin(exchange, 200, NULL, 10, NULL, 0);
		(void)http_stream_write(exchange, "abc", 3);
		done(exchange);
		http_stream_end(exchange);
		break;
	case 'b': /* answers while it reads */
		http_stream_begin(exchange, 200, NULL, -1, NULL, 0);
		produced = 5;
		http_body_read(exchange, 1000);
		break;
	case 'x':
		done(exchange);
		http_stream_abort(exchange);
		break;
	case 'w': /* later, by the fuzzer's loop */
		break;
	default:
		http_body_read(exchange, 1000);
		break;
	}
}

static void handle(void *context, struct http_exchange *exchange)
{
	const struct http_request *request = http_request(exchange);
	(void)context;
	require(open_exchange == NULL && request->path[0] == '/');
	open_exchange = exchange;
	http_set_callbacks(exchange, &reader);
	switch (request->path[1]) {
	case 'n':
		answer(exchange);
		break;
	case 'u':
		http_set_callbacks(exchange, &raw);
		http_upgrade(exchange, "raw", NULL, 0);
		break;
	case 't':
		http_body_read(exchange, 3);
		break;
	default:
		handle_more(exchange, request->path[1]);
		break;
	}
}

static void turn(int fd, bool reads)
{
	static char sink[256 * 1024];
	for (int i = 0; i < 3; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	if (reads)
		(void)!recv(fd, sink, sizeof(sink), MSG_DONTWAIT);
}

static void start(void)
{
	struct http_handlers handlers = {.handle = handle};
	struct http_settings settings = http_default_settings;
	uv_loop_init(&loop);
	server = http_server_new(&loop, &settings, &handlers);
}

/* What the test does to a request that waits, in the handler's name. */
static void poke(unsigned step)
{
	struct http_exchange *exchange = open_exchange;
	if (!exchange)
		return;
	http_body_resume(exchange);
	if (http_request(exchange)->path[1] == 'w' && step % 3 == 2)
		answer(exchange);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int ends[2];
	if (!server)
		start();
	if (size < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
		return 0;
	bool reads = data[0] & 1, half = data[0] & 2, pokes = data[0] & 4;
	size_t piece = (size_t)1 << (data[0] >> 4);
	require(http_connection_open(server, ends[1], true, NULL) == 0);
	unsigned step = 0;
	for (size_t at = 1; at < size; step++) {
		size_t length = MIN(piece, size - at);
		ssize_t sent = send(ends[0], data + at, length, MSG_NOSIGNAL);
		turn(ends[0], reads);
		if (sent < 0)
			break;
		at += (size_t)sent;
		if (pokes)
			poke(step);
	}
	if (half)
		shutdown(ends[0], SHUT_WR);
	for (int i = 0; i < 4; i++) {
		turn(ends[0], reads);
		poke(2);
	}
	close(ends[0]);
	for (int i = 0; i < 20 && http_server_connections(server) > 0; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		poke(2);
	}
	require(http_server_connections(server) == 0);
	require(open_exchange == NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
	return 0;
}
