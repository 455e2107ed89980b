/* tools/list and tools/call, for every face: the tools that a client sees, their form on the wire,
 * and the checks before a tool is called. Called by mcp/transport/dispatch.c; the tools themselves
 * are in the other files of this folder and in dialects/. Nothing blocks.
 *
 * A list depends only on the view, the scopes and the revision: it is rendered once for each of
 * them and cached, since clients request it most often. */
#include "mcp/tools/tool.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/account/access.h"
#include "edge/json/json_pairs.h"
#include "mcp/tasks/task.h"

#define LIST_MAX (256 * KIB)
#define LISTS_KEPT 32
/* It only changes with the server's version. */
#define LIST_TTL_MS (300u * 1000)
#define TASKS_EXTENSION "{\"io.modelcontextprotocol/tasks\":{}}"

/* --- which tools there are --- */

/* Does it only read? Decided by its scope: a dialect's tools have no hints. The administration's
 * reads need their own scope. */
static bool tool_reads(const struct mcp_tool *tool)
{
	return tool->scope == SCOPE_READ || (tool->hints & TOOL_READS);
}

static bool tool_is_shown(const struct mcp_view *view, const struct mcp_tool *tool)
{
	if (view->read_only && !tool_reads(tool))
		return false;
	/* A face without toolsets has all its tools. */
	return tool->toolsets == 0 || (tool->toolsets & view->toolsets);
}

static bool tool_is_allowed(const struct principal *principal, const struct mcp_tool *tool)
{
	return principal_may(principal, tool->scope);
}

/* The next tool of a face after `tool` (NULL: the first); *table is the caller's position. */
static const struct mcp_tool *tools_next(const struct mcp_tool *const **table,
					 const struct mcp_tool *tool)
{
	if (tool)
		tool++;
	else
		tool = **table;
	while (tool && !tool->name)
		tool = *++*table;
	return tool;
}

const struct mcp_tool *tool_find(const struct mcp_request *request, const char *name,
				 bool *ret_scope_missing)
{
	const struct mcp_tool *const *table = request->view.face->tools;
	*ret_scope_missing = false;
	for (const struct mcp_tool *tool = tools_next(&table, NULL); tool;
	     tool = tools_next(&table, tool)) {
		if (strcmp(tool->name, name) != 0 || !tool_is_shown(&request->view, tool))
			continue;
		*ret_scope_missing = !tool_is_allowed(&request->principal, tool);
		return *ret_scope_missing ? NULL : tool;
	}
	return NULL;
}

/* --- tools/list --- */

struct kept_list {
	const struct mcp_face *face; /* NULL: this entry is free */
	uint32_t toolsets, scopes;
	bool read_only;
	enum mcp_revision revision;
	struct buffer text;
	struct buffer answer; /* to tools/list, the part after the id; empty: not rendered yet */
};
static struct kept_list kept_lists[LISTS_KEPT];
static size_t next_kept;

static void put_annotations(struct json_writer *writer, const struct mcp_tool *tool,
			    enum mcp_revision revision)
{
	put_object(writer, "annotations");
	/* In revisions where a tool has no title of its own. */
	if (tool->title && revision < MCP_2025_06_18)
		put_text(writer, "title", tool->title);
	put_bool(writer, "readOnlyHint", tool->hints & TOOL_READS);
	put_bool(writer, "destructiveHint", tool->hints & TOOL_DESTROYS);
	put_bool(writer, "idempotentHint", tool->hints & TOOL_REPEATABLE);
	put_bool(writer, "openWorldHint", TOOL_NETWORK && (tool->hints & TOOL_OPEN_WORLD));
	put_object_end(writer);
}

static void put_tool(struct json_writer *writer, const struct mcp_tool *tool,
		     enum mcp_revision revision)
{
	put_object(writer, NULL);
	put_text(writer, "name", tool->name);
	if (tool->title && revision >= MCP_2025_06_18)
		put_text(writer, "title", tool->title);
	put_text(writer, "description", tool->description);
	if (tool->input)
		put_json(writer, "inputSchema", tool->input, strlen(tool->input));
	else
		put_fields(writer, "inputSchema", tool->fields, FIELDS_MCP);
	if (tool->output && revision >= MCP_2025_06_18)
		put_json(writer, "outputSchema", tool->output, strlen(tool->output));
	if (!(tool->hints & TOOL_NO_HINTS) && revision >= MCP_2025_03_26)
		put_annotations(writer, tool, revision);
	if (tool->meta && revision >= MCP_2025_06_18)
		put_json(writer, "_meta", tool->meta, strlen(tool->meta));
	put_object_end(writer);
}

