/* See find_job.h. Called by the tools on jobs; blocks for the store if a job is not in memory. */
#include "mcp/tools/find_job.h"

#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/account/access.h"
#include "mcp/tools/tool.h"

#define JOBS_LISTED 10
#define COMMAND_SHOWN 60
#define ID_SHOWN 64

/* --- one that is not found --- */

struct job_listing {
	struct buffer *to;
	size_t count;
	struct id first;
};

static bool job_list_add(void *data, const struct exec_row *row)
{
	struct job_listing *listing = data;
	const char *command = row->command ? row->command : "", shell[] = "/bin/sh -c ";
	if (text_starts(command, shell))
		command += sizeof(shell) - 1;
	size_t size = strcspn(command, "\n");
	bool cut = command[size] != '\0' || size > COMMAND_SHOWN;
	size = text_utf8_prefix(command, MIN(size, (size_t)COMMAND_SHOWN));
	if (listing->count == 0)
		listing->first = row->id;
	if (buffer_printf(listing->to, "\n%s in sandbox %s: %s: %.*s%s", row->id.text,
			  row->sandbox.text, exec_state_text(row), (int)size, command,
			  cut ? "..." : "") < 0)
		return false;
	return ++listing->count < JOBS_LISTED;
}

/* Lists the newest jobs of each sandbox, the newest sandbox first. Returns the id of the first. */
static struct id jobs_list_known(struct mcp_request *request, struct buffer *to)
{
	struct sandbox *sandboxes[SANDBOX_COUNT_PER_STATE_MAX], *sandbox = NULL;
	struct job_listing listing = {.to = to};
	struct error error;
	size_t count = 0;
	while (count < SANDBOX_COUNT_PER_STATE_MAX &&
	       (sandbox = sandbox_next(request->core, &request->principal, sandbox)))
		sandboxes[count++] = sandbox;
	while (count > 0 && listing.count < JOBS_LISTED)
		if (exec_list(sandboxes[--count], JOBS_LISTED, job_list_add, &listing, &error) < 0)
			break;
	if (listing.count == 0)
		(void)!buffer_append_text(to, " There are no jobs.");
	return listing.first;
}

/* Was it a job of a sandbox that has ended lately? Fills in the domain's error about that
 * sandbox. */
static bool exec_is_of_ended(struct mcp_request *request, const struct id *job, struct error *error)
{
	struct sandbox *sandbox;
	struct id id;
	return exec_find_ended(request->core, &request->principal, job, &id, error) == 1 &&
	       sandbox_find(request->core, &request->principal, id.text, &sandbox, error) < 0;
}

static void job_refuse(struct mcp_request *request, const char *job_id)
{
	DONE_BUFFER struct buffer text = BUFFER(8 * KIB);
	struct error error;
	struct id id;
	if (id_parse(job_id, &id) == 0 && exec_is_of_ended(request, &id, &error)) {
		content_refuse(request,
			       "job `%s` is gone with its sandbox: %s. Its output is not kept",
			       id.text, error.message);
		return;
	}
	DONE_BUFFER struct buffer told = BUFFER(16 * KIB);
	struct id first = jobs_list_known(request, &text);
	(void)!buffer_printf(&told, "there is no job `%.*s`.%s%s",
			     (int)text_utf8_prefix(job_id, MIN(strlen(job_id), (size_t)ID_SHOWN)),
			     job_id, id_is_set(&first) ? " The newest jobs:" : "",
			     buffer_text(&text));
	if (id_is_set(&first))
		content_refuse_with(request, "job_id", first.text, buffer_text(&told));
	else
		content_refuse(request, "%s", buffer_text(&told));
}

/* --- finding --- */

/* In memory first: the store is only asked for a job that ended long ago. */
static struct exec *job_exec_find(struct mcp_request *request, const struct id *id, bool in_store)
{
	struct sandbox *sandbox = NULL;
	struct exec *exec;
	struct error error;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox))) {
		if (id_is_set(&request->view.sandbox) &&
		    !id_equal(&request->view.sandbox, &sandbox->row.id))
			continue;
		if (in_store) {
			if (exec_find(sandbox, id->text, &exec, &error) == 0)
				return exec;
			continue;
		}
		list_each (&sandbox->execs, node) {
			exec = list_entry(node, struct exec, link);
			if (id_equal(&exec->row.id, id))
				return exec;
		}
	}
	return NULL;
}

/* Only the named sandbox. target_ready() finds it at once, and answers if it does not exist. */
static void sandbox_found(struct mcp_request *request, struct sandbox *sandbox)
{
	request->sandbox = sandbox->row.id;
	request->sandbox_chosen = false;
}

void job_find(struct mcp_request *request, const char *sandbox_id, const char *job_id,
	      void (*act)(struct mcp_request *request, struct exec *exec))
{
	struct exec *exec = NULL;
	struct error error;
	struct id id;
	if (sandbox_id && sandbox_id[0]) {
		target_ready(request, sandbox_id, TARGET_ASLEEP, sandbox_found);
		if (!request->open)
			return;
		struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
		if (sandbox && exec_find(sandbox, job_id, &exec, &error) < 0)
			exec = NULL;
	} else if (id_parse(job_id, &id) == 0) {
		exec = job_exec_find(request, &id, false);
		if (!exec)
			exec = job_exec_find(request, &id, true);
	}
	/* The daemon's internal execs are not jobs. */
	if (!exec || exec_internal(&exec->row)) {
		job_refuse(request, job_id);
		return;
	}
	request->sandbox = exec->sandbox->row.id;
	act(request, exec);
}

struct exec *job_again(struct mcp_request *request, const char *job_id)
{
	struct exec *exec;
	struct error error;
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return NULL;
	if (exec_find(sandbox, job_id, &exec, &error) == 0)
		return exec;
	mcp_fail(request, &error);
	return NULL;
}

struct job job_of(struct exec *exec)
{
	struct job job = {.exec = exec};
	struct error error;
	if (id_is_set(&exec->row.context) &&
	    code_context_find(exec->sandbox, exec->row.context.text, &job.context, &error) < 0)
		job.context = NULL;
	if (job.context &&
	    code_cell_find(job.context, job.context->row.cells, &job.cell, &error) < 0)
		job.cell = NULL;
	/* A restarted context has another interpreter: this one's cell has ended. */
	if (job.context && !id_equal(&job.context->row.exec, &exec->row.id)) {
		job.context = NULL;
		job.cell = NULL;
	}
	return job;
}

bool job_over(const struct job *job)
{
	if (exec_ended(job->exec))
		return true;
	return job->cell && (job->cell->state == CELL_ENDED || job->cell->state == CELL_LOST);
}
