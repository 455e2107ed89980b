/* One HTTP request and its answer over one connection, blocking. See client.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/tls.h"

#define ANSWER_MAX (64 * MIB)

volatile sig_atomic_t client_interrupted;

struct exchange *exchange_new(void)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		abort();
	exchange->fd = -1;
	return exchange;
}

void exchange_free(struct exchange *exchange)
{
	if (exchange)
		exchange_done(exchange);
	free(exchange);
}

static int exchange_cancelled(struct error *error)
{
	return error_set(error, ERROR_CANCELLED, "interrupted");
}

ssize_t exchange_send(struct exchange *exchange, const void *data, size_t size, int flags)
{
	return exchange->tls ? client_tls_send(exchange->tls, data, size)
			     : send(exchange->fd, data, size, MSG_NOSIGNAL | flags);
}

static int exchange_send_all(struct exchange *exchange, const void *data, size_t size,
			     struct error *error)
{
	const char *place = data;
	while (size > 0) {
		ssize_t put = exchange_send(exchange, place, size, 0);
		if (put < 0 && errno == EINTR && !client_interrupted)
			continue;
		if (put < 0 && client_interrupted)
			return exchange_cancelled(error);
		if (put <= 0)
			return error_set_errno(error, ERROR_DAEMON_RESTARTING, errno,
					       "sending to the daemon");
		place += put;
		size -= (size_t)put;
	}
	return 0;
}

static int request_append_head(struct client *client, const struct request *request,
			       struct buffer *head)
{
	int result = 0;
	result |= buffer_printf(head, "%s %s HTTP/1.1\r\nHost: ", request->method, request->path);
	if (client->remote)
		result |=
		    buffer_printf(head, strchr(client->host, ':') ? "[%s]:%s\r\n" : "%s:%s\r\n",
				  client->host, client->port);
	else
		result |= buffer_append_text(head, "localhost\r\n");
	if (client->token[0])
		result |= buffer_printf(head, "Authorization: Bearer %s\r\n", client->token);
	if (request->type)
		result |= buffer_printf(head, "Content-Type: %s\r\n", request->type);
	if (request->upgrade)
		result |=
		    buffer_printf(head, "Connection: Upgrade\r\nUpgrade: %s\r\n", request->upgrade);
	else
		result |= buffer_append_text(head, "Connection: close\r\n");
	if (request->extra)
		result |= buffer_append_text(head, request->extra);
	if (request->length < 0)
		result |= buffer_append_text(head, "Transfer-Encoding: chunked\r\n");
	else if (request->length > 0 || strcmp(request->method, "GET") != 0)
		result |=
		    buffer_printf(head, "Content-Length: %lld\r\n", (long long)request->length);
	return result | buffer_append_text(head, "\r\n");
}

int exchange_begin(struct client *client, const struct request *request,
		   struct exchange *ret_exchange, struct error *error)
{
	DONE_BUFFER struct buffer head = BUFFER(HTTP_HEAD_MAX);
	if (request_append_head(client, request, &head) < 0)
		return error_set(error, ERROR_TOO_LARGE, "the request's path is too long");
	if (client_interrupted)
		return exchange_cancelled(error);
	CLOSE_FD int fd = client_connect(client, error);
	if (fd < 0)
		return -1;
	size_t sent = 0;
	if (request->fd_count > 0) {
		if (client->remote)
			return error_set(error, ERROR_UNSUPPORTED,
					 "a folder can be given over the Unix socket only, not "
					 "to a remote daemon");
		ssize_t put = fd_send(fd, head.data, head.size, request->fds, request->fd_count);
		if (put < 0)
			return error_set_errno(error, ERROR_DAEMON_RESTARTING, (int)put,
					       "sending to the daemon");
		sent = (size_t)put;
	}
	ret_exchange->tls = NULL;
	if (client->remote && client->tls &&
	    client_tls_begin(client, fd, &ret_exchange->tls, error) < 0)
		return -1;
	ret_exchange->fd = TAKE_FD(fd);
	if (exchange_send_all(ret_exchange, head.data + sent, head.size - sent, error) < 0)
		return -1;
	ret_exchange->start = ret_exchange->end = 0;
	ret_exchange->status = 0;
	ret_exchange->head_only = strcmp(request->method, "HEAD") == 0;
	ret_exchange->request_id[0] = '\0';
	ret_exchange->offset = ret_exchange->gap = ret_exchange->total = -1;
	return 0;
}

int exchange_write(struct exchange *exchange, bool chunked, const void *data, size_t size,
		   struct error *error)
{
	if (size == 0)
		return 0;
	char line[24];
	if (chunked) {
		int length = snprintf(line, sizeof(line), "%zx\r\n", size);
		if (exchange_send_all(exchange, line, (size_t)length, error) < 0)
			return -1;
	}
	if (exchange_send_all(exchange, data, size, error) < 0)
		return -1;
	return chunked ? exchange_send_all(exchange, "\r\n", 2, error) : 0;
}

int exchange_write_end(struct exchange *exchange, bool chunked, struct error *error)
{
	return chunked ? exchange_send_all(exchange, "0\r\n\r\n", 5, error) : 0;
}

ssize_t exchange_receive(struct exchange *exchange, void *data, size_t size)
{
	return exchange->tls ? client_tls_receive(exchange->tls, data, size)
			     : recv(exchange->fd, data, size, 0);
}

void exchange_half_close(struct exchange *exchange)
{
	if (exchange->tls)
		client_tls_close(exchange->tls);
	else
		shutdown(exchange->fd, SHUT_WR);
}

bool exchange_has_input(const struct exchange *exchange)
{
	return exchange->tls && client_tls_has_input(exchange->tls);
}

/* Reads more input into the buffer. Returns 0 at the end of the connection. */
static ssize_t exchange_fill(struct exchange *exchange, struct error *error)
{
	if (exchange->start == exchange->end)
		exchange->start = exchange->end = 0;
	if (exchange->end == sizeof(exchange->buffer)) {
		memmove(exchange->buffer, exchange->buffer + exchange->start,
			exchange->end - exchange->start);
		exchange->end -= exchange->start;
		exchange->start = 0;
	}
	ssize_t got;
	do
		got = exchange_receive(exchange, exchange->buffer + exchange->end,
				       sizeof(exchange->buffer) - exchange->end);
	while (got < 0 && errno == EINTR && !client_interrupted);
	if (got < 0 && client_interrupted)
		return exchange_cancelled(error);
	if (got < 0)
		return error_set_errno(error, ERROR_DAEMON_RESTARTING, errno,
				       "reading the daemon's answer");
	exchange->end += (size_t)got;
	return got;
}

