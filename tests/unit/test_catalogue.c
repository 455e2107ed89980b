/* The tables of tools as data: what clients refuse, and what a newcomer gets wrong when a row is
 * added. No server is needed. */
#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"
#include "mcp/tools/tool.h"
#include "test.h"

TEST_MAIN

#define NAME_LENGTH_MAX 40
#define DESCRIPTION_MAX 1500

static const struct mcp_face *const faces[] = {&usual_face, &admin_face, &opensandbox_face,
					       &pandastack_face};

static void each_tool(void (*look)(const struct mcp_face *face, const struct mcp_tool *tool))
{
	for (size_t i = 0; i < sizeof(faces) / sizeof(faces[0]); i++)
		for (const struct mcp_tool *const *table = faces[i]->tools; *table; table++)
			for (const struct mcp_tool *tool = *table; tool->name; tool++)
				look(faces[i], tool);
}

static void check_name(const struct mcp_face *face, const struct mcp_tool *tool)
{
	size_t same = 0;
	if (strspn(tool->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(tool->name) ||
	    strlen(tool->name) > NAME_LENGTH_MAX)
		test_fail(__FILE__, __LINE__, "the name %s is not one that every client takes",
			  tool->name);
	for (const struct mcp_tool *const *table = face->tools; *table; table++)
		for (const struct mcp_tool *other = *table; other->name; other++)
			same += strcmp(other->name, tool->name) == 0;
	if (same != 1)
		test_fail(__FILE__, __LINE__, "%s is %zu times in %s", tool->name, same,
			  face->name);
}

TEST(names_are_unique_and_plain)
{
	each_tool(check_name);
}

static void check_words(const struct mcp_face *face, const struct mcp_tool *tool)
{
	bool ours = face == &usual_face || face == &admin_face;
	if (!tool->description || !tool->description[0] ||
	    strlen(tool->description) > DESCRIPTION_MAX)
		test_fail(__FILE__, __LINE__, "%s: no description, or too long", tool->name);
	if (ours && (!tool->title || !tool->example))
		test_fail(__FILE__, __LINE__, "%s has no title or no example", tool->name);
	if (ours && (tool->hints & TOOL_NO_HINTS))
		test_fail(__FILE__, __LINE__, "%s has no hints", tool->name);
	if ((tool->hints & TOOL_READS) && (tool->hints & TOOL_DESTROYS))
		test_fail(__FILE__, __LINE__, "%s cannot both only read and destroy", tool->name);
	if ((tool->scope == SCOPE_READ) != !!(tool->hints & TOOL_READS) && face == &usual_face)
		test_fail(__FILE__, __LINE__, "%s: its scope and its hint disagree", tool->name);
	if (!tool->call)
		test_fail(__FILE__, __LINE__, "%s cannot be called", tool->name);
}

TEST(every_tool_has_words_and_hints)
{
	each_tool(check_words);
}

/* What a client may not know, at any depth: arrays without items, and references (a dialect's are
 * as their users know them). */
static void check_schema(const char *name, const json_t *schema, bool ours, int depth)
{
	const char *key;
	json_t *value;
	if (!json_is_object(schema) || depth > 8)
		return;
	const char *type = json_string_value(json_object_get(schema, "type"));
	if (type && strcmp(type, "array") == 0 && !json_object_get(schema, "items"))
		test_fail(__FILE__, __LINE__, "%s: an array without items", name);
	json_object_foreach((json_t *)schema, key, value)
	{
		if (ours && strcmp(key, "$ref") == 0)
			test_fail(__FILE__, __LINE__, "%s: a reference", name);
		check_schema(name, value, ours, depth + 1);
	}
}

/* As it is listed. */
static json_t *input_schema(const struct mcp_tool *tool, json_error_t *problem)
{
	struct buffer text DONE_BUFFER = BUFFER(64 * KIB);
	struct json_writer writer = json_writer_on(&text);
	if (tool->input)
		return json_loads(tool->input, JSON_REJECT_DUPLICATES, problem);
	put_fields(&writer, NULL, tool->fields, FIELDS_MCP);
	return json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, problem);
}

