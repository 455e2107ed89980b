/* The life of a request and the functions for every handler (request.h): answers, errors, progress,
 * log. Called by every method and tool, on the loop. An answer is written directly into one buffer,
 * which the carrier sends; nothing blocks. */
#include "mcp/request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "mcp/questions.h"
#include "mcp/content.h"
#include "mcp/transport/dispatch.h"
#include "mcp/transport/memory.h"
#include "mcp/server.h"
#include "mcp/transport/session_private.h"
#include "mcp/tasks/task.h"

/* The maximum of a notification: its text, the token, and the envelope. */
#define NOTIFICATION_MAX (256 * KIB)

static const char *const level_names[] = {"debug", "info",     "notice", "warning",
					  "error", "critical", "alert",  "emergency"};

int mcp_level_parse(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
		if (strcmp(level_names[i], name) == 0)
			return (int)i;
	return -1;
}

const char *mcp_level_name(enum mcp_log_level level)
{
	return level < MCP_LOG_OFF ? level_names[level] : "off";
}

/* --- life --- */

struct mcp_request *mcp_request_new(const struct mcp_source *source, const struct message *message,
				    const struct envelope *envelope, json_t **json)
{
	struct mcp_request *request = calloc(1, sizeof(*request));
	if (!request)
		abort();
	request->server = source->server;
	request->core = source->server->core;
	request->carrier = source->carrier;
	request->carrier_data = source->carrier_data;
	request->references = 1;
	request->open = true;
	request->silent = source->silent;
	request->principal = *source->principal;
	request->view = *source->view;
	/* Through a read-only view every principal is a reader: reading a file wakes no sandbox.
	 * The administration's reads need their own scope. */
	if (request->view.read_only && request->view.face->scope != SCOPE_ADMIN)
		request->principal.scopes = SCOPE_READ;
	request->revision = envelope->revision;
	request->client = envelope->client;
	request->log_level = envelope->log_level;
	request->session = source->session ? session_hold(source->session) : NULL;
	request->message = TAKE_PTR(*json);
	request->memory = memory_hold(source->memory);
	request->id = message->id;
	request->method = message->method;
	request->params = message->params;
	request->progress_token = envelope_progress_token(message->params);
	list_init(&request->link);
	request->among = source->among;
	if (request->among) {
		list_append(&request->among->requests, &request->link);
		request->among->count++;
	}
	return request;
}

static void request_leave_set(struct mcp_request *request)
{
	if (!request->among)
		return;
	list_remove(&request->link);
	request->among->count--;
	request->among = NULL;
}

struct mcp_request *mcp_hold(struct mcp_request *request)
{
	request->references++;
	return request;
}

void mcp_release(struct mcp_request *request)
{
	if (--request->references > 0)
		return;
	request_leave_set(request);
	if (request->state_free)
		request->state_free(request->state);
	if (request->question_rounds)
		questions_free(request);
	buffer_done(&request->out);
	struct work_share *share = core_share(request->core, &request->principal);
	json_release(request->message, share);
	work_share_release(share);
	memory_release(&request->memory);
	if (request->session)
		session_release(request->session);
	free(request);
}

void mcp_cancel(struct mcp_request *request)
{
	if (!request->open)
		return;
	request->open = false;
	request_leave_set(request);
	void (*on_cancel)(struct mcp_request *) = request->on_cancel;
	request->on_cancel = NULL;
	if (on_cancel)
		on_cancel(request);
	if (request->session)
		session_forget_client_requests(request->session, request);
	if (request->carrier->dropped)
		request->carrier->dropped(request);
	mcp_release(request);
}

void request_set_init(struct request_set *set)
{
	*set = (struct request_set){0};
	list_init(&set->requests);
}

void request_set_cancel(struct request_set *set)
{
	while (!list_empty(&set->requests))
		mcp_cancel(list_entry(set->requests.next, struct mcp_request, link));
}

/* --- answers --- */

static void request_answer(struct mcp_request *request, int status, const struct buffer *rest)
{
	request->open = false;
	request->on_cancel = NULL;
	request_leave_set(request);
	if (rest)
		request->carrier->answer_kept(request, &request->out, rest);
	else
		request->carrier->answer(request, &request->out, status);
	buffer_done(&request->out);
	if (request->session) {
		session_forget_client_requests(request->session, request);
		session_touch(request->session);
	}
	mcp_release(request);
}

static void request_settle(struct mcp_request *request, bool failed)
{
	request->open = false;
	request->on_cancel = NULL;
	request_leave_set(request);
	request->carrier->settle(request, &request->out, failed);
	buffer_done(&request->out);
	mcp_release(request);
}

