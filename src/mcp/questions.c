/* Asks the client in the middle of a request (questions.h). Owns `request->question_rounds`: the
 * answers so far, and for a legacy client the questions without an answer. The questions of a task
 * are in mcp/tasks/questions.c. Called by the handlers of tools and prompts. Nothing blocks. */
#include "mcp/questions.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/text.h"
#include "mcp/alarm.h"
#include "mcp/question_state.h"
#include "mcp/content.h"
#include "mcp/transport/session.h"
#include "mcp/tasks/task.h"

/* A request of ours that a legacy client has not answered yet. */
struct legacy_question {
	struct question_rounds *rounds;
	char *key, *method;
};

struct question_rounds {
	json_t *answers; /* result objects by key: of this round and the earlier ones */
	json_t *state;   /* of the last round; NULL: none */
	unsigned count;
	/* For a legacy client. */
	struct mcp_request *request;
	struct legacy_question open[QUESTIONS_MAX];
	size_t waiting;
	struct alarm *alarm; /* the client's time limit */
	char *refusal;       /* the client's refusal; NULL: none */
	void (*again)(struct mcp_request *request);
};

static const struct {
	const char *method, *capability;
	uint32_t bit;
} question_kinds[] = {
    {"elicitation/create", "elicitation", CLIENT_ELICITATION},
    {"sampling/createMessage", "sampling", CLIENT_SAMPLING},
    {"roots/list", "roots", CLIENT_ROOTS},
};

static uint32_t method_capability(const char *method)
{
	for (size_t i = 0; i < ARRAY_SIZE(question_kinds); i++)
		if (strcmp(question_kinds[i].method, method) == 0)
			return question_kinds[i].bit;
	return 0;
}

/* --- answers --- */

/* Does the answer fit a question of one of these kinds? The handler checks its content. */
static bool answer_fits(const json_t *answer, uint32_t capabilities)
{
	const char *action = json_string_value(json_object_get(answer, "action"));
	const json_t *content = json_object_get(answer, "content");
	if ((capabilities & CLIENT_ELICITATION) && action &&
	    (strcmp(action, "accept") == 0
		 ? !content || json_is_object(content)
		 : strcmp(action, "decline") == 0 || strcmp(action, "cancel") == 0))
		return true;
	if ((capabilities & CLIENT_SAMPLING) && json_is_string(json_object_get(answer, "role")) &&
	    (json_is_object(content) || json_is_array(content)))
		return true;
	return (capabilities & CLIENT_ROOTS) && json_is_array(json_object_get(answer, "roots"));
}

static struct question_rounds *request_question_rounds(struct mcp_request *request)
{
	if (request->question_rounds)
		return request->question_rounds;
	struct question_rounds *rounds = calloc(1, sizeof(*rounds));
	if (!rounds)
		abort();
	rounds->answers = json_object();
	rounds->request = request;
	request->question_rounds = rounds;
	return rounds;
}

static bool question_rounds_unseal(struct mcp_request *request, struct question_rounds *rounds,
				   const json_t *sealed)
{
	json_t *kept = NULL;
	struct error error;
	if (!json_is_string(sealed)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`requestState` must be a string");
		return false;
	}
	if (question_state_unseal(request, json_string_value(sealed), clock_wall(), &kept, &error) <
	    0) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "%s", error.message);
		return false;
	}
	json_object_update(rounds->answers, json_object_get(kept, "answers"));
	rounds->state = json_incref(json_object_get(kept, "state"));
	rounds->count = (unsigned)json_integer_value(json_object_get(kept, "rounds"));
	json_decref(kept);
	return true;
}

bool questions_state(struct mcp_request *request, const json_t **ret_state)
{
	const json_t *sealed = json_object_get(request->params, "requestState"),
		     *responses = json_object_get(request->params, "inputResponses");
	*ret_state = NULL;
	if (request->task) {
		*ret_state = task_question_state(request->task);
		return true;
	}
	if (request->question_rounds) {
		*ret_state = request->question_rounds->state;
		return true;
	}
	if (!revision_modern(request->revision))
		return true;
	if (responses && !json_is_object(responses)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`inputResponses` must be an object");
		return false;
	}
	struct question_rounds *rounds = request_question_rounds(request);
	if (sealed && !question_rounds_unseal(request, rounds, sealed))
		return false;
	*ret_state = rounds->state;
	return true;
}

