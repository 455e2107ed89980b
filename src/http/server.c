/* The server: listening sockets, accepting, and shutdown. Called by the daemon's main; nothing here
 * blocks.
 *
 * The memory of a server outlives http_server_free() until libuv has closed its last handle, which
 * takes one more turn of the loop. */
#include "http/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"

#define ACCEPTS_PER_TURN 64
#define REFUSALS_PER_TURN 512
#define ACCEPT_PAUSE_MS 100

const struct http_settings http_default_settings = {
    .head_timeout_ms = 10 * 1000,
    .idle_timeout_ms = 75 * 1000,
    .body_timeout_ms = 30 * 1000,
    .write_timeout_ms = 30 * 1000,
    .connections_max = 8192,
    .connections_reserved = 256,
    .connections_per_uid = 128,
    .connections_per_address = 512,
    .descriptors_per_uid = 64,
    .descriptors_max = 1024,
    .hosts = NULL,
};

static void on_listener_ready(uv_poll_t *poll, int status, int events);

static void listeners_start(struct http_server *server)
{
	if (server->accepting || server->stopping || server->freed)
		return;
	server->accepting = true;
	list_each (&server->listeners, node) {
		struct http_listener *listener = list_entry(node, struct http_listener, node);
		uv_poll_start(&listener->poll, UV_READABLE, on_listener_ready);
	}
}

static void listeners_stop(struct http_server *server)
{
	server->accepting = false;
	list_each (&server->listeners, node)
		uv_poll_stop(&list_entry(node, struct http_listener, node)->poll);
}

static void on_accept_timer(uv_timer_t *timer)
{
	listeners_start(timer->data);
}

/* No descriptor or memory is left for another connection. Spare connections are closed; without
 * any, new clients wait in the kernel's queue. */
static void server_accept_failed(struct http_server *server, int errnum)
{
	uint64_t now = uv_now(server->loop);
	if (server->accept_warned_at == 0 || now - server->accept_warned_at >= HTTP_WARN_EVERY_MS) {
		log_warning("http: cannot accept: %s", strerror(errnum));
		server->accept_warned_at = MAX(now, 1);
	}
	int closed = 0;
	while (closed < ACCEPTS_PER_TURN && http_callers_make_room(server))
		closed++;
	if (closed > 0)
		return;
	listeners_stop(server);
	uv_timer_start(&server->accept_timer, on_accept_timer, ACCEPT_PAUSE_MS, 0);
}

/* Without a free descriptor accept4() fails even if no client waits. */
static bool listener_somebody_waits(const struct http_listener *listener)
{
	struct pollfd waiting = {.fd = listener->fd, .events = POLLIN};
	return poll(&waiting, 1, 0) != 0;
}

enum accepted { ACCEPTED, REFUSED, NONE_LEFT };

static enum accepted listener_accept_one(struct http_listener *listener)
{
	struct http_server *server = listener->server;
	int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno == EINTR || errno == ECONNABORTED)
			return REFUSED;
		int errnum = errno;
		if (errnum != EAGAIN && listener_somebody_waits(listener))
			server_accept_failed(server, errnum);
		return NONE_LEFT;
	}
	int result = http_connection_open(server, fd, listener->is_unix, listener->tls);
	if (result < 0) {
		close(fd);
		if (result == -EBUSY)
			return REFUSED;
		server_accept_failed(server, -result);
		return NONE_LEFT;
	}
	return ACCEPTED;
}

static void listener_accept_waiting(struct http_listener *listener, uint32_t accepts_max)
{
	uint32_t left[] = {[ACCEPTED] = accepts_max, [REFUSED] = REFUSALS_PER_TURN};
	while (left[ACCEPTED] > 0 && left[REFUSED] > 0) {
		enum accepted result = listener_accept_one(listener);
		if (result == NONE_LEFT)
			return;
		left[result]--;
	}
}

static void on_listener_ready(uv_poll_t *poll, int status, int events UNUSED)
{
	struct http_listener *listener = poll->data;
	if (status < 0)
		server_accept_failed(listener->server, EIO);
	else
		listener_accept_waiting(listener, ACCEPTS_PER_TURN);
}

static void server_finish_shutdown(struct http_server *server)
{
	void (*closed)(void *data) = server->closed;
	if (!closed || server->connection_count > 0)
		return;
	server->closed = NULL;
	uv_timer_stop(&server->grace_timer);
	closed(server->closed_data);
}

