/* /v1/tokens, for the scope admin: creates (shown once), lists, revokes tokens. Each is one short
 * call of the store. */
#include "api/routes.h"

#include <string.h>

#include "base/clock.h"
#include "edge/fields/account_fields.h"

static void put_token(struct json_writer *writer, const struct token_row *row, const char *text)
{
	static const enum scope scopes[] = {SCOPE_READ, SCOPE_WRITE, SCOPE_ADMIN};
	put_object(writer, NULL);
	put_text(writer, "id", row->id.text);
	put_text(writer, "workspace", row->workspace);
	put_array(writer, "scopes");
	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++)
		if (row->scopes & scopes[i])
			put_text(writer, NULL, scope_name(scopes[i]));
	put_array_end(writer);
	put_text(writer, "label", row->label);
	put_text(writer, "sandbox", id_is_set(&row->sandbox) ? row->sandbox.text : NULL);
	put_time(writer, "created_at", row->created_wall);
	put_time(writer, "expires_at", row->expires_wall);
	put_time(writer, "revoked_at", row->revoked_wall);
	if (text)
		put_text(writer, "token", text);
	put_object_end(writer);
}

static void token_post(struct call *call)
{
	struct token_fields fields = {.spec.workspace = call->principal.workspace};
	struct token_row row = {0};
	char text[TOKEN_TEXT_SIZE];
	struct error error;
	if (call_fields(call, &fields, &error) < 0 ||
	    token_fields_check(call->core, &fields, &error) < 0 ||
	    token_create(call->core, &fields.spec, text, &row, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_token(&writer, &row, text);
	explicit_bzero(text, sizeof(text));
	token_row_done(&row);
	reply_json(call, 201, &writer);
}

/* A revoked token is useless, so it is not listed, not even for revoking it. */
static bool token_row_put(void *data, const struct token_row *row)
{
	if (row->revoked_wall == 0)
		put_token(data, row, NULL);
	return true;
}

static void tokens_get(struct call *call)
{
	struct error error;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_array(&writer, "tokens");
	if (token_each(call->core, token_row_put, &writer, &error) < 0) {
		buffer_done(&buffer);
		reply_error(call, &error);
		return;
	}
	put_array_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void token_delete(struct call *call)
{
	struct id id;
	struct error error;
	if (id_parse(call->parameters[0], &id) < 0) {
		error_set(&error, ERROR_ID_MALFORMED,
			  "\"%.64s\" is not the id of a token, which is 16 characters a-z, "
			  "0-9; `caisson token list` lists them",
			  call->parameters[0]);
		reply_error(call, &error);
		return;
	}
	if (token_revoke(call->core, &id, &error) < 0)
		reply_error(call, &error);
	else
		reply_empty(call, 204);
}

const struct route token_routes[] = {
    {"POST", "/v1/tokens", ADMIN, ROUTE_JSON, token_post, .body = token_fields},
    {"GET", "/v1/tokens", ADMIN, 0, tokens_get},
    {"DELETE", "/v1/tokens/{token}", ADMIN, 0, token_delete},
    {0},
};