static void tool_list_render(struct kept_list *list, const struct mcp_request *request)
{
	const struct mcp_view *view = &request->view;
	struct json_writer writer = json_writer_on(&list->text);
	const struct mcp_tool *const *table = view->face->tools;
	put_array(&writer, NULL);
	for (const struct mcp_tool *tool = tools_next(&table, NULL); tool;
	     tool = tools_next(&table, tool))
		if (tool_is_shown(view, tool) && tool_is_allowed(&request->principal, tool))
			put_tool(&writer, tool, list->revision);
	put_array_end(&writer);
	if (writer.full) /* the tables are ours */
		abort();
}

static struct kept_list *tool_list_find(const struct mcp_request *request)
{
	static const enum scope scopes[] = {SCOPE_READ, SCOPE_WRITE, SCOPE_ADMIN};
	struct kept_list wanted = {.face = request->view.face,
				   .toolsets = request->view.toolsets,
				   .read_only = request->view.read_only,
				   .revision = request->revision};
	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++)
		if (principal_may(&request->principal, scopes[i]))
			wanted.scopes |= scopes[i];
	for (size_t i = 0; i < LISTS_KEPT; i++)
		if (kept_lists[i].face == wanted.face &&
		    kept_lists[i].toolsets == wanted.toolsets &&
		    kept_lists[i].scopes == wanted.scopes &&
		    kept_lists[i].read_only == wanted.read_only &&
		    kept_lists[i].revision == wanted.revision)
			return &kept_lists[i];
	struct kept_list *list = &kept_lists[next_kept++ % LISTS_KEPT];
	buffer_done(&list->text);
	buffer_done(&list->answer);
	*list = wanted;
	list->text = BUFFER(LIST_MAX);
	list->answer = BUFFER(LIST_MAX + KIB);
	tool_list_render(list, request);
	return list;
}

void tools_put(struct mcp_request *request, struct json_writer *writer)
{
	const struct buffer *text = &tool_list_find(request)->text;
	put_json(writer, "tools", text->data, text->size);
}

void tools_list(struct mcp_request *request)
{
	const json_t *cursor = json_object_get(request->params, "cursor");
	/* There is one page: some clients never request another. An empty cursor means the
	 * beginning. */
	if (cursor && !json_is_null(cursor) &&
	    (!json_is_string(cursor) || json_string_length(cursor) > 0)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "there is no such cursor: the list of tools is one page");
		return;
	}
	struct buffer *answer = &tool_list_find(request)->answer;
	if (answer->size == 0) {
		tools_put(request, mcp_result_begin(request));
		mcp_put_cache(request, LIST_TTL_MS, false);
		if (!mcp_result_keep(request, answer)) /* the tables are ours */
			abort();
	}
	mcp_result_kept(request, answer);
}

/* --- tools/call --- */

#define NAME_SHOWN 64

void tools_names(const struct mcp_request *request, struct buffer *to)
{
	const struct mcp_tool *const *table = request->view.face->tools;
	const char *comma = "";
	for (const struct mcp_tool *tool = tools_next(&table, NULL); tool;
	     tool = tools_next(&table, tool))
		if (tool_is_shown(&request->view, tool) &&
		    tool_is_allowed(&request->principal, tool)) {
			(void)!buffer_printf(to, "%s%s", comma, tool->name);
			comma = ", ";
		}
}

static void tools_refuse_unknown(struct mcp_request *request, const char *name)
{
	struct buffer names DONE_BUFFER = BUFFER(TOOLS_NAMES_MAX);
	tools_names(request, &names);
	mcp_error(request, MCP_INVALID_PARAMS, NULL, "unknown tool `%.*s`; there %s%s",
		  (int)text_utf8_prefix(name, MIN(strlen(name), (size_t)NAME_SHOWN)), name,
		  names.size ? "are: " : "is none here", buffer_text(&names));
}

