/* Finds the sandbox of a call and makes it ready. Called by the tools. Errors tell a model what to
 * do next: the existing sandboxes, when and why one ended, how to create one. Nothing blocks;
 * making a sandbox ready takes some turns of the loop. */
#include "mcp/target.h"

#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/sandbox/ephemeral.h"
#include "core/account/access.h"
#include "mcp/tools/tool.h"

#define LISTED_IN_ERRORS 10
#define NAME_SHOWN 128
#define TEXT_MAX (16 * KIB)

/* A sandbox that errors may list: not one that a one-shot run made for itself while a client
 * waits. */
static bool sandbox_is_live(const struct sandbox *sandbox)
{
	return !state_facts(sandbox->row.state)->going && !(sandbox->row.options & OPTION_ONESHOT);
}

static struct ephemeral_name connection_name(const struct mcp_request *request)
{
	return ephemeral_name(&request->principal, &request->view.connection);
}

/* A sandbox that a call may use without naming it: not the rest of a one-shot run, nor one that
 * ends with another connection. */
static bool sandbox_is_eligible(const struct mcp_request *request, const struct sandbox *sandbox)
{
	if (!sandbox_is_live(sandbox) || (sandbox->row.options & OPTION_DETACHED))
		return false;
	const char *connection =
	    packed_value(sandbox->row.labels, sandbox->row.labels_size, EPHEMERAL_LABEL);
	return !connection ||
	       (request->view.ephemeral && strcmp(connection, connection_name(request).text) == 0);
}

static const struct id *request_bound_sandbox(const struct mcp_request *request)
{
	if (id_is_set(&request->view.sandbox))
		return &request->view.sandbox;
	return id_is_set(&request->principal.sandbox) ? &request->principal.sandbox : NULL;
}

static size_t live_sandboxes_count(const struct mcp_request *request, struct sandbox **ret_last)
{
	size_t count = 0;
	struct sandbox *sandbox = NULL;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox)))
		if (sandbox_is_eligible(request, sandbox)) {
			*ret_last = sandbox;
			count++;
		}
	return count;
}

bool target_fresh(const struct mcp_request *request, const char *name)
{
	struct sandbox *last;
	if (request_bound_sandbox(request))
		return false;
	return name && name[0] ? strcmp(name, TARGET_NEW) == 0
			       : live_sandboxes_count(request, &last) == 0;
}

/* On a connection whose sandboxes end with it, the only sandbox that it has made takes precedence
 * over older ones. */
static struct sandbox *sandbox_find_only_own(const struct mcp_request *request)
{
	const struct ephemeral_name name = connection_name(request);
	const struct pair label = {EPHEMERAL_LABEL, name.text};
	struct sandbox *sandbox = NULL, *own = NULL;
	if (!request->view.ephemeral)
		return NULL;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox))) {
		if (!sandbox_is_eligible(request, sandbox) ||
		    !packed_has(sandbox->row.labels, sandbox->row.labels_size, &label, 1))
			continue;
		if (own)
			return NULL;
		own = sandbox;
	}
	return own;
}

/* --- what is told --- */

void target_age(int64_t nanoseconds, struct buffer *to)
{
	long long seconds = MAX(nanoseconds, 0) / NSEC_PER_SEC;
	if (seconds < 120)
		(void)!buffer_printf(to, "%lld s", seconds);
	else if (seconds < 2 * 3600)
		(void)!buffer_printf(to, "%lld min", seconds / 60);
	else if (seconds < 48 * 3600)
		(void)!buffer_printf(to, "%lld h", seconds / 3600);
	else
		(void)!buffer_printf(to, "%lld days", seconds / 86400);
}

void target_line(const struct sandbox_row *row, struct buffer *to)
{
	int64_t left = sandbox_expires_in(row);
	(void)!buffer_printf(to, "%s%s%s%s: %s, made ", row->id.text, row->name ? " (" : "",
			     row->name ? row->name : "", row->name ? ")" : "",
			     sandbox_state_name((enum sandbox_state)row->state));
	target_age(clock_wall() - row->created_wall, to);
	(void)!buffer_append_text(to, " ago");
	if (row->options & OPTION_DETACHED)
		(void)!buffer_append_text(to, " for a one-shot run");
	if (row->paused_wall != 0) {
		(void)!buffer_append_text(to, ", its time stands still");
	} else if (left >= 0) {
		(void)!buffer_append_text(to, ", ends in ");
		target_age(left * NSEC_PER_SEC, to);
	}
	(void)!buffer_append_text(to, "\n");
}

void target_list(const struct mcp_request *request, size_t max, struct buffer *to)
{
	size_t count = 0;
	struct sandbox *sandbox = NULL;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox)))
		if (sandbox_is_live(sandbox) && count++ < max)
			target_line(&sandbox->row, to);
	if (count > max)
		(void)!buffer_printf(to, "... and %zu more\n", count - max);
}

