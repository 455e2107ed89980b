/* Fixtures of the tasks extension. A tool does not know that it is a task (task.h): these wait,
 * fail and ask as any other, and answer at once, or when they are done, to a client without tasks.
 * Called by tools.c. Nothing blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/ask.h"
#include "mcp/fixtures.h"
#include "mcp/task.h"

#define COMPUTE_SECONDS_MAX 3600
#define FAILING_JOB_MS 1000

static void greet(struct mcp_request *request, const json_t *arguments)
{
	const char *name;
	const struct field fields[] = {
	    {.name = "name",
	     .type = FIELD_TEXT,
	     .to = &name,
	     .required = true,
	     .max = FIXTURE_TEXT_MAX},
	};
	if (tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		content_reply(request, "Hello, %s!", name);
}

static void computed(struct mcp_request *request)
{
	content_reply(request, "Computed: %s", fixture_steps(request)->text);
}

static void slow_compute(struct mcp_request *request, const json_t *arguments)
{
	double seconds = 0;
	const char *label = "nothing";
	const struct field fields[] = {
	    {.name = "seconds", .type = FIELD_NUMBER, .to = &seconds, .max = COMPUTE_SECONDS_MAX},
	    {.name = "label", .type = FIELD_TEXT, .to = &label, .max = FIXTURE_TEXT_MAX},
	};
	if (!tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	fixture_steps(request)->text = text_duplicate(label);
	fixture_wait(request, (uint64_t)(MIN(seconds, (double)COMPUTE_SECONDS_MAX) * 1000),
		     computed);
}

static void job_failed(struct mcp_request *request)
{
	content_begin(request);
	content_format(request, "This job always fails");
	content_end(request, true);
}

static void failing_job(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	fixture_wait(request, FAILING_JOB_MS, job_failed);
}

static void job_broken(struct mcp_request *request)
{
	mcp_error(request, MCP_INTERNAL_ERROR, NULL, "This job always ends in a protocol error");
}

static void protocol_error_job(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	fixture_wait(request, FIXTURE_STEP_MS, job_broken);
}

/* --- tasks that ask --- */

#define CONFIRM_FORM(message)                                                                      \
	"{\"message\":\"" message "\",\"requestedSchema\":{\"type\":\"object\",\"properties\":"    \
	"{\"confirm\":{\"type\":\"boolean\"}},\"required\":[\"confirm\"]}}"

static bool confirmed(const json_t *answer)
{
	return json_is_true(json_object_get(json_object_get(answer, "content"), "confirm"));
}

static void delete_go(struct mcp_request *request)
{
	static const struct question question = {"confirm", "elicitation/create",
						 CONFIRM_FORM("Is the file to be deleted?")};
	const json_t *state, *answer;
	if (!ask_state(request, &state))
		return;
	answer = ask_answer(request, "confirm");
	if (answer)
		content_reply(request, confirmed(answer) ? "It would be gone now"
							 : "It was left where it is");
	else
		ask(request, &question, 1, NULL, delete_go);
}

static void confirm_delete(struct mcp_request *request, const json_t *arguments)
{
	const char *name;
	const struct field fields[] = {
	    {.name = "filename",
	     .type = FIELD_TEXT,
	     .to = &name,
	     .required = true,
	     .max = FIXTURE_TEXT_MAX},
	};
	if (tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		delete_go(request);
}

static void multi_input_go(struct mcp_request *request)
{
	static const struct question questions[] = {
	    {"first", "elicitation/create", CONFIRM_FORM("The first question")},
	    {"second", "elicitation/create", CONFIRM_FORM("The second question")},
	};
	const json_t *state;
	if (!ask_state(request, &state))
		return;
	const json_t *first = ask_answer(request, "first"), *second = ask_answer(request, "second");
	if (first && second)
		content_reply(request, "Confirmed: %d of 2", confirmed(first) + confirmed(second));
	else
		ask(request, questions, ARRAY_SIZE(questions), NULL, multi_input_go);
}

static void multi_input(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	multi_input_go(request);
}

/* --- input first, then a task --- */

static void named(struct mcp_request *request)
{
	content_reply(request, "Hello, %s!", fixture_steps(request)->text);
}

static void tool_with_task(struct mcp_request *request, const json_t *arguments)
{
	static const struct question question = NAME_QUESTION;
	const struct mcp_tool *tool = request->tool;
	const json_t *state;
	(void)arguments;
	if (!ask_state(request, &state))
		return;
	const char *name = fixture_answer_text(request, "user_name", "name");
	if (!name) {
		/* A legacy client has no tasks and was refused. */
		ask(request, &question, 1, NULL, NULL);
		return;
	}
	char *text = text_duplicate(name);
	request = task_begin(request);
	if (!request) {
		free(text);
		return;
	}
	request->tool = tool;
	fixture_steps(request)->text = text;
	fixture_wait(request, FIXTURE_STEP_MS, named);
}

#define COMPUTE_INPUT                                                                              \
	"{\"type\":\"object\",\"properties\":{\"seconds\":{\"type\":\"number\",\"minimum\":0,"     \
	"\"maximum\":3600},\"label\":{\"type\":\"string\"}}}"

const struct mcp_tool fixture_task_tools[] = {
    FIXTURE("greet", "A greeting, never a task", TEXT_ARGUMENT("name"), 0, greet),
    FIXTURE("slow_compute", "Takes its time", COMPUTE_INPUT, TOOL_TASK, slow_compute),
    FIXTURE("failing_job", "Fails after a second", NO_ARGUMENTS, TOOL_TASK_ONLY, failing_job),
    FIXTURE("protocol_error_job", "Ends in a protocol error", NO_ARGUMENTS, TOOL_TASK,
	    protocol_error_job),
    FIXTURE("confirm_delete", "Asks before it does nothing", TEXT_ARGUMENT("filename"), TOOL_TASK,
	    confirm_delete),
    FIXTURE("multi_input", "Asks two things at once", NO_ARGUMENTS, TOOL_TASK, multi_input),
    {
	.name = "test_tool_with_task",
	.title = "test_tool_with_task",
	.description = "Asks for a name, and then is a task",
	.input = NO_ARGUMENTS,
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS,
	.needs = CLIENT_TASKS,
	.call = tool_with_task,
    },
    {0},
};
