/* The tasks extension: records of calls that were answered with a handle, and the methods with
 * which a client queries them. A task's inner request is the call itself, with a carrier that
 * stores the answer in the record; questions.c has the questions to its client. Called by
 * mcp/tools/tools.c, request.c, mcp/resources/listen.c. Nothing blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "mcp/transport/memory.h"
#include "mcp/tools/output.h"
#include "mcp/tools/tool.h"
#include "mcp/tasks/task_private.h"

#define TOLD_MS 200 /* the minimum time between two notifications of progress */
#define EXTENSION_NEEDED                                                                           \
	"{\"requiredCapabilities\":{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}}"

static struct list tasks = {&tasks, &tasks}; /* the oldest first */
static uint64_t results_kept;

static const char *task_state_name(enum task_state state)
{
	static const char *const names[] = {
	    [TASK_WORKING] = "working",     [TASK_INPUT_REQUIRED] = "input_required",
	    [TASK_COMPLETED] = "completed", [TASK_FAILED] = "failed",
	    [TASK_CANCELLED] = "cancelled",
	};
	return names[state];
}

bool task_over(const struct mcp_task *task)
{
	return task->state >= TASK_COMPLETED;
}

const struct id *task_exec(const struct mcp_task *task)
{
	return &task->call.exec;
}

/* --- its end --- */

/* Its inner request was freed, or is being dropped. */
static void task_free(struct mcp_task *task)
{
	list_each (&task->watches, node)
		list_remove(node);
	list_remove(&task->link);
	token_unwatch(&task->token);
	alarm_stop(&task->alarm);
	results_kept -= task->result.size;
	buffer_done(&task->result);
	json_decref(task->pending);
	json_decref(task->answers);
	json_decref(task->question_state);
	free(task);
}

static void task_forget(struct mcp_task *task)
{
	if (task->inner)
		mcp_cancel(task->inner);
	task_free(task);
}

static void token_ended(struct token_watcher *watcher)
{
	task_forget(container_of(watcher, struct mcp_task, token));
}

void tasks_end_all(struct mcp_server *server)
{
	/* The work continues, and the next daemon finds it by its task's id: it must not be
	 * cancelled because this daemon ends. core_let_go() tells each request so, and then each
	 * has its answer. */
	if (!list_empty(&tasks))
		core_let_go(list_entry(tasks.next, struct mcp_task, link)->core);
	list_each (&tasks, node) {
		struct mcp_task *task = list_entry(node, struct mcp_task, link);
		if (task->server == server)
			task_forget(task);
	}
}

/* --- what changes --- */

/* Each watch may be removed during its call. */
static void task_watches_tell(struct mcp_task *task)
{
	struct list due;
	list_init(&due);
	while (!list_empty(&task->watches)) {
		struct list *node = task->watches.next;
		list_remove(node);
		list_append(&due, node);
	}
	while (!list_empty(&due)) {
		struct task_watch *watch = list_entry(due.next, struct task_watch, link);
		list_remove(&watch->link);
		list_append(&task->watches, &watch->link);
		watch->changed(watch, task);
	}
}

static void task_alarm_due(void *data)
{
	struct mcp_task *task = data;
	uint64_t now = uv_now(task->core->loop);
	if (task->due) {
		task->due = false;
		task->told = now;
		task_watches_tell(task);
	}
	if (task->resume && task->inner) {
		task->resume = false;
		if (task->inner->open)
			task->again(task->inner);
		return; /* this may have stored an answer: then the alarm is set already */
	}
	if (!task_over(task))
		return;
	if (now >= task->expires)
		task_free(task);
	else
		alarm_set(task->alarm, task->expires - now);
}

void task_changed(struct mcp_task *task, bool at_once)
{
	uint64_t now = uv_now(task->core->loop), next = task->told + TOLD_MS;
	task->updated_wall = clock_wall();
	if (!at_once && (task->due || list_empty(&task->watches)))
		return;
	task->due = true;
	alarm_set(task->alarm, at_once || next <= now ? 0 : next - now);
}

static void task_end(struct mcp_task *task, enum task_state state)
{
	uint64_t now = uv_now(task->core->loop);
	task->state = state;
	task->inner = NULL;
	task->expires = MAX(task->began + TASK_TTL_MS, now + TASK_KEEP_MS);
	json_decref(task->pending);
	task->pending = NULL;
	task_changed(task, true);
}

/* The oldest finished task, of one workspace or of all. */
static struct mcp_task *tasks_oldest_over(const char *workspace, const struct mcp_task *but)
{
	list_each (&tasks, node) {
		struct mcp_task *task = list_entry(node, struct mcp_task, link);
		if (task != but && task_over(task) &&
		    (!workspace || strcmp(task->principal.workspace, workspace) == 0))
			return task;
	}
	return NULL;
}

void task_progress(struct mcp_task *task, const char *text, size_t size)
{
	size_t used = text_utf8_prefix(text, MIN(size, sizeof(task->message) - 1));
	if (task_over(task) || used == 0)
		return;
	memcpy(task->message, text, used);
	task->message[used] = '\0';
	task_changed(task, false);
}

