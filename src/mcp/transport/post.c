/* The answer to a POST (post.h): as JSON, or as a stream if it takes long or other messages come
 * first. Called by http_post.c and, through the carrier, by every request. The effect of a
 * disconnect depends on the session: with a session, a request continues, and its messages are kept
 * for the client's reconnect; without one (the modern era, a stateless face) it is cancelled,
 * including each one of a batch. Nothing blocks. */
#include "mcp/transport/post.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mcp/transport/http.h"
#include "mcp/transport/memory.h"
#include "mcp/transport/session_private.h"
#include "mcp/transport/stream.h"

struct post *post_hold(struct post *post)
{
	post->references++;
	return post;
}

void post_release(struct post *post)
{
	if (--post->references > 0)
		return;
	list_remove(&post->waiting);
	buffer_done(&post->answers);
	memory_release(&post->memory);
	if (post->session)
		session_release(post->session);
	free(post);
}

/* The client is gone, and no stream was begun. */
static void post_gone(struct call *call)
{
	struct post *post = call->state;
	post->call = NULL;
	list_remove(&post->waiting);
	request_set_cancel(&post->requests);
	post_release(post);
}

struct post *post_new(struct call *call, struct mcp_server *server, const struct mcp_view *view)
{
	struct post *post = calloc(1, sizeof(*post));
	if (!post)
		abort();
	post->references = 1;
	post->server = server;
	post->call = call;
	post->view = *view;
	post->memory = memory_new(call->principal.workspace);
	list_init(&post->waiting);
	request_set_init(&post->requests);
	call->state = post;
	call->on_gone = post_gone;
	return post;
}

/* --- one answer --- */

static struct call *post_take_call(struct post *post)
{
	struct call *call = TAKE_PTR(post->call);
	call->state = NULL;
	call->on_gone = NULL;
	call->stream.on_data = NULL;
	call->stream.on_end = NULL;
	list_remove(&post->waiting);
	return call;
}

static void post_respond_in_two(struct post *post, int status, const struct buffer *body,
				const struct buffer *rest, const struct http_header *headers,
				size_t count)
{
	struct call *call = post_take_call(post);
	struct http_text first = {body ? body->data : NULL, body ? body->size : 0};
	struct http_text second = {rest ? rest->data : NULL, rest ? rest->size : 0};
	http_respond_in_two(call->exchange, status, body ? "application/json" : NULL, headers,
			    count, &first, &second);
	call_answered(call);
	post_release(post);
}

static void post_respond(struct post *post, int status, const struct buffer *body,
			 const struct http_header *headers, size_t count)
{
	post_respond_in_two(post, status, body, NULL, headers, count);
}

void post_problem(struct post *post, const json_t *id, const struct mcp_problem *problem)
{
	struct buffer body DONE_BUFFER = BUFFER(16 * KIB);
	put_problem(&body, id, problem);
	const struct http_header later = {"Retry-After", MEMORY_RETRY_AFTER};
	post_respond(post, problem->status, &body, &later, problem->status == 503);
}

void post_accepted(struct post *post)
{
	post_respond(post, 202, NULL, NULL, 0);
}

/* --- a stream --- */

static void post_finish_stream(struct post *post)
{
	stream_finish(TAKE_PTR(post->stream));
	post_release(post);
}

static void post_stream_gone(struct mcp_stream *stream)
{
	struct post *post = stream->data;
	/* The messages that a session keeps wait for the client. */
	if (post->session)
		return;
	post->stream = NULL;
	stream_free(stream);
	request_set_cancel(&post->requests);
	post_release(post);
}

/* false: it is not possible. */
static bool post_open_stream(struct post *post)
{
	if (post->stream)
		return true;
	if (!post->call || !post->accepts_stream)
		return false;
	struct call *call = post_take_call(post);
	post->stream = stream_new(post->server, post->session);
	post->stream->gone = post_stream_gone;
	post->stream->data = post;
	stream_attach(post->stream, call, STREAM_ANEW);
	return true;
}

void posts_waited(void *data)
{
	struct mcp_server *server = data;
	int64_t now = clock_monotonic();
	while (!list_empty(&server->waiting)) {
		struct post *post = list_entry(server->waiting.next, struct post, waiting);
		if (post->due > now) {
			alarm_set(server->waiting_alarm,
				  (uint64_t)(post->due - now) / NSEC_PER_MSEC + 1);
			return;
		}
		list_remove(&post->waiting);
		post_open_stream(post);
	}
}

static void post_wait_for_answer(struct post *post)
{
	if (!post->call || !post->accepts_stream || !list_empty(&post->waiting))
		return;
	if (!post->accepts_json) {
		post_open_stream(post);
		return;
	}
	post->due = clock_monotonic() + POST_WAIT_MS * NSEC_PER_MSEC;
	if (list_empty(&post->server->waiting))
		alarm_set(post->server->waiting_alarm, POST_WAIT_MS);
	list_append(&post->server->waiting, &post->waiting);
}

/* --- the carrier of requests --- */

static void post_carry_notification(struct mcp_request *request, const struct buffer *message)
{
	struct post *post = request->carrier_data;
	if (post_open_stream(post))
		stream_send(post->stream, message);
}

/* Headers of an answer: the new session's id, or the token's missing scope. */
static size_t answer_headers(struct post *post, struct mcp_request *request, int status,
			     struct http_header headers[2], char challenge[CHALLENGE_MAX])
{
	size_t count = 0;
	if (!post->session && request->session)
		headers[count++] = (struct http_header){"Mcp-Session-Id", request->session->id};
	if (status == 403) {
		enum scope scope = MAX(post->view.face->scope, SCOPE_WRITE);
		http_challenge_text(post->call, true, scope, challenge);
		headers[count++] = (struct http_header){"WWW-Authenticate", challenge};
	}
	return count;
}

