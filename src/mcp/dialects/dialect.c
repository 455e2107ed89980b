/* Arguments and results of the dialects (dialect.h). Called by the files
 * beside it. Works on memory; nothing blocks. */
#include "mcp/dialects/dialect.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"

/* --- arguments --- */

static bool fields_have_name(const struct field_to *fields, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(fields[i].name, name) == 0)
			return true;
	return false;
}

/* What has no row is dropped: the object is part of the request's own message. */
static int dialect_parse_fields(const json_t *object, const struct field_to *fields, size_t count,
				enum field_form form, struct error *error)
{
	const char *key;
	json_t *member;
	void *next;
	json_object_foreach_safe((json_t *)object, next, key, member)
	{
		if (!fields_have_name(fields, count, key))
			json_object_del((json_t *)object, key);
	}
	for (size_t i = 0; i < count; i++) {
		const json_t *value = json_object_get(object, fields[i].name);
		const struct field row = {.name = fields[i].name,
					  .type = fields[i].type,
					  .size = sizeof(uint64_t),
					  .flags = fields[i].required ? FIELD_REQUIRED : 0,
					  .min = fields[i].min,
					  .max = fields[i].max};
		if (fields[i].present)
			*fields[i].present = value && !json_is_null(value);
		if (field_parse((json_t *)object, &row, form, NULL, fields[i].to, error) < 0)
			return -1;
	}
	return 0;
}

bool dialect_arguments(struct mcp_request *request, const json_t *arguments,
		       const struct field_to *fields, size_t count)
{
	struct error error;
	struct buffer names DONE_BUFFER = BUFFER(2 * KIB);
	if (dialect_parse_fields(arguments, fields, count, FIELDS_MCP, &error) == 0)
		return true;
	for (size_t i = 0; i < count; i++)
		(void)!buffer_printf(&names, "%s%s%s", i > 0 ? ", " : "", fields[i].name,
				     fields[i].required ? " (required)" : "");
	tool_arguments_refuse(request, error.message, buffer_text(&names));
	return false;
}

int dialect_entry(const json_t *entry, const char *where, const struct field_to *fields,
		  size_t count, struct error *error)
{
	if (!json_is_object(entry))
		return error_set(error, ERROR_INVALID, "%s must be an object", where);
	if (dialect_parse_fields(entry, fields, count, FIELDS_REST, error) < 0)
		return error_prepend(error, "%s: ", where);
	return 0;
}

int dialect_texts(const json_t *array, const char *name, size_t max, struct error *error)
{
	size_t index;
	json_t *value;
	if (json_array_size(array) > max)
		return error_set(error, ERROR_INVALID, "field `%s` has %zu entries; at most %zu",
				 name, json_array_size(array), max);
	json_array_foreach(array, index, value)
	{
		if (!json_is_string(value) || json_string_length(value) == 0)
			return error_set(error, ERROR_INVALID,
					 "field `%s`: entry %zu must be a string that is not empty",
					 name, index + 1);
	}
	return 0;
}

/* --- results --- */

static int new_line(struct buffer *to, size_t depth)
{
	static const char blanks[] = "\n                                                        "
				     "                                                        ";
	size_t size = 1 + 2 * depth;
	return buffer_append(to, blanks, MIN(size, sizeof(blanks) - 1));
}

/* The length of the string that begins at `json`, including its quotes. */
static size_t string_length(const char *json, size_t size)
{
	size_t at = 1;
	while (at < size && json[at] != '"')
		at += json[at] == '\\' ? 2 : 1;
	return MIN(at + 1, size);
}

int json_indent(struct buffer *to, const char *json, size_t size)
{
	size_t depth = 0;
	int result = 0;
	for (size_t at = 0; at < size && result == 0;) {
		char c = json[at];
		size_t length = 1;
		bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
		if (opens && at + 1 < size && (json[at + 1] == '}' || json[at + 1] == ']')) {
			length = 2; /* an empty one stays on its line */
			opens = false;
		} else if (c == '"') {
			length = string_length(json + at, size - at);
		}
		if (closes && depth > 0)
			result = new_line(to, --depth);
		if (result == 0)
			result = buffer_append(to, json + at, length);
		if (result == 0 && opens)
			result = new_line(to, ++depth);
		else if (result == 0 && c == ',')
			result = new_line(to, depth);
		else if (result == 0 && c == ':')
			result = buffer_append(to, " ", 1);
		at += length;
	}
	return result;
}

static void dialect_refuse_large(struct mcp_request *request)
{
	content_refuse(request, "the answer is too large: ask for less of it at once");
}

static void put_structured(struct mcp_request *request, const char *json, size_t size)
{
	struct json_writer *writer = content_structured(request);
	if (writer)
		put_json(writer, NULL, json, size);
}

void dialect_reply(struct mcp_request *request, const struct json_writer *writer)
{
	const struct buffer *json = writer->buffer;
	DONE_BUFFER struct buffer text = BUFFER(MCP_ANSWER_MAX);
	if (writer->full || json_indent(&text, json->data, json->size) < 0) {
		dialect_refuse_large(request);
		return;
	}
	content_begin(request);
	content_text(request, text.data, text.size);
	put_structured(request, json->data, json->size);
	content_end(request, false);
}

/* The end of the element that begins at `at` in the text of an array: its comma or bracket. */
static size_t element_end(const char *json, size_t size, size_t at)
{
	size_t depth = 0;
	while (at < size) {
		char c = json[at];
		if (c == '"') {
			at += string_length(json + at, size - at);
			continue;
		}
		if (depth == 0 && (c == ',' || c == ']'))
			break;
		depth += c == '{' || c == '[';
		depth -= c == '}' || c == ']';
		at++;
	}
	return at;
}

static int element_texts(struct mcp_request *request, const char *json, size_t size)
{
	for (size_t at = 1; at + 1 < size;) {
		DONE_BUFFER struct buffer text = BUFFER(MCP_ANSWER_MAX);
		size_t end = element_end(json, size, at);
		if (json_indent(&text, json + at, end - at) < 0)
			return -1;
		content_text(request, text.data, text.size);
		at = end + 1;
	}
	return 0;
}

void dialect_reply_list(struct mcp_request *request, const struct json_writer *writer)
{
	const struct buffer *json = writer->buffer;
	DONE_BUFFER struct buffer wrapped = BUFFER(MCP_ANSWER_MAX);
	if (writer->full || buffer_printf(&wrapped, "{\"result\":%s}", buffer_text(json)) < 0) {
		dialect_refuse_large(request);
		return;
	}
	content_begin(request);
	/* If it does not fit here, it does not fit into the answer: mcp_result_end() reports
	 * that. */
	if (element_texts(request, json->data, json->size) == 0)
		put_structured(request, wrapped.data, wrapped.size);
	content_end(request, false);
}

void dialect_reply_status(struct mcp_request *request, const char *status)
{
	DONE_BUFFER struct buffer json = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_text(&writer, "status", status);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

void dialect_base64(struct buffer *to, const char *heading, const void *data, size_t size)
{
	if (buffer_append_text(to, heading) < 0 || buffer_reserve(to, BASE64_SIZE(size) + 1) < 0)
		return;
	base64_encode(data, size, to->data + to->size);
	buffer_grow(to, BASE64_SIZE(size));
}
