/* Reads and writes a connection's socket: TCP, Unix with descriptors, TLS. Called by connection.c
 * and answer.c. Nothing here blocks: the sockets are non-blocking, and OpenSSL works on them
 * directly.
 *
 * OpenSSL writes with write(2), which has no MSG_NOSIGNAL. So server.c ignores SIGPIPE. */
#include "http/connection.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

/* Converts the result of a failed SSL call: -EAGAIN, 0 for a proper end, or -errno. */
static int tls_result(struct http_connection *connection, int result, bool reading)
{
	switch (SSL_get_error(connection->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		if (!reading)
			connection->tls_write_wants_read = true;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		if (reading)
			connection->tls_read_wants_write = true;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		return -EPROTO;
	}
}

bool http_transport_secure(struct http_connection *connection, SSL_CTX *context)
{
	SSL *ssl = connection->ssl = SSL_new(context);
	if (!ssl)
		return false;
	/* Buffers are freed between records, so that an idle TLS connection costs less. */
	SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
			      SSL_MODE_RELEASE_BUFFERS);
	SSL_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	return SSL_set_min_proto_version(ssl, TLS1_2_VERSION) && SSL_set_fd(ssl, connection->fd);
}

int http_transport_handshake(struct http_connection *connection)
{
	ERR_clear_error();
	connection->tls_read_wants_write = connection->tls_write_wants_read = false;
	int result = SSL_accept(connection->ssl);
	if (result == 1)
		return 1;
	result = tls_result(connection, result, true);
	return result == -EAGAIN ? 0 : -EPROTO;
}

static ssize_t tls_read(struct http_connection *connection, char *to, size_t room)
{
	size_t got = 0;
	ERR_clear_error();
	connection->tls_read_wants_write = false;
	int result = SSL_read_ex(connection->ssl, to, room, &got);
	return result > 0 ? (ssize_t)got : tls_result(connection, result, true);
}

/* Accepts descriptors only for the head that is being read, and only up to a maximum. */
static ssize_t unix_read(struct http_connection *connection, char *to, size_t room)
{
	int fds[HTTP_PASSED_FDS_MAX];
	struct http_passed *passed = connection->passed;
	bool wanted = connection->state == HTTP_HEAD;
	size_t count = wanted ? HTTP_PASSED_FDS_MAX - (passed ? passed->count : 0) : 0;
	ssize_t got = fd_receive(connection->fd, to, room, fds, &count);
	if (got < 0 || count == 0)
		return got;
	int result = http_caller_charge(connection, count);
	if (result < 0) {
		for (size_t i = 0; i < count; i++)
			fd_close(&fds[i]);
		return result;
	}
	if (!passed) {
		passed = connection->passed = calloc(1, sizeof(*passed));
		if (!passed)
			abort();
	}
	for (size_t i = 0; i < count; i++)
		passed->fds[passed->count++] = fds[i];
	return got;
}

ssize_t http_transport_read(struct http_connection *connection, char *to, size_t room)
{
	if (connection->ssl)
		return tls_read(connection, to, room);
	if (connection->peer.is_unix)
		return unix_read(connection, to, room);
	ssize_t got;
	do
		got = recv(connection->fd, to, room, 0);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* Writes one record at a time. OpenSSL expects a partial write at the same place: the queue's
 * front. */
static ssize_t tls_flush(struct http_connection *connection)
{
	struct http_queue *queue = &connection->output;
	size_t total = 0;
	connection->tls_write_wants_read = false;
	while (queue->size > 0 && total < HTTP_TURN_BYTES) {
		size_t put = 0;
		ERR_clear_error();
		int result =
		    SSL_write_ex(connection->ssl, http_queue_data(queue), queue->size, &put);
		if (result <= 0) {
			int error = tls_result(connection, result, false);
			if (error != -EAGAIN)
				return -EPIPE;
			connection->blocked = true;
			break;
		}
		http_queue_consume(queue, put);
		total += put;
	}
	return (ssize_t)total;
}

/* Writes the queue and `data` with one call; returns the total number of bytes written. */
static ssize_t plain_write(struct http_connection *connection, const void *data, size_t size)
{
	struct http_queue *queue = &connection->output;
	struct iovec parts[2] = {
	    {.iov_base = queue->size ? http_queue_data(queue) : NULL, .iov_len = queue->size},
	    {.iov_base = (void *)data, .iov_len = size},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t put;
	do
		put = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
	while (put < 0 && errno == EINTR);
	if (put < 0 && errno == EAGAIN)
		put = 0;
	if (put < 0)
		return -errno;
	if ((size_t)put < queue->size + size)
		connection->blocked = true;
	return put;
}

ssize_t http_transport_write(struct http_connection *connection, const void *data, size_t size)
{
	struct http_queue *queue = &connection->output;
	if (connection->blocked || (queue->size == 0 && size == 0))
		return 0;
	ssize_t put, direct = 0;
	if (connection->ssl) {
		put = tls_flush(connection);
	} else {
		put = plain_write(connection, data, size);
		if (put > 0) {
			size_t queued = MIN((size_t)put, (size_t)queue->size);
			if (queued > 0)
				http_queue_consume(queue, queued);
			direct = put - (ssize_t)queued;
		}
	}
	if (put < 0)
		return put;
	connection->written += (uint32_t)put;
	if (queue->size == 0 && (size_t)direct == size)
		http_deadline_clear(&connection->writing);
	else if (put > 0 || list_empty(&connection->writing.node))
		http_deadline_set(connection->server, &connection->writing, HTTP_DEADLINE_WRITE);
	return direct;
}

void http_transport_drop_passed(struct http_connection *connection)
{
	struct http_passed *passed = connection->passed;
	if (!passed)
		return;
	for (size_t i = 0; i < passed->count; i++)
		fd_close(&passed->fds[i]);
	http_caller_discharge(connection, passed->count);
	free(passed);
	connection->passed = NULL;
}

void http_transport_shutdown(struct http_connection *connection)
{
	if (connection->ssl) {
		ERR_clear_error();
		(void)SSL_shutdown(connection->ssl);
	}
	(void)shutdown(connection->fd, SHUT_WR);
}

void http_transport_close(struct http_connection *connection)
{
	SSL_free(connection->ssl);
	connection->ssl = NULL;
	if (connection->reset) {
		struct linger linger = {.l_onoff = 1, .l_linger = 0};
		(void)setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	}
	fd_close(&connection->fd);
}
