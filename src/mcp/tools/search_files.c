/* search_files: lines by a regular expression, or names by a glob. Called by tools.c. The search
 * runs inside the sandbox and ends when enough was found, or after the maximum time of a call;
 * nothing blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/alarm.h"
#include "mcp/tools/output.h"
#include "mcp/tools/file.h"

#define FOUND_DEFAULT 100
#define FOUND_MAX 1000
#define LINE_SHOWN 400
#define GLOB_MAX 1024

struct search_files_state {
	struct file_tool tool;
	const char *pattern, *glob;
	bool ignore_case;
	uint64_t limit, count;
	struct buffer text;
	struct alarm *alarm; /* clients give up on a call after a minute */
	bool stopped;
};

static void search_files_free(void *state)
{
	struct search_files_state *search = state;
	alarm_stop(&search->alarm);
	buffer_done(&search->text);
	free(search);
}

static bool match_found(void *data, const struct file_match *match)
{
	struct mcp_request *request = data;
	struct search_files_state *search = request->state;
	struct buffer line DONE_BUFFER = BUFFER(4 * GUEST_PATH_MAX + KIB);
	/* The path begins as it was requested, so that other tools accept it unchanged. */
	output_name(&line, match->path, strlen(match->path));
	if (search->pattern) {
		size_t size = MIN(match->text_size, (size_t)LINE_SHOWN);
		size = text_utf8_prefix(match->text, size);
		(void)!buffer_printf(&line, ":%llu: ", (unsigned long long)match->line);
		(void)!buffer_append(&line, match->text, size);
		if (size < match->text_size)
			(void)!buffer_append_text(&line, " ...");
	}
	(void)!buffer_append_text(&line, "\n");
	if (buffer_append(&search->text, line.data, line.size) < 0)
		return false;
	return ++search->count < search->limit;
}

/* By default only files that a project's author has written are searched. */
static bool skips_generated(const struct search_files_state *search)
{
	static const char *const names[] = {".git", "node_modules"};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strstr(search->tool.path, names[i]) ||
		    (search->glob && strstr(search->glob, names[i])))
			return false;
	return true;
}

static void search_files_reply(struct mcp_request *request, bool cut)
{
	struct search_files_state *search = request->state;
	const char *what = search->pattern ? "lines" : "names";
	struct buffer note DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	if (search->stopped) {
		(void)!buffer_printf(&note,
				     "stopped after %u s with %llu %s found: narrow it by glob or "
				     "path, or search with a job (start_job)",
				     request->core->config.mcp_block_seconds,
				     (unsigned long long)search->count, what);
	} else if (search->count == 0) {
		(void)!buffer_printf(&note, "no %s found in ", what);
		file_tool_path(&note, search->tool.path);
		if (skips_generated(search))
			(void)!buffer_append_text(&note, "; .git and node_modules are searched "
							 "where path or glob names them");
	} else if (cut) {
		(void)!buffer_printf(&note,
				     "the first %llu %s; there are more: narrow it by pattern, "
				     "glob or path",
				     (unsigned long long)search->count, what);
	}
	content_begin(request);
	if (search->count > 0)
		content_text(request, search->text.data, search->text.size);
	file_tool_note(request, buffer_text(&note));
	/* An answer has at least one block. */
	if (search->count == 0 && note.size == 0)
		content_text(request, "", 0);
	content_end(request, false);
}

static void search_files_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	struct search_files_state *search = request->state;
	(void)total;
	alarm_stop(&search->alarm);
	if (!pending_back(request))
		return;
	if (error)
		file_tool_fail(request, search->tool.path, error);
	else
		search_files_reply(request, cut);
	mcp_release(request);
}

/* It takes too long: the results so far are the answer. */
static void search_files_overdue(void *data)
{
	struct mcp_request *request = data;
	struct search_files_state *search = request->state;
	alarm_stop(&search->alarm);
	if (!search->tool.pending.task)
		return;
	file_task_cancel(search->tool.pending.task);
	search->stopped = true;
	if (!pending_back(request))
		return;
	search_files_reply(request, true);
	mcp_release(request);
}

static void search_files_act(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.match = match_found,
						    .done = search_files_done};
	struct search_files_state *search = request->state;
	struct file_place place = {.principal = &request->principal, .path = search->tool.path};
	struct grep_query query = {.pattern = search->pattern,
				   .glob = search->glob,
				   .ignore_case = search->ignore_case,
				   .sorted = true,
				   .skip_generated = skips_generated(search),
				   .max = (uint32_t)search->limit};
	struct error error;
	int result;
	if (search->pattern) {
		result = file_grep(sandbox, &place, &query, &records, request,
				   &search->tool.pending.task, &error);
	} else {
		/* A glob without a slash matches names at any depth, as it does beside a
		 * pattern. */
		struct buffer glob DONE_BUFFER = BUFFER(2 * GLOB_MAX);
		(void)!buffer_printf(&glob, "%s%s", strchr(search->glob, '/') ? "" : "**/",
				     search->glob);
		struct glob_query names = {.pattern = buffer_text(&glob),
					   .sorted = true,
					   .skip_generated = query.skip_generated,
					   .max = query.max};
		result = file_glob(sandbox, &place, &names, &records, request,
				   &search->tool.pending.task, &error);
	}
	if (result < 0) {
		file_tool_fail(request, search->tool.path, &error);
	} else {
		search->alarm = alarm_after(request->core->loop,
					    request->core->config.mcp_block_seconds * 1000ull,
					    search_files_overdue, request);
		pending_begin(request);
	}
}

const struct field search_files_fields[] = {
    {"pattern", FIELD_TEXT_AT(struct search_files_state, pattern), .max = 4096},
    {"glob", FIELD_TEXT_AT(struct search_files_state, glob), .max = GLOB_MAX,
     .mcp = "like **/*.py"},
    FILE_TOOL_DIRECTORY,
    {"ignore_case", FIELD_BOOL_AT(struct search_files_state, ignore_case)},
    {"limit", FIELD_UINT_AT(struct search_files_state, limit), .min = 1, .max = FOUND_MAX,
     .fallback = FOUND_DEFAULT},
    FILE_TOOL_SANDBOX,
    {0},
};

void search_files_tool(struct mcp_request *request, const json_t *arguments)
{
	struct search_files_state *search =
	    pending_state(request, sizeof(*search), search_files_free);
	search->tool.path = FILE_TOOL_WORKSPACE;
	search->text = BUFFER(FILE_TOOL_TEXT_MAX);
	if (!tool_arguments(request, arguments, search))
		return;
	if (search->pattern && !search->pattern[0])
		search->pattern = NULL;
	if (search->glob && !search->glob[0])
		search->glob = NULL;
	if (!search->tool.path[0])
		search->tool.path = FILE_TOOL_WORKSPACE;
	if (!search->pattern && !search->glob) {
		content_refuse(request, "Give `pattern` (a regular expression for lines), `glob` "
					"(for names), or both.");
		return;
	}
	target_ready(request, search->tool.sandbox, 0, search_files_act);
}
