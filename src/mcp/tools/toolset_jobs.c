/* The toolset `jobs`: the list of jobs, and programs with an open standard input. Called by
 * tools.c; blocks for the store when jobs are listed. Input is written as far as the program
 * accepts it at once. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/exec/exec.h"
#include "core/account/access.h"
#include "mcp/tools/find_job.h"
#include "mcp/tools/output.h"
#include "mcp/tools/tool_exec.h"

/* --- list_jobs --- */

#define LIST_TEXT_MAX (16 * KIB)
#define LIST_DEFAULT 50
#define LIST_MAX 200
#define LIST_SCANNED 2000 /* for those that run */
#define COMMAND_SHOWN 160

struct job_list {
	const char *sandbox;
	struct buffer text;
	uint64_t limit, count;
	bool running, cut;
};

static bool job_list_add(void *data, const struct exec_row *row)
{
	struct job_list *list = data;
	bool ended = row->state >= EXEC_ENDED;
	struct buffer line DONE_BUFFER = BUFFER(KIB);
	const char *command = row->command ? row->command : "";
	size_t shown = text_utf8_prefix(command, MIN(strlen(command), (size_t)COMMAND_SHOWN));
	if (list->running && ended)
		return true;
	if (list->count == list->limit) {
		list->cut = true;
		return false;
	}
	(void)!buffer_printf(&line, "%s: %s", row->id.text, exec_state_text(row));
	if (row->state == EXEC_ENDED)
		(void)!buffer_printf(&line, ", exit code %d", exec_exit_code(row));
	(void)!buffer_append_text(&line, ended ? ", took " : ", for ");
	target_age((ended ? row->ended_wall : clock_wall()) - row->started_wall, &line);
	(void)!buffer_printf(
	    &line, ", %llu bytes: ", (unsigned long long)(row->out_total + row->err_total));
	/* One line each, although a command may have several. */
	output_name(&line, command, shown);
	(void)!buffer_append_text(&line, shown < strlen(command) ? "...\n" : "\n");
	if (buffer_append(&list->text, line.data, line.size) < 0) {
		list->cut = true;
		return false;
	}
	list->count++;
	return true;
}

