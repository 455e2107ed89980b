/* A task's record: what tasks.c, ask.c and lost.c share. */
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
	struct token_watcher token; /* its end is the task's */
	char id[TASK_ID_SIZE];
	struct task_call call;
	enum task_state state;
	char message[TASK_MESSAGE_SIZE];
	int64_t created_wall, updated_wall;
	struct mcp_request *inner; /* NULL: it is over */
	struct buffer result;      /* a JSON object: the result, or of a failed one the error */
	/* What it asks. */
	json_t *pending;     /* inputRequests without an answer yet, or NULL */
	json_t *answers;     /* by key, or NULL */
	json_t *asked_state; /* or NULL */
	void (*again)(struct mcp_request *request);
	struct alarm *alarm;           /* to tell, to go on, to forget */
	uint64_t began, told, expires; /* uv_now() */
	bool due, resume;
	struct list watches; /* struct task_watch */
};

/* --- tasks.c --- */
bool task_over(const struct mcp_task *task);
/* Those who listen are told in a later turn; not at_once: not too often. */
void task_changed(struct mcp_task *task, bool at_once);
/* false: there are as many as there may be, and none has ended. */
bool task_room(const struct principal *principal);
/* A record of this request's principal. */
struct mcp_task *task_new(struct mcp_request *request, const struct task_call *call,
			  const char *id);
/* The same request, but its answer goes into the task. */
struct mcp_request *task_inner_new(const struct mcp_request *outer, struct mcp_task *task);

/* --- ask.c --- */
void task_put_pending(struct json_writer *writer, const struct mcp_task *task);
void task_take_answers(struct mcp_task *task, const json_t *responses);

/* --- lost.c --- */
/* One that follows what is left of it, or has failed since nothing is. NULL: it is not kept any
 * more, or there is no room for it. */
struct mcp_task *task_revive(struct mcp_request *request, const struct task_call *call,
			     const char *task_id);
