/* Asks the client in the middle of a request (questions.h). Owns `request->asking`: the answers so
 * far, and for a legacy client the questions without an answer. The questions of a task are in
 * mcp/tasks/questions.c. Called by the handlers of tools and prompts. Nothing blocks. */
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
struct asked {
	struct asking *asking;
	char *key, *method;
};

struct asking {
	json_t *answers; /* result objects by key: of this round and the earlier ones */
	json_t *state;   /* of the last round; NULL: none */
	unsigned rounds;
	/* For a legacy client. */
	struct mcp_request *request;
	struct asked asked[ASK_QUESTIONS_MAX];
	size_t waiting;
	struct alarm *alarm; /* the client's time limit */
	char *refusal;       /* the client's refusal; NULL: none */
	void (*again)(struct mcp_request *request);
};

static const struct {
	const char *method, *capability;
	uint32_t bit;
} kinds[] = {
    {"elicitation/create", "elicitation", CLIENT_ELICITATION},
    {"sampling/createMessage", "sampling", CLIENT_SAMPLING},
    {"roots/list", "roots", CLIENT_ROOTS},
};

static uint32_t capability_of(const char *method)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i].method, method) == 0)
			return kinds[i].bit;
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

static struct asking *request_asking(struct mcp_request *request)
{
	if (request->asking)
		return request->asking;
	struct asking *asking = calloc(1, sizeof(*asking));
	if (!asking)
		abort();
	asking->answers = json_object();
	asking->request = request;
	request->asking = asking;
	return asking;
}

static bool asking_unseal(struct mcp_request *request, struct asking *asking, const json_t *sealed)
{
	json_t *kept = NULL;
	struct error error;
	if (!json_is_string(sealed)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`requestState` must be a string");
		return false;
	}
	if (ask_unseal(request, json_string_value(sealed), clock_wall(), &kept, &error) < 0) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "%s", error.message);
		return false;
	}
	json_object_update(asking->answers, json_object_get(kept, "answers"));
	asking->state = json_incref(json_object_get(kept, "state"));
	asking->rounds = (unsigned)json_integer_value(json_object_get(kept, "rounds"));
	json_decref(kept);
	return true;
}

bool ask_state(struct mcp_request *request, const json_t **ret_state)
{
	const json_t *sealed = json_object_get(request->params, "requestState"),
		     *responses = json_object_get(request->params, "inputResponses");
	*ret_state = NULL;
	if (request->task) {
		*ret_state = task_asked_state(request->task);
		return true;
	}
	if (request->asking) {
		*ret_state = request->asking->state;
		return true;
	}
	if (!revision_modern(request->revision))
		return true;
	if (responses && !json_is_object(responses)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`inputResponses` must be an object");
		return false;
	}
	struct asking *asking = request_asking(request);
	if (sealed && !asking_unseal(request, asking, sealed))
		return false;
	*ret_state = asking->state;
	return true;
}

const json_t *ask_answer(struct mcp_request *request, const char *key)
{
	const uint32_t any = CLIENT_ELICITATION | CLIENT_SAMPLING | CLIENT_ROOTS;
	if (request->task) {
		const json_t *answer = task_answer(request->task, key);
		return answer_fits(answer, any) ? answer : NULL;
	}
	struct asking *asking = request_asking(request);
	const json_t *responses = json_object_get(request->params, "inputResponses");
	json_t *given = revision_modern(request->revision) ? json_object_get(responses, key) : NULL;
	if (answer_fits(given, any))
		json_object_set(asking->answers, key, given);
	return json_object_get(asking->answers, key);
}

/* --- what a client cannot do --- */

static bool refuse_incapable(struct mcp_request *request, const struct question *questions,
			     size_t count)
{
	struct buffer data DONE_BUFFER = BUFFER(KIB), names DONE_BUFFER = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&data);
	uint32_t missing = 0;
	for (size_t i = 0; i < count; i++)
		missing |= capability_of(questions[i].method) & ~request->client;
	if (!missing)
		return false;
	put_object(&writer, NULL);
	put_object(&writer, "requiredCapabilities");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!(missing & kinds[i].bit))
			continue;
		put_object(&writer, kinds[i].capability);
		put_object_end(&writer);
		(void)!buffer_printf(&names, "%s%s", names.size ? ", " : "", kinds[i].capability);
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

static void asking_fail(struct mcp_request *request, const char *why)
{
	if (request->tool)
		content_refuse(request, "%s", why);
	else
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "%s", why);
}

/* --- modern: the request ends with the questions --- */

/* Without a state and without answers nothing is stored and nothing is sent. */
static int asking_seal(struct mcp_request *request, struct asking *asking, const char *state,
		       struct buffer *to)
{
	if (!state && json_object_size(asking->answers) == 0)
		return 0;
	json_t *value = state ? json_loads(state, JSON_DECODE_ANY, NULL) : json_null();
	json_t *kept = json_object();
	if (!kept || !value)
		abort(); /* a handler has written `state` */
	json_object_set_new(kept, "state", value);
	json_object_set(kept, "answers", asking->answers);
	json_object_set_new(kept, "rounds", json_integer(asking->rounds + 1));
	int result = ask_seal(request, kept, clock_wall(), to);
	json_decref(kept);
	return result;
}