/* --- its carrier --- */

static void task_notify(struct mcp_request *request, const struct buffer *message)
{
	(void)request; /* progress is its statusMessage; a task has no other messages */
	(void)message;
}

static void task_settle(struct mcp_request *request, const struct buffer *result, bool failed)
{
	static const char too_long[] =
	    "{\"code\":-32603,\"message\":\"the result is longer than a task keeps; ask for less, "
	    "or call the tool without the tasks extension\"}";
	struct mcp_task *task = request->carrier_data, *oldest;
	task->result = BUFFER(TASK_RESULT_MAX);
	if (buffer_append(&task->result, result->data, result->size) < 0) {
		failed = true;
		if (buffer_append_text(&task->result, too_long) < 0)
			abort();
	}
	results_kept += task->result.size;
	while (results_kept > TASK_RESULTS_MAX && (oldest = tasks_oldest_over(NULL, task)))
		task_free(oldest);
	task_end(task, failed ? TASK_FAILED : TASK_COMPLETED);
}

static void task_dropped(struct mcp_request *request)
{
	task_end(request->carrier_data, TASK_CANCELLED);
}

static const struct mcp_carrier task_carrier = {
    .notify = task_notify, .settle = task_settle, .dropped = task_dropped};

/* --- its beginning --- */

struct mcp_request *task_inner_new(const struct mcp_request *outer, struct mcp_task *task)
{
	struct mcp_request *inner = calloc(1, sizeof(*inner));
	if (!inner)
		abort();
	inner->server = outer->server;
	inner->core = outer->core;
	inner->carrier = &task_carrier;
	inner->carrier_data = task;
	inner->references = 1;
	inner->open = true;
	inner->principal = outer->principal;
	inner->view = outer->view;
	inner->revision = outer->revision;
	inner->client = outer->client;
	inner->log_level = MCP_LOG_OFF;
	inner->task = task;
	inner->message = json_incref(outer->message);
	inner->memory = memory_hold(outer->memory);
	inner->id = outer->id;
	inner->method = outer->method;
	inner->params = outer->params;
	inner->tool = outer->tool;
	list_init(&inner->link);
	return inner;
}

bool task_room(const struct principal *principal)
{
	unsigned count = 0;
	list_each (&tasks, node)
		count += strcmp(list_entry(node, struct mcp_task, link)->principal.workspace,
				principal->workspace) == 0;
	if (count < TASKS_MAX)
		return true;
	struct mcp_task *oldest = tasks_oldest_over(principal->workspace, NULL);
	if (oldest)
		task_free(oldest);
	return oldest != NULL;
}

struct mcp_task *task_new(struct mcp_request *request, const struct task_call *call, const char *id)
{
	struct mcp_task *task = calloc(1, sizeof(*task));
	if (!task)
		abort();
	task->server = request->server;
	task->core = request->core;
	task->principal = request->principal;
	memcpy(task->id, id, sizeof(task->id));
	task->call = *call;
	task->created_wall = task->updated_wall = clock_wall();
	task->began = uv_now(request->core->loop);
	list_init(&task->watches);
	list_init(&task->token.link);
	task->alarm = alarm_new(request->core->loop, task_alarm_due, task);
	task->token.token = task->principal.token;
	task->token.expires_wall = task->principal.expires_wall;
	task->token.ended = token_ended;
	if (id_is_set(&task->token.token) || task->token.expires_wall != 0)
		token_watch(task->core, &task->token);
	list_append(&tasks, &task->link);
	return task;
}

/* As the tool will take it, and refuse what is none. */
static uint64_t output_max(const struct mcp_request *request)
{
	static const char name[] = "max_output_bytes";
	const struct field *row = field_find(request->tool->fields, FIELDS_MCP, name, strlen(name));
	struct field alone = row ? *row : (struct field){0};
	uint64_t most = OUTPUT_DEFAULT;
	struct error error;
	alone.at = 0;
	if (row && field_parse(json_object_get(request->params, "arguments"), &alone, FIELDS_MCP,
			       NULL, &most, &error) < 0)
		most = OUTPUT_DEFAULT;
	return most;
}

struct mcp_request *task_begin(struct mcp_request *request)
{
	char text[TASK_ID_SIZE];
	const struct task_call call = {
	    .exec = id_new(),
	    .began_ms = (uint64_t)(clock_wall() / NSEC_PER_MSEC),
	    .output_max = (uint32_t)output_max(request),
	};
	struct error error;
	if (!task_room(&request->principal)) {
		mcp_error(request, MCP_INTERNAL_ERROR, NULL,
			  "%d tasks of this workspace are under way, the most there may be: wait "
			  "for one, or end it with tasks/cancel",
			  TASKS_MAX);
		return NULL;
	}
	if (task_id_make(request->core, &request->principal, &call, text, &error) < 0) {
		mcp_error(request, MCP_INTERNAL_ERROR, NULL, "%s", error.message);
		return NULL;
	}
	struct mcp_task *task = task_new(request, &call, text);
	struct mcp_request *inner = task->inner = task_inner_new(request, task);
	task_put(mcp_result_begin_as(request, "task"), task);
	/* From here on the task does not depend on the client's connection. */
	mcp_result_end(request);
	return inner;
}

