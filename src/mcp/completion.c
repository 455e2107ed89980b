/* completion/complete: values for an argument of a prompt, or for a variable of a resource's
 * template. Without values the answer is an empty list. Nothing blocks. */
#include <string.h>

#include "mcp/prompt.h"
#include "mcp/resources/resource.h"
#include "mcp/resources/uri.h"

void completion_begin(struct mcp_request *request, struct completion *completion)
{
	*completion = (struct completion){.writer = mcp_result_begin(request)};
	put_object(completion->writer, "completion");
	put_array(completion->writer, "values");
}

void completion_put(struct completion *completion, const char *text)
{
	if (completion->total++ < COMPLETIONS_MAX)
		put_text(completion->writer, NULL, text);
}

void completion_end(struct mcp_request *request, struct completion *completion)
{
	put_array_end(completion->writer);
	put_uint(completion->writer, "total", completion->total);
	put_bool(completion->writer, "hasMore", completion->total > COMPLETIONS_MAX);
	put_object_end(completion->writer);
	mcp_result_end(request);
}

const char *completion_context(const struct mcp_request *request, const char *name)
{
	const json_t *context = json_object_get(request->params, "context");
	return json_string_value(json_object_get(json_object_get(context, "arguments"), name));
}

static void completion_reply_nothing(struct mcp_request *request)
{
	struct completion completion;
	completion_begin(request, &completion);
	completion_end(request, &completion);
}

static void completion_unknown(struct mcp_request *request, const char *what)
{
	mcp_error(request, MCP_INVALID_PARAMS, NULL, "there is no %s of that name", what);
}

static void complete_prompt(struct mcp_request *request, const char *name, const char *argument,
			    const char *value)
{
	const struct prompt *prompt = prompt_find(request, name);
	const struct prompt_argument *at = prompt ? prompt->arguments : NULL;
	while (at && at->name && strcmp(at->name, argument) != 0)
		at++;
	if (!prompt)
		completion_unknown(request, "prompt");
	else if (!at || !at->name)
		completion_unknown(request, "argument");
	else if (prompt->complete)
		prompt->complete(request, argument, value);
	else
		completion_reply_nothing(request);
}

/* The reference is the template itself, or a resource without variables. */
static void complete_resource(struct mcp_request *request, const char *uri, const char *variable,
			      const char *value)
{
	const struct resource_kind *const *kind = request->view.face->resources;
	while (kind && *kind && strcmp((*kind)->template, uri) != 0)
		kind++;
	if (!kind || !*kind)
		completion_unknown(request, "resource template");
	else if (uri_has_variables(uri) && !uri_names(uri, variable))
		completion_unknown(request, "variable");
	else if ((*kind)->complete && uri_has_variables(uri))
		(*kind)->complete(request, variable, value);
	else
		completion_reply_nothing(request);
}

void completion_complete(struct mcp_request *request)
{
	const json_t *ref = json_object_get(request->params, "ref");
	const json_t *argument = json_object_get(request->params, "argument");
	const char *type = json_string_value(json_object_get(ref, "type"));
	const char *prompt = json_string_value(json_object_get(ref, "name"));
	const char *uri = json_string_value(json_object_get(ref, "uri"));
	const char *name = json_string_value(json_object_get(argument, "name"));
	const char *value = json_string_value(json_object_get(argument, "value"));
	if (!type || !name || !value)
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`ref` with its `type`, and `argument` with `name` and `value` are "
			  "needed");
	else if (strcmp(type, "ref/prompt") == 0 && prompt)
		complete_prompt(request, prompt, name, value);
	else if (strcmp(type, "ref/resource") == 0 && uri)
		complete_resource(request, uri, name, value);
	else
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`ref` must be {\"type\":\"ref/prompt\",\"name\":…} or "
			  "{\"type\":\"ref/resource\",\"uri\":…}");
}