static void on_server_idle(uv_idle_t *idle)
{
	struct http_server *server = idle->data;
	uv_idle_stop(idle);
	if (!server->freed)
		server_finish_shutdown(server);
}

void http_server_forget(struct http_connection *connection)
{
	struct http_server *server = connection->server;
	list_remove(&connection->node);
	if (server->closed && server->connection_count == 0)
		uv_idle_start(&server->idle, on_server_idle);
}

void http_server_next_id(struct http_server *server, char id[HTTP_REQUEST_ID_SIZE])
{
	unsigned char bytes[9];
	uint64_t count = ++server->request_count;
	for (int i = 0; i < 4; i++)
		bytes[i] = (unsigned char)(server->request_prefix >> (8 * i));
	for (int i = 0; i < 5; i++)
		bytes[8 - i] = (unsigned char)(count >> (8 * i));
	text_hex(bytes, sizeof(bytes), id);
}

void http_server_set_names(struct http_server *server, const char *const *hosts,
			   const char *const *origins)
{
	server->settings.hosts = hosts;
	server->settings.origins = origins;
}

void http_server_set_tls(struct http_server *server, void *tls)
{
	for (struct list *node = server->listeners.next; node != &server->listeners;
	     node = node->next) {
		struct http_listener *listener = list_entry(node, struct http_listener, node);
		if (listener->tls)
			listener->tls = tls;
	}
}

const char *http_server_date(struct http_server *server)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t now = time(NULL);
	if (now == server->date_second)
		return server->date;
	struct tm tm;
	gmtime_r(&now, &tm);
	snprintf(server->date, sizeof(server->date), "%.3s, %02d %.3s %d %02d:%02d:%02d GMT",
		 days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900,
		 tm.tm_hour, tm.tm_min, tm.tm_sec);
	server->date_second = now;
	return server->date;
}

struct http_server *http_server_new(uv_loop_t *loop, const struct http_settings *settings,
				    const struct http_handlers *handlers)
{
	struct http_server *server = calloc(1, sizeof(*server));
	char *scratch = malloc(HTTP_SCRATCH);
	if (!server || !scratch)
		abort();
	server->loop = loop;
	server->settings = *settings;
	server->handlers = *handlers;
	server->scratch = scratch;
	random_bytes(&server->request_prefix, sizeof(server->request_prefix));
	list_init(&server->listeners);
	list_init(&server->connections);
	server->work = work_queue_of(loop);
	http_deadlines_init(server);
	http_callers_init(server);
	server->identify = http_peer_identify;
	uv_timer_init(loop, &server->accept_timer);
	uv_timer_init(loop, &server->grace_timer);
	uv_idle_init(loop, &server->idle);
	server->accept_timer.data = server->grace_timer.data = server->idle.data = server;
	server->handle_count = 4;
	server->accepting = true;
	/* A client that disconnects while OpenSSL writes must not end the process. */
	struct sigaction action;
	if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
	return server;
}

/* Accepted sockets inherit these from the listening one. */
static void listener_set_tcp_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
	    {IPPROTO_TCP, TCP_NODELAY, 1},
	    /* The loss of a client's machine is noticed within about two minutes, even if nothing
	     * is written to it. */
	    {SOL_SOCKET, SO_KEEPALIVE, 1},
	    {IPPROTO_TCP, TCP_KEEPIDLE, 60},
	    {IPPROTO_TCP, TCP_KEEPINTVL, 15},
	    {IPPROTO_TCP, TCP_KEEPCNT, 4},
	};
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

int http_server_listen(struct http_server *server, int fd, void *tls, struct error *error)
{
	struct sockaddr_storage address = {0};
	socklen_t size = sizeof(address);
	CLOSE_FD int owned = fd;
	if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "listening socket");
	int result = fd_set_nonblocking(fd);
	if (result < 0)
		return error_set_errno(error, ERROR_INTERNAL, result, "listening socket");
	struct http_listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		abort();
	listener->is_unix = address.ss_family == AF_UNIX;
	if (!listener->is_unix)
		listener_set_tcp_options(fd);
	result = uv_poll_init(server->loop, &listener->poll, fd);
	if (result < 0) {
		free(listener);
		return error_set_errno(error, ERROR_INTERNAL, result, "listening socket");
	}
	listener->poll.data = listener;
	listener->server = server;
	listener->fd = TAKE_FD(owned);
	listener->tls = tls;
	list_append(&server->listeners, &listener->node);
	server->handle_count++;
	if (server->accepting)
		uv_poll_start(&listener->poll, UV_READABLE, on_listener_ready);
	return 0;
}

