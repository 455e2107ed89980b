/* Reading JSON-RPC messages (message.h). Called by http_post.c and dispatch.c for everything that
 * a client sends: all of it is hostile. Works on memory; nothing blocks. */
#include "mcp/transport/message.h"

#include <stdlib.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/text.h"
#include "core/core.h"
#include "mcp/transport/memory.h"

int problem_set(struct mcp_problem *problem, enum mcp_code code, int status, const char *format,
		...)
{
	va_list arguments;
	*problem = (struct mcp_problem){.code = code, .status = status};
	va_start(arguments, format);
	vsnprintf(problem->text, sizeof(problem->text), format, arguments);
	va_end(arguments);
	return -1;
}

static bool message_id_good(const json_t *id)
{
	return json_is_integer(id) ||
	       (json_is_string(id) && json_string_length(id) <= MESSAGE_ID_MAX);
}

void problem_set_id(struct mcp_problem *problem, const struct message_id *id)
{
	static const struct json_bounds bounds = {.values = 1};
	struct json_wrong wrong;
	size_t size = message_id_size(id);
	json_t *json = size > 0 ? json_read(id->text, size, &bounds, &wrong) : NULL;
	problem->id[0] = '\0';
	if (message_id_good(json)) {
		memcpy(problem->id, id->text, size);
		problem->id[size] = '\0';
	}
	json_decref(json);
}

int message_parse(const char *data, size_t size, json_t **ret_json, struct mcp_problem *problem)
{
	static const struct json_bounds bounds = {.depth = MESSAGE_DEPTH_MAX,
						  .values = MESSAGE_VALUES_MAX};
	struct json_wrong wrong;
	struct message_id id = {0};
	*ret_json = json_read(data, size, &bounds, &wrong);
	if (*ret_json)
		return 0;
	problem_set(problem, wrong.no_text ? MCP_INVALID_PARAMS : MCP_PARSE_ERROR, 400,
		    "%s: line %u, column %u: %s%s",
		    wrong.no_text ? "a text cannot hold this" : "not valid JSON", wrong.line,
		    wrong.column, wrong.text,
		    wrong.no_text ? "; write_file takes any bytes as `content_base64`" : "");
	message_id_feed(&id, data, size);
	problem_set_id(problem, &id);
	return -1;
}

static int message_parse_untyped(const char *data, size_t size, json_t **ret_json, void *problem)
{
	return message_parse(data, size, ret_json, problem);
}

const struct json_parser message_parser = {message_parse_untyped, sizeof(struct mcp_problem)};

static int message_invalid(struct mcp_problem *problem, const char *text)
{
	return problem_set(problem, MCP_INVALID_REQUEST, 400, "%s", text);
}

static int message_read_response(json_t *json, struct message *message, struct mcp_problem *problem)
{
	const json_t *result = json_object_get(json, "result");
	const json_t *error = json_object_get(json, "error");
	message->kind = MESSAGE_RESPONSE;
	if (!message->id)
		return message_invalid(problem, "a response needs the id of its request");
	if (!result == !error)
		return message_invalid(problem,
				       "a message has a `method`, a `result` or an `error`");
	if (error && !json_is_object(error))
		return message_invalid(problem, "`error` must be an object");
	return 0;
}

int message_read(json_t *json, struct message *ret_message, struct mcp_problem *problem)
{
	struct message *message = ret_message;
	*message = (struct message){0};
	if (!json_is_object(json))
		return message_invalid(problem, "a message must be a JSON object");
	json_t *id = json_object_get(json, "id");
	if (message_id_good(id))
		message->id = id;
	const char *version = json_string_value(json_object_get(json, "jsonrpc"));
	if (!version || strcmp(version, "2.0") != 0)
		return message_invalid(problem, "`jsonrpc` must be \"2.0\"");
	if (id && !message->id)
		return message_invalid(problem, "`id` must be a string or an integer");
	const json_t *method = json_object_get(json, "method");
	if (!method)
		return message_read_response(json, message, problem);
	if (!json_is_string(method))
		return message_invalid(problem, "`method` must be a string");
	message->kind = id ? MESSAGE_REQUEST : MESSAGE_NOTIFICATION;
	message->method = json_string_value(method);
	message->params = json_object_get(json, "params");
	if (message->params && !json_is_object(message->params))
		return problem_set(problem, MCP_INVALID_PARAMS, 400, "`params` must be an object");
	return 0;
}