/* How to create a sandbox with the tools that this client sees; "" if it cannot. */
static const char *create_hint(const struct mcp_request *request)
{
	bool scope_missing;
	if (tool_find(request, "create_sandbox", &scope_missing))
		return " Make one with create_sandbox {}.";
	if (tool_find(request, "sandbox_create", &scope_missing))
		return " Make one with sandbox_create.";
	return "";
}

static void live_sandboxes_append(const struct mcp_request *request, struct buffer *to)
{
	struct buffer list DONE_BUFFER = BUFFER(TEXT_MAX / 2);
	target_list(request, LISTED_IN_ERRORS, &list);
	if (list.size == 0) {
		(void)!buffer_printf(to, " No sandbox is live.%s", create_hint(request));
		return;
	}
	(void)!buffer_printf(to, " Live sandboxes:\n%s", buffer_text(&list));
	if (to->size > 0 && to->data[to->size - 1] == '\n')
		to->data[--to->size] = '\0';
}

/* The sandbox for an example. */
static const struct sandbox *live_sandboxes_newest(const struct mcp_request *request)
{
	struct sandbox *sandbox = NULL, *newest = NULL;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox)))
		if (sandbox_is_live(sandbox) &&
		    (!newest || sandbox->row.created_wall > newest->row.created_wall))
			newest = sandbox;
	return newest;
}

static bool act_is_on_whole_sandbox(const struct mcp_tool *tool)
{
	const struct field *field = field_find(tool->fields, FIELDS_MCP, "sandbox_id", 10);
	return tool->input ? strstr(tool->input, "\"required\":[\"sandbox_id\"]") != NULL
			   : field && field->flags & FIELD_REQUIRED_TOLD;
}

const char *target_for_example(const struct mcp_request *request)
{
	const struct mcp_tool *tool = request->tool;
	const json_t *given = json_object_get(request->params, "arguments");
	const char *name = json_string_value(json_object_get(given, "sandbox_id"));
	const struct id *only = request_bound_sandbox(request);
	struct sandbox *sandbox = NULL;
	struct error error;
	/* The administrator's tools have the field too, but do not act on a sandbox. */
	if (tool->scope == SCOPE_ADMIN || !field_find(tool->fields, FIELDS_MCP, "sandbox_id", 10))
		return NULL;
	if (!only && name && strlen(name) <= NAME_SHOWN &&
	    sandbox_find(request->core, &request->principal, name, &sandbox, &error) == 0)
		return sandbox->row.id.text;
	bool always = strstr(tool->example, "\"sandbox_id\"");
	if (only)
		return always ? only->text : NULL;
	if (!always && live_sandboxes_count(request, &sandbox) < 2)
		return NULL;
	const struct sandbox *own = sandbox_find_only_own(request);
	const struct sandbox *shown = own ? own : live_sandboxes_newest(request);
	return shown ? shown->row.id.text : NULL;
}

/* A method that is not a tool gets the error unchanged. */
static void target_refuse(struct mcp_request *request, const struct error *error)
{
	struct buffer text DONE_BUFFER = BUFFER(TEXT_MAX);
	if (!request->tool ||
	    (error->kind != ERROR_SANDBOX_NOT_FOUND && error->kind != ERROR_SANDBOX_ENDED &&
	     error->kind != ERROR_ID_MALFORMED && error->kind != ERROR_INVALID)) {
		mcp_fail(request, error);
		return;
	}
	if (error->message[0])
		(void)!buffer_printf(&text, "%s.", error->message);
	if (error->kind == ERROR_SANDBOX_ENDED)
		(void)!buffer_append_text(&text, " Its files and processes are gone.");
	if (request_bound_sandbox(request))
		(void)!buffer_printf(&text, " This %s is for sandbox %s alone.",
				     id_is_set(&request->view.sandbox) ? "address" : "token",
				     request_bound_sandbox(request)->text);
	else
		live_sandboxes_append(request, &text);
	const char *told = buffer_text(&text) + (buffer_text(&text)[0] == ' ');
	/* A tool that acts on a whole sandbox (terminate) has it in its own example. */
	bool whole = act_is_on_whole_sandbox(request->tool);
	const struct sandbox *newest =
	    request_bound_sandbox(request) || whole ? NULL : live_sandboxes_newest(request);
	if (newest)
		content_refuse_with(request, "sandbox_id", newest->row.id.text, told);
	else
		content_refuse(request, "%s", told);
}

/* There may be sandboxes that can only be used by name. */
static const char *no_sandbox_meant_text(const struct mcp_request *request)
{
	struct sandbox *sandbox = NULL;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox)))
		if (sandbox_is_live(sandbox))
			return "say in `sandbox_id` which sandbox is meant: those that live were "
			       "made for a one-shot run or by another connection";
	return "";
}

