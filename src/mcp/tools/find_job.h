/* A job is an exec under the name that a model knows. It is found by its id alone, in every sandbox
 * that the principal may see; for an unknown id the error lists the existing jobs. */
#pragma once

#include "core/code/code.h"
#include "core/exec/exec.h"
#include "mcp/request.h"

/* Finds it and calls act, at once, with request->sandbox set; else the request is answered.
 * sandbox_id NULL or "": in any sandbox. The sandbox is not woken: it may be paused. */
void job_find(struct mcp_request *request, const char *sandbox_id, const char *job_id,
	      void (*act)(struct mcp_request *request, struct exec *exec));
/* For a later callback: finds it again, or NULL after the request was answered. */
struct exec *job_again(struct mcp_request *request, const char *job_id);

/* The work of a job: in a code context it is the cell that was sent last. */
struct job {
	struct exec *exec;
	struct code_context *context; /* NULL: a command */
	const struct code_cell *cell; /* NULL: none is known */
};
struct job job_of(struct exec *exec);
/* Has the command ended? Or the cell, even if its interpreter lives on? */
bool job_over(const struct job *job);
