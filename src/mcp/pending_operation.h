/* How a tool waits for the domain. An operation is under way, and its callback has the request as
 * data: the request is held until then. A cancel ends the operation, and the callback does not
 * come.
 *
 * tool_*: for any operation that can be cancelled. pending_*: for the most common ones: a task on
 * files, a wait for a command, a command:
 *     pending_begin, the operation -> in its callback: pending_back, the answer or the next
 *     pending_begin, tool_done */
#pragma once

#include "base/work.h"
#include "mcp/request.h"

struct file_task;
struct exec_wait;
struct foreground;

/* on_cancel ends the operation, so that its callback does not come any more, and calls
 * mcp_release(). NULL: the operation cannot be cancelled, and its callback comes in any case. */
void tool_wait(struct mcp_request *request, void (*on_cancel)(struct mcp_request *request));
/* Call it first in that callback, and mcp_release() last, after the answer or the next tool_wait().
 * false: the request is closed and was released. */
bool tool_back(struct mcp_request *request);

/* Continues long work in another turn of the loop, as a piece of work (base/work.h) of the caller's
 * token. `come` is called later, once for each tool_turn_wait(). */
struct tool_turn {
	struct work work;
	void (*come)(void *data);
	void *data;
};
void tool_turn_wait(struct mcp_request *request, struct tool_turn *turn);
/* Safe if it does not wait, and if it is all zero. */
void tool_turn_cancel(struct tool_turn *turn);

/* What a request waits for: at most one operation at a time. The first member of every tool's state
 * here, so that a cancel is the same for all. */
struct pending_operation {
	struct file_task *task;
	struct exec_wait *wait;
	struct foreground
	    *foreground;     /* its command is killed with the request: pending_abandon() */
	struct alarm *alarm; /* of pending_deadline() */
	const char *late;    /* the text of the time-out */
	void (*state_free)(void *state);
};
/* The tool's state, zeroed; freed with the request, by state_free if it has more members. */
void *pending_state(struct mcp_request *request, size_t size, void (*state_free)(void *state));
/* If the request has no answer by then, it is answered with TIMED_OUT, and its operation is
 * cancelled as by the client. late: "the sandbox was not ready in time", in static storage. */
void pending_deadline(struct mcp_request *request, double seconds, const char *late);
/* Call it before an operation begins: holds the request for its callback. */
void pending_begin(struct mcp_request *request);
/* The operation was refused: answers the request with the error. */
void pending_refused(struct mcp_request *request, const struct error *error);
/* As tool_back(). */
bool pending_back(struct mcp_request *request);
/* The same without releasing: mcp_release() must be called in every case. */
bool pending_over(struct mcp_request *request);

/* Does a cancel kill the command? Not when the server itself ends: then the command continues. */
bool pending_kills(const struct mcp_request *request);
/* Nothing waits for this command any more: kills it with every process that it started, if a cancel
 * does so. */
void pending_abandon(const struct mcp_request *request, struct foreground *foreground);
