/* Passes a request's body to the handler: removes its framing, enforces its length, and follows the
 * handler's pace. connection.c calls it with the bytes; handlers call it to start and hold the
 * body. */
#include "http/connection.h"

/* Returns whether bytes of the body are read: the handler waits for them, or we skip them. */
bool http_body_wanted(const struct http_exchange *exchange)
{
	if (exchange->connection->state == HTTP_SKIP)
		return !http_body_complete(exchange->body);
	return exchange->body == HTTP_BODY_READING && !exchange->body_paused;
}

/* The request was answered, and the rest of its body cannot be skipped. The answer is still sent,
 * then the connection closes. */
static void body_give_up_skipping(struct http_exchange *exchange)
{
	exchange->connection->close_after = exchange->connection->lingers = true;
	(void)http_body_step(&exchange->body, HTTP_BODY_EVENT_LAST);
}

/* Gives a piece of the body to the handler, or counts it when it is skipped. */
static void body_give(struct http_exchange *exchange, const char *data, size_t size)
{
	bool skipping = exchange->connection->state == HTTP_SKIP;
	exchange->body_taken += size;
	if (exchange->body_taken > exchange->body_maximum) {
		if (skipping)
			body_give_up_skipping(exchange);
		else
			http_refuse(exchange->connection, 413, "the body is too long");
	} else if (!skipping && exchange->callbacks.on_data) {
		exchange->callbacks.on_data(exchange, data, size);
	}
}

static size_t body_take_chunked(struct http_exchange *exchange, const char *data, size_t size)
{
	const char *piece, *reason;
	size_t piece_size;
	int64_t used =
	    http_chunked_next(&exchange->chunked, data, size, &piece, &piece_size, &reason);
	if (used < 0) {
		if (exchange->connection->state == HTTP_SKIP)
			body_give_up_skipping(exchange);
		else
			http_refuse(exchange->connection, 400, reason);
		return size;
	}
	if (exchange->chunked.phase == CHUNK_DONE)
		(void)http_body_step(&exchange->body, HTTP_BODY_EVENT_LAST);
	if (piece_size > 0)
		body_give(exchange, piece, piece_size);
	return (size_t)used;
}

size_t http_body_take(struct http_exchange *exchange, char *data, size_t size)
{
	struct http_connection *connection = exchange->connection;
	size_t used = 0;
	enum http_state state = connection->state;
	while (used < size && connection->state == state && http_body_wanted(exchange)) {
		connection->body_moved = true;
		if (exchange->body_chunked) {
			used += body_take_chunked(exchange, data + used, size - used);
			continue;
		}
		size_t piece = (size_t)MIN((uint64_t)(size - used), exchange->body_left);
		exchange->body_left -= piece;
		if (exchange->body_left == 0)
			(void)http_body_step(&exchange->body, HTTP_BODY_EVENT_LAST);
		body_give(exchange, data + used, piece);
		used += piece;
	}
	return used;
}

void http_body_read(struct http_exchange *exchange, uint64_t maximum)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct http_connection *connection = exchange->connection;
	if (!http_exchange_open(exchange) || connection->state == HTTP_UPGRADED ||
	    !http_body_step(&exchange->body, HTTP_BODY_EVENT_ASK))
		return;
	exchange->body_maximum = maximum;
	if (exchange->body_left > maximum) {
		http_refuse(connection, 413, "the body is too long");
		return;
	}
	if (exchange->expect_continue) {
		exchange->expect_continue = false;
		/* Not after a final status: the client would take it for the next answer. */
		if (connection->state == HTTP_ASKED &&
		    http_queue_append(&connection->output, go_on, sizeof(go_on) - 1) < 0)
			http_connection_break(connection);
	}
	http_connection_wake(connection);
}

void http_body_pause(struct http_exchange *exchange)
{
	exchange->body_paused = true;
}

void http_body_resume(struct http_exchange *exchange)
{
	exchange->body_paused = false;
	if (http_exchange_open(exchange))
		http_connection_wake(exchange->connection);
}
