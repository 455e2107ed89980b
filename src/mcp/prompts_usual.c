/* The usual face's prompts, which a person chooses from a menu of the client. Each is one message
 * of the user that names the tools to use. Called by prompts.c and completion.c. Nothing blocks. */
#include <string.h>

#include "base/limits.h"
#include "mcp/prompt.h"
#include "mcp/resources/usual_resources.h"

#define ARGUMENT_MAX (16 * KIB)

/* prompts.c has checked that required arguments exist and are texts. */
static const char *prompt_argument(const json_t *arguments, const char *name)
{
	const char *text = json_string_value(json_object_get(arguments, name));
	return text ? text : "";
}

static void prompt_answer(struct mcp_request *request, const char *before, const char *given,
			  const char *after)
{
	struct buffer text DONE_BUFFER = BUFFER(2 * ARGUMENT_MAX);
	if (strlen(given) > ARGUMENT_MAX) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "the argument is longer than %llu bytes", ARGUMENT_MAX);
		return;
	}
	(void)!buffer_printf(&text, "%s%s%s", before, given, after);
	prompt_begin(request);
	prompt_text(request, buffer_text(&text));
	prompt_end(request);
}

static void prompt_try_it(struct mcp_request *request, const json_t *arguments)
{
	prompt_answer(
	    request, "Do this in a Caisson sandbox, where nothing can reach this machine:\n\n",
	    prompt_argument(arguments, "task"),
	    "\n\nCreate a sandbox for it with create_sandbox, work in it with run_shell, run_code "
	    "and the file tools, and give its id in every call. Check the result by running it. "
	    "At the end say what was done and what came out, show the files that matter, and "
	    "name the sandbox; terminate it only when I say so.");
}

static void prompt_look_into(struct mcp_request *request, const json_t *arguments)
{
	prompt_answer(
	    request, "Find out what is the matter with the Caisson sandbox ",
	    prompt_argument(arguments, "sandbox"),
	    ". Look before you touch anything: list_sandboxes says whether it runs, is paused "
	    "or has ended and why; then look with run_shell at its processes, memory and disk, "
	    "and read the output of its jobs with read_job. Tell what you found and what you "
	    "would do about it, and change nothing before I agree.");
}

static void look_into_complete(struct mcp_request *request, const char *name, const char *value)
{
	(void)name;
	complete_sandbox(request, value);
}

static const struct prompt_argument try_arguments[] = {{"task", "What is to be done", true}, {0}};
static const struct prompt try_prompt = {
    .name = "try_in_sandbox",
    .title = "Try it in a sandbox",
    .description = "Does a task in a new sandbox, away from this machine",
    .arguments = try_arguments,
    .get = prompt_try_it,
};

static const struct prompt_argument look_arguments[] = {{"sandbox", "Its id or name", true}, {0}};
static const struct prompt look_prompt = {
    .name = "look_into_sandbox",
    .title = "Look into a sandbox",
    .description = "Finds out what is the matter with a sandbox, and changes nothing",
    .arguments = look_arguments,
    .get = prompt_look_into,
    .complete = look_into_complete,
};

const struct prompt *const usual_prompts[] = {&try_prompt, &look_prompt, NULL};