/* Begins the message; the caller opens the object of its result or error. */
static struct json_writer *request_answer_begin(struct mcp_request *request)
{
	uint32_t most = request->view.face->answer_max;
	buffer_done(&request->out);
	request->out = BUFFER(most ? most : MCP_ANSWER_MAX);
	request->writer = json_writer_on(&request->out);
	request->content_open = request->meta_put = false;
	if (!request->carrier->settle) {
		put_object(&request->writer, NULL);
		put_text(&request->writer, "jsonrpc", "2.0");
		if (request->id)
			put_message_id(&request->writer, "id", request->id);
	}
	request->id_end = request->out.size;
	return &request->writer;
}

struct json_writer *mcp_result_begin_as(struct mcp_request *request, const char *type)
{
	bool bare = request->carrier->settle != NULL;
	struct json_writer *writer = request_answer_begin(request);
	put_object(writer, bare ? NULL : "result");
	if (revision_modern(request->revision) && !bare)
		put_text(writer, "resultType", type);
	return writer;
}

struct json_writer *mcp_result_begin(struct mcp_request *request)
{
	return mcp_result_begin_as(request, "complete");
}

void mcp_put_cache(struct mcp_request *request, uint64_t ttl_ms, bool public)
{
	if (!revision_modern(request->revision))
		return;
	put_uint(&request->writer, "ttlMs", ttl_ms);
	put_text(&request->writer, "cacheScope", public ? "public" : "private");
}

struct json_writer *mcp_meta_begin(struct mcp_request *request)
{
	const struct mcp_face *face = request->view.face;
	struct json_writer *writer = &request->writer;
	put_object(writer, "_meta");
	request->meta_put = true;
	if (!revision_modern(request->revision) || request->carrier->settle)
		return writer;
	put_object(writer, "io.modelcontextprotocol/serverInfo");
	put_text(writer, "name", face->name);
	if (face->title)
		put_text(writer, "title", face->title);
	put_text(writer, "version", CAISSON_VERSION);
	put_object_end(writer);
	return writer;
}

void mcp_meta_end(struct mcp_request *request)
{
	put_object_end(&request->writer);
}

static void request_refuse_too_large(struct mcp_request *request)
{
	mcp_error(request, MCP_INTERNAL_ERROR, NULL,
		  "the answer would be larger than %zu KiB; ask for less",
		  request->out.maximum / (size_t)KIB);
}

static void result_close(struct mcp_request *request)
{
	struct json_writer *writer = &request->writer;
	bool bare = request->carrier->settle != NULL;
	if (!bare && !request->meta_put && revision_modern(request->revision)) {
		mcp_meta_begin(request);
		mcp_meta_end(request);
	}
	put_object_end(writer);
	if (!bare)
		put_object_end(writer);
}

bool mcp_result_keep(struct mcp_request *request, struct buffer *ret_rest)
{
	result_close(request);
	return !request->writer.full && buffer_append(ret_rest, request->out.data + request->id_end,
						      request->out.size - request->id_end) == 0;
}

void mcp_result_kept(struct mcp_request *request, const struct buffer *rest)
{
	if (!request->open)
		return;
	request_answer_begin(request);
	if (request->carrier->answer_kept)
		request_answer(request, 200, rest);
	else if (buffer_append(&request->out, rest->data, rest->size) == 0)
		request_answer(request, 200, NULL);
	else
		request_refuse_too_large(request);
}

void mcp_result_end(struct mcp_request *request)
{
	if (!request->open)
		return;
	result_close(request);
	if (request->writer.full) {
		request_refuse_too_large(request);
	} else if (request->carrier->settle) {
		request_settle(request, false);
	} else {
		request_answer(request, 200, NULL);
	}
}

void mcp_result_empty(struct mcp_request *request)
{
	mcp_result_begin(request);
	mcp_result_end(request);
}

static void put_error_object(struct json_writer *writer, const char *key, int code,
			     const char *text, const char *data)
{
	put_object(writer, key);
	put_int(writer, "code", code);
	put_text(writer, "message", text);
	if (data && data[0])
		put_json(writer, "data", data, strlen(data));
	put_object_end(writer);
}

static void request_refuse(struct mcp_request *request, int code, int status, const char *text,
			   const char *data)
{
	if (!request->open)
		return;
	bool bare = request->carrier->settle != NULL;
	struct json_writer *writer = request_answer_begin(request);
	put_error_object(writer, bare ? NULL : "error", code, text, data);
	if (bare) {
		request_settle(request, true);
		return;
	}
	put_object_end(writer);
	request_answer(request, status, NULL);
}

/* An error of a handler is part of a good HTTP answer, except errors that concern the transport. */
static int error_http_status(const struct mcp_request *request, int code)
{
	if (!revision_modern(request->revision))
		return 200;
	switch (code) {
	case MCP_METHOD_NOT_FOUND:
		return 404;
	case MCP_HEADER_MISMATCH:
	case MCP_MISSING_CAPABILITY:
	case MCP_UNSUPPORTED_VERSION:
		return 400;
	default:
		return 200;
	}
}

void mcp_error(struct mcp_request *request, enum mcp_code code, const char *data,
	       const char *format, ...)
{
	char *text;
	va_list arguments;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		abort();
	va_end(arguments);
	request_refuse(request, code, error_http_status(request, code), text, data);
	free(text);
}