bool message_id_equal(const json_t *a, const json_t *b)
{
	return a && b && json_equal(a, b);
}

void put_message_id(struct json_writer *writer, const char *key, const json_t *id)
{
	if (json_is_integer(id))
		put_int(writer, key, json_integer_value(id));
	else
		put_text_size(writer, key, json_string_value(id), json_string_length(id));
}

void put_problem(struct buffer *to, const json_t *id, const struct mcp_problem *problem)
{
	struct json_writer writer = json_writer_on(to);
	put_object(&writer, NULL);
	put_text(&writer, "jsonrpc", "2.0");
	if (id)
		put_message_id(&writer, "id", id);
	else if (problem->id[0])
		put_json(&writer, "id", problem->id, strlen(problem->id));
	put_object(&writer, "error");
	put_int(&writer, "code", problem->code);
	put_text(&writer, "message", problem->text);
	if (problem->data[0])
		put_json(&writer, "data", problem->data, strlen(problem->data));
	put_object_end(&writer);
	put_object_end(&writer);
}

void batch_collect(struct buffer *answers, const json_t *id, const struct buffer *message)
{
	struct buffer instead DONE_BUFFER = BUFFER(16 * KIB);
	if (answers->size + message->size > MCP_ANSWER_MAX) {
		struct mcp_problem problem;
		problem_set(&problem, MCP_INTERNAL_ERROR, 200, "the batch's answer is too large");
		put_problem(&instead, id, &problem);
		message = &instead;
	}
	if (buffer_append_text(answers, answers->size ? "," : "[") < 0 ||
	    buffer_append(answers, message->data, message->size) < 0)
		buffer_clear(answers); /* its elements were bounded, so this cannot happen */
}

/* --- the memory that messages take (memory.h) --- */

struct account {
	struct list link;
	char workspace[WORKSPACE_MAX + 1];
	size_t messages; /* that are in it */
	size_t taken;
};

struct memory {
	unsigned references;
	char workspace[WORKSPACE_MAX + 1];
	struct account *account; /* NULL while it is small */
	size_t size;
};

static struct list accounts = {&accounts, &accounts};
static size_t all_taken;

static struct account *memory_account_find(const char *workspace)
{
	list_each (&accounts, node) {
		struct account *account = list_entry(node, struct account, link);
		if (strcmp(account->workspace, workspace) == 0)
			return account;
	}
	struct account *account = calloc(1, sizeof(*account));
	if (!account)
		abort();
	(void)!text_copy(account->workspace, sizeof(account->workspace), workspace);
	list_append(&accounts, &account->link);
	return account;
}

struct memory *memory_new(const char *workspace)
{
	struct memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		abort();
	memory->references = 1;
	(void)!text_copy(memory->workspace, sizeof(memory->workspace), workspace);
	return memory;
}

struct memory *memory_hold(struct memory *memory)
{
	if (memory)
		memory->references++;
	return memory;
}

/* How much a message of that size is counted. */
static size_t message_counted_size(size_t size)
{
	return size > MEMORY_SMALL ? size : 0;
}

void memory_release(struct memory **memory)
{
	struct memory *gone = TAKE_PTR(*memory);
	if (!gone || --gone->references > 0)
		return;
	struct account *account = gone->account;
	if (account) {
		account->taken -= message_counted_size(gone->size);
		all_taken -= message_counted_size(gone->size);
		if (--account->messages == 0) {
			list_remove(&account->link);
			free(account);
		}
	}
	free(gone);
}

bool memory_grow(struct memory *memory, size_t more)
{
	size_t added =
	    message_counted_size(memory->size + more) - message_counted_size(memory->size);
	if (added > 0 && !memory->account) {
		memory->account = memory_account_find(memory->workspace);
		memory->account->messages++;
	}
	struct account *account = memory->account;
	if (added > 0) {
		if (account->taken + added > MEMORY_WORKSPACE_MAX || all_taken + added > MEMORY_MAX)
			return false;
		account->taken += added;
		all_taken += added;
	}
	memory->size += more;
	return true;
}

void memory_problem(struct mcp_problem *problem)
{
	problem_set(problem, MCP_INTERNAL_ERROR, 503,
		    "the messages under way take all the memory there is for them; try again when "
		    "some of them are answered");
	snprintf(problem->data, sizeof(problem->data), "{\"retryable\":true}");
}
