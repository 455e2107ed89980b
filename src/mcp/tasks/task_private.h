/* A task's record: what tasks.c, questions.c and revival.c share. */
#pragma once

#include "base/buffer.h"
#include "core/account/token.h"
#include "mcp/alarm.h"
#include "mcp/tasks/task.h"
#include "mcp/tasks/id.h"

#define TASK_MESSAGE_SIZE (MCP_PROGRESS_TEXT_MAX + 1)

struct mcp_task {
	struct list link;
	struct mcp_server *server;
	struct core *core;
	struct principal principal;
	struct token_watcher token; /* the token's end is the task's end */
	char id[TASK_ID_SIZE];
	struct task_call call;
	enum task_state state;
	char message[TASK_MESSAGE_SIZE];
	int64_t created_wall, updated_wall;
	struct mcp_request *inner; /* NULL: the task has ended */
	struct buffer result;      /* a JSON object: the result, or the error of a failed task */
	/* Its questions. */
	json_t *pending;        /* inputRequests without an answer yet, or NULL */
	json_t *answers;        /* by key, or NULL */
	json_t *question_state; /* or NULL */
	void (*again)(struct mcp_request *request);
	struct alarm *alarm;           /* to notify, to continue, to forget */
	uint64_t began, told, expires; /* uv_now() */
	bool due, resume;
	struct list watches; /* struct task_watch */
};

/* --- tasks.c --- */
bool task_over(const struct mcp_task *task);
/* Notifies watchers in a later turn; without at_once not too often. */
void task_changed(struct mcp_task *task, bool at_once);
/* false: the maximum is reached, and none has ended. */
bool task_room(const struct principal *principal);
/* A record for this request's principal. */
struct mcp_task *task_new(struct mcp_request *request, const struct task_call *call,
			  const char *id);
/* The same request, but its answer is stored in the task. */
struct mcp_request *task_inner_new(const struct mcp_request *outer, struct mcp_task *task);

/* --- questions.c --- */
void task_put_pending(struct json_writer *writer, const struct mcp_task *task);
void task_take_answers(struct mcp_task *task, const json_t *responses);

/* --- revival.c --- */
/* A record that follows the rest of its work, or that has failed since nothing is left. NULL: it is
 * not kept any more, or there is no room for it. */
struct mcp_task *task_revive(struct mcp_request *request, const struct task_call *call,
			     const char *task_id);
