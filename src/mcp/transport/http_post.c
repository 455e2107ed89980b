/* A POST: one message, or a batch of the revisions that have them, and its answer: one JSON body if
 * the answer comes soon and no other message comes before it, else a stream of events, which is
 * opened at once so that no client considers the server dead. Called by routes.c; nothing blocks:
 * long bodies are read in a thread.
 *
 * The order of the checks, and the statuses, are the protocol's (docs/mcp.md has the table). */
#include "mcp/transport/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mcp/transport/dispatch.h"
#include "mcp/transport/memory.h"
#include "mcp/transport/post.h"
#include "mcp/transport/session_private.h"
#include "mcp/transport/stream.h"

/* --- what the client wants --- */

static bool media_type_is(const char *at, size_t size, const char *type)
{
	return size == strlen(type) && strncasecmp(at, type, size) == 0;
}

/* A stream is only for clients that name it: clients that accept any type (curl, fetch) expect one
 * JSON body. */
static void call_read_accept(struct post *post, const char *accept)
{
	bool json = false;
	for (const char *at = accept; at && *at;) {
		at += strspn(at, " \t,");
		size_t size = strcspn(at, " \t,;");
		if (media_type_is(at, size, "text/event-stream"))
			post->accepts_stream = true;
		else if (media_type_is(at, size, "application/json") ||
			 media_type_is(at, size, "application/*") || media_type_is(at, size, "*/*"))
			json = true;
		at += strcspn(at, ",");
	}
	post->accepts_json = json || !post->accepts_stream;
}

static const char *version_header(const struct post *post)
{
	return http_header(post->call->exchange, "mcp-protocol-version");
}

static void post_refuse(struct post *post, const json_t *id, enum mcp_code code, int status,
			const char *text)
{
	struct mcp_problem problem;
	problem_set(&problem, code, status, "%s", text);
	post_problem(post, id, &problem);
}

static struct mcp_source post_source(struct post *post)
{
	return (struct mcp_source){.server = post->server,
				   .principal = &post->call->principal,
				   .view = &post->view,
				   .carrier = &post_carrier,
				   .carrier_data = post,
				   .among = &post->requests,
				   .memory = post->memory,
				   .silent = !post->accepts_stream};
}

/* --- the modern era --- */

static void post_receive_modern(struct post *post, json_t *json, const struct message *message)
{
	struct mcp_problem problem;
	struct envelope envelope;
	const char *version = version_header(post);
	struct mcp_headers headers = {.get = http_single_header, .data = post->call->exchange};
	if (message->kind == MESSAGE_RESPONSE) {
		post_refuse(post, message->id, MCP_INVALID_REQUEST, 400,
			    "this revision has no requests of the server that could be answered");
		return;
	}
	if (envelope_read(message, version, &envelope, &problem) < 0) {
		post_problem(post, message->id, &problem);
		return;
	}
	/* A client that gives up closes its connection; its other notifications change nothing. */
	if (message->kind == MESSAGE_NOTIFICATION) {
		post_accepted(post);
		return;
	}
	if (envelope_check_headers(message, &headers, &problem) < 0) {
		post_problem(post, message->id, &problem);
		return;
	}
	struct mcp_source source = post_source(post);
	json_incref(json);
	post_serve(post, mcp_request_new(&source, message, &envelope, &json), &headers);
}

/* --- the legacy era --- */

/* The session of a message other than initialize; false after an answer. A stateless face has
 * none. */
static bool message_find_session(struct post *post, const json_t *id)
{
	const char *name = http_single_header(post->call->exchange, "mcp-session-id");
	const char *version = version_header(post);
	if (version && revision_parse(version) < 0) {
		post_refuse(post, id, MCP_INVALID_REQUEST, 400,
			    "this MCP-Protocol-Version is not supported");
		return false;
	}
	if (post->view.face->features & FACE_STATELESS)
		return true;
	if (!name) {
		post_refuse(
		    post, id, MCP_INVALID_REQUEST, 400,
		    "the header Mcp-Session-Id is missing: a session begins with initialize");
		return false;
	}
	struct mcp_session *session =
	    session_find(post->server, name, &post->call->principal, &post->view);
	if (!session) {
		post_refuse(post, id, MCP_INVALID_REQUEST, 404,
			    "there is no such session: begin again with initialize");
		return false;
	}
	session_touch(session);
	post->session = session_hold(session);
	return true;
}

/* The settings of the session, or for a stateless face those of the header. */
static struct envelope legacy_envelope(const struct post *post)
{
	const struct mcp_session *session = post->session;
	if (session)
		return (struct envelope){.revision = session->revision,
					 .client = session->client,
					 .log_level = session->log_level};
	return (struct envelope){.revision = post->said, .log_level = MCP_LOG_OFF};
}

static void message_serve_legacy(struct post *post, const struct mcp_source *base, json_t *json,
				 const struct message *message)
{
	struct envelope envelope = legacy_envelope(post);
	struct mcp_source source = *base;
	source.session = post->session;
	if (post->session)
		source.among = &post->session->requests;
	json_incref(json);
	post_serve(post, mcp_request_new(&source, message, &envelope, &json), NULL);
}

static void message_take_silently(struct post *post, json_t *json, const struct message *message)
{
	if (message->kind == MESSAGE_NOTIFICATION)
		mcp_notified(message, post->session,
			     post->session ? &post->session->requests : NULL);
	else if (post->session)
		session_responded(post->session, json);
}

static void post_receive_legacy(struct post *post, json_t *json, const struct message *message)
{
	struct mcp_source source = post_source(post);
	bool begins =
	    message->kind == MESSAGE_REQUEST && strcmp(message->method, "initialize") == 0;
	if (!begins && !message_find_session(post, message->id))
		return;
	if (message->kind == MESSAGE_REQUEST) {
		message_serve_legacy(post, &source, json, message);
		return;
	}
	message_take_silently(post, json, message);
	post_accepted(post);
}