/* A message that nobody reads now must fit into the session's storage. */
static void post_send_last(struct post *post, struct mcp_request *request,
			   const struct buffer *message)
{
	struct mcp_problem problem;
	if (post->session && !post->stream->call && message->size > SESSION_REPLAY_MAX / 2) {
		struct buffer instead DONE_BUFFER = BUFFER(16 * KIB);
		problem_set(&problem, MCP_INTERNAL_ERROR, 200,
			    "the answer was too large to be kept while nobody was connected");
		put_problem(&instead, request->id, &problem);
		stream_send(post->stream, &instead);
		return;
	}
	stream_send(post->stream, message);
}

static void answer_collect(struct post *post, const json_t *id, const struct buffer *message);
static void batch_element_done(struct post *post);

/* The client accepts only a stream; but a status, and a new session's id, need an ordinary
 * answer. */
static bool post_must_stream(const struct post *post, const struct mcp_request *request, int status)
{
	return !post->accepts_json && status == 200 && (post->session || !request->session);
}

static void post_carry_answer(struct mcp_request *request, const struct buffer *message, int status)
{
	struct post *post = request->carrier_data;
	struct http_header headers[2];
	char challenge[CHALLENGE_MAX];
	post->request = NULL;
	if (post->batch) {
		answer_collect(post, request->id, message);
		batch_element_done(post);
	} else if (post->stream ||
		   (post_must_stream(post, request, status) && post_open_stream(post))) {
		post_send_last(post, request, message);
		post_finish_stream(post);
	} else if (post->call) {
		size_t count = answer_headers(post, request, status, headers, challenge);
		post_respond(post, status, message, headers, count);
	}
	post_release(post);
}

/* An answer with its own body takes the cached bytes directly; within a stream or batch it is
 * copied into a message. */
static void post_carry_kept(struct mcp_request *request, const struct buffer *message,
			    const struct buffer *rest)
{
	struct post *post = request->carrier_data;
	struct buffer whole DONE_BUFFER = BUFFER(message->size + rest->size);
	if (post->call && !post->batch && !post->stream && !post_must_stream(post, request, 200)) {
		post->request = NULL;
		post_respond_in_two(post, 200, message, rest, NULL, 0);
		post_release(post);
	} else if (buffer_append(&whole, message->data, message->size) == 0 &&
		   buffer_append(&whole, rest->data, rest->size) == 0) {
		post_carry_answer(request, &whole, 200);
	}
}

/* The request was cancelled: there is no answer, and the end of the connection says so. */
static void post_carry_cancelled(struct mcp_request *request)
{
	struct post *post = request->carrier_data;
	post->request = NULL;
	if (post->batch) {
		batch_element_done(post);
	} else if (post_open_stream(post)) {
		post->stream->unanswered = true;
		post_finish_stream(post);
	} else if (post->call) {
		post_accepted(post);
	}
	post_release(post);
}

const struct mcp_carrier post_carrier = {
    .notify = post_carry_notification,
    .answer = post_carry_answer,
    .answer_kept = post_carry_kept,
    .dropped = post_carry_cancelled,
};

void post_serve(struct post *post, struct mcp_request *request, const struct mcp_headers *headers)
{
	post_hold(post); /* the request's reference */
	post_hold(post);
	if (post->batch)
		post->pending++;
	else
		post->request = request;
	mcp_dispatch(request, headers);
	if (post->batch ? post->pending > 0 : post->request != NULL)
		post_wait_for_answer(post);
	post_release(post);
}

/* --- batches --- */

void post_batch_begin(struct post *post)
{
	post->batch = true;
	post->pending = 1; /* the batch itself, until it was read completely */
	post->answers = BUFFER(MCP_ANSWER_MAX + 64 * KIB);
}

static void answer_collect(struct post *post, const json_t *id, const struct buffer *message)
{
	if (post->stream)
		stream_send(post->stream, message);
	else
		batch_collect(&post->answers, id, message);
}

void post_collect_problem(struct post *post, const json_t *id, const struct mcp_problem *problem)
{
	struct buffer message DONE_BUFFER = BUFFER(16 * KIB);
	put_problem(&message, id, problem);
	answer_collect(post, id, &message);
}

/* If a stream is opened after some answers have come, it carries those first. */
static void post_flush_collected(struct post *post)
{
	if (post->answers.size == 0)
		return;
	if (buffer_append_text(&post->answers, "]") == 0)
		stream_send(post->stream, &post->answers);
	buffer_clear(&post->answers);
}

static void batch_element_done(struct post *post)
{
	if (--post->pending > 0)
		return;
	if (post->stream || (post->call && !post->accepts_json && post_open_stream(post))) {
		post_flush_collected(post);
		post_finish_stream(post);
	} else if (post->call && post->answers.size == 0) {
		post_accepted(post);
	} else if (post->call && buffer_append_text(&post->answers, "]") == 0) {
		post_respond(post, 200, &post->answers, NULL, 0);
	}
}

void post_batch_end(struct post *post)
{
	post_hold(post);
	batch_element_done(post);
	if (post->pending > 0)
		post_wait_for_answer(post);
	post_release(post);
}

void session_close_stream(struct mcp_request *request)
{
	if (request->carrier != &post_carrier)
		return;
	struct post *post = request->carrier_data;
	if (post->session && post_open_stream(post))
		stream_detach(post->stream);
}
