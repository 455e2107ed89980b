/* Puts the answers of handlers, and the refusals of this layer, into the connection's queue.
 * Handlers may call it at any time. It only queues bytes (large pieces go to the socket at once)
 * and asks for a turn. It never calls back. */
#include "http/connection.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "http/characters.h"

/* A piece of at least this size is offered to the socket before it is copied. */
#define DIRECT_MIN (16 * 1024)

static const struct {
	int status;
	const char *text;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

static const char *status_text(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "";
}

/* How an answer marks its end. */
enum framing { FRAMING_NONE, FRAMING_LENGTH, FRAMING_CHUNKED, FRAMING_CLOSE };

/* Cold, so that the compiler puts answer_put() in line: a small answer calls it 18 times. */
static __attribute__((cold)) void answer_give_up_unsent(struct http_connection *connection)
{
	if (http_state_ends(connection->state))
		return;
	log_error("http: an answer has over %d unsent bytes; connection closed", HTTP_QUEUE_MAX);
	http_connection_break(connection);
}

static void answer_put(struct http_connection *connection, const void *data, size_t size)
{
	if (http_queue_append(&connection->output, data, size) < 0)
		answer_give_up_unsent(connection);
}

static void answer_put_text(struct http_connection *connection, const char *text)
{
	answer_put(connection, text, strlen(text));
}

static void answer_put_number(struct http_connection *connection, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);
	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	answer_put(connection, digits + at, sizeof(digits) - at);
}

/* A large piece goes to the socket at once, behind the queue; the part that the socket does not
 * take is copied. */
static void answer_put_large(struct http_connection *connection, const char *data, size_t size)
{
	if (size >= DIRECT_MIN && !connection->ssl && !connection->blocked &&
	    !http_state_ends(connection->state)) {
		ssize_t sent = http_transport_write(connection, data, size);
		if (sent < 0) {
			http_connection_break(connection);
			return;
		}
		data += sent;
		size -= (size_t)sent;
	}
	answer_put(connection, data, size);
	if (size > HTTP_QUEUE_HIGH)
		http_unread_check(connection);
}

/* A header with a line end is a defect of the handler, or an attack through it. */
static bool header_is_clean(const struct http_header *header)
{
	const char *at = header->name;
	if (!*at)
		return false;
	for (; *at; at++)
		if (!http_is_token(*at))
			return false;
	for (at = header->value; *at; at++)
		if (!http_is_text(*at))
			return false;
	return true;
}

static void answer_put_header(struct http_connection *connection, const struct http_header *header)
{
	if (!header_is_clean(header)) {
		log_error("http: an invalid header was left out of an answer");
		return;
	}
	answer_put_text(connection, header->name);
	answer_put(connection, ": ", 2);
	answer_put_text(connection, header->value);
	answer_put(connection, "\r\n", 2);
}

/* Only the page of this listed origin may see the answer, and never with cookies (there are none).
 */
static void answer_put_cors(struct http_connection *connection)
{
	answer_put_text(connection, "Access-Control-Allow-Origin: ");
	answer_put_text(connection, http_header(connection->exchange, "origin"));
	answer_put_text(connection,
			"\r\nVary: Origin\r\nAccess-Control-Expose-Headers: Content-Range, "
			"Mcp-Session-Id, Retry-After, WWW-Authenticate, X-File-Size, "
			"X-Request-Id\r\n");
}

static void answer_put_status(struct http_connection *connection, int status, const char *id)
{
	answer_put(connection, "HTTP/1.1 ", 9);
	answer_put_number(connection, (uint64_t)status);
	answer_put(connection, " ", 1);
	answer_put_text(connection, status_text(status));
	answer_put(connection, "\r\nDate: ", 8);
	answer_put_text(connection, http_server_date(connection->server));
	answer_put(connection, "\r\nX-Request-Id: ", 16);
	answer_put_text(connection, id);
	answer_put(connection, "\r\n", 2);
	if (connection->exchange && connection->exchange->origin == HTTP_ORIGIN_LISTED)
		answer_put_cors(connection);
}

static void answer_put_framing(struct http_connection *connection, enum framing framing,
			       uint64_t length)
{
	if (framing == FRAMING_LENGTH) {
		answer_put_text(connection, "Content-Length: ");
		answer_put_number(connection, length);
		answer_put(connection, "\r\n", 2);
	} else if (framing == FRAMING_CHUNKED) {
		answer_put_text(connection, "Transfer-Encoding: chunked\r\n");
	}
}

static void exchange_tell_answered(struct http_exchange *exchange, int status)
{
	const struct http_handlers *handlers = &exchange->connection->server->handlers;
	if (handlers->answered)
		handlers->answered(handlers->context, exchange, status);
}

