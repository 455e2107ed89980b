/* Fixtures whose results are input_required until the client has answered. Written as every handler
 * that asks (ask.h): from the start each time. A legacy client may call them too. Called by tools.c
 * and prompts.c. Nothing blocks. */
#include <string.h>

#include "mcp/ask.h"
#include "mcp/fixtures.h"

#define STRING_FORM(message, name)                                                                 \
	"{\"message\":\"" message                                                                  \
	"\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"" name                      \
	"\":{\"type\":\"string\"}},\"required\":[\"" name "\"]}}"
#define SAMPLE(text, tokens)                                                                       \
	"{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"" text        \
	"\"}}],\"maxTokens\":" tokens "}"
#define CONFIRM_FORM                                                                               \
	"{\"message\":\"Please confirm\",\"requestedSchema\":{\"type\":\"object\",\"properties\":" \
	"{\"ok\":{\"type\":\"boolean\"}},\"required\":[\"ok\"]}}"

static const struct question name_question = NAME_QUESTION,
			     confirm_question = {"confirm", "elicitation/create", CONFIRM_FORM},
			     roots_question = {"client_roots", "roots/list", "{}"};

const char *fixture_answer_text(struct mcp_request *request, const char *key, const char *name)
{
	const json_t *answer = ask_answer(request, key);
	const char *action = json_string_value(json_object_get(answer, "action")), *text;
	if (!action || strcmp(action, "accept") != 0)
		return NULL;
	text = json_string_value(json_object_get(json_object_get(answer, "content"), name));
	return text && strlen(text) <= FIXTURE_TEXT_MAX ? text : NULL;
}

/* The user will not say: true, and the call is answered. */
static bool declined(struct mcp_request *request, const char *key)
{
	const json_t *answer = ask_answer(request, key);
	const char *action = json_string_value(json_object_get(answer, "action"));
	if (!action || strcmp(action, "accept") == 0)
		return false;
	content_reply(request, "The user chose not to answer: %s", action);
	return true;
}

static void elicitation_go(struct mcp_request *request)
{
	const json_t *state;
	if (!ask_state(request, &state) || declined(request, "user_name"))
		return;
	const char *name = fixture_answer_text(request, "user_name", "name");
	if (name)
		content_reply(request, "Hello, %s!", name);
	else
		ask(request, &name_question, 1, NULL, elicitation_go);
}

static void sampling_go(struct mcp_request *request)
{
	static const struct question question = {"capital_question", "sampling/createMessage",
						 SAMPLE("What is the capital of France?", "100")};
	const json_t *state, *answer;
	if (!ask_state(request, &state))
		return;
	answer = ask_answer(request, "capital_question");
	if (answer) {
		const json_t *content = json_object_get(answer, "content");
		const char *text = json_string_value(json_object_get(content, "text"));
		content_reply(request, "The model said: %s", text ? text : "nothing");
	} else {
		ask(request, &question, 1, NULL, sampling_go);
	}
}

static void roots_go(struct mcp_request *request)
{
	const json_t *state, *answer;
	if (!ask_state(request, &state))
		return;
	answer = ask_answer(request, "client_roots");
	if (answer)
		content_reply(request, "The client has %zu roots",
			      json_array_size(json_object_get(answer, "roots")));
	else
		ask(request, &roots_question, 1, NULL, roots_go);
}

/* With a state that has to come back. */
static void confirmed_go(struct mcp_request *request, void (*again)(struct mcp_request *request))
{
	const json_t *state, *answer;
	if (!ask_state(request, &state) || declined(request, "confirm"))
		return;
	answer = ask_answer(request, "confirm");
	if (answer && json_is_string(state) && strcmp(json_string_value(state), "asked") == 0)
		content_reply(request, "state-ok: confirmed");
	else
		ask(request, &confirm_question, 1, "\"asked\"", again);
}

static void request_state_go(struct mcp_request *request)
{
	confirmed_go(request, request_state_go);
}

