/* The questions of a task to its client: tasks/get shows them as inputRequests, tasks/update brings
 * the answers, one by one or together. Called by questions.c and tasks.c. Nothing blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "mcp/questions.h"
#include "mcp/tasks/task_private.h"

static bool question_put_pending(struct mcp_task *task, const struct question *question)
{
	json_t *params = json_loads(question->params, 0, NULL);
	if (!params)
		return false;
	json_t *request = json_pack("{s:s, s:o}", "method", question->method, "params", params);
	if (!request)
		abort();
	json_object_set_new(task->pending, question->key, request);
	return true;
}

void task_ask_questions(struct mcp_request *request, const struct question *questions, size_t count,
			const char *state, void (*again)(struct mcp_request *request))
{
	struct mcp_task *task = request->task;
	bool good = true, left = false;
	json_decref(task->pending);
	task->pending = json_object();
	for (size_t i = 0; i < count; i++)
		left |= !questions_answer(request, questions[i].key);
	for (size_t i = 0; i < count; i++) {
		if (left && questions_answer(request, questions[i].key))
			continue;
		json_object_del(task->answers, questions[i].key);
		good &= question_put_pending(task, &questions[i]);
	}
	if (!good || json_object_size(task->pending) == 0) {
		mcp_error(request, MCP_INTERNAL_ERROR, NULL, "the question is not a JSON object");
		return;
	}
	json_decref(task->question_state);
	task->question_state = state ? json_loads(state, JSON_DECODE_ANY, NULL) : NULL;
	task->again = again;
	task->state = TASK_INPUT_REQUIRED;
	task_changed(task, true);
}

const json_t *task_answer(const struct mcp_task *task, const char *key)
{
	return json_object_get(task->answers, key);
}

const json_t *task_question_state(const struct mcp_task *task)
{
	return task->question_state;
}

void task_put_pending(struct json_writer *writer, const struct mcp_task *task)
{
	char *text = json_dumps(task->pending, JSON_COMPACT);
	if (!text)
		abort();
	put_json(writer, "inputRequests", text, strlen(text));
	free(text);
}

/* Unknown keys are ignored. Other questions stay open. */
void task_take_answers(struct mcp_task *task, const json_t *responses)
{
	const char *key;
	json_t *value;
	if (task->state != TASK_INPUT_REQUIRED)
		return;
	if (!task->answers)
		task->answers = json_object();
	json_object_foreach((json_t *)responses, key, value)
	{
		if (json_object_del(task->pending, key) == 0)
			json_object_set(task->answers, key, value);
	}
	if (json_object_size(task->pending) == 0) {
		task->state = TASK_WORKING;
		task->resume = true;
	}
	task_changed(task, true);
}
