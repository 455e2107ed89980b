/* Answers: JSON, the one error shape, headers that belong to a status. Every error of the API goes
 * through reply_error(), and is mapped by the table alone. Nothing blocks. */
#include "edge/call.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/statistics.h"

void put_error(struct json_writer *writer, const struct error *error, const char *request_id)
{
	const struct error_info *info = error_info(error->kind);
	put_object(writer, NULL);
	put_text(writer, "error", error->message);
	put_text(writer, "code", info->code);
	put_text(writer, "request_id", request_id);
	put_bool(writer, "retryable", info->retryable);
	put_text(writer, "detail", error->message);
	if (error->limit[0] != '\0')
		put_text(writer, "limit", error->limit);
	if (error->retry_after_ms != 0)
		put_uint(writer, "retry_after_ms", error->retry_after_ms);
	if (error->queue_position != 0)
		put_uint(writer, "queue_position", error->queue_position);
	if (info->advice[0] != '\0')
		put_text(writer, "advice", info->advice);
	put_object_end(writer);
}

/* What a client can act upon by header alone. Returns how many were filled. */
static size_t error_headers(const struct call *call, const struct error *error,
			    struct http_header headers[1], char text[128])
{
	const struct error_info *info = error_info(error->kind);
	if (info->http_status == 401) {
		/* RFC 6750: no error code where no token was sent. */
		bool sent = http_header(call->exchange, "authorization") != NULL;
		headers[0] = (struct http_header){
		    "WWW-Authenticate", sent ? "Bearer realm=\"caisson\", error=\"invalid_token\""
					     : "Bearer realm=\"caisson\""};
		return 1;
	}
	if (info == error_info(ERROR_FORBIDDEN) && call->route &&
	    !principal_may(&call->principal, call->route->scope)) {
		snprintf(text, 128,
			 "Bearer realm=\"caisson\", error=\"insufficient_scope\", scope=\"%s\"",
			 scope_name(call->route->scope));
		headers[0] = (struct http_header){"WWW-Authenticate", text};
		return 1;
	}
	if (info->http_status == 405) {
		headers[0] = (struct http_header){"Allow", call->allow};
		return 1;
	}
	if (info->retryable && (info->http_status == 429 || info->http_status == 503)) {
		snprintf(text, 128, "%u", MAX((error->retry_after_ms + 999) / 1000, 1u));
		headers[0] = (struct http_header){"Retry-After", text};
		return 1;
	}
	return 0;
}

void reply_error(struct call *call, const struct error *error)
{
	if (!call->exchange)
		return;
	const struct error_info *info = error_info(error->kind);
	statistics.errors[error->kind]++;
	const struct http_request *request = http_request(call->exchange);
	/* 501 is what the client asked for, not what went wrong here. */
	if (info->http_status >= 500 && info->http_status != 501)
		log_warning("request %s: %s %s: %d %s: %s", call->request_id, request->method,
			    call->route ? call->route->pattern : "", info->http_status, info->code,
			    error->message);
	else
		log_debug("request %s: %s %s: %d %s: %s", call->request_id, request->method,
			  call->route ? call->route->pattern : "", info->http_status, info->code,
			  error->message);

	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_error(&writer, error, call->request_id);
	struct http_header headers[1];
	char text[128];
	size_t count = error_headers(call, error, headers, text);
	http_respond(call->exchange, info->http_status, "application/json", headers, count,
		     buffer.data, buffer.size);
	call_answered(call);
}

void reply_json(struct call *call, int status, struct json_writer *writer)
{
	if (call->exchange && writer->full) {
		struct error error;
		error_set(&error, ERROR_TOO_LARGE,
			  "the answer would be larger than %llu MiB; ask for less",
			  (unsigned long long)(writer->buffer->maximum / MIB));
		reply_error(call, &error);
	} else if (call->exchange) {
		log_debug("request %s: %s: %d", call->request_id, call->route->pattern, status);
		http_respond(call->exchange, status, "application/json", NULL, 0,
			     writer->buffer->data, writer->buffer->size);
		call_answered(call);
	}
	buffer_done(writer->buffer);
}

void reply_empty(struct call *call, int status)
{
	if (!call->exchange)
		return;
	http_respond(call->exchange, status, NULL, NULL, 0, NULL, 0);
	call_answered(call);
}