/* Copies the next line, without its line end, to `line`. */
static int exchange_read_line(struct exchange *exchange, char *line, size_t room,
			      struct error *error)
{
	for (;;) {
		char *begin = exchange->buffer + exchange->start;
		size_t size = exchange->end - exchange->start;
		char *end = memchr(begin, '\n', size);
		if (end) {
			size_t length = (size_t)(end - begin);
			exchange->start += length + 1;
			if (length > 0 && begin[length - 1] == '\r')
				length--;
			if (length >= room)
				break;
			memcpy(line, begin, length);
			line[length] = '\0';
			return 0;
		}
		if (size >= HTTP_HEAD_MAX)
			break;
		ssize_t got = exchange_fill(exchange, error);
		if (got < 0)
			return -1;
		if (got == 0)
			return error_set(error, ERROR_DAEMON_RESTARTING,
					 "the daemon closed the connection without an answer");
	}
	return error_set(error, ERROR_INTERNAL, "the daemon's answer is not valid HTTP");
}

static void exchange_take_header(struct exchange *exchange, char *line)
{
	char *colon = strchr(line, ':');
	if (!colon)
		return;
	*colon = '\0';
	const char *value = colon + 1 + strspn(colon + 1, " \t");
	const struct {
		const char *name;
		int64_t *place;
	} numbers[] = {
	    {"content-length", &exchange->content_length},
	    {"x-offset", &exchange->offset},
	    {"x-gap", &exchange->gap},
	    {"x-total", &exchange->total},
	};
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		uint64_t number;
		if (strcasecmp(line, numbers[i].name) == 0 &&
		    text_to_u64(value, 0, INT64_MAX, &number) == 0)
			*numbers[i].place = (int64_t)number;
	}
	if (strcasecmp(line, "transfer-encoding") == 0)
		exchange->chunked = strcasecmp(value, "chunked") == 0;
	if (strcasecmp(line, "x-request-id") == 0)
		snprintf(exchange->request_id, sizeof(exchange->request_id), "%s", value);
}

static int exchange_read_error(struct exchange *exchange, struct error *error)
{
	DONE_BUFFER struct buffer body = BUFFER(1 * MIB);
	char piece[4096];
	struct error ignored;
	for (;;) {
		ssize_t got = exchange_read(exchange, piece, sizeof(piece), &ignored);
		if (got <= 0 || buffer_append(&body, piece, (size_t)got) < 0)
			break;
	}
	json_t *json = json_loadb(buffer_text(&body), body.size, 0, NULL);
	error_from_json(json, exchange->status, error);
	json_decref(json);
	return -1;
}

int exchange_read_head(struct exchange *exchange, struct error *error)
{
	char line[HTTP_HEAD_MAX];
	do {
		if (exchange_read_line(exchange, line, sizeof(line), error) < 0)
			return -1;
		if (strncmp(line, "HTTP/1.1 ", 9) != 0 || strlen(line) < 12)
			return error_set(error, ERROR_INTERNAL,
					 "the server there is not a Caisson daemon");
		exchange->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
		exchange->content_length = -1;
		exchange->chunked = false;
		for (;;) {
			if (exchange_read_line(exchange, line, sizeof(line), error) < 0)
				return -1;
			if (!line[0])
				break;
			exchange_take_header(exchange, line);
		}
	} while (exchange->status == 100);
	exchange->left = exchange->content_length > 0 ? (uint64_t)exchange->content_length : 0;
	exchange->body_done = exchange->head_only || exchange->status == 204 ||
			      (!exchange->chunked && exchange->content_length == 0);
	if (exchange->status >= 400)
		return exchange_read_error(exchange, error);
	return 0;
}