/* --- the methods --- */

static struct mcp_task *task_find(const struct mcp_server *server,
				  const struct principal *principal, const char *id)
{
	list_each (&tasks, node) {
		struct mcp_task *task = list_entry(node, struct mcp_task, link);
		if (task->server == server && strcmp(task->id, id) == 0)
			return principal_same(&task->principal, principal) ? task : NULL;
	}
	return NULL;
}

/* Finds it in memory, or makes a record of what is left. NULL: not found; *ret_known: it existed
 * before. */
static struct mcp_task *task_find_or_revive(struct mcp_request *request, const char *id,
					    bool *ret_known)
{
	struct mcp_task *task = task_find(request->server, &request->principal, id);
	struct task_call call;
	*ret_known = task || task_id_check(request->core, &request->principal, id, &call);
	return task || !*ret_known ? task : task_revive(request, &call, id);
}

/* Through a read-only view tasks can only be read; the methods that change a task do not exist
 * there, like the tools that change something. */
static bool request_refuse_read_only(struct mcp_request *request)
{
	if (request->view.read_only)
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "%s changes something, and here everything is only read: ask for it at a "
			  "URL without /readonly, or without --read-only",
			  request->method);
	return request->view.read_only;
}

/* The task of params.taskId; NULL: the request was answered. */
static struct mcp_task *request_find_task(struct mcp_request *request)
{
	const char *id = json_string_value(json_object_get(request->params, "taskId"));
	struct mcp_task *task = NULL;
	bool known;
	if (!(request->client & CLIENT_TASKS)) {
		mcp_error(
		    request, MCP_MISSING_CAPABILITY, EXTENSION_NEEDED,
		    "the client has not declared the extension io.modelcontextprotocol/tasks");
	} else if (!id) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`taskId` must be a string");
	} else if ((task = task_find_or_revive(request, id, &known))) {
		return task;
	} else if (!known) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "there is no such task");
	} else {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "this task is not kept any more: %u minutes from its beginning are over, "
			  "or others took its room; the jobs that are there are in the record "
			  "sandbox://{sandbox}",
			  TASK_TTL_MS / 60000);
	}
	return task;
}

void task_put(struct json_writer *writer, const struct mcp_task *task)
{
	put_text(writer, "taskId", task->id);
	put_text(writer, "status", task_state_name(task->state));
	if (task->message[0])
		put_text(writer, "statusMessage", task->message);
	put_time(writer, "createdAt", task->created_wall);
	put_time(writer, "lastUpdatedAt", task->updated_wall);
	put_uint(writer, "ttlMs", TASK_TTL_MS);
	put_uint(writer, "pollIntervalMs", TASK_POLL_MS);
	if (task->state == TASK_INPUT_REQUIRED)
		task_put_pending(writer, task);
	if (task->state == TASK_COMPLETED || task->state == TASK_FAILED)
		put_json(writer, task->state == TASK_FAILED ? "error" : "result",
			 buffer_text(&task->result), task->result.size);
}

void tasks_get(struct mcp_request *request)
{
	struct mcp_task *task = request_find_task(request);
	if (!task)
		return;
	task_put(mcp_result_begin(request), task);
	mcp_result_end(request);
}

void tasks_update(struct mcp_request *request)
{
	const json_t *responses = json_object_get(request->params, "inputResponses");
	struct mcp_task *task =
	    request_refuse_read_only(request) ? NULL : request_find_task(request);
	const char *key;
	json_t *value;
	if (!task)
		return;
	bool good = json_is_object(responses);
	json_object_foreach((json_t *)responses, key, value) good = good && json_is_object(value);
	if (!good) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`inputResponses` must be an object of answers, each an object under the "
			  "key of its inputRequest");
		return;
	}
	task_take_answers(task, responses);
	mcp_result_empty(request);
}

/* Cancelling a finished task succeeds and changes nothing. */
void tasks_cancel(struct mcp_request *request)
{
	struct mcp_task *task =
	    request_refuse_read_only(request) ? NULL : request_find_task(request);
	if (!task)
		return;
	if (task->inner)
		mcp_cancel(task->inner);
	mcp_result_empty(request);
}

/* --- those who listen --- */

int task_watch(struct mcp_request *request, const char *id, struct task_watch *watch)
{
	bool known;
	struct mcp_task *task = task_find_or_revive(request, id, &known);
	list_init(&watch->link);
	if (!task)
		return -1;
	list_append(&task->watches, &watch->link);
	return 0;
}

void task_unwatch(struct task_watch *watch)
{
	list_remove(&watch->link);
}