const json_t *questions_answer(struct mcp_request *request, const char *key)
{
	const uint32_t any = CLIENT_ELICITATION | CLIENT_SAMPLING | CLIENT_ROOTS;
	if (request->task) {
		const json_t *answer = task_answer(request->task, key);
		return answer_fits(answer, any) ? answer : NULL;
	}
	struct question_rounds *rounds = request_question_rounds(request);
	const json_t *responses = json_object_get(request->params, "inputResponses");
	json_t *given = revision_modern(request->revision) ? json_object_get(responses, key) : NULL;
	if (answer_fits(given, any))
		json_object_set(rounds->answers, key, given);
	return json_object_get(rounds->answers, key);
}

/* --- what a client cannot do --- */

static bool questions_refuse_incapable(struct mcp_request *request,
				       const struct question *questions, size_t count)
{
	struct buffer data DONE_BUFFER = BUFFER(KIB), names DONE_BUFFER = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&data);
	uint32_t missing = 0;
	for (size_t i = 0; i < count; i++)
		missing |= method_capability(questions[i].method) & ~request->client;
	if (!missing)
		return false;
	put_object(&writer, NULL);
	put_object(&writer, "requiredCapabilities");
	for (size_t i = 0; i < ARRAY_SIZE(question_kinds); i++) {
		if (!(missing & question_kinds[i].bit))
			continue;
		put_object(&writer, question_kinds[i].capability);
		put_object_end(&writer);
		(void)!buffer_printf(&names, "%s%s", names.size ? ", " : "",
				     question_kinds[i].capability);
	}
	put_object_end(&writer);
	put_object_end(&writer);
	if (revision_modern(request->revision))
		mcp_error(request, MCP_MISSING_CAPABILITY, buffer_text(&data),
			  "this needs a client that can do: %s", buffer_text(&names));
	else if (request->tool)
		content_refuse(request, "this needs a client that can do: %s", buffer_text(&names));
	else
		mcp_error(request, MCP_INVALID_PARAMS, buffer_text(&data),
			  "this needs a client that can do: %s", buffer_text(&names));
	return true;
}

static void questions_fail(struct mcp_request *request, const char *why)
{
	if (request->tool)
		content_refuse(request, "%s", why);
	else
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "%s", why);
}

/* --- modern: the request ends with the questions --- */

/* Without a state and without answers nothing is stored and nothing is sent. */
static int question_rounds_seal(struct mcp_request *request, struct question_rounds *rounds,
				const char *state, struct buffer *to)
{
	if (!state && json_object_size(rounds->answers) == 0)
		return 0;
	json_t *value = state ? json_loads(state, JSON_DECODE_ANY, NULL) : json_null();
	json_t *kept = json_object();
	if (!kept || !value)
		abort(); /* a handler has written `state` */
	json_object_set_new(kept, "state", value);
	json_object_set(kept, "answers", rounds->answers);
	json_object_set_new(kept, "rounds", json_integer(rounds->count + 1));
	int result = question_state_seal(request, kept, clock_wall(), to);
	json_decref(kept);
	return result;
}

static void questions_ask_modern(struct mcp_request *request, const struct question *questions,
				 size_t count, const char *state)
{
	struct buffer sealed DONE_BUFFER = BUFFER(QUESTION_STATE_MAX);
	struct question_rounds *rounds = request_question_rounds(request);
	if (question_rounds_seal(request, rounds, state, &sealed) < 0) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "the answers are too long to be kept until the next round");
		return;
	}
	struct json_writer *writer = mcp_result_begin_as(request, "input_required");
	put_object(writer, "inputRequests");
	for (size_t i = 0; i < count; i++) {
		put_object(writer, questions[i].key);
		put_text(writer, "method", questions[i].method);
		put_json(writer, "params", questions[i].params, strlen(questions[i].params));
		put_object_end(writer);
	}
	put_object_end(writer);
	if (sealed.size > 0)
		put_text_size(writer, "requestState", sealed.data, sealed.size);
	mcp_result_end(request);
}

/* --- legacy: requests of ours on the same stream, and the handler waits --- */

static void question_rounds_stop_waiting(struct question_rounds *rounds)
{
	alarm_stop(&rounds->alarm);
	for (size_t i = 0; i < QUESTIONS_MAX; i++) {
		text_free(&rounds->open[i].key);
		text_free(&rounds->open[i].method);
	}
}