static void target_refuse_unnamed(struct mcp_request *request, size_t live, uint32_t flags)
{
	struct error error;
	if (flags & TARGET_NAMED)
		error_set(&error, ERROR_INVALID,
			  "field `sandbox_id` is missing: this must say which sandbox is meant");
	else if (live == 0)
		error_set(&error, ERROR_SANDBOX_NOT_FOUND, "%s",
			  request->tool ? no_sandbox_meant_text(request) : "there is none");
	else
		error_set(&error, ERROR_INVALID,
			  "there are %zu sandboxes: say in `sandbox_id` which is meant", live);
	target_refuse(request, &error);
}

void target_note(const struct mcp_request *request, struct buffer *to)
{
	if (!request->sandbox_chosen)
		return;
	const struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
	const char *name = sandbox ? sandbox->row.name : NULL;
	(void)!buffer_printf(to, "sandbox %s%s%s%s", request->sandbox.text, name ? " (" : "",
			     name ? name : "", name ? ")" : "");
}

/* --- finding and readying --- */

static struct sandbox *target_choose(struct mcp_request *request, uint32_t flags)
{
	struct sandbox *sandbox = NULL;
	struct error error;
	const struct id *only = request_bound_sandbox(request);
	if (flags & TARGET_NAMED) {
		target_refuse_unnamed(request, 0, flags);
		return NULL;
	}
	request->sandbox_chosen = true;
	if (only) {
		if (sandbox_find(request->core, &request->principal, only->text, &sandbox, &error) <
		    0) {
			target_refuse(request, &error);
			return NULL;
		}
		/* If the URL belongs to one sandbox, that one is meant. */
		request->sandbox_chosen = !id_is_set(&request->view.sandbox);
		return sandbox;
	}
	size_t count = live_sandboxes_count(request, &sandbox);
	if (count > 1 && (sandbox = sandbox_find_only_own(request)))
		count = 1;
	if (count == 1)
		return sandbox;
	target_refuse_unnamed(request, count, flags);
	return NULL;
}

static struct sandbox *target_find(struct mcp_request *request, const char *name, uint32_t flags)
{
	struct sandbox *sandbox;
	struct error error;
	/* Models write an empty text for none. */
	if (!name || (name[0] == '\0' && !(flags & TARGET_NAMED)))
		return target_choose(request, flags);
	if (strlen(name) > NAME_SHOWN) {
		error_set(&error, ERROR_ID_MALFORMED, "`sandbox_id` is longer than any id or name");
		target_refuse(request, &error);
		return NULL;
	}
	if (sandbox_find(request->core, &request->principal, name, &sandbox, &error) < 0) {
		target_refuse(request, &error);
		return NULL;
	}
	/* The URL of one sandbox cannot reach another one. */
	if (id_is_set(&request->view.sandbox) &&
	    !id_equal(&request->view.sandbox, &sandbox->row.id)) {
		error_set(&error, ERROR_SANDBOX_NOT_FOUND, "there is no sandbox `%s` here", name);
		target_refuse(request, &error);
		return NULL;
	}
	return sandbox;
}

struct sandbox *target_again(struct mcp_request *request)
{
	struct sandbox *sandbox;
	struct error error;
	if (sandbox_find(request->core, &request->principal, request->sandbox.text, &sandbox,
			 &error) == 0)
		return sandbox;
	target_refuse(request, &error);
	return NULL;
}

void target_reply(struct mcp_request *request)
{
	struct buffer text DONE_BUFFER = BUFFER(KIB);
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	target_line(&sandbox->row, &text);
	content_reply(request, "sandbox %s", buffer_text(&text));
}

static void target_sandbox_ready(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	request->readying = NULL;
	request->on_cancel = NULL;
	if (request->open) {
		struct sandbox *sandbox = error ? NULL : target_again(request);
		if (error)
			target_refuse(request, error);
		else if (sandbox)
			request->act(request, sandbox);
	}
	mcp_release(request);
}

static void target_readying_cancelled(struct mcp_request *request)
{
	struct sandbox_readying *readying = request->readying;
	request->readying = NULL;
	if (!readying)
		return;
	sandbox_ready_cancel(readying);
	mcp_release(request);
}

void target_ready(struct mcp_request *request, const char *name, uint32_t flags,
		  void (*act)(struct mcp_request *request, struct sandbox *sandbox))
{
	struct error error;
	struct sandbox *sandbox = target_find(request, name, flags);
	if (!sandbox)
		return;
	request->sandbox = sandbox->row.id;
	if ((flags & TARGET_ASLEEP) || sandbox_ready_now(sandbox)) {
		act(request, sandbox);
		return;
	}
	request->act = act;
	request->on_cancel = target_readying_cancelled;
	mcp_hold(request);
	if (sandbox_ready_for(sandbox, &request->principal, target_sandbox_ready, request,
			      &request->readying, &error) < 0) {
		request->on_cancel = NULL;
		target_refuse(request, &error);
		mcp_release(request);
	}
}
