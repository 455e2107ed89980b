/* The administration's face, at its own URL and only for the scope admin: tokens, budgets
 * (budget.c), the usage of workspaces, the host's health. Its tools are in no other list. Called by
 * tools.c; a few short calls of the store. A token appears in one answer, once, and nowhere
 * else. */
#include "mcp/tools/admin.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/statistics.h"
#include "core/account/admission.h"
#include "edge/fields/account_fields.h"
#include "proto/tiers.h"

#define ANSWER_MAX (32 * KIB)

bool admin_workspace(struct mcp_request *request, const char *name)
{
	struct error error;
	if (workspace_check(name, &error) == 0)
		return true;
	content_refuse(request, "field `workspace`: %s.", error.message);
	return false;
}

/* --- tokens --- */

static void token_say(const struct token_row *row, struct buffer *to)
{
	char scopes[64], when[CLOCK_TEXT_SIZE];
	scopes_text(row->scopes, scopes, sizeof(scopes));
	(void)!buffer_printf(to, "%s: workspace %s, scopes %s", row->id.text, row->workspace,
			     scopes);
	if (row->label)
		(void)!buffer_printf(to, ", label %s", row->label);
	if (id_is_set(&row->sandbox))
		(void)!buffer_printf(to, ", for sandbox %s alone", row->sandbox.text);
	if (row->expires_wall) {
		clock_text(row->expires_wall, when);
		(void)!buffer_printf(to, ", expires %s", when);
	}
	clock_text(row->created_wall, when);
	(void)!buffer_printf(to, ", made %s\n", when);
}

static void create_token(struct mcp_request *request, const json_t *arguments)
{
	struct token_fields given = {.spec.workspace = request->principal.workspace};
	struct token_row row = {0};
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	char token[TOKEN_TEXT_SIZE];
	struct error error;
	if (!tool_arguments(request, arguments, &given))
		return;
	if (token_fields_check(request->core, &given, &error) < 0 ||
	    token_create(request->core, &given.spec, token, &row, &error) < 0) {
		if (error.kind == ERROR_INVALID)
			content_refuse(request, "%s.", error.message);
		else
			mcp_fail(request, &error);
		return;
	}
	token_say(&row, &text);
	token_row_done(&row);
	content_reply(request, "token: %s\nIt is shown this once.\n%s", token, buffer_text(&text));
	explicit_bzero(token, sizeof(token));
}

struct token_list {
	struct buffer text;
	size_t left_out;
};

static bool token_list_add(void *data, const struct token_row *row)
{
	struct token_list *list = data;
	struct buffer line DONE_BUFFER = BUFFER(KIB);
	/* A revoked token is useless. */
	if (row->revoked_wall != 0)
		return true;
	token_say(row, &line);
	if (list->text.size + line.size > ANSWER_MAX - KIB ||
	    buffer_append(&list->text, line.data, line.size) < 0)
		list->left_out++;
	return true;
}

static void list_tokens(struct mcp_request *request, const json_t *arguments)
{
	struct token_list list = {.text = BUFFER(ANSWER_MAX)};
	struct error error;
	if (!tool_arguments(request, arguments, NULL))
		return;
	if (token_each(request->core, token_list_add, &list, &error) < 0) {
		mcp_fail(request, &error);
	} else {
		if (list.left_out > 0)
			(void)!buffer_printf(&list.text, "... and %zu more\n", list.left_out);
		content_reply(request, "%s",
			      list.text.size > 0 ? buffer_text(&list.text) : "There are none.");
	}
	buffer_done(&list.text);
}

struct revoke_token_arguments {
	const char *token;
};
static const struct field revoke_token_fields[] = {
    {"token_id", FIELD_TEXT_AT(struct revoke_token_arguments, token), FIELD_REQUIRED, 1, 128},
    {0},
};

static void revoke_token(struct mcp_request *request, const json_t *arguments)
{
	struct revoke_token_arguments given = {0};
	struct id id;
	struct error error;
	if (!tool_arguments(request, arguments, &given))
		return;
	/* The argument may be the token itself, so the error does not repeat it. */
	if (id_parse(given.token, &id) < 0)
		content_refuse(request, "field `token_id` must be the id of a token, 16 characters "
					"a-z and 0-9, as list_tokens has it.");
	else if (token_revoke(request->core, &id, &error) < 0)
		mcp_fail(request, &error);
	else
		content_reply(request, "token %s is revoked", id.text);
}

/* --- the host --- */

static void get_workspace_usage(struct mcp_request *request, const json_t *arguments)
{
	usage_tool(request, arguments, USAGE_BY_WORKSPACE);
}