static void question_take_response(struct question_rounds *rounds,
				   const struct legacy_question *question, const json_t *response)
{
	json_t *result = json_object_get(response, "result");
	const json_t *message = json_object_get(json_object_get(response, "error"), "message");
	if (answer_fits(result, method_capability(question->method))) {
		json_object_set(rounds->answers, question->key, result);
		return;
	}
	if (rounds->refusal)
		return;
	const char *why = !response                    ? "nothing"
			  : json_string_value(message) ? json_string_value(message)
						       : "something else than an answer";
	struct buffer text DONE_BUFFER = BUFFER(KIB);
	(void)!buffer_printf(&text, "the client was asked (%s) and said: %.*s", question->method,
			     (int)text_utf8_prefix(why, MIN(strlen(why), (size_t)500)), why);
	rounds->refusal = text_duplicate(buffer_text(&text));
}

/* May drop the last reference: the request is not used afterwards. */
static void question_answered(struct mcp_request *request, void *data, const json_t *response)
{
	struct legacy_question *question = data;
	struct question_rounds *rounds = question->rounds;
	question_take_response(rounds, question, response);
	if (--rounds->waiting == 0) {
		question_rounds_stop_waiting(rounds);
		if (request->open) {
			if (rounds->refusal)
				questions_fail(request, rounds->refusal);
			else
				rounds->again(request);
		}
	}
	mcp_release(request);
}

/* Answers that still come find the request closed. */
static void question_rounds_time_out(void *data)
{
	struct question_rounds *rounds = data;
	if (rounds->request->open)
		questions_fail(rounds->request,
			       "the client was asked, and has not answered in time");
}

static void questions_ask_legacy(struct mcp_request *request, const struct question *questions,
				 size_t count, const char *state,
				 void (*again)(struct mcp_request *request))
{
	struct question_rounds *rounds = request_question_rounds(request);
	if (!request->session) {
		questions_fail(request, "this asks the client, which needs a session");
		return;
	}
	json_decref(rounds->state);
	rounds->state = state ? json_loads(state, JSON_DECODE_ANY, NULL) : NULL;
	rounds->again = again;
	rounds->count++;
	rounds->alarm =
	    alarm_after(request->core->loop, QUESTION_WAIT_MS, question_rounds_time_out, rounds);
	/* One more than is asked, so that answers that come at once do not end the round in the
	 * middle. */
	rounds->waiting = count + 1;
	for (size_t i = 0; i < count; i++) {
		struct legacy_question *question = &rounds->open[i];
		question->rounds = rounds;
		question->key = text_duplicate(questions[i].key);
		question->method = text_duplicate(questions[i].method);
		mcp_hold(request);
		if (session_request_client(request->session, request, questions[i].method,
					   questions[i].params, question_answered, question) < 0)
			question_answered(request, question, NULL);
	}
	if (--rounds->waiting > 0)
		return;
	question_rounds_stop_waiting(rounds);
	questions_fail(request, rounds->refusal ? rounds->refusal : "the client cannot be asked");
}

/* --- */

/* The questions without a valid answer; all of them if each has one. */
static size_t questions_unanswered(struct mcp_request *request, const struct question *questions,
				   size_t count, struct question left[QUESTIONS_MAX])
{
	size_t found = 0;
	for (size_t i = 0; i < count; i++)
		if (!answer_fits(questions_answer(request, questions[i].key),
				 method_capability(questions[i].method)))
			left[found++] = questions[i];
	if (found > 0)
		return found;
	memcpy(left, questions, count * sizeof(*questions));
	return count;
}

void questions_ask(struct mcp_request *request, const struct question *questions, size_t count,
		   const char *state, void (*again)(struct mcp_request *request))
{
	struct question left[QUESTIONS_MAX];
	if (count > QUESTIONS_MAX)
		abort();
	if (questions_refuse_incapable(request, questions, count))
		return;
	if (request->task) {
		task_ask_questions(request, questions, count, state, again);
		return;
	}
	if (request_question_rounds(request)->count >= QUESTION_ROUNDS_MAX) {
		questions_fail(request, "the client was asked too often without a good answer");
		return;
	}
	count = questions_unanswered(request, questions, count, left);
	if (revision_modern(request->revision))
		questions_ask_modern(request, left, count, state);
	else
		questions_ask_legacy(request, left, count, state, again);
}

void questions_free(struct mcp_request *request)
{
	struct question_rounds *rounds = TAKE_PTR(request->question_rounds);
	question_rounds_stop_waiting(rounds);
	json_decref(rounds->answers);
	json_decref(rounds->state);
	text_free(&rounds->refusal);
	free(rounds);
}