/* --- batches --- */

static void post_receive_element(struct post *post, const struct mcp_source *source, json_t *json)
{
	struct mcp_problem problem;
	struct message message;
	if (message_read(json, &message, &problem) < 0) {
		post_collect_problem(post, message.id, &problem);
	} else if (message.kind != MESSAGE_REQUEST) {
		message_take_silently(post, json, &message);
	} else if (strcmp(message.method, "initialize") == 0) {
		problem_set(&problem, MCP_INVALID_REQUEST, 400, "initialize cannot be in a batch");
		post_collect_problem(post, message.id, &problem);
	} else {
		message_serve_legacy(post, source, json, &message);
	}
}

static const char *batch_refused(const struct post *post, const json_t *json)
{
	size_t index;
	json_t *element;
	if (json_array_size(json) == 0 || json_array_size(json) > BATCH_MAX)
		return "a batch has 1 to 32 messages";
	json_array_foreach(json, index, element)
	{
		if (envelope_claims(element))
			return "this revision has no batches";
	}
	const char *version = version_header(post);
	int revision = version ? revision_parse(version) : MCP_ASSUMED;
	return revision > MCP_2025_03_26 ? "this revision has no batches" : NULL;
}

static void post_receive_batch(struct post *post, json_t *json)
{
	const char *refused = batch_refused(post, json);
	size_t index;
	json_t *element;
	if (refused) {
		post_refuse(post, NULL, MCP_INVALID_REQUEST, 400, refused);
		return;
	}
	if (!message_find_session(post, NULL))
		return;
	struct principal principal = post->call->principal;
	struct mcp_source source = post_source(post);
	source.principal = &principal;
	post_batch_begin(post);
	json_array_foreach(json, index, element)
	{
		/* An element of the batch may have shown that the client is gone. */
		if (post->call || post->stream || post->session)
			post_receive_element(post, &source, element);
	}
	post_batch_end(post);
}

/* --- the body --- */

static void post_receive(struct post *post, json_t *json)
{
	struct message message;
	struct mcp_problem problem;
	const char *version = version_header(post);
	int said = version ? revision_parse(version) : -1;
	/* Without a session the revision of initialize is unknown: clients of older revisions
	 * ignore newer members. */
	post->said = said < 0 || revision_modern((enum mcp_revision)said) ? MCP_NEWEST_LEGACY
									  : (enum mcp_revision)said;
	if (json_is_array(json)) {
		post_receive_batch(post, json);
		return;
	}
	if (message_read(json, &message, &problem) < 0) {
		post_problem(post, message.id, &problem);
		return;
	}
	if (envelope_modern(&message, version))
		post_receive_modern(post, json, &message);
	else
		post_receive_legacy(post, json, &message);
}

static void post_parsed(void *data, json_t *json, const void *problem)
{
	struct post *post = data;
	post->parse = NULL;
	/* The client has gone: nothing has begun yet, so nothing is cancelled. */
	if (!post->call) {
		json_decref(json);
		post_release(post);
		return;
	}
	if (!json)
		post_problem(post, NULL, problem);
	else
		post_receive(post, json);
	json_decref(json);
	post_release(post);
}

static size_t message_max(const struct mcp_face *face)
{
	return face->request_max ? face->request_max : MESSAGE_MAX;
}

static void problem_set_too_long(const struct mcp_face *face, struct mcp_problem *problem)
{
	problem_set(problem, MCP_PARSE_ERROR, 413, MCP_TOO_LONG,
		    (unsigned long long)message_max(face));
}

static void post_body_data(struct call *call, const char *data, size_t size)
{
	struct post *post = call->state;
	struct mcp_problem problem;
	if (!memory_grow(post->memory, size)) {
		memory_problem(&problem);
		post_problem(post, NULL, &problem);
		return;
	}
	if (buffer_append(&call->raw, data, size) < 0) {
		problem_set_too_long(post->view.face, &problem);
		post_problem(post, NULL, &problem);
	}
}

static void post_body_end(struct call *call)
{
	struct post *post = post_hold(call->state);
	struct mcp_problem problem;
	json_t *json = NULL;
	call->stream.on_data = NULL;
	call->stream.on_end = NULL;
	if (call->raw.size > MESSAGE_INLINE_MAX) {
		post->parse = json_parse_begin(work_share_hold(call->share), &call->raw,
					       &message_parser, post_parsed, post);
		return;
	}
	if (message_parse(call->raw.size ? call->raw.data : "", call->raw.size, &json, &problem) <
	    0)
		json = NULL;
	post_parsed(post, json, &problem);
}

void http_post(struct call *call, struct mcp_server *server, const struct mcp_view *view)
{
	struct mcp_problem problem;
	const char *type = http_header(call->exchange, "content-type");
	if (!type || !media_type_is(type, strcspn(type, "; "), "application/json")) {
		problem_set(&problem, MCP_INVALID_REQUEST, 415,
			    "the Content-Type must be application/json");
		http_problem(call, NULL, &problem);
		return;
	}
	size_t most = message_max(view->face);
	if (http_request(call->exchange)->content_length > (int64_t)most) {
		problem_set_too_long(view->face, &problem);
		http_problem(call, NULL, &problem);
		return;
	}
	struct post *post = post_new(call, server, view);
	call_read_accept(post, http_header(call->exchange, "accept"));
	call->raw = BUFFER(most);
	call->stream.on_data = post_body_data;
	call->stream.on_end = post_body_end;
	/* body_data() refuses larger bodies itself: the HTTP layer's answer would not be MCP's. */
	http_body_read(call->exchange, UINT64_MAX);
}