void mcp_refuse(struct mcp_request *request, const struct mcp_problem *problem)
{
	request_refuse(request, problem->code, problem->status, problem->text, problem->data);
}

/* The kind's own code, and data for programs. */
static void put_error_data(struct buffer *to, const struct error *error)
{
	const struct error_info *info = error_info(error->kind);
	struct json_writer writer = json_writer_on(to);
	put_object(&writer, NULL);
	put_text(&writer, "code", info->code);
	put_bool(&writer, "retryable", info->retryable);
	if (error->retry_after_ms != 0)
		put_uint(&writer, "retry_after_ms", error->retry_after_ms);
	if (info->advice[0])
		put_text(&writer, "advice", info->advice);
	put_object_end(&writer);
}

void mcp_fail(struct mcp_request *request, const struct error *error)
{
	const struct error_info *info = error_info(error->kind);
	if (!request->open)
		return;
	if (request->tool) {
		content_fail(request, error);
		return;
	}
	statistics.errors[error->kind]++;
	if (info->http_status >= 500 && info->http_status != 501)
		log_warning("mcp: %.64s: %s: %s", request->method, info->code, error->message);
	int code = info->rpc_code;
	if (code == MCP_RESOURCE_NOT_FOUND && revision_modern(request->revision))
		code = MCP_INVALID_PARAMS;
	struct buffer data DONE_BUFFER = BUFFER(2 * KIB);
	put_error_data(&data, error);
	/* If a token's rights are insufficient, HTTP says so too, in either era. */
	int status = error->kind == ERROR_FORBIDDEN ? 403 : 200;
	request_refuse(request, code, status, error->message, buffer_text(&data));
}

/* --- on the way --- */

static struct json_writer notification_begin(struct buffer *to, const char *method)
{
	struct json_writer writer = json_writer_on(to);
	put_object(&writer, NULL);
	put_text(&writer, "jsonrpc", "2.0");
	put_text(&writer, "method", method);
	put_object(&writer, "params");
	return writer;
}

static void notification_end(struct mcp_request *request, struct json_writer *writer)
{
	put_object_end(writer);
	put_object_end(writer);
	if (!writer->full)
		request->carrier->notify(request, writer->buffer);
}

/* A whole number is written as an integer: most clients compare with that. */
static void put_amount(struct json_writer *writer, const char *key, double value)
{
	if (value == floor(value) && fabs(value) < 9e15)
		put_int(writer, key, (int64_t)value);
	else
		put_number(writer, key, value);
}

static void request_send_progress(struct mcp_request *request, double progress, double total,
				  const char *text, size_t size)
{
	struct buffer message DONE_BUFFER = BUFFER(NOTIFICATION_MAX);
	struct json_writer writer = notification_begin(&message, "notifications/progress");
	put_message_id(&writer, "progressToken", request->progress_token);
	put_amount(&writer, "progress", progress);
	if (total >= 0)
		put_amount(&writer, "total", total);
	if (text && request->revision >= MCP_2025_03_26)
		put_text_size(&writer, "message", text, size);
	notification_end(request, &writer);
}

static size_t progress_size(const char *text, size_t size)
{
	return size <= MCP_PROGRESS_TEXT_MAX ? size : text_utf8_prefix(text, MCP_PROGRESS_TEXT_MAX);
}

void mcp_progress(struct mcp_request *request, const char *text, size_t size)
{
	if (!request->open)
		return;
	if (request->task) {
		task_progress(request->task, text, progress_size(text, size));
		return;
	}
	int64_t now = clock_monotonic();
	if (!request->progress_token || request->silent || now < request->progress_due)
		return;
	request->progress_due = now + MCP_PROGRESS_MS * NSEC_PER_MSEC;
	request_send_progress(request, (double)++request->progress, -1, text,
			      progress_size(text, size));
}

void mcp_progress_of(struct mcp_request *request, double progress, double total, const char *text)
{
	size_t size = text ? progress_size(text, strlen(text)) : 0;
	if (!request->open)
		return;
	if (request->task) {
		if (text)
			task_progress(request->task, text, size);
		return;
	}
	if (request->progress_token && !request->silent)
		request_send_progress(request, progress, total, text, size);
}

void mcp_log(struct mcp_request *request, enum mcp_log_level level, const char *logger,
	     const char *text)
{
	enum mcp_log_level least =
	    request->session ? session_log_level(request->session) : request->log_level;
	if (!request->open || request->silent || request->task || level < least ||
	    least == MCP_LOG_OFF || !(request->view.face->features & FACE_LOGGING))
		return;
	struct buffer message DONE_BUFFER = BUFFER(NOTIFICATION_MAX);
	struct json_writer writer = notification_begin(&message, "notifications/message");
	put_text(&writer, "level", mcp_level_name(level));
	if (logger)
		put_text(&writer, "logger", logger);
	put_text(&writer, "data", text);
	notification_end(request, &writer);
}
