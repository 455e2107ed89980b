/* What the fixtures' files share. The fixtures are what the protocol's conformance suite asks a
 * server for by name: they stand in the place of the usual tools in a daemon that was started with
 * --mcp-fixtures, touch no sandbox, and are in no other server's list. */
#pragma once

#include "mcp/alarm.h"
#include "mcp/prompt.h"
#include "mcp/resource.h"
#include "mcp/tool.h"

extern const struct mcp_tool fixture_tools[];       /* fixtures.c: what a call can answer with */
extern const struct mcp_tool fixture_step_tools[];  /* fixtures_steps.c: on the way, and lists */
extern const struct mcp_tool fixture_ask_tools[];   /* fixtures_ask.c: elicitation, sampling */
extern const struct mcp_tool fixture_input_tools[]; /* fixtures_input.c: input_required */
extern const struct mcp_tool fixture_task_tools[];  /* fixtures_tasks.c */
extern const struct resource_kind *const fixture_resources[]; /* fixtures_content.c */
extern const struct prompt *const fixture_prompts[];          /* fixtures_content.c */

#define FIXTURE_STEP_MS 50
#define FIXTURE_TEXT_MAX 4096 /* of an argument, or of an answer of the client's */

/* Schemas, and rows of the tables. */
#define NO_ARGUMENTS "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
#define TEXT_ARGUMENT(name)                                                                        \
	"{\"type\":\"object\",\"properties\":{\"" name                                             \
	"\":{\"type\":\"string\"}},\"required\":[\"" name "\"]}"
#define FIXTURE(tool_name, says, schema, how, function)                                            \
	{                                                                                          \
		.name = tool_name, .title = tool_name, .description = says, .input = schema,       \
		.scope = SCOPE_READ, .toolsets = TOOLSET_DEFAULT, .hints = TOOL_READS | (how),     \
		.call = function,                                                                  \
	}

/* A picture and a sound of the smallest kind. */
extern const uint8_t fixture_png[];
extern const size_t fixture_png_size;
extern const uint8_t fixture_wav[];
extern const size_t fixture_wav_size;

/* What a tool goes on with after a while, in request->state. */
struct fixture_steps {
	unsigned step;
	char *text;
	struct alarm *alarm; /* NULL: nothing is waited for */
	void (*then)(struct mcp_request *request);
};
struct fixture_steps *fixture_steps(struct mcp_request *request);
/* Calls `then` after that time, unless the request is cancelled by then. */
void fixture_wait(struct mcp_request *request, uint64_t milliseconds,
		  void (*then)(struct mcp_request *request));

/* content[name] of an elicitation's answer that was accepted, if that is a text; else NULL. */
const char *fixture_answer_text(struct mcp_request *request, const char *key, const char *name);

/* One question, which most of them have. */
#define NAME_QUESTION                                                                              \
	{                                                                                          \
		.key = "user_name", .method = "elicitation/create",                                \
		.params = "{\"message\":\"What is your name?\",\"requestedSchema\":"               \
			  "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},"  \
			  "\"required\":[\"name\"]}}",                                             \
	}
