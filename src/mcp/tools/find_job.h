/* A job is an exec by the name that a model knows it by. It is found by its id alone, in every
 * sandbox that the principal sees; one that is not found is told with those there are. */
#pragma once

#include "core/code/code.h"
#include "core/exec/exec.h"
#include "mcp/request.h"

/* Finds it and calls act, at once, with request->sandbox set; else the request is answered.
 * sandbox_id NULL or "": in any. The sandbox is as it is: it may be paused. */
void job_find(struct mcp_request *request, const char *sandbox_id, const char *job_id,
	      void (*act)(struct mcp_request *request, struct exec *exec));
/* In a later callback: once more, or NULL after the request was answered. */
struct exec *job_again(struct mcp_request *request, const char *job_id);

/* What a job is of: of a code context it is the cell that was sent last. */
struct job {
	struct exec *exec;
	struct code_context *context; /* NULL: a command */
	const struct code_cell *cell; /* NULL: none is known */
};
struct job job_of(struct exec *exec);
/* A command that has ended; or a cell, while its interpreter may live on. */
bool job_over(const struct job *job);