static void on_listener_closed(uv_handle_t *handle)
{
	struct http_listener *listener = handle->data;
	struct http_server *server = listener->server;
	free(listener);
	http_server_handle_closed(server);
}

static void listeners_close(struct http_server *server)
{
	listeners_stop(server);
	list_each (&server->listeners, node) {
		struct http_listener *listener = list_entry(node, struct http_listener, node);
		list_remove(node);
		uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
		fd_close(&listener->fd);
	}
}

/* Takes the first connection each time, because a handler's on_gone may close others. */
static void connections_lose_all(struct http_server *server)
{
	while (!list_empty(&server->connections))
		http_connection_lose(
		    list_entry(server->connections.next, struct http_connection, node));
}

static void on_server_grace_over(uv_timer_t *timer)
{
	struct http_server *server = timer->data;
	void (*last_call)(void *data) = server->last_call;
	server->last_call = NULL;
	if (!last_call) {
		connections_lose_all(server);
		return;
	}
	/* Counted from now, not from the end of the grace time: so the last answers have the same
	 * time even after the daemon has stalled. */
	uv_timer_start(timer, on_server_grace_over, HTTP_LAST_CALL_MS, 0);
	last_call(server->closed_data);
}

/* Closes a connection without a request at once, the others after their answer. It also answers a
 * request that has arrived without an event yet, or that waits for its turn, and the first request
 * of a new connection, which may still arrive (HTTP_DEADLINE_FIRST). */
static void connection_ask_to_close(struct http_connection *connection)
{
	bool expects_request =
	    connection->state == HTTP_HANDSHAKE || connection->state == HTTP_HEAD;
	connection->close_after = true;
	if (!connection->running && (expects_request || connection->events))
		http_connection_run(connection, expects_request ? UV_READABLE : 0);
	if (connection->state == HTTP_CLOSED)
		return;
	expects_request = connection->state == HTTP_HANDSHAKE ||
			  (connection->state == HTTP_HEAD && connection->output.size == 0);
	if (expects_request && !connection->used)
		return;
	if (expects_request)
		http_connection_lose(connection);
	else if (connection->state == HTTP_HEAD)
		(void)http_state_step(&connection->state, HTTP_EVENT_LAST);
}

void http_server_shutdown(struct http_server *server, uint32_t grace_ms,
			  void (*last_call)(void *data), void (*closed)(void *data), void *data)
{
	server->stopping = true;
	server->last_call = last_call;
	server->closed = closed;
	server->closed_data = data;
	list_each (&server->listeners, node)
		listener_accept_waiting(list_entry(node, struct http_listener, node),
					server->settings.connections_max);
	listeners_close(server);
	/* A handler that is called here may close any other connection. */
	struct list asked;
	list_init(&asked);
	while (!list_empty(&server->connections)) {
		struct list *node = server->connections.next;
		list_remove(node);
		list_append(&asked, node);
		connection_ask_to_close(list_entry(node, struct http_connection, node));
	}
	while (!list_empty(&asked)) {
		struct list *node = asked.next;
		list_remove(node);
		list_append(&server->connections, node);
	}
	uv_timer_start(&server->grace_timer, on_server_grace_over, grace_ms, 0);
	/* `closed` is called from the loop, never from in here. */
	uv_idle_start(&server->idle, on_server_idle);
}

void http_server_handle_closed(struct http_server *server)
{
	if (--server->handle_count > 0)
		return;
	http_callers_done(server);
	work_queue_release(server->work);
	free(server->scratch);
	free(server);
}

static void on_server_handle_closed(uv_handle_t *handle)
{
	http_server_handle_closed(handle->data);
}

void http_server_free(struct http_server *server)
{
	if (!server || server->freed)
		return;
	server->freed = true;
	server->closed = NULL;
	listeners_close(server);
	connections_lose_all(server);
	uv_close((uv_handle_t *)&server->timer, on_server_handle_closed);
	uv_close((uv_handle_t *)&server->accept_timer, on_server_handle_closed);
	uv_close((uv_handle_t *)&server->grace_timer, on_server_handle_closed);
	uv_close((uv_handle_t *)&server->idle, on_server_handle_closed);
}

size_t http_server_connections(const struct http_server *server)
{
	return server->connection_count;
}
