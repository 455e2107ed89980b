/* A session's own stream, and its end: GET and DELETE. The modern era has neither. Called by
 * routes.c; nothing blocks. */
#include "mcp/transport/http.h"

#include <string.h>

#include "base/text.h"
#include "mcp/transport/session_private.h"
#include "mcp/transport/stream.h"

static void call_refuse_method(struct call *call, const char *text)
{
	static const struct http_header allow = {"Allow", "POST"};
	struct buffer body DONE_BUFFER = BUFFER(4 * KIB);
	struct mcp_problem problem;
	problem_set(&problem, MCP_INVALID_REQUEST, 405, "%s", text);
	put_problem(&body, NULL, &problem);
	http_respond(call->exchange, 405, "application/json", &allow, 1, body.data, body.size);
	call_answered(call);
}

#define NO_SESSION "without a session (Mcp-Session-Id) only POST is possible here"

static void get_refuse(struct call *call, int status, const char *text)
{
	struct mcp_problem problem;
	problem_set(&problem, MCP_INVALID_REQUEST, status, "%s", text);
	http_problem(call, NULL, &problem);
}

/* The session that the header names, or NULL after an answer. */
static struct mcp_session *call_find_session(struct call *call, struct mcp_server *server,
					     const struct mcp_view *view)
{
	const char *id = http_single_header(call->exchange, "mcp-session-id");
	const char *version = http_single_header(call->exchange, "mcp-protocol-version");
	int revision = version ? revision_parse(version) : MCP_ASSUMED;
	/* The modern era has no sessions: the header is ignored. */
	if (!id || (view->face->features & FACE_STATELESS) ||
	    (revision >= 0 && revision_modern((enum mcp_revision)revision))) {
		call_refuse_method(call, NO_SESSION);
		return NULL;
	}
	struct mcp_session *session = session_find(server, id, &call->principal, view);
	if (!session) {
		get_refuse(call, 404, "there is no such session: begin again with initialize");
		return NULL;
	}
	if (revision < 0) {
		get_refuse(call, 400, "this MCP-Protocol-Version is not supported");
		return NULL;
	}
	session_touch(session);
	return session;
}

/* "STREAM-EVENT", as stream.c writes it. */
static int event_id_parse(const char *text, uint64_t *ret_stream, uint64_t *ret_event)
{
	char stream[24];
	const char *dash = strchr(text, '-');
	if (!dash || (size_t)(dash - text) >= sizeof(stream))
		return -1;
	memcpy(stream, text, (size_t)(dash - text));
	stream[dash - text] = '\0';
	if (text_to_u64(stream, 0, UINT64_MAX, ret_stream) < 0 ||
	    text_to_u64(dash + 1, 0, UINT64_MAX, ret_event) < 0)
		return -1;
	return 0;
}

static struct mcp_stream *session_find_stream(struct mcp_session *session, uint64_t number)
{
	list_each (&session->streams, node) {
		struct mcp_stream *stream = list_entry(node, struct mcp_stream, link);
		if (stream->number == number)
			return stream;
	}
	return NULL;
}

/* Its request was cancelled, and nothing follows that event. */
static bool stream_is_over(const struct mcp_session *session, const struct mcp_stream *stream,
			   uint64_t number, uint64_t event)
{
	if (stream)
		return stream->unanswered && event + 1 >= stream->next;
	for (size_t i = 0; i < UNANSWERED_KEPT; i++)
		if (session->unanswered[i] == number + 1)
			return true;
	return false;
}

/* The client reconnects to a stream: sends the later messages of that stream, and of no other. It
 * also asks about a request that it cancelled itself, since no answer came: any error but 405 makes
 * the official clients ask again, and report it. */
static void stream_resume(struct call *call, struct mcp_session *session, const char *last)
{
	uint64_t number, event;
	struct mcp_stream *stream = NULL;
	bool good = event_id_parse(last, &number, &event) == 0;
	if (good)
		stream = session_find_stream(session, number);
	if (good && stream_is_over(session, stream, number, event))
		call_refuse_method(call,
				   "the request of that stream was cancelled: nothing follows");
	else if (!stream)
		get_refuse(call, 400, "Last-Event-ID is of no stream that is still kept");
	else
		stream_attach(stream, call, event);
}

void http_get(struct call *call, struct mcp_server *server, const struct mcp_view *view)
{
	const char *last = http_single_header(call->exchange, "last-event-id");
	const char *accept = http_header(call->exchange, "accept");
	if (strcmp(http_request(call->exchange)->method, "GET") != 0) {
		call_refuse_method(call, NO_SESSION);
		return;
	}
	struct mcp_session *session = call_find_session(call, server, view);
	if (!session)
		return;
	if (accept && !strcasestr(accept, "text/event-stream") && !strstr(accept, "*/*")) {
		get_refuse(call, 406,
			   "the answer is text/event-stream, which Accept does not have");
		return;
	}
	if (last && last[0]) {
		stream_resume(call, session, last);
		return;
	}
	if (session->get && session->get->call) {
		get_refuse(call, 409, "this session's stream is open already");
		return;
	}
	if (!session->get)
		session->get = stream_new(server, session);
	stream_attach(session->get, call, STREAM_ANEW);
}

void http_delete(struct call *call, struct mcp_server *server, const struct mcp_view *view)
{
	struct mcp_session *session = call_find_session(call, server, view);
	if (!session)
		return;
	session_end(session);
	reply_empty(call, 204);
}
