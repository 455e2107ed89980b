/* Fixtures that ask the client in the middle of a call, as the legacy scenarios want it: one
 * question, and a text with the answer. Called by tools.c. Nothing blocks. */
#include <stdlib.h>
#include <string.h>

#include "mcp/ask.h"
#include "mcp/fixtures.h"

/* What the client said, as JSON, bounded. */
static void put_answer(struct buffer *to, const json_t *value)
{
	char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	if (!text || buffer_append_text(to, text) < 0)
		(void)!buffer_append_text(to, "{}");
	free(text);
}

static void reply_action(struct mcp_request *request, const char *begins, const json_t *answer)
{
	struct buffer content DONE_BUFFER = BUFFER(MIB);
	put_answer(&content, json_object_get(answer, "content"));
	content_reply(request, "%s: action=%s, content=%s", begins,
		      json_string_value(json_object_get(answer, "action")), buffer_text(&content));
}

/* The argument of that name as a JSON text, to stand in the parameters of a question. */
static char *quoted_argument(struct mcp_request *request, const char *name)
{
	const json_t *arguments = json_object_get(request->params, "arguments");
	const char *text = NULL;
	const struct field fields[] = {
	    {.name = name,
	     .type = FIELD_TEXT,
	     .to = &text,
	     .required = true,
	     .max = FIXTURE_TEXT_MAX},
	};
	if (!tool_arguments(request, arguments, fields, 1))
		return NULL;
	return json_dumps(json_object_get(arguments, name), JSON_ENCODE_ANY);
}

/* --- sampling --- */

static void sampling_go(struct mcp_request *request)
{
	const json_t *state, *answer;
	if (!ask_state(request, &state))
		return;
	answer = ask_answer(request, "sample");
	if (answer) {
		const json_t *content = json_object_get(answer, "content");
		const char *text = json_string_value(json_object_get(content, "text"));
		content_reply(request, "LLM response: %s", text ? text : "No response");
		return;
	}
	char *prompt = quoted_argument(request, "prompt");
	if (!prompt)
		return;
	struct buffer params DONE_BUFFER = BUFFER(8 * FIXTURE_TEXT_MAX);
	(void)!buffer_printf(&params,
			     "{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\","
			     "\"text\":%s}}],\"maxTokens\":100}",
			     prompt);
	free(prompt);
	const struct question question = {"sample", "sampling/createMessage", buffer_text(&params)};
	ask(request, &question, 1, NULL, sampling_go);
}

static void sampling(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	sampling_go(request);
}

/* --- elicitation --- */

static void elicitation_go(struct mcp_request *request)
{
	const json_t *state, *answer;
	if (!ask_state(request, &state))
		return;
	answer = ask_answer(request, "user");
	if (answer) {
		reply_action(request, "User response", answer);
		return;
	}
	char *message = quoted_argument(request, "message");
	if (!message)
		return;
	struct buffer params DONE_BUFFER = BUFFER(8 * FIXTURE_TEXT_MAX);
	(void)!buffer_printf(
	    &params,
	    "{\"message\":%s,\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
	    "\"username\":{\"type\":\"string\",\"description\":\"User's response\"},"
	    "\"email\":{\"type\":\"string\",\"description\":\"User's email address\"}},"
	    "\"required\":[\"username\",\"email\"]}}",
	    message);
	free(message);
	const struct question question = {"user", "elicitation/create", buffer_text(&params)};
	ask(request, &question, 1, NULL, elicitation_go);
}

static void elicitation(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	elicitation_go(request);
}

/* Asks it, and tells what came. */
static void elicit(struct mcp_request *request, const struct question *question,
		   void (*again)(struct mcp_request *request))
{
	const json_t *state, *answer;
	if (!ask_state(request, &state))
		return;
	answer = ask_answer(request, question->key);
	if (answer)
		reply_action(request, "Elicitation completed", answer);
	else
		ask(request, question, 1, NULL, again);
}

static void defaults_go(struct mcp_request *request)
{
	static const struct question question = {
	    "defaults", "elicitation/create",
	    "{\"message\":\"Please review and update the form fields with defaults\","
	    "\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
	    "\"name\":{\"type\":\"string\",\"description\":\"User name\",\"default\":\"John "
	    "Doe\"},"
	    "\"age\":{\"type\":\"integer\",\"description\":\"User age\",\"default\":30},"
	    "\"score\":{\"type\":\"number\",\"description\":\"User score\",\"default\":95.5},"
	    "\"status\":{\"type\":\"string\",\"description\":\"User status\","
	    "\"enum\":[\"active\",\"inactive\",\"pending\"],\"default\":\"active\"},"
	    "\"verified\":{\"type\":\"boolean\",\"description\":\"Verification status\","
	    "\"default\":true}},\"required\":[]}}"};
	elicit(request, &question, defaults_go);
}

static void defaults(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	defaults_go(request);
}

static void enums_go(struct mcp_request *request)
{
	static const struct question question = {
	    "enums", "elicitation/create",
	    "{\"message\":\"Please select options from the enum fields\","
	    "\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
	    "\"untitledSingle\":{\"type\":\"string\",\"description\":\"Select one option\","
	    "\"enum\":[\"option1\",\"option2\",\"option3\"]},"
	    "\"titledSingle\":{\"type\":\"string\",\"description\":\"Select one option with "
	    "titles\",\"oneOf\":[{\"const\":\"value1\",\"title\":\"First Option\"},"
	    "{\"const\":\"value2\",\"title\":\"Second Option\"},"
	    "{\"const\":\"value3\",\"title\":\"Third Option\"}]},"
	    "\"legacyEnum\":{\"type\":\"string\",\"description\":\"Select one option (legacy)\","
	    "\"enum\":[\"opt1\",\"opt2\",\"opt3\"],"
	    "\"enumNames\":[\"Option One\",\"Option Two\",\"Option Three\"]},"
	    "\"untitledMulti\":{\"type\":\"array\",\"description\":\"Select several options\","
	    "\"minItems\":1,\"maxItems\":3,\"items\":{\"type\":\"string\","
	    "\"enum\":[\"option1\",\"option2\",\"option3\"]}},"
	    "\"titledMulti\":{\"type\":\"array\",\"description\":\"Select several options with "
	    "titles\",\"minItems\":1,\"maxItems\":3,\"items\":{\"anyOf\":["
	    "{\"const\":\"value1\",\"title\":\"First Choice\"},"
	    "{\"const\":\"value2\",\"title\":\"Second Choice\"},"
	    "{\"const\":\"value3\",\"title\":\"Third Choice\"}]}}},\"required\":[]}}"};
	elicit(request, &question, enums_go);
}

static void enums(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	enums_go(request);
}

const struct mcp_tool fixture_ask_tools[] = {
    FIXTURE("test_sampling", "Asks the client's model", TEXT_ARGUMENT("prompt"), 0, sampling),
    FIXTURE("test_elicitation", "Asks the user for a name and an address", TEXT_ARGUMENT("message"),
	    0, elicitation),
    FIXTURE("test_elicitation_sep1034_defaults", "Asks the user, with defaults", NO_ARGUMENTS, 0,
	    defaults),
    FIXTURE("test_elicitation_sep1330_enums", "Asks the user to choose", NO_ARGUMENTS, 0, enums),
    {0},
};