/* Reads a chunk's size. After the last chunk the trailers are read too. */
static int exchange_next_chunk(struct exchange *exchange, struct error *error)
{
	char line[256];
	if (exchange_read_line(exchange, line, sizeof(line), error) < 0)
		return -1;
	char *end;
	exchange->left = strtoull(line, &end, 16);
	if (end == line)
		return error_set(error, ERROR_INTERNAL, "the daemon's answer is malformed");
	if (exchange->left > 0)
		return 0;
	do {
		if (exchange_read_line(exchange, line, sizeof(line), error) < 0)
			return -1;
	} while (line[0]);
	exchange->body_done = true;
	return 0;
}

ssize_t exchange_read(struct exchange *exchange, void *data, size_t size, struct error *error)
{
	if (exchange->body_done)
		return 0;
	if (exchange->chunked && exchange->left == 0) {
		if (exchange_next_chunk(exchange, error) < 0)
			return -1;
		if (exchange->body_done)
			return 0;
	}
	if (exchange->start == exchange->end) {
		ssize_t got = exchange_fill(exchange, error);
		if (got < 0)
			return -1;
		if (got == 0 && !exchange->chunked && exchange->content_length < 0) {
			exchange->body_done = true;
			return 0;
		}
		if (got == 0)
			return error_set(error, ERROR_DAEMON_RESTARTING,
					 "the daemon's answer is incomplete");
	}
	bool counted = exchange->chunked || exchange->content_length >= 0;
	size_t take = MIN(size, exchange->end - exchange->start);
	if (counted)
		take = MIN(take, exchange->left);
	memcpy(data, exchange->buffer + exchange->start, take);
	exchange->start += take;
	if (!counted)
		return (ssize_t)take;
	exchange->left -= take;
	if (exchange->left == 0 && !exchange->chunked)
		exchange->body_done = true;
	if (exchange->left == 0 && exchange->chunked) {
		char line[8];
		if (exchange_read_line(exchange, line, sizeof(line), error) < 0)
			return -1;
	}
	return (ssize_t)take;
}

void exchange_done(struct exchange *exchange)
{
	client_tls_end(exchange->tls);
	exchange->tls = NULL;
	fd_close(&exchange->fd);
}

void error_from_json(const json_t *json, int status, struct error *error)
{
	const char *code = json_string_value(json_object_get(json, "code"));
	const char *text = json_string_value(json_object_get(json, "error"));
	error_set(error, code ? error_kind_of_code(code) : ERROR_INTERNAL, "%s",
		  text ? text : "the daemon refused without a reason");
	if (!text)
		error_prepend(error, "HTTP status %d", status);
}

static int exchange_read_json(struct exchange *exchange, json_t **ret_json, struct error *error)
{
	DONE_BUFFER struct buffer body = BUFFER(ANSWER_MAX);
	char piece[16384];
	for (;;) {
		ssize_t got = exchange_read(exchange, piece, sizeof(piece), error);
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		if (buffer_append(&body, piece, (size_t)got) < 0)
			return error_set(error, ERROR_TOO_LARGE, "the daemon's answer is too long");
	}
	*ret_json = NULL;
	if (body.size == 0)
		return 0;
	*ret_json = json_loadb(body.data, body.size, JSON_DECODE_ANY, NULL);
	if (!*ret_json)
		return error_set(error, ERROR_INTERNAL, "the daemon's answer is not JSON");
	return 0;
}

int client_call(struct client *client, const char *method, const char *path, json_t *body,
		const int *fds, size_t fd_count, json_t **ret_json, struct error *error)
{
	FREE_TEXT char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	if (body && !text)
		return error_set(error, ERROR_INVALID, "an argument is not valid UTF-8");
	struct request request = {
	    .method = method,
	    .path = path,
	    .type = body ? "application/json" : NULL,
	    .length = text ? (int64_t)strlen(text) : 0,
	    .fds = fds,
	    .fd_count = fd_count,
	};
	struct exchange *exchange = exchange_new();
	json_t *json = NULL;
	int result = exchange_begin(client, &request, exchange, error);
	if (result == 0 && text)
		result = exchange_write(exchange, false, text, strlen(text), error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	if (result == 0)
		result = exchange_read_json(exchange, &json, error);
	exchange_free(exchange);
	if (result == 0 && ret_json)
		*ret_json = json;
	else
		json_decref(json);
	return result;
}

int buffer_append_encoded(struct buffer *buffer, const char *text)
{
	static const char plain[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
	int result = 0;
	for (; *text; text++) {
		if (strchr(plain, *text))
			result |= buffer_append(buffer, text, 1);
		else
			result |= buffer_printf(buffer, "%%%02X", (unsigned char)*text);
	}
	return result;
}

int buffer_append_parameter(struct buffer *path, const char *name, const char *value)
{
	if (!value)
		return 0;
	char mark = strchr(path->data, '?') ? '&' : '?';
	int result = buffer_printf(path, "%c%s=", mark, name);
	return result < 0 ? result : buffer_append_encoded(path, value);
}
