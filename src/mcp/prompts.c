/* prompts/list and prompts/get over the table of a face, and the answers of prompts. Nothing
 * blocks. */
#include "mcp/prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "mcp/resources/resource.h"

static const struct prompt *const no_prompts[] = {NULL};

static const struct prompt *const *prompts_of(const struct mcp_request *request)
{
	const struct mcp_face *face = request->view.face;
	return face->prompts ? face->prompts : no_prompts;
}

const struct prompt *prompt_find(const struct mcp_request *request, const char *name)
{
	for (const struct prompt *const *prompt = prompts_of(request); *prompt; prompt++)
		if (strcmp((*prompt)->name, name) == 0)
			return *prompt;
	return NULL;
}

static void put_prompt(struct mcp_request *request, struct json_writer *writer,
		       const struct prompt *prompt)
{
	const struct prompt_argument *argument = prompt->arguments;
	put_object(writer, NULL);
	put_text(writer, "name", prompt->name);
	if (prompt->title && request->revision >= MCP_2025_06_18)
		put_text(writer, "title", prompt->title);
	put_text(writer, "description", prompt->description);
	if (argument) {
		put_array(writer, "arguments");
		for (; argument->name; argument++) {
			put_object(writer, NULL);
			put_text(writer, "name", argument->name);
			put_text(writer, "description", argument->description);
			put_bool(writer, "required", argument->required);
			put_object_end(writer);
		}
		put_array_end(writer);
	}
	put_object_end(writer);
}

void prompts_list(struct mcp_request *request)
{
	const struct prompt *const *prompts = prompts_of(request);
	struct page page;
	uint32_t at, count = 0;
	if (!page_open(request, &at, &page))
		return;
	while (prompts[count])
		count++;
	page.writer = mcp_result_begin(request);
	put_array(page.writer, "prompts");
	for (; at < count && page.room > 0; at++, page.room--)
		put_prompt(request, page.writer, prompts[at]);
	put_array_end(page.writer);
	page.more = at < count;
	page_close(&page, at);
	mcp_put_cache(request, 3600 * 1000, false);
	mcp_result_end(request);
}

/* false: the request was answered with the error in them. */
static bool arguments_good(struct mcp_request *request, const struct prompt *prompt,
			   const json_t *arguments)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)arguments, key, value)
	{
		if (!json_is_string(value)) {
			mcp_error(request, MCP_INVALID_PARAMS, NULL,
				  "prompt `%s`: every argument must be a string", prompt->name);
			return false;
		}
	}
	for (const struct prompt_argument *at = prompt->arguments; at && at->name; at++) {
		if (at->required && !json_object_get(arguments, at->name)) {
			mcp_error(request, MCP_INVALID_PARAMS, NULL,
				  "prompt `%s` needs the argument `%s`: %s", prompt->name, at->name,
				  at->description);
			return false;
		}
	}
	return true;
}

void prompts_get(struct mcp_request *request)
{
	const char *name = json_string_value(json_object_get(request->params, "name"));
	const json_t *given = json_object_get(request->params, "arguments");
	const struct prompt *prompt = name ? prompt_find(request, name) : NULL;
	if (!name) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`name` must be a string");
	} else if (!prompt) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "there is no prompt of that name; prompts/list has those there are");
	} else if (given && !json_is_object(given) && !json_is_null(given)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`arguments` must be an object");
	} else {
		json_t *arguments =
		    json_is_object(given) ? json_incref((json_t *)given) : json_object();
		if (arguments_good(request, prompt, arguments))
			prompt->get(request, arguments);
		json_decref(arguments);
	}
}

/* --- the answer --- */

void prompt_begin(struct mcp_request *request)
{
	put_array(mcp_result_begin(request), "messages");
}

static struct json_writer *message_begin(struct mcp_request *request, const char *type)
{
	struct json_writer *writer = &request->writer;
	put_object(writer, NULL);
	put_text(writer, "role", "user");
	put_object(writer, "content");
	put_text(writer, "type", type);
	return writer;
}

static void message_end(struct json_writer *writer)
{
	put_object_end(writer);
	put_object_end(writer);
}

void prompt_text(struct mcp_request *request, const char *text)
{
	struct json_writer *writer = message_begin(request, "text");
	put_text(writer, "text", text);
	message_end(writer);
}

void prompt_image(struct mcp_request *request, const char *type, const void *data, size_t size)
{
	struct json_writer *writer = message_begin(request, "image");
	put_text(writer, "mimeType", type);
	put_base64(writer, "data", data, size);
	message_end(writer);
}

void prompt_resource(struct mcp_request *request, const char *uri, const char *type,
		     const char *text)
{
	struct json_writer *writer = message_begin(request, "resource");
	put_object(writer, "resource");
	put_text(writer, "uri", uri);
	put_text(writer, "mimeType", type);
	put_text(writer, "text", text);
	put_object_end(writer);
	message_end(writer);
}

void prompt_end(struct mcp_request *request)
{
	put_array_end(&request->writer);
	mcp_result_end(request);
}
