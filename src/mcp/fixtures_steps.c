/* Fixtures that take their time: progress, log messages, a stream that ends in the middle, and
 * lists that are said to have changed. Owns the timer of a fixture (struct fixture_steps), which
 * ends with its request. Called by tools.c. Nothing blocks. */
#include <stdlib.h>

#include "base/text.h"
#include "mcp/fixtures.h"
#include "mcp/session.h"

#define RECONNECTION_MS 300

/* --- waiting --- */

static void steps_free(void *data)
{
	struct fixture_steps *steps = data;
	alarm_stop(&steps->alarm);
	text_free(&steps->text);
	free(steps);
}

struct fixture_steps *fixture_steps(struct mcp_request *request)
{
	if (!request->state) {
		request->state = calloc(1, sizeof(struct fixture_steps));
		if (!request->state)
			abort();
		request->state_free = steps_free;
	}
	return request->state;
}

static void cancelled(struct mcp_request *request)
{
	alarm_stop(&fixture_steps(request)->alarm);
	mcp_release(request);
}

static void time_is_over(void *data)
{
	struct mcp_request *request = data;
	struct fixture_steps *steps = request->state;
	alarm_stop(&steps->alarm);
	request->on_cancel = NULL;
	if (mcp_resume(request))
		steps->then(request);
	mcp_release(request);
}

void fixture_wait(struct mcp_request *request, uint64_t milliseconds,
		  void (*then)(struct mcp_request *request))
{
	struct fixture_steps *steps = fixture_steps(request);
	steps->then = then;
	steps->alarm =
	    alarm_after(request->core->loop, milliseconds, time_is_over, mcp_hold(request));
	request->on_cancel = cancelled;
}

/* --- log messages --- */

static void log_on(struct mcp_request *request)
{
	static const char *const said[] = {"Tool execution started", "Tool processing data",
					   "Tool execution completed"};
	struct fixture_steps *steps = fixture_steps(request);
	mcp_log(request, MCP_INFO, "fixtures", said[steps->step++]);
	if (steps->step < ARRAY_SIZE(said))
		fixture_wait(request, FIXTURE_STEP_MS, log_on);
	else
		content_reply(request, "Tool with logging executed successfully");
}

static void with_logging(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	log_on(request);
}

/* The same in one turn: what is not asked for must not be sent, and the answer comes at once. */
static void logging_tool(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	mcp_log(request, MCP_INFO, "fixtures", "This is a log message");
	content_reply(request, "Logged, where that was asked for");
}

/* --- progress --- */

static void progress_on(struct mcp_request *request)
{
	struct fixture_steps *steps = fixture_steps(request);
	mcp_progress_of(request, 50.0 * steps->step, 100, NULL);
	if (steps->step++ < 2)
		fixture_wait(request, FIXTURE_STEP_MS, progress_on);
	else
		content_reply(request, "Tool with progress executed successfully");
}

static void with_progress(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	progress_on(request);
}

/* --- a stream that ends before the answer --- */

static void come_back(struct mcp_request *request)
{
	content_reply(request, "Reconnection test completed successfully");
}

static void reconnection(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	fixture_wait(request, RECONNECTION_MS, come_back);
	session_close_stream(request);
}

/* --- lists --- */

static void tool_change(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	mcp_list_changed(request->server, "tools");
	content_reply(request, "Those who listen were told that the list of tools has changed");
}

static void prompt_change(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	mcp_list_changed(request->server, "prompts");
	content_reply(request, "Those who listen were told that the list of prompts has changed");
}

const struct mcp_tool fixture_step_tools[] = {
    FIXTURE("test_tool_with_logging", "Three log messages, then a text", NO_ARGUMENTS, 0,
	    with_logging),
    FIXTURE("test_logging_tool", "One log message and a text", NO_ARGUMENTS, 0, logging_tool),
    FIXTURE("test_tool_with_progress", "Progress 0, 50 and 100, then a text", NO_ARGUMENTS, 0,
	    with_progress),
    FIXTURE("test_reconnection", "Ends the stream; the text is for who comes back", NO_ARGUMENTS, 0,
	    reconnection),
    FIXTURE("test_trigger_tool_change", "Says that the list of tools has changed", NO_ARGUMENTS, 0,
	    tool_change),
    FIXTURE("test_trigger_prompt_change", "Says that the list of prompts has changed", NO_ARGUMENTS,
	    0, prompt_change),
    {0},
};
