/* What the bridge remembers of the messages that pass through it: which requests are pending, so
 * that each gets an answer when the daemon is lost, and what a new daemon must be told first, so
 * that the client does not notice the change. Called by stdio_bridge.c; no I/O. The bridge bounds
 * the length of the client's lines. A line that is not JSON, or that jansson rejects, is left to
 * the daemon to refuse; it is pending under its id. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/mcp/mcp.h"

#define REPLAY_ID "caisson-replay-"
#define BATCH_MAX 256

void mcp_messages_init(struct mcp_messages *messages)
{
	*messages = (struct mcp_messages){.pending = json_object(), .replay = json_object()};
}

void mcp_messages_done(struct mcp_messages *messages)
{
	json_decref(messages->pending);
	json_decref(messages->replay);
}

/* 7 and "7" are different ids. NULL: no id. */
static char *id_key(const json_t *id)
{
	if (!json_is_string(id) && !json_is_integer(id))
		return NULL;
	return json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
}

json_t *mcp_id_json(const struct message_id *id)
{
	size_t size = message_id_size(id);
	return size > 0 ? json_loadb(id->text, size, JSON_DECODE_ANY, NULL) : NULL;
}

static void pending_forget(struct mcp_messages *messages, const json_t *id)
{
	FREE_TEXT char *key = id_key(id);
	if (key)
		json_object_del(messages->pending, key);
}

static void replay_remember(struct mcp_messages *messages, const char *key, json_t *message)
{
	if (json_object_size(messages->replay) < MCP_REPLAY_MAX)
		json_object_set(messages->replay, key, message);
}

/* Records what a session has settled: its initialization, its log level, its subscriptions. */
static void replay_note(struct mcp_messages *messages, const char *method, json_t *message)
{
	const json_t *params = json_object_get(message, "params");
	const char *uri = json_string_value(json_object_get(params, "uri"));
	if (strcmp(method, "initialize") == 0) {
		json_object_clear(messages->replay);
		replay_remember(messages, "initialize", message);
	} else if (strcmp(method, "notifications/initialized") == 0) {
		replay_remember(messages, "initialized", message);
	} else if (strcmp(method, "logging/setLevel") == 0) {
		replay_remember(messages, "level", message);
	} else if (uri && strcmp(method, "resources/subscribe") == 0) {
		replay_remember(messages, uri, message);
	} else if (uri && strcmp(method, "resources/unsubscribe") == 0) {
		json_object_del(messages->replay, uri);
	}
}

static void message_note(struct mcp_messages *messages, json_t *message, json_t *ids)
{
	const char *method = json_string_value(json_object_get(message, "method"));
	json_t *id = json_object_get(message, "id");
	if (!method)
		return; /* answers a request of the daemon */
	FREE_TEXT char *key = id_key(id);
	if (key && json_object_size(messages->pending) < MCP_PENDING_MAX)
		json_object_set_new(messages->pending, key,
				    json_pack("{s:O, s:s}", "id", id, "method", method));
	if (key && ids)
		json_array_append(ids, id);
	if (!id && strcmp(method, "notifications/cancelled") == 0)
		pending_forget(messages,
			       json_object_get(json_object_get(message, "params"), "requestId"));
	replay_note(messages, method, message);
}

static json_t *unparsed_message(const char *line, size_t size)
{
	struct message_id found = {0};
	message_id_feed(&found, line, size);
	json_t *id = mcp_id_json(&found);
	return id ? json_pack("{s:o, s:s}", "id", id, "method", "") : NULL;
}

void mcp_message_sent(struct mcp_messages *messages, const char *line, size_t size, json_t *ids)
{
	json_t *json = json_loadb(line, size, 0, NULL), *element;
	size_t at;
	if (!json)
		json = unparsed_message(line, size);
	if (json_is_object(json))
		message_note(messages, json, ids);
	json_array_foreach(json, at, element)
	{
		if (at < BATCH_MAX && json_is_object(element))
			message_note(messages, element, ids);
	}
	json_decref(json);
}

/* false: it answers a request that we sent ourselves. */
static bool answer_note(struct mcp_messages *messages, const json_t *message)
{
	const json_t *id = json_object_get(message, "id");
	const char *text = json_string_value(id);
	if (!id || json_object_get(message, "method"))
		return true;
	if (text && text_starts(text, REPLAY_ID))
		return false;
	pending_forget(messages, id);
	return true;
}

bool mcp_message_received(struct mcp_messages *messages, const char *line, size_t size)
{
	bool show = true;
	if (json_object_size(messages->pending) == 0 && messages->replayed == 0)
		return true;
	json_t *json = json_loadb(line, size, 0, NULL), *element;
	size_t at;
	if (json_is_object(json))
		show = answer_note(messages, json);
	json_array_foreach(json, at, element)
	{
		answer_note(messages, element);
	}
	json_decref(json);
	return show;
}

static int message_append(struct buffer *to, const json_t *message)
{
	FREE_TEXT char *text = json_dumps(message, JSON_COMPACT);
	if (!text)
		return -1;
	return buffer_append_text(to, text) < 0 || buffer_append(to, "\n", 1) < 0 ? -1 : 0;
}

static bool initialize_is_pending(const struct mcp_messages *messages)
{
	const char *key;
	json_t *entry;
	json_object_foreach(messages->pending, key, entry)
	{
		if (strcmp(member_text(entry, "method"), "initialize") == 0)
			return true;
	}
	return false;
}

bool mcp_initialize_append(struct mcp_messages *messages, struct buffer *to)
{
	const json_t *message = json_object_get(messages->replay, "initialize");
	return message && initialize_is_pending(messages) && message_append(to, message) == 0;
}

int mcp_replay_append(struct mcp_messages *messages, struct buffer *to)
{
	const char *key;
	json_t *message;
	bool waits = initialize_is_pending(messages);
	json_object_foreach(messages->replay, key, message)
	{
		if (waits && strcmp(key, "initialize") == 0)
			continue;
		json_t *copy = json_copy(message);
		if (json_object_get(message, "id")) {
			char id[64];
			snprintf(id, sizeof(id), REPLAY_ID "%llu",
				 (unsigned long long)++messages->replayed);
			json_object_set_new(copy, "id", json_string(id));
		}
		int result = message_append(to, copy);
		json_decref(copy);
		if (result < 0)
			return -1;
	}
	return 0;
}

static int error_message_append(const json_t *id, const char *text, struct buffer *to)
{
	json_t *message =
	    json_pack("{s:s, s:O, s:{s:i, s:s, s:{s:s, s:b}}}", "jsonrpc", "2.0", "id", id, "error",
		      "code", -32603, "message", text, "data", "code",
		      error_info(ERROR_DAEMON_RESTARTING)->code, "retryable", 1);
	int result = message ? message_append(to, message) : -1;
	json_decref(message);
	return result;
}

int mcp_pending_fail(struct mcp_messages *messages, const json_t *ids, const char *text,
		     struct buffer *to)
{
	const char *key;
	json_t *entry, *id;
	void *next;
	size_t at;
	json_array_foreach(ids, at, id)
	{
		if (error_message_append(id, text, to) < 0)
			return -1;
		pending_forget(messages, id);
	}
	if (ids)
		return 0;
	json_object_foreach_safe(messages->pending, next, key, entry)
	{
		if (strcmp(member_text(entry, "method"), "initialize") == 0)
			continue;
		if (error_message_append(json_object_get(entry, "id"), text, to) < 0)
			return -1;
		json_object_del(messages->pending, key);
	}
	return 0;
}
