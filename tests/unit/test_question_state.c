/* What a modern client carries between two rounds of questions: it comes back as it was given, to
 * whom it was given, for the call it was given for, in time; anything else is refused. */
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "mcp/questions.h"
#include "mcp/question_state.h"
#include "mcp/server.h"
#include "test.h"

TEST_MAIN

#define NOW (1700000000 * NSEC_PER_SEC)

static struct mcp_server server = {.key = "of this run"};

static struct mcp_request *call(const char *params)
{
	struct mcp_request *request = calloc(1, sizeof(*request));
	CHECK_INT(text_copy(request->principal.workspace, WORKSPACE_MAX, "default"), 0);
	request->server = &server;
	request->view.face = &admin_face;
	request->method = "tools/call";
	request->params = json_loads(params, 0, NULL);
	CHECK(request->params != NULL);
	return request;
}

static void done(struct mcp_request *request)
{
	json_decref(request->params);
	free(request);
}

static char *sealed(const struct mcp_request *request, const char *kept)
{
	struct buffer text DONE_BUFFER = BUFFER(QUESTION_STATE_MAX);
	json_t *value = json_loads(kept, JSON_DECODE_ANY, NULL);
	CHECK_INT(question_state_seal(request, value, NOW, &text), 0);
	json_decref(value);
	return strdup(buffer_text(&text));
}

static bool taken(const struct mcp_request *request, const char *text, int64_t now)
{
	json_t *kept = NULL;
	struct error error;
	int result = question_state_unseal(request, text, now, &kept, &error);
	if (result < 0)
		CHECK_INT(error.kind, ERROR_INVALID);
	json_decref(kept);
	return result == 0;
}

TEST(comes_back)
{
	struct mcp_request *request = call("{\"name\":\"t\",\"arguments\":{\"a\":1,\"b\":[2]}}"),
			   *other = call("{\"arguments\":{\"b\":[2],\"a\":1},\"name\":\"t\","
					 "\"inputResponses\":{}}");
	char *text =
	    sealed(request, "{\"state\":\"x\",\"answers\":{\"k\":{\"action\":\"accept\"}}}");
	json_t *kept = NULL;
	struct error error;
	/* However the arguments are written. */
	CHECK_INT(question_state_unseal(other, text, NOW, &kept, &error), 0);
	CHECK_TEXT(json_string_value(json_object_get(kept, "state")), "x");
	json_decref(kept);
	free(text);
	done(request);
	done(other);
}

TEST(nobody_elses_call)
{
	struct mcp_request *request = call("{\"name\":\"t\",\"arguments\":{\"a\":1}}");
	static const char *const others[] = {
	    "{\"name\":\"u\",\"arguments\":{\"a\":1}}",
	    "{\"name\":\"t\",\"arguments\":{\"a\":2}}",
	    "{\"name\":\"t\"}",
	    "{\"uri\":\"t\",\"arguments\":{\"a\":1}}",
	};
	char *text = sealed(request, "1");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		struct mcp_request *other = call(others[i]);
		CHECK(!taken(other, text, NOW));
		done(other);
	}
	CHECK(taken(request, text, NOW));
	request->method = "prompts/get";
	CHECK(!taken(request, text, NOW));
	request->method = "tools/call";
	request->view.face = &usual_face;
	CHECK(!taken(request, text, NOW));
	free(text);
	done(request);
}

TEST(nobody_elses_token)
{
	struct mcp_request *request = call("{\"name\":\"t\"}");
	struct principal mine = request->principal;
	char *text = sealed(request, "1");
	CHECK_INT(text_copy(request->principal.workspace, WORKSPACE_MAX, "other"), 0);
	CHECK(!taken(request, text, NOW));
	request->principal = mine;
	request->principal.token = id_new();
	CHECK(!taken(request, text, NOW));
	request->principal = mine;
	request->principal.local = true;
	CHECK(!taken(request, text, NOW));
	request->principal = mine;
	request->principal.uid = 1;
	CHECK(!taken(request, text, NOW));
	request->principal = mine;
	CHECK(taken(request, text, NOW));
	free(text);
	done(request);
}

TEST(not_for_ever)
{
	struct mcp_request *request = call("{\"name\":\"t\"}");
	char *text = sealed(request, "1");
	CHECK(taken(request, text, NOW + QUESTION_STATE_SECONDS * NSEC_PER_SEC));
	CHECK(!taken(request, text, NOW + (QUESTION_STATE_SECONDS + 1) * NSEC_PER_SEC));
	free(text);
	done(request);
}

/* Every character of it counts, and so does its end. */
TEST(as_it_was)
{
	struct mcp_request *request = call("{\"name\":\"t\"}");
	char *text = sealed(request, "\"a state of some length\"");
	size_t size = strlen(text);
	for (size_t i = 0; i < size; i++) {
		char was = text[i];
		text[i] = was == 'A' ? 'B' : 'A';
		CHECK(!taken(request, text, NOW));
		text[i] = '\0';
		CHECK(!taken(request, text, NOW));
		text[i] = was;
	}
	char *longer = NULL;
	CHECK(asprintf(&longer, "%s-TAMPERED", text) > 0);
	CHECK(!taken(request, longer, NOW));
	free(longer);
	CHECK(asprintf(&longer, "%sAAAA", text) > 0);
	CHECK(!taken(request, longer, NOW));
	free(longer);
	CHECK(!taken(request, "", NOW));
	CHECK(!taken(request, "AAAA", NOW));
	CHECK(taken(request, text, NOW));
	free(text);
	done(request);
}

TEST(bounded)
{
	struct mcp_request *request = call("{\"name\":\"t\"}");
	struct buffer text DONE_BUFFER = BUFFER(QUESTION_STATE_MAX);
	size_t size = QUESTION_STATE_MAX;
	char *large = calloc(1, 2 * size + 1);
	memset(large, 'A', size);
	json_t *value = json_string(large);
	CHECK(question_state_seal(request, value, NOW, &text) < 0);
	json_decref(value);
	memset(large, 'A', 2 * size);
	CHECK(!taken(request, large, NOW));
	free(large);
	/* The longest that fits. */
	large = calloc(1, size);
	memset(large, 'a', size / 4 * 3 - 100);
	value = json_string(large);
	CHECK_INT(question_state_seal(request, value, NOW, &text), 0);
	CHECK(text.size <= QUESTION_STATE_MAX);
	CHECK(taken(request, buffer_text(&text), NOW));
	json_decref(value);
	free(large);
	done(request);
}
