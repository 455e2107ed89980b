/* The usual face: its tables of tools, their order, and its instructions for a model. Also all
 * faces and toolsets by name. Called when a view is made and when a client asks for the server's
 * description; works on memory. */
#include "mcp/face.h"

#include <string.h>

#include "base/error.h"
#include "mcp/prompt.h"
#include "mcp/resources/resource.h"
#include "mcp/tools/tool.h"

/* The most frequently called tools come first: models and people read a list from its top. */
static const struct mcp_tool *const tables[] = {
    run_tools,       job_tools,      file_tools,    sandbox_tools, more_sandbox_tools,
    more_file_tools, more_job_tools, metrics_tools, NULL,
};

/* --- toolsets --- */

static const struct {
	const char *name;
	uint32_t toolsets;
} toolset_names[] = {
    {"default", TOOLSET_DEFAULT}, {"files", TOOLSET_FILES},         {"jobs", TOOLSET_JOBS},
    {"metrics", TOOLSET_METRICS}, {"sandboxes", TOOLSET_SANDBOXES}, {"all", TOOLSET_ALL},
};

static uint32_t toolset_find(const char *name, size_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(toolset_names); i++)
		if (strlen(toolset_names[i].name) == size &&
		    memcmp(toolset_names[i].name, name, size) == 0)
			return toolset_names[i].toolsets;
	return 0;
}

static int toolset_unknown(const char *name, size_t size, struct error *error)
{
	struct buffer names DONE_BUFFER = BUFFER(KIB);
	for (size_t i = 0; i < ARRAY_SIZE(toolset_names); i++)
		(void)!buffer_printf(&names, "%s%s", i > 0 ? ", " : "", toolset_names[i].name);
	return error_set(error, ERROR_INVALID,
			 "there is no toolset `%.*s`; there are %s, with commas between them",
			 (int)MIN(size, (size_t)64), name, buffer_text(&names));
}

int toolsets_parse(const char *text, uint32_t *ret_toolsets, struct error *error)
{
	/* The others are added to the default ones. */
	uint32_t toolsets = TOOLSET_DEFAULT;
	for (const char *word = text;; word++) {
		size_t size = strcspn(word, ",");
		uint32_t found = toolset_find(word, size);
		if (!found)
			return toolset_unknown(word, size, error);
		toolsets |= found;
		word += size;
		if (*word == '\0')
			break;
	}
	*ret_toolsets = toolsets;
	return 0;
}

/* --- instructions --- */

static void text_say(struct buffer *to, const char *text)
{
	(void)!buffer_append_text(to, text);
}

static void instructions_say_read_only(struct buffer *to)
{
	text_say(to,
		 "This connection only looks: it lists sandboxes, reads their files and jobs, and "
		 "changes nothing.\n");
}

static void instructions_say_workflow(const struct mcp_view *view, struct buffer *to)
{
	text_say(
	    to,
	    "To run something once, call run_shell or run_code with sandbox_id \"new\", or none "
	    "where none is live: a fresh one is made, used and removed. For work in several steps "
	    "call create_sandbox first, then "
	    "run_shell, run_code, write_file, edit_file; terminate_sandbox when done.\n"
	    "Files stay between calls; shell variables and the working directory do not; "
	    "variables of run_code do between calls with the same context_id.\n");
	(void)!buffer_printf(to, "A call answers within %u s. ", view->block_seconds);
	text_say(
	    to,
	    "What runs longer goes on as a job: read_job waits for more of its output, stop_job "
	    "ends it. Start servers and long builds with start_job. A non-zero exit code is a "
	    "normal result.\n"
	    "extend_sandbox gives a sandbox more time; pause_sandbox keeps everything and stops "
	    "the clock; any later call on it wakes it.\n");
}

static void usual_instructions(const struct mcp_view *view, struct buffer *to)
{
	text_say(to,
		 "Caisson runs commands and code in sandboxes: Linux machines that are made in "
		 "milliseconds, isolated from this host and from each other. Search for this "
		 "server when code is to be run, tested or built, when a file is to be processed "
		 "by a program, or when something untrusted is to be tried safely.\n");
	if (view->read_only)
		instructions_say_read_only(to);
	else
		instructions_say_workflow(view, to);
	text_say(to,
		 "sandbox_id is an id or a name. It may be left out where only one sandbox "
		 "exists; the answer then says which was used. list_sandboxes finds a lost id.\n"
		 "A sandbox has no network: what a program needs is to be written into it or be "
		 "there already. It ends with all its files after its timeout_seconds (600 unless "
		 "this host has another default); get_sandbox_limits has default and maxima.\n"
		 "Output is cut to 16 KiB, beginning and end; the answer says which call reads the "
		 "rest. Paths are absolute, or relative to /workspace.\n");
	if (view->ephemeral)
		text_say(to, "Sandboxes made here end with this connection.\n");
	if (view->toolsets & TOOLSET_FILES)
		text_say(to, "Further tools move, copy, remove and inspect files.\n");
	if (view->toolsets & TOOLSET_JOBS)
		text_say(to, "Further tools list jobs and talk to interactive programs.\n");
	if (view->toolsets & TOOLSET_METRICS)
		text_say(to, "Further tools tell what sandboxes use and what happened in them.\n");
}

const struct mcp_face usual_face = {
    .name = "caisson",
    .title = "Caisson sandboxes",
    .features = FACE_LOGGING | FACE_COMPLETIONS | FACE_TASKS | FACE_SUBSCRIBE,
    .scope = SCOPE_READ,
    .tools = tables,
    .resources = usual_resources,
    .prompts = usual_prompts,
    .instructions = usual_instructions,
};

const struct mcp_face *mcp_home_face = &usual_face;

static const struct {
	const char *name;
	const struct mcp_face *face;
} faces[] = {
    {"admin", &admin_face},
    {"opensandbox", &opensandbox_face},
};

const char *face_name(size_t at)
{
	return at < ARRAY_SIZE(faces) ? faces[at].name : NULL;
}

const struct mcp_face *face_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(faces); i++)
		if (strcmp(faces[i].name, name) == 0)
			return faces[i].face;
	return NULL;
}