static void multiple_inputs_go(struct mcp_request *request)
{
	static const struct question questions[] = {
	    NAME_QUESTION,
	    {"greeting", "sampling/createMessage", SAMPLE("Generate a greeting", "50")},
	    {"client_roots", "roots/list", "{}"},
	};
	const json_t *state, *greeting, *roots;
	if (!ask_state(request, &state) || declined(request, "user_name"))
		return;
	const char *name = fixture_answer_text(request, "user_name", "name");
	greeting = ask_answer(request, "greeting");
	roots = ask_answer(request, "client_roots");
	if (name && greeting && roots) {
		const json_t *content = json_object_get(greeting, "content");
		const char *text = json_string_value(json_object_get(content, "text"));
		content_reply(request, "%s %s, of %zu roots", text ? text : "Hello", name,
			      json_array_size(json_object_get(roots, "roots")));
	} else {
		ask(request, questions, ARRAY_SIZE(questions), "\"asked\"", multiple_inputs_go);
	}
}

static void multi_round_go(struct mcp_request *request)
{
	static const struct question first = {"step1", "elicitation/create",
					      STRING_FORM("Step 1: What is your name?", "name")},
				     second = {"step2", "elicitation/create",
					       STRING_FORM("Step 2: What is your favorite color?",
							   "color")};
	const json_t *state;
	if (!ask_state(request, &state) || declined(request, "step1") || declined(request, "step2"))
		return;
	const char *name = fixture_answer_text(request, "step1", "name");
	if (!name) {
		ask(request, &first, 1, "1", multi_round_go);
		return;
	}
	const char *color = fixture_answer_text(request, "step2", "color");
	if (color)
		content_reply(request, "%s likes %s", name, color);
	else
		ask(request, &second, 1, "2", multi_round_go);
}

/* Only what the client can do is asked. */
static void capabilities_go(struct mcp_request *request)
{
	static const struct {
		uint32_t capability;
		struct question question;
	} all[] = {
	    {CLIENT_ELICITATION, NAME_QUESTION},
	    {CLIENT_SAMPLING,
	     {"greeting", "sampling/createMessage", SAMPLE("Generate a greeting", "50")}},
	    {CLIENT_ROOTS, {"client_roots", "roots/list", "{}"}},
	};
	struct question questions[ARRAY_SIZE(all)];
	size_t count = 0, answers = 0;
	const json_t *state;
	if (!ask_state(request, &state))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!(request->client & all[i].capability))
			continue;
		answers += ask_answer(request, all[i].question.key) != NULL;
		questions[count++] = all[i].question;
	}
	if (answers == count)
		content_reply(request, "%zu of the client's capabilities were used", count);
	else
		ask(request, questions, count, NULL, capabilities_go);
}

#define CALL(name)                                                                                 \
	static void name(struct mcp_request *request, const json_t *arguments)                     \
	{                                                                                          \
		(void)arguments;                                                                   \
		name##_go(request);                                                                \
	}
CALL(elicitation)
CALL(sampling)
CALL(roots)
CALL(request_state)
CALL(multiple_inputs)
CALL(multi_round)
CALL(capabilities)

static void missing_capability(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	content_reply(request, "The client can be asked for samples");
}

#define PREFIX "test_input_required_result_"

const struct mcp_tool fixture_input_tools[] = {
    {
	.name = "test_missing_capability",
	.title = "test_missing_capability",
	.description = "Only for clients with sampling",
	.input = NO_ARGUMENTS,
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS,
	.needs = CLIENT_SAMPLING,
	.call = missing_capability,
    },
    FIXTURE("test_streaming_elicitation", "Asks for a name", NO_ARGUMENTS, 0, elicitation),
    FIXTURE(PREFIX "elicitation", "Asks for a name", NO_ARGUMENTS, 0, elicitation),
    FIXTURE(PREFIX "sampling", "Asks the client's model", NO_ARGUMENTS, 0, sampling),
    FIXTURE(PREFIX "list_roots", "Asks for the client's roots", NO_ARGUMENTS, 0, roots),
    FIXTURE(PREFIX "request_state", "Asks, with a state that has to come back", NO_ARGUMENTS, 0,
	    request_state),
    FIXTURE(PREFIX "tampered_state", "Refuses a state that was changed", NO_ARGUMENTS, 0,
	    request_state),
    FIXTURE(PREFIX "multiple_inputs", "Asks three things at once", NO_ARGUMENTS, 0,
	    multiple_inputs),
    FIXTURE(PREFIX "multi_round", "Asks twice, one after the other", NO_ARGUMENTS, 0, multi_round),
    FIXTURE(PREFIX "capabilities", "Asks only what the client can do", NO_ARGUMENTS, 0,
	    capabilities),
    {0},
};
