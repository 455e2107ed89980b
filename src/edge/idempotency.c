/* See idempotency.h. Called by the handlers of create, exec and run, on the loop; a request without
 * a key costs a check of its headers, one with a key costs what core/account/idempotency.c does. */
#include "edge/idempotency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Bodies with equal content are equal, in any notation. */
static int body_append_canonical(const struct call *call, const char *path, struct buffer *what,
				 struct error *error)
{
	char *text = json_dumps(call->body, JSON_COMPACT | JSON_SORT_KEYS);
	int result = -1;
	if (text && buffer_append(what, path, strlen(path) + 1) == 0 &&
	    buffer_append(what, text, strlen(text)) == 0)
		result = 0;
	else
		error_set(error, ERROR_TOO_LARGE, "the body is too large for an Idempotency-Key");
	free(text);
	return result;
}

/* The space of the key: the workspace's, or for a token that is bound to a sandbox a separate one,
 * so that it learns of no other key. A workspace's name has no slash. */
static void key_space(const struct call *call, char space[IDEMPOTENCY_SPACE_MAX + 1])
{
	const struct principal *principal = &call->principal;
	bool bound = id_is_set(&principal->sandbox);
	snprintf(space, IDEMPOTENCY_SPACE_MAX + 1, "%s%s%s", principal->workspace, bound ? "/" : "",
		 bound ? principal->sandbox.text : "");
}

void idempotent_forget(const struct call *call)
{
	char space[IDEMPOTENCY_SPACE_MAX + 1];
	key_space(call, space);
	idempotency_forget(call->core, space, call_idempotency_key(call));
}

int idempotent_begin(struct call *call, const char *operation, const char *path,
		     struct idempotent **ret_request, struct request_row *ret_row,
		     struct error *error)
{
	const char *key = call_idempotency_key(call);
	*ret_request = NULL;
	if (!key)
		return 0;
	/* Escapes may make it longer than the received body. */
	DONE_BUFFER struct buffer what = BUFFER(8 * HTTP_JSON_BODY_MAX);
	if (body_append_canonical(call, path, &what, error) < 0)
		return -1;
	char space[IDEMPOTENCY_SPACE_MAX + 1];
	key_space(call, space);
	return idempotency_begin(call->core, space, key, operation, what.data, what.size,
				 ret_request, ret_row, error);
}

void reply_replayed(struct call *call, int status, struct json_writer *writer)
{
	static const struct http_header headers[] = {{"Idempotent-Replayed", "true"}};
	if (call->exchange && !writer->full) {
		log_debug("request %s: %s: %d, once more", call->request_id, call->route->pattern,
			  status);
		http_respond(call->exchange, status, "application/json", headers,
			     ARRAY_SIZE(headers), writer->buffer->data, writer->buffer->size);
		call_answered(call);
		buffer_done(writer->buffer);
		return;
	}
	reply_json(call, status, writer);
}
