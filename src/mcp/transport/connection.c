/* A connection that carries messages one by one, in both eras (dispatch.h). Called by lines.c; its
 * requests end with the connection. Nothing blocks: long messages are read in a thread. */
#include <stdlib.h>
#include <string.h>

#include "mcp/transport/dispatch.h"
#include "mcp/server.h"
#include "mcp/transport/session_private.h"

/* A batch under way: its answers are sent together. */
struct batch {
	struct mcp_connection *connection; /* NULL: it has ended */
	size_t pending;
	struct buffer answers;
};

static void connection_send_problem(struct mcp_connection *connection, const json_t *id,
				    const struct mcp_problem *problem)
{
	struct buffer message DONE_BUFFER = BUFFER(16 * KIB);
	put_problem(&message, id, problem);
	connection->send(connection, &message);
}

/* --- carriers --- */

static void message_carry(struct mcp_request *request, const struct buffer *message)
{
	struct mcp_connection *connection = request->carrier_data;
	connection->send(connection, message);
}

static void connection_carry_answer(struct mcp_request *request, const struct buffer *message,
				    int status)
{
	(void)status;
	message_carry(request, message);
}

static const struct mcp_carrier line_carrier = {.notify = message_carry,
						.answer = connection_carry_answer};

static void batch_send(struct batch *batch)
{
	struct mcp_connection *connection = batch->connection;
	if (batch->answers.size > 0 && connection && connection->session &&
	    buffer_append_text(&batch->answers, "]") == 0)
		connection->send(connection, &batch->answers);
	buffer_done(&batch->answers);
	free(batch);
}

static void batch_done(struct batch *batch)
{
	if (--batch->pending == 0)
		batch_send(batch);
}

static void batch_notify(struct mcp_request *request, const struct buffer *message)
{
	struct batch *batch = request->carrier_data;
	batch->connection->send(batch->connection, message);
}

static void batch_answer(struct mcp_request *request, const struct buffer *message, int status)
{
	struct batch *batch = request->carrier_data;
	(void)status;
	batch_collect(&batch->answers, request->id, message);
	batch_done(batch);
}

static void batch_dropped(struct mcp_request *request)
{
	batch_done(request->carrier_data);
}

static const struct mcp_carrier batch_carrier = {
    .notify = batch_notify, .answer = batch_answer, .dropped = batch_dropped};

/* --- messages --- */

static void connection_receive_modern(struct mcp_connection *connection, struct mcp_source *source,
				      json_t *json, const struct message *message)
{
	struct mcp_problem problem;
	struct envelope envelope;
	if (message->kind == MESSAGE_RESPONSE)
		return; /* this era has no requests to the client */
	if (envelope_read(message, NULL, &envelope, &problem) < 0) {
		if (message->kind == MESSAGE_REQUEST)
			connection_send_problem(connection, message->id, &problem);
		return;
	}
	if (message->kind == MESSAGE_NOTIFICATION) {
		mcp_notified(message, NULL, &connection->requests);
		return;
	}
	json_incref(json);
	mcp_dispatch(mcp_request_new(source, message, &envelope, &json), NULL);
}

static void connection_receive_legacy(struct mcp_connection *connection, struct mcp_source *source,
				      json_t *json, const struct message *message)
{
	struct mcp_session *session = connection->session;
	struct envelope envelope = {.revision = session->revision,
				    .client = session->client,
				    .log_level = session->log_level};
	if (message->kind == MESSAGE_NOTIFICATION) {
		mcp_notified(message, session, &connection->requests);
	} else if (message->kind == MESSAGE_RESPONSE) {
		session_responded(session, json);
	} else {
		source->session = session;
		json_incref(json);
		mcp_dispatch(mcp_request_new(source, message, &envelope, &json), NULL);
	}
}

static void message_receive_single(struct mcp_connection *connection, json_t *json)
{
	struct mcp_problem problem;
	struct message message;
	struct mcp_source source = {.server = connection->server,
				    .principal = &connection->principal,
				    .view = &connection->view,
				    .memory = connection->memory,
				    .carrier = &line_carrier,
				    .carrier_data = connection,
				    .among = &connection->requests};
	if (message_read(json, &message, &problem) < 0)
		connection_send_problem(connection, message.id, &problem);
	else if (envelope_modern(&message, NULL))
		connection_receive_modern(connection, &source, json, &message);
	else
		connection_receive_legacy(connection, &source, json, &message);
}