static void answer_put_head(struct http_exchange *exchange, int status, const char *type,
			    enum framing framing, uint64_t length,
			    const struct http_header *headers, size_t header_count)
{
	struct http_connection *connection = exchange->connection;
	answer_put_status(connection, status, exchange->request.id);
	if (type)
		answer_put_header(connection,
				  &(struct http_header){.name = "Content-Type", .value = type});
	answer_put_framing(connection, framing, length);
	if (connection->close_after)
		answer_put_text(connection, "Connection: close\r\n");
	else if (exchange->is_old)
		answer_put_text(connection, "Connection: keep-alive\r\n");
	for (size_t i = 0; i < header_count; i++)
		answer_put_header(connection, &headers[i]);
	answer_put(connection, "\r\n", 2);
	exchange_tell_answered(exchange, status);
}

/* Decides whether this answer is the connection's last. It is if the client or we want that, if the
 * rest of the body is too long to skip, or if the rest may never come (the client waits for a
 * 100). */
static void answer_decide_close(struct http_exchange *exchange, bool whole)
{
	struct http_connection *connection = exchange->connection;
	bool unread =
	    exchange->body == HTTP_BODY_UNASKED || (whole && exchange->body == HTTP_BODY_READING);
	if (!exchange->keep_alive || connection->server->stopping)
		connection->close_after = true;
	if (unread && (exchange->expect_continue || exchange->body_left > HTTP_SKIP_MAX))
		connection->close_after = true;
}

/* Returns whether the handler may do this now. A defect of the handler aborts the answer, because
 * otherwise the client would wait for ever. */
static bool exchange_step(struct http_exchange *exchange, enum http_event event)
{
	enum http_action action = http_state_step(&exchange->connection->state, event);
	if (action == HTTP_ACTION_DEFECT) {
		log_error("http: the answer to request %s began twice, or ended before it "
			  "began; connection closed",
			  exchange->request.id);
		http_stream_abort(exchange);
	}
	return action == HTTP_ACTION_DO;
}

static bool status_has_no_body(int status)
{
	return status < 200 || status == 204 || status == 304;
}

void http_respond_in_two(struct http_exchange *exchange, int status, const char *type,
			 const struct http_header *headers, size_t header_count,
			 const struct http_text *first, const struct http_text *rest)
{
	if (!exchange_step(exchange, HTTP_EVENT_RESPOND))
		return;
	bool none = status_has_no_body(status);
	answer_decide_close(exchange, true);
	answer_put_head(exchange, status, none ? NULL : type, none ? FRAMING_NONE : FRAMING_LENGTH,
			first->size + rest->size, headers, header_count);
	if (!none && !exchange->is_head && first->size > 0)
		answer_put_large(exchange->connection, first->data, first->size);
	if (!none && !exchange->is_head && rest->size > 0)
		answer_put_large(exchange->connection, rest->data, rest->size);
	http_connection_wake(exchange->connection);
}

void http_respond(struct http_exchange *exchange, int status, const char *type,
		  const struct http_header *headers, size_t header_count, const void *data,
		  size_t size)
{
	http_respond_in_two(exchange, status, type, headers, header_count,
			    &(struct http_text){data, size}, &(struct http_text){0});
}

void http_stream_begin(struct http_exchange *exchange, int status, const char *type, int64_t length,
		       const struct http_header *headers, size_t header_count)
{
	if (!exchange_step(exchange, HTTP_EVENT_BEGIN))
		return;
	enum framing framing = length >= 0 ? FRAMING_LENGTH : FRAMING_CHUNKED;
	if (status_has_no_body(status))
		framing = FRAMING_NONE;
	else if (length < 0 && exchange->is_old)
		framing = FRAMING_CLOSE;
	answer_decide_close(exchange, false);
	if (framing == FRAMING_CLOSE)
		exchange->connection->close_after = true;
	answer_put_head(exchange, status, type, framing, (uint64_t)length, headers, header_count);
	exchange->answer_chunked = framing == FRAMING_CHUNKED && !exchange->is_head;
	exchange->answer_left = framing == FRAMING_LENGTH ? length : -1;
	/* From here on is_head means that no body is sent. */
	exchange->is_head = exchange->is_head || framing == FRAMING_NONE;
	http_connection_wake(exchange->connection);
}

bool http_stream_write(struct http_exchange *exchange, const void *data, size_t size)
{
	struct http_connection *connection = exchange->connection;
	if (!exchange_step(exchange, HTTP_EVENT_WRITE))
		return false;
	if (size == 0)
		return true;
	if (exchange->answer_left >= 0) {
		if ((uint64_t)size > (uint64_t)exchange->answer_left) {
			log_error("http: an answer exceeds its declared length; connection closed");
			http_connection_break(connection);
			return false;
		}
		exchange->answer_left -= (int64_t)size;
	}
	if (exchange->is_head)
		return true;
	if (exchange->answer_chunked) {
		char line[24];
		int length = snprintf(line, sizeof(line), "%zx\r\n", size);
		answer_put(connection, line, (size_t)length);
	}
	answer_put_large(connection, data, size);
	if (exchange->answer_chunked)
		answer_put(connection, "\r\n", 2);
	http_connection_wake(connection);
	if (connection->output.size < HTTP_QUEUE_HIGH && connection->written < HTTP_TURN_WRITTEN)
		return true;
	exchange->wants_drain = true;
	return false;
}

