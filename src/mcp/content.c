/* Writes a tool's result as blocks of content (content.h). Called by every tool; writes directly
 * into the request's answer, so a block costs one copy. Content that a revision does not support is
 * omitted here, so that no tool has to check it. Nothing blocks. */
#include "mcp/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/tools/tool.h"

/* The maximum of a call that is shown with its missing argument. */
#define EXAMPLE_MAX 1024

/* --- what it is --- */

static const struct {
	const char *magic;
	size_t size;
	const char *type;
	bool image;
} kinds[] = {
    {"\x89PNG\r\n\x1a\n", 8, "image/png", true},
    {"\xff\xd8\xff", 3, "image/jpeg", true},
    {"GIF87a", 6, "image/gif", true},
    {"GIF89a", 6, "image/gif", true},
    {"%PDF-", 5, "application/pdf", false},
    {"PK\x03\x04", 4, "application/zip", false},
    {"\x1f\x8b", 2, "application/gzip", false},
    {"\x28\xb5\x2f\xfd", 4, "application/zstd", false},
    {"BZh", 3, "application/x-bzip2", false},
    {"\xfd\x37zXZ", 5, "application/x-xz", false},
    {"\x7f"
     "ELF",
     4, "application/x-elf", false},
    {"SQLite format 3", 15, "application/vnd.sqlite3", false},
    {"OggS", 4, "audio/ogg", false},
};

const char *content_type_of(const char *data, size_t size, bool *ret_image)
{
	*ret_image = false;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (size >= kinds[i].size && memcmp(data, kinds[i].magic, kinds[i].size) == 0) {
			*ret_image = kinds[i].image;
			return kinds[i].type;
		}
	*ret_image = size >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
	return *ret_image ? "image/webp" : NULL;
}

/* --- blocks --- */

void content_begin(struct mcp_request *request)
{
	put_array(mcp_result_begin(request), "content");
	request->content_open = true;
}

static struct json_writer *block_begin(struct mcp_request *request, const char *type)
{
	struct json_writer *writer = &request->writer;
	put_object(writer, NULL);
	put_text(writer, "type", type);
	return writer;
}

void content_text(struct mcp_request *request, const char *text, size_t size)
{
	struct json_writer *writer = block_begin(request, "text");
	put_text_size(writer, "text", size > 0 ? text : "", size);
	put_object_end(writer);
}

/* The format is ours; the callers bound foreign texts in it. */
PRINTF_LIKE(1, 0) static char *format_arguments(const char *format, va_list arguments)
{
	char *text;
	if (vasprintf(&text, format, arguments) < 0)
		abort();
	return text;
}

void content_format(struct mcp_request *request, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *text = format_arguments(format, arguments);
	va_end(arguments);
	content_text(request, text, strlen(text));
	free(text);
}

static void put_media(struct mcp_request *request, const char *kind, const char *type,
		      const void *data, size_t size)
{
	struct json_writer *writer = block_begin(request, kind);
	put_base64(writer, "data", data, size);
	put_text(writer, "mimeType", type);
	put_object_end(writer);
}

void content_image(struct mcp_request *request, const char *type, const void *data, size_t size)
{
	put_media(request, "image", type, data, size);
}

void content_audio(struct mcp_request *request, const char *type, const void *data, size_t size)
{
	if (request->revision >= MCP_2025_03_26)
		put_media(request, "audio", type, data, size);
}

void content_resource(struct mcp_request *request, const char *uri, const char *type,
		      const char *text)
{
	struct json_writer *writer = block_begin(request, "resource");
	put_object(writer, "resource");
	put_text(writer, "uri", uri);
	if (type)
		put_text(writer, "mimeType", type);
	put_text(writer, "text", text);
	put_object_end(writer);
	put_object_end(writer);
}

void content_link(struct mcp_request *request, const char *uri, const char *name, const char *type,
		  const char *description)
{
	if (request->revision < MCP_2025_06_18)
		return;
	struct json_writer *writer = block_begin(request, "resource_link");
	put_text(writer, "uri", uri);
	put_text(writer, "name", name);
	if (type)
		put_text(writer, "mimeType", type);
	if (description)
		put_text(writer, "description", description);
	put_object_end(writer);
}

static void blocks_end(struct mcp_request *request)
{
	if (request->content_open)
		put_array_end(&request->writer);
	request->content_open = false;
}

struct json_writer *content_structured(struct mcp_request *request)
{
	blocks_end(request);
	if (request->revision < MCP_2025_06_18)
		return NULL;
	put_key(&request->writer, "structuredContent");
	return &request->writer;
}

void content_end(struct mcp_request *request, bool is_error)
{
	blocks_end(request);
	/* In every revision, absent means false. */
	if (is_error)
		put_bool(&request->writer, "isError", true);
	mcp_result_end(request);
}

void content_reply(struct mcp_request *request, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *text = format_arguments(format, arguments);
	va_end(arguments);
	content_begin(request);
	content_text(request, text, strlen(text));
	content_end(request, false);
	free(text);
}

/* The tool's example, with the sandbox without which the call would be refused again. */
static char *example_make(const struct mcp_request *request)
{
	const char *sandbox = target_for_example(request);
	json_t *arguments = sandbox ? json_loads(request->tool->example, 0, NULL) : NULL;
	if (!arguments)
		return text_duplicate(request->tool->example);
	json_object_set_new(arguments, "sandbox_id", json_string(sandbox));
	char *text = json_dumps(arguments, JSON_COMPACT);
	json_decref(arguments);
	return text;
}

static void put_refusal(struct mcp_request *request, const char *text)
{
	const struct mcp_tool *tool = request->tool;
	content_begin(request);
	if (tool && tool->example) {
		FREE_TEXT char *example = example_make(request);
		content_format(request, "%s\nExample: %s %s", text, tool->name, example);
	} else {
		content_text(request, text, strlen(text));
	}
}

void content_refuse_with(struct mcp_request *request, const char *key, const char *value,
			 const char *text)
{
	const json_t *given = json_object_get(request->params, "arguments");
	json_t *arguments = json_is_object(given) ? json_copy((json_t *)given) : json_object();
	json_object_set_new(arguments, key, json_string(value));
	char *call = json_dumps(arguments, JSON_COMPACT);
	content_begin(request);
	if (call && strlen(call) <= EXAMPLE_MAX)
		content_format(request, "%s\nExample: %s %s", text, request->tool->name, call);
	else
		content_format(request, "%s\nExample: the same with \"%s\":\"%s\"", text, key,
			       value);
	content_end(request, true);
	free(call);
	json_decref(arguments);
}

void content_fail(struct mcp_request *request, const struct error *error)
{
	const struct error_info *info = error_info(error->kind);
	char text[ERROR_MESSAGE_MAX + 512];
	snprintf(text, sizeof(text), "%s%s%s", error->message, info->advice[0] ? "\n" : "",
		 info->advice);
	put_refusal(request, text);
	blocks_end(request);
	struct json_writer *writer = mcp_meta_begin(request);
	put_object(writer, "caisson/error");
	put_text(writer, "code", info->code);
	put_bool(writer, "retryable", info->retryable);
	if (error->retry_after_ms != 0)
		put_uint(writer, "retry_after_ms", error->retry_after_ms);
	put_object_end(writer);
	mcp_meta_end(request);
	content_end(request, true);
}

void content_refuse(struct mcp_request *request, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *text = format_arguments(format, arguments);
	va_end(arguments);
	put_refusal(request, text);
	content_end(request, true);
	free(text);
}
