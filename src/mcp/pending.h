/* How a tool waits for the domain. Something is under way, and its callback has the request as
 * data: the request is held until then. A cancel ends what is under way, and the callback does not
 * come.
 *
 * tool_*: for an operation with an end of its own. pending_*: for those that most have in common, a
 * task on files, a wait for a command, a command:
 *     pending_begin, the operation -> in its callback: pending_back, the answer or the next
 *     pending_begin, tool_done */
#pragma once

#include "mcp/request.h"

struct file_task;
struct exec_wait;
struct foreground;

/* on_cancel (NULL: it cannot be ended, its callback comes all the same) ends what is under way so
 * that the callback does not come any more, and calls mcp_release(). */
void tool_wait(struct mcp_request *request, void (*on_cancel)(struct mcp_request *request));
/* First in that callback; last in it, after the answer or the next tool_wait(), is mcp_release().
 * false: nobody waits any more; the request is let go of. */
bool tool_back(struct mcp_request *request);

/* What a request waits for: at most one of them at a time. The first member of every state of a
 * tool here, so that a cancel is the same for all. */
struct pending {
	struct file_task *task;
	struct exec_wait *wait;
	struct foreground *run; /* its command dies with the request: pending_abandon() */
	struct alarm *alarm;    /* of pending_deadline() */
	const char *late;       /* what it says */
	void (*state_free)(void *state);
};
/* The tool's state, zeroed; freed with the request, by state_free where there is more in it. */
void *pending_state(struct mcp_request *request, size_t size, void (*state_free)(void *state));
/* TIMED_OUT answers the request where nothing else has by then; what is under way is cancelled, as
 * by its client. late: "the sandbox was not ready in time", of static storage. */
void pending_deadline(struct mcp_request *request, double seconds, const char *late);
/* Before an operation is begun: the request is held for its callback. */
void pending_begin(struct mcp_request *request);
/* It was refused: the request is answered with the error. */
void pending_refused(struct mcp_request *request, const struct error *error);
/* As tool_back(). */
bool pending_back(struct mcp_request *request);
/* The same without letting go: whatever came of it, mcp_release() is called. */
bool pending_over(struct mcp_request *request);

/* Does a cancel end what runs? Not where the server itself ends: what it began goes on. */
bool pending_kills(const struct mcp_request *request);
/* Nobody waits for this command any more: it ends with all that it started, where a cancel does so.
 */
void pending_abandon(const struct mcp_request *request, struct foreground *run);
