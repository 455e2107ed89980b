/* Lines over an upgraded connection: the transport of `caisson mcp`. dispatch.c does the rest. On
 * the loop; nothing blocks. The client is not trusted: a line is bounded, the output for a client
 * that does not read is bounded, and while output waits no more input is taken. */
#include "mcp/transport/lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/sandbox/ephemeral.h"
#include "core/account/access.h"
#include "mcp/transport/dispatch.h"
#include "mcp/transport/http.h"
#include "mcp/transport/memory.h"
#include "mcp/server.h"

/* The maximum of waiting output for a client; beyond it the connection is closed. */
#define WAITING_MAX (32 * MIB)
/* Data that was read from the socket and not taken yet: at most one read. */
#define REST_MAX MESSAGE_MAX
/* Where the method is in a message of ours. */
#define METHOD_WITHIN 64

struct lines {
	struct list link; /* in `lines_all` */
	struct call *call;
	struct mcp_connection connection;
	struct ephemeral_hold hold;
	struct buffer input;  /* an incomplete line */
	struct buffer rest;   /* received data, while nothing is taken */
	size_t waiting;       /* bytes since the queue was full; 0: it is not full */
	struct message_id id; /* of a long line: from its first `scanned` bytes */
	size_t scanned;
	bool skipping;              /* skips the rest of a refused line */
	struct mcp_problem refused; /* the reason */
	bool refusal_sent;
	/* Nothing is taken: a message is being read, the queue is full, or it is another
	 * connection's turn. */
	bool reading, blocked, yielding;
	bool ended; /* the client has closed its side */
	bool local; /* of a process on this host */
	bool over;
};

static struct list lines_all = {&lines_all, &lines_all};

/* --- to the client --- */

/* Is it a notification that a client that does not read can miss? */
static bool line_can_be_dropped(const struct buffer *message)
{
	size_t size = MIN(message->size, (size_t)METHOD_WITHIN);
	static const char progress[] = "\"notifications/progress\"";
	static const char log[] = "\"notifications/message\"";
	return memmem(message->data, size, progress, strlen(progress)) ||
	       memmem(message->data, size, log, strlen(log));
}

static void lines_drop_call(struct call *call)
{
	http_drop(call->exchange);
}

static void lines_hold_input(struct lines *lines)
{
	if (!lines->call->exchange)
		return;
	if (lines->reading || lines->blocked || lines->yielding)
		http_body_pause(lines->call->exchange);
	else
		http_body_resume(lines->call->exchange);
}

static void lines_send_line(struct mcp_connection *connection, const struct buffer *message)
{
	struct lines *lines = connection->data;
	struct http_exchange *exchange = lines->call->exchange;
	if (!exchange || lines->waiting > WAITING_MAX ||
	    (lines->blocked && line_can_be_dropped(message)))
		return;
	if (lines->blocked && (lines->waiting += message->size) > WAITING_MAX) {
		call_next_turn(lines->call, lines_drop_call);
		return;
	}
	http_stream_write(exchange, message->data, message->size);
	lines->blocked = !http_stream_write(exchange, "\n", 1);
	lines_hold_input(lines);
}

static void lines_send_problem(struct lines *lines, const struct mcp_problem *problem)
{
	DONE_BUFFER struct buffer message = BUFFER(4 * KIB);
	put_problem(&message, NULL, problem);
	lines_send_line(&lines->connection, &message);
}

/* --- from the client --- */

/* In pieces as they come: megabytes at once would block everything else. */
static void lines_scan_for_id(struct lines *lines)
{
	if (lines->scanned < lines->input.size)
		message_id_feed(&lines->id, lines->input.data + lines->scanned,
				lines->input.size - lines->scanned);
	lines->scanned = lines->input.size;
}

/* Sent as soon as its id is known, at the latest at the end of the line. */
static void lines_send_refusal(struct lines *lines, bool line_ended)
{
	if (lines->refusal_sent || (!line_ended && message_id_size(&lines->id) == 0))
		return;
	lines->refusal_sent = true;
	problem_set_id(&lines->refused, &lines->id);
	lines_send_problem(lines, &lines->refused);
}

/* The rest of the line is only scanned for its id. */
static void line_skip(struct lines *lines, const char *data, size_t size)
{
	lines->skipping = true;
	lines_scan_for_id(lines);
	message_id_feed(&lines->id, data, size);
	buffer_done(&lines->input);
	memory_release(&lines->connection.memory);
	lines_send_refusal(lines, false);
}

/* Adds a piece of a line. If there is no room, it does not wait: other incomplete lines may wait
 * for the same room. */
