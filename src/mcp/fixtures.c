/* The fixtures' face, and the tools that answer at once, one for each thing that a result can be
 * made of. Called by tools.c in a daemon with --mcp-fixtures. Nothing blocks. */
#include "mcp/fixtures.h"

#include <stdlib.h>

#include "base/macros.h"

static const struct mcp_tool *const tables[] = {
    fixture_tools,       fixture_step_tools, fixture_ask_tools,
    fixture_input_tools, fixture_task_tools, NULL,
};

static void instructions(const struct mcp_view *view, struct buffer *to)
{
	(void)view;
	(void)!buffer_append_text(to, "Fixtures of the protocol's conformance suite. There is no "
				      "sandbox here.");
}

const struct mcp_face fixture_face = {
    .name = "caisson-fixtures",
    .title = "Caisson, as the conformance suite wants a server",
    .features = FACE_LOGGING | FACE_COMPLETIONS | FACE_TASKS | FACE_SUBSCRIBE | FACE_LIST_CHANGED,
    .scope = SCOPE_READ,
    .tools = tables,
    .resources = fixture_resources,
    .prompts = fixture_prompts,
    .instructions = instructions,
};

/* One red pixel. */
const uint8_t fixture_png[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00,
    0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01, 0x01, 0x00, 0xf7, 0x03, 0x41,
    0x43, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};
const size_t fixture_png_size = sizeof(fixture_png);

/* Two samples of silence: 8 kHz, 8 bits, mono. */
const uint8_t fixture_wav[] = {
    0x52, 0x49, 0x46, 0x46, 0x26, 0x00, 0x00, 0x00, 0x57, 0x41, 0x56, 0x45, 0x66, 0x6d, 0x74, 0x20,
    0x10, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00, 0x40, 0x1f, 0x00, 0x00, 0x40, 0x1f, 0x00, 0x00,
    0x01, 0x00, 0x08, 0x00, 0x64, 0x61, 0x74, 0x61, 0x02, 0x00, 0x00, 0x00, 0x80, 0x80,
};
const size_t fixture_wav_size = sizeof(fixture_wav);

static void simple_text(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_reply(request, "This is a simple text response for testing.");
}

static void image_content(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_begin(request);
	content_image(request, "image/png", fixture_png, fixture_png_size);
	content_end(request, false);
}

static void audio_content(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_begin(request);
	content_audio(request, "audio/wav", fixture_wav, fixture_wav_size);
	content_end(request, false);
}

static void embedded_resource(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_begin(request);
	content_resource(request, "test://embedded-resource", "text/plain",
			 "This is an embedded resource content.");
	content_end(request, false);
}

static void multiple_content_types(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_begin(request);
	content_format(request, "Multiple content types test:");
	content_image(request, "image/png", fixture_png, fixture_png_size);
	content_resource(request, "test://mixed-content-resource", "application/json",
			 "{\"test\":\"data\",\"value\":123}");
	content_end(request, false);
}

static void error_handling(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_begin(request);
	content_format(request, "This tool intentionally returns an error for testing");
	content_end(request, true);
}

/* Both may be left out; `region` comes in a header as well, which envelope checks have compared. */
static void custom_header(struct mcp_request *request, const json_t *arguments)
{
	const char *region = "nowhere";
	uint64_t level = 0;
	const struct field fields[] = {
	    {.name = "region", .type = FIELD_TEXT, .to = &region, .max = FIXTURE_TEXT_MAX},
	    {.name = "level", .type = FIELD_UINT, .to = &level},
	};
	if (tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		content_reply(request, "region %s, level %llu", region, (unsigned long long)level);
}

static void schema_2020(struct mcp_request *request, const json_t *arguments)
{
	char *text = json_dumps(arguments, JSON_COMPACT);
	content_reply(request, "Called with %s", text ? text : "something");
	free(text);
}

#define HEADER_INPUT                                                                               \
	"{\"type\":\"object\",\"properties\":{\"region\":{\"type\":\"string\",\"x-mcp-header\":"   \
	"\"Region\"},\"level\":{\"type\":\"integer\"}}}"

#define SCHEMA_2020                                                                                \
	"{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\","       \
	"\"$defs\":{\"address\":{\"$anchor\":\"addressDef\",\"type\":\"object\",\"properties\":"   \
	"{\"street\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"}}}},\"properties\":"      \
	"{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/address\"},"              \
	"\"contactMethod\":{\"type\":\"string\",\"enum\":[\"phone\",\"email\"]},"                  \
	"\"phone\":{\"type\":\"string\"},\"email\":{\"type\":\"string\"}},"                        \
	"\"allOf\":[{\"anyOf\":[{\"required\":[\"phone\"]},{\"required\":[\"email\"]}]}],"         \
	"\"if\":{\"properties\":{\"contactMethod\":{\"const\":\"phone\"}},\"required\":"           \
	"[\"contactMethod\"]},\"then\":{\"required\":[\"phone\"]},\"else\":{\"required\":"         \
	"[\"email\"]},\"additionalProperties\":false}"

const struct mcp_tool fixture_tools[] = {
    FIXTURE("test_simple_text", "A text", NO_ARGUMENTS, TOOL_REPEATABLE, simple_text),
    FIXTURE("test_image_content", "A picture", NO_ARGUMENTS, TOOL_REPEATABLE, image_content),
    FIXTURE("test_audio_content", "A sound", NO_ARGUMENTS, TOOL_REPEATABLE, audio_content),
    FIXTURE("test_embedded_resource", "A resource in the result", NO_ARGUMENTS, TOOL_REPEATABLE,
	    embedded_resource),
    FIXTURE("test_multiple_content_types", "A text, a picture and a resource", NO_ARGUMENTS,
	    TOOL_REPEATABLE, multiple_content_types),
    FIXTURE("test_error_handling", "A result that is an error", NO_ARGUMENTS, TOOL_REPEATABLE,
	    error_handling),
    FIXTURE("test_x_mcp_header", "An argument that is also a header", HEADER_INPUT, TOOL_REPEATABLE,
	    custom_header),
    FIXTURE("json_schema_2020_12_tool", "A schema with all that JSON Schema 2020-12 has",
	    SCHEMA_2020, TOOL_REPEATABLE, schema_2020),
    {0},
};
