/* /v1/tokens, for the scope admin: creates (shown once), lists, revokes tokens. Each is one short
 * call of the store. */
#include "api/routes.h"

#include <string.h>

#include "base/clock.h"
#include "base/text.h"

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

static int parse_scopes(const json_t *list, uint32_t *ret_scopes, struct error *error)
{
	size_t index;
	json_t *item;
	json_array_foreach((json_t *)list, index, item)
	{
		uint32_t scope = 0;
		if (!json_is_string(item))
			return error_set(error, ERROR_INVALID, "field `scopes` must hold strings");
		if (scopes_parse(json_string_value(item), &scope, error) < 0)
			return -1;
		*ret_scopes |= scope;
	}
	if (*ret_scopes == 0)
		return error_set(error, ERROR_INVALID, "field `scopes` must not be empty");
	return 0;
}

struct token_fields {
	struct token_spec spec;
	json_t *scopes;
};

/* The bounds of a workspace's name, a label and a life; token_create() checks them. */
#define TEXT_63 "\"type\":\"string\",\"minLength\":1,\"maxLength\":63"

static const struct field token_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct token_fields, spec.workspace), .shape = TEXT_63},
    {"scopes", FIELD_ARRAY_AT(struct token_fields, scopes), FIELD_REQUIRED, 1,
     .words = "sandboxes:read,sandboxes:write,admin"},
    {"expires_seconds", FIELD_UINT_AT(struct token_fields, spec.expires_seconds),
     .shape = "\"type\":\"integer\",\"minimum\":0,\"maximum\":3162240000", .rest = "0 = never."},
    {"label", FIELD_TEXT_AT(struct token_fields, spec.label), .shape = TEXT_63,
     .rest = "At most 63 bytes, no control characters."},
    {"sandbox", FIELD_TEXT_AT(struct token_fields, spec.sandbox), .min = 1, .max = NAME_MAX_LENGTH,
     .rest = "Good for this one only."},
    {0},
};

static int parse(struct call *call, struct token_spec *spec, struct error *error)
{
	struct token_fields asked = {.spec.workspace = call->principal.workspace};
	if (call_fields(call, &asked, error) < 0 ||
	    parse_scopes(asked.scopes, &asked.spec.scopes, error) < 0)
		return -1;
	*spec = asked.spec;
	if (workspace_check(spec->workspace, error) < 0)
		return error_prepend(error, "field `workspace`");
	if (!spec->sandbox)
		return 0;
	/* By name or id, in the workspace of the new token. */
	struct principal owner = {.scopes = SCOPE_READ};
	struct sandbox *sandbox;
	if (text_copy(owner.workspace, sizeof(owner.workspace), spec->workspace) < 0 ||
	    sandbox_find(call->core, &owner, spec->sandbox, &sandbox, error) < 0)
		return -1;
	spec->sandbox = sandbox->row.id.text;
	return 0;
}

static void token_post(struct call *call)
{
	struct token_spec spec = {0};
	struct token_row row = {0};
	char text[TOKEN_TEXT_SIZE];
	struct error error;
	if (parse(call, &spec, &error) < 0 ||
	    token_create(call->core, &spec, text, &row, &error) < 0) {
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
static bool list_one(void *data, const struct token_row *row)
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
	if (token_each(call->core, list_one, &writer, &error) < 0) {
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