static void connection_receive_element(struct mcp_connection *connection, struct batch *batch,
				       json_t *json)
{
	struct mcp_problem problem;
	struct message message;
	struct mcp_source source = {.server = connection->server,
				    .principal = &connection->principal,
				    .view = &connection->view,
				    .memory = connection->memory,
				    .carrier = &batch_carrier,
				    .carrier_data = batch,
				    .among = &connection->requests};
	int result = message_read(json, &message, &problem);
	if (result == 0 && message.kind == MESSAGE_REQUEST &&
	    strcmp(message.method, "initialize") == 0)
		result = problem_set(&problem, MCP_INVALID_REQUEST, 400,
				     "initialize cannot be in a batch");
	if (result < 0) {
		struct buffer text DONE_BUFFER = BUFFER(16 * KIB);
		put_problem(&text, message.id, &problem);
		batch_collect(&batch->answers, message.id, &text);
		return;
	}
	batch->pending += message.kind == MESSAGE_REQUEST;
	connection_receive_legacy(connection, &source, json, &message);
}

static void connection_receive_batch(struct mcp_connection *connection, json_t *json)
{
	struct mcp_problem problem;
	size_t index, count = json_array_size(json);
	json_t *element;
	bool claims = false;
	json_array_foreach(json, index, element)
	{
		claims |= envelope_claims(element);
	}
	if (claims || count == 0 || count > BATCH_MAX ||
	    connection->session->revision > MCP_2025_03_26) {
		problem_set(&problem, MCP_INVALID_REQUEST, 400,
			    "a batch is not possible in this revision, or has not 1 to %d messages",
			    BATCH_MAX);
		connection_send_problem(connection, NULL, &problem);
		return;
	}
	struct batch *batch = calloc(1, sizeof(*batch));
	if (!batch)
		abort();
	batch->connection = connection;
	batch->pending = 1;
	batch->answers = BUFFER(MCP_ANSWER_MAX + 64 * KIB);
	json_array_foreach(json, index, element)
	{
		connection_receive_element(connection, batch, element);
	}
	batch_done(batch);
}

static void message_receive(struct mcp_connection *connection, json_t *json,
			    const struct mcp_problem *problem)
{
	if (!json)
		connection_send_problem(connection, NULL, problem);
	else if (json_is_array(json))
		connection_receive_batch(connection, json);
	else
		message_receive_single(connection, json);
	json_decref(json);
}

static void message_parsed(void *data, json_t *json, const void *problem)
{
	struct mcp_connection *connection = data;
	connection->parsing = NULL;
	message_receive(connection, json, problem);
	if (connection->ready)
		connection->ready(connection);
}

bool mcp_receive(struct mcp_connection *connection, const char *text, size_t size)
{
	struct mcp_problem problem;
	json_t *json = NULL;
	if (size > MESSAGE_MAX) {
		problem_set(&problem, MCP_PARSE_ERROR, 413, MCP_TOO_LONG,
			    (unsigned long long)MESSAGE_MAX);
		message_receive(connection, NULL, &problem);
		return true;
	}
	if (size > MESSAGE_INLINE_MAX) {
		struct buffer copy = BUFFER(size);
		if (buffer_append(&copy, text, size) < 0)
			abort(); /* its maximum is sufficient */
		connection->parsing =
		    json_parse_begin(core_share(connection->server->core, &connection->principal),
				     &copy, &message_parser, message_parsed, connection);
		return false;
	}
	if (message_parse(text, size, &json, &problem) < 0)
		json = NULL;
	message_receive(connection, json, &problem);
	return true;
}

/* --- life --- */

void mcp_connection_init(struct mcp_connection *connection)
{
	request_set_init(&connection->requests);
	connection->parsing = NULL;
	connection->session =
	    session_new(connection->server, &connection->principal, &connection->view);
	connection->session->connection = connection;
	list_append(&connection->server->line_sessions, &connection->session->bucket);
}

void mcp_connection_done(struct mcp_connection *connection)
{
	struct mcp_session *session = TAKE_PTR(connection->session);
	if (!session)
		return;
	json_parse_forget(connection->parsing);
	session->connection = NULL;
	request_set_cancel(&connection->requests);
	session_end(session);
}

bool mcp_connection_busy(const struct mcp_connection *connection)
{
	return connection->requests.count > 0 || connection->parsing;
}