static void list_jobs_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct job_list *list = request->state;
	struct buffer note DONE_BUFFER = BUFFER(KIB);
	struct error error;
	if (exec_list(sandbox, LIST_SCANNED, job_list_add, list, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	target_note(request, &note);
	content_reply(request, "%s%s%s%s%s",
		      list->count > 0 ? buffer_text(&list->text) : "No jobs.",
		      list->cut ? "There are older ones." : "", note.size > 0 ? " [" : "",
		      buffer_text(&note), note.size > 0 ? "]" : "");
}

static void job_list_free(void *state)
{
	struct job_list *list = state;
	buffer_done(&list->text);
	free(list);
}

static const struct field list_jobs_fields[] = {
    {"sandbox_id", FIELD_TEXT_AT(struct job_list, sandbox)},
    {"running", FIELD_BOOL_AT(struct job_list, running), .mcp = "only those that run"},
    {"limit", FIELD_UINT_AT(struct job_list, limit), .min = 1, .max = LIST_MAX,
     .fallback = LIST_DEFAULT},
    {0},
};

static void list_jobs(struct mcp_request *request, const json_t *arguments)
{
	struct job_list *list = calloc(1, sizeof(*list));
	if (!list)
		abort();
	request->state = list;
	request->state_free = job_list_free;
	list->text = BUFFER(LIST_TEXT_MAX);
	if (tool_arguments(request, arguments, list))
		target_ready(request, list->sandbox, TARGET_ASLEEP, list_jobs_act);
}

/* --- start_program --- */

struct start_program_state {
	const char *sandbox;
	struct exec_fields exec;
};

static void program_free(void *state)
{
	struct start_program_state *program = state;
	exec_fields_done(&program->exec);
	free(program);
}

static void start_program_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct start_program_state *program = request->state;
	struct exec_spec *spec = &program->exec.spec;
	struct exec *exec;
	struct error error;
	struct buffer note DONE_BUFFER = BUFFER(KIB);
	spec->flags |= EXEC_STDIN;
	spec->rows = 24;
	spec->columns = 120;
	spec->principal = &request->principal;
	if (exec_start(sandbox, spec, &exec, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	target_note(request, &note);
	content_reply(request,
		      "job_id: %s\nWrite to it with write_job {\"job_id\": \"%s\", \"text\": "
		      "\"...\\n\"}, read its output with read_job.%s%s%s",
		      exec->row.id.text, exec->row.id.text, note.size > 0 ? " [" : "",
		      buffer_text(&note), note.size > 0 ? "]" : "");
}

static const struct field start_program_fields[] = {
    {"command", FIELD_TEXT_AT(struct start_program_state, exec.shell), FIELD_REQUIRED, 1,
     TOOL_COMMAND_MAX},
    {"sandbox_id", FIELD_TEXT_AT(struct start_program_state, sandbox)},
    {FIELD_ROWS_AT(struct start_program_state, exec, struct exec_fields), .inner = exec_fields,
     .words = "timeout_seconds,stdin,max_output_bytes"},
    {"terminal", FIELD_BIT_AT(struct start_program_state, exec.spec.flags), .bit = EXEC_TTY},
    {0},
};

static void start_program(struct mcp_request *request, const json_t *arguments)
{
	struct error error;
	struct start_program_state *program = calloc(1, sizeof(*program));
	if (!program)
		abort();
	request->state = program;
	request->state_free = program_free;
	if (!tool_arguments(request, arguments, program))
		return;
	if (exec_fields_check(&program->exec, FIELDS_MCP, &error) < 0)
		content_refuse(request, "%s.", error.message);
	else
		target_ready(request, program->sandbox, 0, start_program_act);
}

/* --- write_job --- */

#define WRITE_MAX (256 * KIB)

struct write_job_state {
	const char *job, *sandbox, *text;
	bool close;
};

static void write_job_act(struct mcp_request *request, struct exec *exec)
{
	const struct write_job_state *input = request->state;
	struct error error;
	size_t size = input->text ? strlen(input->text) : 0;
	ssize_t taken = 0;
	if (exec_ended(exec)) {
		error_set(&error, ERROR_SANDBOX_STATE, "job %s has ended: nobody reads",
			  exec->row.id.text);
		mcp_fail(request, &error);
		return;
	}
	if (size > 0)
		taken = exec_stdin(exec, input->text, size, &error);
	if (taken < 0) {
		mcp_fail(request, &error);
		return;
	}
	if ((size_t)taken < size) {
		content_begin(request);
		content_format(request,
			       "%zd of %zu bytes were taken: the program does not read. Send the "
			       "rest when read_job shows that it goes on.",
			       taken, size);
		content_end(request, true);
		return;
	}
	if (input->close && exec_stdin_close(exec, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	content_reply(request,
		      "%zu bytes written%s. What it answers: read_job {\"job_id\": \"%s\", "
		      "\"offset\": %llu, \"stderr_offset\": %llu, \"wait_seconds\": 5}",
		      size, input->close ? ", standard input is closed" : "", exec->row.id.text,
		      (unsigned long long)exec_total(exec, EXEC_STDOUT),
		      (unsigned long long)exec_total(exec, EXEC_STDERR));
}

static const struct field write_job_fields[] = {
    {"job_id", FIELD_TEXT_AT(struct write_job_state, job), FIELD_REQUIRED, 1, 64},
    {"text", FIELD_TEXT_AT(struct write_job_state, text), .max = WRITE_MAX},
    {"close", FIELD_BOOL_AT(struct write_job_state, close)},
    {"sandbox_id", FIELD_TEXT_AT(struct write_job_state, sandbox)},
    {0},
};

static void write_job(struct mcp_request *request, const json_t *arguments)
{
	struct write_job_state *input = calloc(1, sizeof(*input));
	if (!input)
		abort();
	request->state = input;
	request->state_free = free;
	if (!tool_arguments(request, arguments, input))
		return;
	if (!input->text && !input->close)
		content_refuse(request, "Give `text`, or `close`, or both.");
	else
		job_find(request, input->sandbox, input->job, write_job_act);
}

/* --- the table --- */

const struct mcp_tool more_job_tools[] = {
    {
	.name = "list_jobs",
	.title = "List jobs",
	.description = "Commands of a sandbox, the newest first: job_id, state, exit code, time, "
		       "size of output. Wakes nothing.",
	.fields = list_jobs_fields,
	.example = "{\"running\": true}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_JOBS,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = list_jobs,
    },
    {
	.name = "start_program",
	.title = "Start an interactive program",
	.description = "Start a program whose standard input stays open (a shell, a debugger, a "
		       "database client), for write_job and read_job; with terminal it has one of "
		       "its own.",
	.fields = start_program_fields,
	.example = "{\"command\": \"sqlite3 data.db\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_JOBS,
	.hints = TOOL_DESTROYS | TOOL_OPEN_WORLD,
	.call = start_program,
    },
    {
	.name = "write_job",
	.title = "Write to a job",
	.description = "Write text to the standard input of a job of start_program; close ends the "
		       "input. A line needs its \\n.",
	.fields = write_job_fields,
	.example = "{\"job_id\": \"abc\", \"text\": \"select 1;\\n\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_JOBS,
	.hints = TOOL_DESTROYS | TOOL_OPEN_WORLD,
	.call = write_job,
    },
    {0},
};
