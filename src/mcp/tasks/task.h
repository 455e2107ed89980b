/* The tasks extension (io.modelcontextprotocol/tasks): a call of a tool that is answered at once
 * with a handle, and whose result is fetched later. A tool does not know that it is one: its
 * progress becomes the task's statusMessage, its answer the task's result.
 *
 * A task belongs to the server until its ttl is over, and to a principal: to any other it is not
 * there. Bounded per workspace (TASKS_MAX); the oldest that has ended makes room. */
#pragma once

#include "mcp/request.h"

#define TASKS_MAX 256
#define TASK_TTL_MS (3600u * 1000) /* from its beginning... */
#define TASK_KEEP_MS (600u * 1000) /* ... and at least so long after its end */
#define TASK_POLL_MS 1000
#define TASK_RESULT_MAX (4 * MIB)   /* a longer one makes it a failed task */
#define TASK_RESULTS_MAX (64 * MIB) /* of all together: the oldest are forgotten */

enum task_state { TASK_WORKING, TASK_INPUT_REQUIRED, TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED };

/* In tools_call(): makes a task of the request, answers the client with its handle, and gives back
 * the request that the tool is called with. NULL: the request was answered with an error. */
struct mcp_request *task_begin(struct mcp_request *request);
/* tasks/get, tasks/update, tasks/cancel. */
void tasks_get(struct mcp_request *request);
void tasks_update(struct mcp_request *request);
void tasks_cancel(struct mcp_request *request);

/* For subscriptions/listen with taskIds: told of each change of a task of this principal's, with
 * the members of notifications/tasks put by task_put(). */
struct task_watch {
	struct list link;
	void (*changed)(struct task_watch *watch, struct mcp_task *task);
	void *data;
};
NODISCARD int task_watch(struct mcp_request *request, const char *id, struct task_watch *watch);
void task_unwatch(struct task_watch *watch);
void task_put(struct json_writer *writer, const struct mcp_task *task);

/* --- for request.c: the inner request's progress --- */

/* Becomes the statusMessage, cut at a character's end. */
void task_progress(struct mcp_task *task, const char *text, size_t size);

/* --- for ask.c: a handler that asks while it is a task (request->task is set) --- */

struct question;
/* What of these has no good answer (ask_answer()) is put into tasks/get as inputRequests, all of
 * them where each has one; the task is input_required until tasks/update brought an answer to each.
 * Then `again` is called with the request in a turn of its own. */
void task_ask(struct mcp_request *request, const struct question *questions, size_t count,
	      const char *state, void (*again)(struct mcp_request *request));
/* What tasks/update brought for that key, borrowed (an object); NULL: nothing yet. */
const json_t *task_answer(const struct mcp_task *task, const char *key);
/* The `state` of the last task_ask(), borrowed; NULL: none. */
const json_t *task_asked_state(const struct mcp_task *task);

/* The id that a command which is the whole of this task is to be given (exec_spec), or a piece of
 * code (code_spec.cell): by it the task is found again when the daemon was restarted. */
const struct id *task_exec(const struct mcp_task *task);

/* The server ends: what runs is cancelled, every record is forgotten. */
void tasks_end_all(struct mcp_server *server);
