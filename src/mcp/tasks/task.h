/* The tasks extension (io.modelcontextprotocol/tasks): a call of a tool that is answered at once
 * with a handle, and whose result is fetched later. A tool does not know whether its call is a
 * task: its progress becomes the task's statusMessage, its answer the task's result.
 *
 * A task belongs to the server until its ttl is over, and to a principal: others do not find it.
 * Bounded per workspace (TASKS_MAX); the oldest finished one is removed to make room. */
#pragma once

#include "mcp/request.h"

#define TASKS_MAX 256
#define TASK_TTL_MS (3600u * 1000) /* from its beginning... */
#define TASK_KEEP_MS (600u * 1000) /* ... and at least so long after its end */
#define TASK_POLL_MS 1000
#define TASK_RESULT_MAX (4 * MIB)   /* a longer result makes it a failed task */
#define TASK_RESULTS_MAX (64 * MIB) /* of all together: the oldest are removed */

enum task_state { TASK_WORKING, TASK_INPUT_REQUIRED, TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED };

/* In tools_call(): makes a task for the request, answers the client with its handle, and returns
 * the request with which the tool is called. NULL: the request was answered with an error. */
struct mcp_request *task_begin(struct mcp_request *request);
/* tasks/get, tasks/update, tasks/cancel. */
void tasks_get(struct mcp_request *request);
void tasks_update(struct mcp_request *request);
void tasks_cancel(struct mcp_request *request);

/* For subscriptions/listen with taskIds: called for each change of a task of this principal;
 * task_put() writes the members of notifications/tasks. */
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

/* --- for questions.c: a handler that asks while it is a task (request->task is set) --- */

struct question;
/* Puts the questions without a valid answer (questions_answer()) into tasks/get as inputRequests,
 * or all of them if each has one; the task is input_required until tasks/update has brought an
 * answer to each. Then `again` is called with the request in a separate turn. */
void task_ask_questions(struct mcp_request *request, const struct question *questions, size_t count,
			const char *state, void (*again)(struct mcp_request *request));
/* The answer that tasks/update brought for that key, borrowed (an object); NULL: none yet. */
const json_t *task_answer(const struct mcp_task *task, const char *key);
/* The `state` of the last task_ask_questions(), borrowed; NULL: none. */
const json_t *task_question_state(const struct mcp_task *task);

/* The id for the command (exec_spec) or the piece of code (code_spec.cell) that is the whole work
 * of this task: by it the task is found again after a restart of the daemon. */
const struct id *task_exec(const struct mcp_task *task);

/* The server ends: the running work is cancelled, every record is freed. */
void tasks_end_all(struct mcp_server *server);