static void line_add_piece(struct lines *lines, const char *data, size_t size)
{
	struct memory **memory = &lines->connection.memory;
	if (!*memory)
		*memory = memory_new(lines->connection.principal.workspace);
	if (!memory_grow(*memory, size)) {
		memory_problem(&lines->refused);
		line_skip(lines, data, size);
	} else if (buffer_append(&lines->input, data, size) < 0) {
		problem_set(&lines->refused, MCP_INVALID_REQUEST, 200, MCP_TOO_LONG,
			    (unsigned long long)MESSAGE_MAX);
		line_skip(lines, data, size);
	} else if (lines->input.size > MESSAGE_INLINE_MAX) {
		lines_scan_for_id(lines);
	}
}

static bool line_is_blank(const struct buffer *line)
{
	return strspn(buffer_text(line), " \t\r") == line->size;
}

/* Takes bytes from `data` up to the end of a line, and handles the line if it is complete. */
static size_t lines_take_piece(struct lines *lines, const char *data, size_t size)
{
	const char *end = memchr(data, '\n', size);
	size_t piece = end ? (size_t)(end - data) : size;
	if (lines->skipping) {
		message_id_feed(&lines->id, data, piece);
		lines_send_refusal(lines, false);
	} else {
		line_add_piece(lines, data, piece);
	}
	if (!end)
		return piece;
	if (lines->skipping) {
		lines_send_refusal(lines, true);
	} else if (!line_is_blank(&lines->input)) {
		lines->reading =
		    !mcp_receive(&lines->connection, lines->input.data, lines->input.size);
	}
	lines->skipping = lines->refusal_sent = false;
	lines->id = (struct message_id){0};
	lines->scanned = 0;
	buffer_done(&lines->input);
	if (!lines->reading)
		memory_release(&lines->connection.memory);
	return piece + 1;
}

static void lines_go_on(struct call *call);

/* Many small messages may come at once: other connections have their turn in between. */
static void lines_take_input(struct lines *lines, const char *data, size_t size)
{
	int64_t until = clock_monotonic() + WORK_PIECE_NS;
	while (size > 0 && !lines->reading && !lines->blocked && !lines->yielding && !lines->over) {
		size_t taken = lines_take_piece(lines, data, size);
		data += taken;
		size -= taken;
		if (size > 0 && clock_monotonic() >= until) {
			lines->yielding = true;
			call_next_turn(lines->call, lines_go_on);
		}
	}
	if (size > 0 && !lines->over && buffer_append(&lines->rest, data, size) < 0)
		call_next_turn(lines->call, lines_drop_call);
	lines_hold_input(lines);
}

static void lines_data_came(struct call *call, const char *data, size_t size)
{
	call_hold(call);
	lines_take_input(call->state, data, size);
	call_release(call);
}

static void lines_client_ended(struct call *call);

/* Handles the waiting data first. */
static void lines_take_rest(struct lines *lines)
{
	struct call *call = call_hold(lines->call);
	struct buffer rest = lines->rest;
	lines->rest = BUFFER(REST_MAX);
	lines_take_input(lines, rest.data, rest.size);
	buffer_done(&rest);
	if (lines->ended && lines->rest.size == 0 && !lines->reading)
		lines_client_ended(call);
	call_release(call);
}

static void lines_go_on(struct call *call)
{
	struct lines *lines = call->state;
	lines->yielding = false;
	if (!lines->reading && !lines->blocked)
		lines_take_rest(lines);
}

static void lines_connection_ready(struct mcp_connection *connection)
{
	struct lines *lines = connection->data;
	lines->reading = false;
	memory_release(&connection->memory);
	if (!lines->blocked && !lines->yielding)
		lines_take_rest(lines);
}

static void lines_drained(struct call *call)
{
	struct lines *lines = call->state;
	lines->blocked = false;
	lines->waiting = 0;
	if (!lines->reading && !lines->yielding)
		lines_take_rest(lines);
}

/* --- its end --- */

static void lines_finish(struct lines *lines, bool gone)
{
	if (lines->over)
		return;
	lines->over = true;
	list_remove(&lines->link);
	mcp_connection_done(&lines->connection);
	ephemeral_release(&lines->hold, gone);
}

/* The client has closed its side: nothing waits for the running requests. Its earlier messages are
 * still handled, and finished answers are sent. */
static void lines_client_ended(struct call *call)
{
	struct lines *lines = call->state;
	lines->ended = true;
	if (lines->over || lines->rest.size > 0 || lines->reading)
		return;
	call_hold(call);
	lines_finish(lines, true);
	if (call->exchange) {
		http_stream_end(call->exchange);
		call_answered(call);
	}
	call_release(call);
}

/* For a process on this host this is its end; for a network connection the client's fate is
 * unknown. */
static void lines_client_gone(struct call *call)
{
	struct lines *lines = call->state;
	lines_finish(lines, lines->local && lines->waiting <= WAITING_MAX);
}