static void check_input(const struct mcp_face *face, const struct mcp_tool *tool)
{
	bool ours = face == &usual_face || face == &admin_face;
	json_error_t problem;
	json_t *schema = input_schema(tool, &problem);
	if (!schema) {
		test_fail(__FILE__, __LINE__, "%s: input: %s", tool->name, problem.text);
		return;
	}
	CHECK_TEXT(json_string_value(json_object_get(schema, "type")), "object");
	json_t *properties = json_object_get(schema, "properties"), *value;
	CHECK(json_is_object(properties));
	CHECK(!json_object_get(schema, "anyOf") && !json_object_get(schema, "oneOf") &&
	      !json_object_get(schema, "allOf"));
	check_schema(tool->name, schema, ours, 0);
	size_t index;
	json_array_foreach(json_object_get(schema, "required"), index, value)
	{
		if (!json_object_get(properties, json_string_value(value)))
			test_fail(__FILE__, __LINE__, "%s: %s is required and not there",
				  tool->name, json_string_value(value));
	}
	json_decref(schema);
}

TEST(schemas_are_what_every_client_takes)
{
	each_tool(check_input);
}

/* It is shown to a model as a good call. */
static void check_example(const struct mcp_face *face, const struct mcp_tool *tool)
{
	(void)face;
	if (!tool->example)
		return;
	json_t *schema = input_schema(tool, NULL);
	json_t *example = json_loads(tool->example, JSON_REJECT_DUPLICATES, NULL), *value;
	json_t *properties = json_object_get(schema, "properties");
	const char *key;
	size_t index;
	if (!json_is_object(example))
		test_fail(__FILE__, __LINE__, "%s: its example is no object", tool->name);
	json_object_foreach(example, key, value)
	{
		if (!json_object_get(properties, key))
			test_fail(__FILE__, __LINE__, "%s: its example has %s", tool->name, key);
	}
	json_array_foreach(json_object_get(schema, "required"), index, value)
	{
		if (!json_object_get(example, json_string_value(value)))
			test_fail(__FILE__, __LINE__, "%s: its example lacks %s", tool->name,
				  json_string_value(value));
	}
	json_decref(example);
	json_decref(schema);
}

TEST(examples_are_good_calls)
{
	each_tool(check_example);
}

static void check_parts(const struct mcp_face *face, const struct mcp_tool *tool)
{
	const char *parts[] = {tool->output, tool->meta};
	(void)face;
	for (size_t i = 0; i < 2; i++) {
		json_t *json = parts[i] ? json_loads(parts[i], 0, NULL) : NULL;
		if (parts[i] && !json_is_object(json))
			test_fail(__FILE__, __LINE__, "%s: not an object: %s", tool->name,
				  parts[i]);
		json_decref(json);
	}
}

TEST(other_parts_are_json)
{
	each_tool(check_parts);
}

TEST(instructions_are_short)
{
	for (size_t i = 0; i < sizeof(faces) / sizeof(faces[0]); i++) {
		for (int variant = 0; variant < 4; variant++) {
			struct mcp_view view = {.face = faces[i],
						.toolsets = TOOLSET_ALL,
						.read_only = variant & 1,
						.ephemeral = variant & 2,
						.block_seconds = 3600};
			struct buffer text DONE_BUFFER = BUFFER(64 * 1024);
			if (faces[i]->instructions)
				faces[i]->instructions(&view, &text);
			CHECK(text.size < 2048);
		}
	}
}

TEST(toolsets_by_name)
{
	struct error error;
	uint32_t toolsets = 0;
	CHECK_INT(toolsets_parse("files,jobs", &toolsets, &error), 0);
	CHECK_INT(toolsets, TOOLSET_DEFAULT | TOOLSET_FILES | TOOLSET_JOBS);
	CHECK_INT(toolsets_parse("default", &toolsets, &error), 0);
	CHECK_INT(toolsets, TOOLSET_DEFAULT);
	CHECK_INT(toolsets_parse("all", &toolsets, &error), 0);
	CHECK_INT(toolsets, TOOLSET_ALL);
	const char *bad[] = {"", "file", "files,", ",files", "files,,jobs", "Files", "files jobs"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_INT(toolsets_parse(bad[i], &toolsets, &error), -1);
		CHECK_INT(error.kind, ERROR_INVALID);
		CHECK(strstr(error.message, "there are default, files, jobs, metrics, "));
	}
}

TEST(faces_by_name)
{
	CHECK(face_by_name("opensandbox") == &opensandbox_face);
	CHECK(face_by_name("admin") == &admin_face);
	for (size_t i = 0; face_name(i); i++)
		CHECK(face_by_name(face_name(i)));
	CHECK(!face_by_name("caisson") && !face_by_name("") && !face_by_name("fixtures"));
}