void http_stream_end(struct http_exchange *exchange)
{
	struct http_connection *connection = exchange->connection;
	if (connection->state == HTTP_ANSWERING && exchange->answer_left > 0 &&
	    !exchange->is_head) {
		log_error("http: an answer is shorter than its declared length; connection closed");
		http_stream_abort(exchange);
		return;
	}
	if (!exchange_step(exchange, HTTP_EVENT_END))
		return;
	if (exchange->answer_chunked)
		answer_put(connection, "0\r\n\r\n", 5);
	http_connection_wake(connection);
}

void http_stream_abort(struct http_exchange *exchange)
{
	struct http_connection *connection = exchange->connection;
	bool answering = connection->state == HTTP_ANSWERING;
	if (!exchange_step(exchange, HTTP_EVENT_ABORT))
		return;
	/* If the end of the connection marks the end of the answer, only a reset shows that the
	 * answer is incomplete. */
	connection->reset = answering && !exchange->answer_chunked && exchange->answer_left < 0;
	if (!connection->reset && http_transport_write(connection, NULL, 0) < 0)
		connection->reset = true;
	http_connection_wake(connection);
}

void http_upgrade(struct http_exchange *exchange, const char *protocol,
		  const struct http_header *headers, size_t header_count)
{
	struct http_connection *connection = exchange->connection;
	bool possible = exchange->upgrade_asked && http_body_complete(exchange->body);
	if (connection->state == HTTP_ASKED && !possible) {
		http_refuse(connection, 400,
			    exchange->upgrade_asked ? "an upgrade before the end of the body"
						    : "the request does not ask for an upgrade");
		return;
	}
	if (!exchange_step(exchange, HTTP_EVENT_UPGRADE))
		return;
	exchange_tell_answered(exchange, 101);
	answer_put_text(connection, "HTTP/1.1 101 Switching Protocols\r\nDate: ");
	answer_put_text(connection, http_server_date(connection->server));
	answer_put_text(connection, "\r\nX-Request-Id: ");
	answer_put_text(connection, exchange->request.id);
	answer_put_text(connection, "\r\nConnection: Upgrade\r\n");
	answer_put_header(connection, &(struct http_header){.name = "Upgrade", .value = protocol});
	for (size_t i = 0; i < header_count; i++)
		answer_put_header(connection, &headers[i]);
	answer_put(connection, "\r\n", 2);
	exchange->is_head = false;
	exchange->answer_left = -1;
	/* After the end of the upgrade no request can follow. */
	connection->close_after = connection->lingers = true;
	http_connection_wake(connection);
}

static const char *status_error_code(int status)
{
	switch (status) {
	case 408:
		return error_info(ERROR_TIMED_OUT)->code;
	case 413:
	case 414:
	case 431:
		return error_info(ERROR_TOO_LARGE)->code;
	case 421:
		return error_info(ERROR_INVALID)->code;
	case 501:
		return error_info(ERROR_UNSUPPORTED)->code;
	default:
		return error_info(ERROR_MALFORMED)->code;
	}
}

void http_refuse(struct http_connection *connection, int status, const char *reason)
{
	struct http_exchange *exchange = connection->exchange;
	char body[512], id[HTTP_REQUEST_ID_SIZE];
	if (exchange)
		memcpy(id, exchange->request.id, sizeof(id));
	else
		http_server_next_id(connection->server, id);
	log_debug("http: request %s refused with %d: %s", id, status, reason);
	if (http_state_step(&connection->state, HTTP_EVENT_REFUSE) != HTTP_ACTION_DO) {
		http_connection_wake(connection);
		return;
	}
	int size = snprintf(body, sizeof(body),
			    "{\"error\":\"%s\",\"code\":\"%s\",\"request_id\":\"%s\","
			    "\"retryable\":false,\"detail\":\"%s\"}\n",
			    reason, status_error_code(status), id, reason);
	answer_put_status(connection, status, id);
	answer_put_text(connection, "Content-Type: application/json\r\nConnection: close\r\n");
	answer_put_framing(connection, FRAMING_LENGTH, (uint64_t)size);
	answer_put(connection, "\r\n", 2);
	if (!exchange || !exchange->is_head)
		answer_put(connection, body, (size_t)size);
	connection->close_after = connection->lingers = true;
	http_connection_wake(connection);
}