void lines_end(bool every)
{
	list_each (&lines_all, node) {
		struct lines *lines = list_entry(node, struct lines, link);
		struct call *call = lines->call;
		if (!every && mcp_connection_busy(&lines->connection))
			continue;
		lines_finish(lines, false);
		if (call->exchange) {
			http_stream_end(call->exchange);
			call_answered(call);
		}
	}
}

/* --- its beginning --- */

static void lines_free(void *state)
{
	struct lines *lines = state;
	buffer_done(&lines->input);
	buffer_done(&lines->rest);
	memory_release(&lines->connection.memory);
	free(lines);
}

static int dialect_unknown(const char *name, struct error *error)
{
	struct buffer names DONE_BUFFER = BUFFER(KIB);
	for (size_t i = 0; face_name(i); i++)
		(void)!buffer_printf(&names, "%s%s", i > 0 ? ", " : "", face_name(i));
	return error_set(error, ERROR_INVALID, "there is no dialect `%s`; there are %s", name,
			 buffer_text(&names));
}

struct lines_query {
	const char *toolsets, *dialect, *connection;
	bool read_only, ephemeral;
};

const struct field lines_query[] = {
    {"toolsets", FIELD_TEXT_AT(struct lines_query, toolsets), .max = 255},
    {"dialect", FIELD_TEXT_AT(struct lines_query, dialect), .max = 31},
    {"connection", FIELD_TEXT_AT(struct lines_query, connection), .max = ID_LENGTH},
    {"readonly", FIELD_BOOL_AT(struct lines_query, read_only)},
    {"ephemeral", FIELD_BOOL_AT(struct lines_query, ephemeral)},
    {0},
};

static int lines_read_view(struct call *call, struct mcp_server *server, struct mcp_view *view,
			   struct error *error)
{
	struct lines_query query = {0};
	view->face = mcp_home_face;
	view->toolsets = TOOLSET_DEFAULT;
	view->block_seconds = server->core->config.mcp_block_seconds;
	call_server_url(call, view->base);
	if (call_query(call, &query, error) < 0 ||
	    (query.toolsets && toolsets_parse(query.toolsets, &view->toolsets, error) < 0))
		return -1;
	view->read_only = query.read_only;
	view->ephemeral = query.ephemeral;
	if (query.dialect && query.toolsets)
		return error_set(error, ERROR_INVALID,
				 "`toolsets` are of the usual tools: a dialect has one set");
	if (query.dialect)
		view->face = face_by_name(query.dialect);
	if (!view->face)
		return dialect_unknown(query.dialect, error);
	/* An ephemeral connection deletes the sandboxes that it has made. */
	if (view->ephemeral && token_admit(&call->principal, SCOPE_WRITE, false, error) < 0)
		return -1;
	if (view->ephemeral &&
	    (!query.connection || id_parse(query.connection, &view->connection) < 0))
		return error_set(error, ERROR_INVALID, "`ephemeral` needs the id of a connection");
	return token_admit(&call->principal, view->face->scope, false, error);
}

void lines_post(struct call *call)
{
	struct mcp_server *server = mcp_served();
	struct mcp_view view = {0};
	struct error error;
	int result = 0;
	if (!server || server->ending)
		result = error_set(&error, ERROR_DAEMON_RESTARTING, "the daemon is ending");
	else if (!http_origin_known(call->exchange)) /* as /mcp does, on every listener */
		result = error_set(&error, ERROR_ORIGIN_FORBIDDEN,
				   "pages of that origin may not call this server");
	else if (!call_upgrades(call, MCP_LINES_PROTOCOL) || http_request(call->exchange)->has_body)
		result = error_set(&error, ERROR_INVALID,
				   "this is for `caisson mcp`: it needs `Upgrade: %s` and no body; "
				   "MCP over HTTP is at /mcp",
				   MCP_LINES_PROTOCOL);
	if (result < 0 || lines_read_view(call, server, &view, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct lines *lines = calloc(1, sizeof(*lines));
	if (!lines)
		abort();
	lines->call = call;
	lines->local = http_request(call->exchange)->peer.is_unix;
	lines->input = BUFFER(MESSAGE_MAX);
	lines->rest = BUFFER(REST_MAX);
	lines->connection = (struct mcp_connection){.server = server,
						    .principal = call->principal,
						    .view = view,
						    .send = lines_send_line,
						    .ready = lines_connection_ready,
						    .data = lines};
	list_append(&lines_all, &lines->link);
	call->state = lines;
	call->state_free = lines_free;
	call->on_gone = lines_client_gone;
	call->stream.on_data = lines_data_came;
	call->stream.on_end = lines_client_ended;
	call->stream.on_drain = lines_drained;
	mcp_connection_init(&lines->connection);
	if (view.ephemeral)
		ephemeral_hold(server->core, &call->principal, &view.connection, &lines->hold);
	http_upgrade(call->exchange, MCP_LINES_PROTOCOL, NULL, 0);
}