static void health_say_tiers(const struct core *core, struct buffer *to)
{
	for (int tier = TIER_AUTO + 1; tier < TIER_COUNT; tier++) {
		const struct spawn_probe *probe = &core->probes[tier];
		(void)!buffer_printf(to, "isolation %s: %s%s%s\n", tier_name((enum tier)tier),
				     !probe->available ? "not available"
				     : probe->by_name  ? "by name only"
						       : "available",
				     probe->missing[0] ? ": " : "", probe->missing);
		for (int kind = 0; kind < LIMIT_COUNT && probe->available; kind++)
			if (probe->limit_reasons[kind] != LIMIT_ENFORCED)
				(void)!buffer_printf(
				    to, "  limit %s is not enforced: %s\n",
				    limit_name((enum limit_kind)kind),
				    limit_reason_text(
					(enum limit_reason)probe->limit_reasons[kind]));
	}
}

static void get_health(struct mcp_request *request, const json_t *arguments)
{
	struct core *core = request->core;
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	struct host_room room;
	struct error error;
	if (!tool_arguments(request, arguments, NULL))
		return;
	admission_room(core, &room);
	(void)!buffer_printf(&text, "caisson %s\n", CAISSON_VERSION);
	(void)!buffer_printf(&text, "store: %s\n",
			     statistics.store_failing == 0 ? "ok" : "cannot be written");
	(void)!buffer_printf(&text, "sandboxes: %u of %u\n", core->sandbox_count,
			     core->config.sandboxes_max);
	(void)!buffer_printf(&text, "memory: %llu of %llu MiB available, %llu kept for the host\n",
			     (unsigned long long)(room.memory_available / MIB),
			     (unsigned long long)(room.memory_total / MIB),
			     (unsigned long long)(room.memory_reserve / MIB));
	(void)!buffer_printf(&text, "disk: %llu MiB free, %llu kept for the host\n",
			     (unsigned long long)(room.disk_free / MIB),
			     (unsigned long long)(room.disk_reserve / MIB));
	if (admission_check(core, &core->config.defaults, &error) < 0)
		(void)!buffer_printf(&text, "no room for another sandbox: %s\n", error.message);
	health_say_tiers(core, &text);
	(void)!buffer_append_text(&text, "`caisson doctor` on the host says more.\n");
	content_reply(request, "%s", buffer_text(&text));
}

/* --- the face --- */

static const struct mcp_tool admin_tools[] = {
    {
	.name = "create_token",
	.title = "Create a token",
	.description = "Make an access token; the answer shows it once. With sandbox_id it is for "
		       "that sandbox alone. sandboxes:write includes read, admin both.",
	.fields = token_fields,
	.example = "{\"scopes\": [\"sandboxes:write\"], \"workspace\": \"team-a\", "
		   "\"expires_seconds\": 86400, \"label\": \"build agent\"}",
	.scope = SCOPE_ADMIN,
	.call = create_token,
    },
    {
	.name = "list_tokens",
	.title = "List tokens",
	.description =
	    "Tokens that are not revoked: id, workspace, scopes, label, times. Never the "
	    "token itself.",
	.example = "{}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = list_tokens,
    },
    {
	.name = "revoke_token",
	.title = "Revoke a token",
	.description = "End a token by its id, at once, also for what is open with it.",
	.fields = revoke_token_fields,
	.example = "{\"token_id\": \"k3v9x2m7q4w8z1ab\"}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_DESTROYS | TOOL_REPEATABLE,
	.call = revoke_token,
    },
    {
	.name = "get_workspace_usage",
	.title = "Get usage of workspaces",
	.description = "What each workspace has used in the last days (default 30).",
	.fields = usage_fields,
	.example = "{\"days\": 7}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = get_workspace_usage,
    },
    {
	.name = "get_health",
	.title = "Get the host's health",
	.description =
	    "How this host is: store, sandboxes, memory, disk, isolation tiers and which "
	    "limits they enforce.",
	.example = "{}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = get_health,
    },
    {0},
};
static const struct mcp_tool *const tables[] = {admin_tools, budget_tools, NULL};

static void admin_instructions(const struct mcp_view *view, struct buffer *to)
{
	(void)view;
	(void)!buffer_append_text(
	    to, "Administration of a Caisson host: access tokens, budgets of workspaces, what they "
		"have used, the host's health. Sandboxes themselves are used through the server's "
		"usual address, with a token that this one makes. Give tokens the fewest scopes "
		"and an end (expires_seconds).\n");
}

const struct mcp_face admin_face = {
    .name = "caisson-admin",
    .title = "Caisson administration",
    .scope = SCOPE_ADMIN,
    .tools = tables,
    .instructions = admin_instructions,
};