/* Does the client lack capabilities that the tool needs? */
static bool tool_refuse_incapable(struct mcp_request *request, const struct mcp_tool *tool)
{
	static const struct {
		uint32_t capability;
		const char *name;
	} capabilities[] = {
	    {CLIENT_SAMPLING, "sampling"},
	    {CLIENT_ELICITATION, "elicitation"},
	    {CLIENT_ROOTS, "roots"},
	};
	uint32_t missing = tool->needs & ~request->client;
	if ((tool->hints & TOOL_TASK_ONLY) && !(request->client & CLIENT_TASKS))
		missing |= CLIENT_TASKS;
	if (!missing)
		return false;
	struct buffer names DONE_BUFFER = BUFFER(KIB), data DONE_BUFFER = BUFFER(2 * KIB);
	struct json_writer writer = json_writer_on(&names);
	put_object(&writer, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++)
		if (missing & capabilities[i].capability)
			put_json(&writer, capabilities[i].name, "{}", 2);
	if (missing & CLIENT_TASKS)
		put_json(&writer, "extensions", TASKS_EXTENSION, strlen(TASKS_EXTENSION));
	put_object_end(&writer);
	if (!revision_modern(request->revision)) {
		content_refuse(request, "%s needs a client with the capabilities %s", tool->name,
			       buffer_text(&names));
		return true;
	}
	(void)!buffer_printf(&data, "{\"requiredCapabilities\":%s}", buffer_text(&names));
	mcp_error(request, MCP_MISSING_CAPABILITY, buffer_text(&data),
		  "%s needs a client with the capabilities %s", tool->name, buffer_text(&names));
	return true;
}

static json_t *request_call_arguments(struct mcp_request *request)
{
	json_t *arguments = json_object_get(request->params, "arguments");
	if (json_is_object(arguments))
		return arguments;
	if (arguments && !json_is_null(arguments)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`arguments` must be an object");
		return NULL;
	}
	/* Belongs to the message, as the client's own arguments would. */
	arguments = json_object();
	if (!arguments || json_object_set_new(request->params, "arguments", arguments) < 0)
		abort();
	return arguments;
}

static void tool_refuse_scope(struct mcp_request *request, const char *name)
{
	struct error error;
	error_set(&error, ERROR_FORBIDDEN,
		  "%.*s changes something, and this token may only read: it needs the scope `%s`",
		  NAME_SHOWN, name, scope_name(SCOPE_WRITE));
	mcp_fail(request, &error);
}

void tools_call(struct mcp_request *request)
{
	const char *name = json_string_value(json_object_get(request->params, "name"));
	bool scope_missing;
	if (!name) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`name` is missing: the name of a tool, a string");
		return;
	}
	struct error error;
	const struct mcp_tool *tool = tool_find(request, name, &scope_missing);
	if (!tool) {
		if (scope_missing)
			tool_refuse_scope(request, name);
		else if (!request->view.face->unknown_tool ||
			 !request->view.face->unknown_tool(request, name))
			tools_refuse_unknown(request, name);
		return;
	}
	json_t *arguments = request_call_arguments(request);
	if (!arguments)
		return;
	request->tool = tool;
	if (token_admit(&request->principal, tool->scope, tool->hints & TOOL_UNBOUND, &error) < 0) {
		if (tool->unbound)
			content_refuse(request, "This token is for sandbox %s alone and %s.",
				       request->principal.sandbox.text, tool->unbound);
		else
			mcp_fail(request, &error);
		return;
	}
	if (tool_refuse_incapable(request, tool))
		return;
	if ((tool->hints & (TOOL_TASK | TOOL_TASK_ONLY)) && (request->client & CLIENT_TASKS)) {
		request = task_begin(request);
		if (!request)
			return;
		request->tool = tool;
	}
	/* A tool may use its request after it has answered. */
	mcp_hold(request);
	tool->call(request, arguments);
	mcp_release(request);
}

/* --- arguments --- */

void tool_arguments_refuse(struct mcp_request *request, const char *wrong, const char *names)
{
	bool asks = wrong[0] && wrong[strlen(wrong) - 1] == '?';
	content_refuse(request, "%s%s Accepted arguments: %s.", wrong, asks ? "" : ".",
		       names[0] ? names : "none");
}

bool tool_arguments(struct mcp_request *request, const json_t *arguments, void *into)
{
	struct error error;
	const struct field *fields = request->tool->fields;
	struct buffer names DONE_BUFFER = BUFFER(2 * KIB);
	if (fields_parse(arguments, fields, FIELDS_MCP, &request->core->config, into, &error) == 0)
		return true;
	fields_names(fields, FIELDS_MCP, &names);
	tool_arguments_refuse(request, error.message, buffer_text(&names));
	return false;
}