static void ask_modern(struct mcp_request *request, const struct question *questions, size_t count,
		       const char *state)
{
	struct buffer sealed DONE_BUFFER = BUFFER(ASK_STATE_MAX);
	struct asking *asking = request_asking(request);
	if (asking_seal(request, asking, state, &sealed) < 0) {
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

static void stop_waiting(struct asking *asking)
{
	alarm_stop(&asking->alarm);
	for (size_t i = 0; i < ASK_QUESTIONS_MAX; i++) {
		text_free(&asking->asked[i].key);
		text_free(&asking->asked[i].method);
	}
}

static void take_response(struct asking *asking, const struct asked *asked, const json_t *response)
{
	json_t *result = json_object_get(response, "result");
	const json_t *message = json_object_get(json_object_get(response, "error"), "message");
	if (answer_fits(result, capability_of(asked->method))) {
		json_object_set(asking->answers, asked->key, result);
		return;
	}
	if (asking->refusal)
		return;
	const char *why = !response                    ? "nothing"
			  : json_string_value(message) ? json_string_value(message)
						       : "something else than an answer";
	struct buffer text DONE_BUFFER = BUFFER(KIB);
	(void)!buffer_printf(&text, "the client was asked (%s) and said: %.*s", asked->method,
			     (int)text_utf8_prefix(why, MIN(strlen(why), (size_t)500)), why);
	asking->refusal = text_duplicate(buffer_text(&text));
}

/* May drop the last reference: the request is not used afterwards. */
static void question_answered(struct mcp_request *request, void *data, const json_t *response)
{
	struct asked *asked = data;
	struct asking *asking = asked->asking;
	take_response(asking, asked, response);
	if (--asking->waiting == 0) {
		stop_waiting(asking);
		if (request->open) {
			if (asking->refusal)
				asking_fail(request, asking->refusal);
			else
				asking->again(request);
		}
	}
	mcp_release(request);
}

/* Answers that still come find the request closed. */
static void waited_long_enough(void *data)
{
	struct asking *asking = data;
	if (asking->request->open)
		asking_fail(asking->request, "the client was asked, and has not answered in time");
}

static void ask_legacy(struct mcp_request *request, const struct question *questions, size_t count,
		       const char *state, void (*again)(struct mcp_request *request))
{
	struct asking *asking = request_asking(request);
	if (!request->session) {
		asking_fail(request, "this asks the client, which needs a session");
		return;
	}
	json_decref(asking->state);
	asking->state = state ? json_loads(state, JSON_DECODE_ANY, NULL) : NULL;
	asking->again = again;
	asking->rounds++;
	asking->alarm = alarm_after(request->core->loop, ASK_WAIT_MS, waited_long_enough, asking);
	/* One more than is asked, so that answers that come at once do not end the round in the
	 * middle. */
	asking->waiting = count + 1;
	for (size_t i = 0; i < count; i++) {
		struct asked *asked = &asking->asked[i];
		asked->asking = asking;
		asked->key = text_duplicate(questions[i].key);
		asked->method = text_duplicate(questions[i].method);
		mcp_hold(request);
		if (session_ask(request->session, request, questions[i].method, questions[i].params,
				question_answered, asked) < 0)
			question_answered(request, asked, NULL);
	}
	if (--asking->waiting > 0)
		return;
	stop_waiting(asking);
	asking_fail(request, asking->refusal ? asking->refusal : "the client cannot be asked");
}

/* --- */

/* The questions without a valid answer; all of them if each has one. */
static size_t questions_unanswered(struct mcp_request *request, const struct question *questions,
				   size_t count, struct question left[ASK_QUESTIONS_MAX])
{
	size_t found = 0;
	for (size_t i = 0; i < count; i++)
		if (!answer_fits(ask_answer(request, questions[i].key),
				 capability_of(questions[i].method)))
			left[found++] = questions[i];
	if (found > 0)
		return found;
	memcpy(left, questions, count * sizeof(*questions));
	return count;
}

void questions_ask(struct mcp_request *request, const struct question *questions, size_t count,
		   const char *state, void (*again)(struct mcp_request *request))
{
	struct question left[ASK_QUESTIONS_MAX];
	if (count > ASK_QUESTIONS_MAX)
		abort();
	if (refuse_incapable(request, questions, count))
		return;
	if (request->task) {
		task_ask(request, questions, count, state, again);
		return;
	}
	if (request_asking(request)->rounds >= ASK_ROUNDS_MAX) {
		asking_fail(request, "the client was asked too often without a good answer");
		return;
	}
	count = questions_unanswered(request, questions, count, left);
	if (revision_modern(request->revision))
		ask_modern(request, left, count, state);
	else
		ask_legacy(request, left, count, state, again);
}

void ask_free(struct mcp_request *request)
{
	struct asking *asking = TAKE_PTR(request->asking);
	stop_waiting(asking);
	json_decref(asking->answers);
	json_decref(asking->state);
	text_free(&asking->refusal);
	free(asking);
}
