/* Messages of a hostile client, line by line, through reading, envelope and dispatch, in both eras,
 * against a face of the fuzzer's own: tools that answer, fail, go on, report and ask. Whatever
 * comes back is one JSON-RPC message in one line. A line "H name=value" is a header for those that
 * follow, which are then held against the headers too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "mcp/transport/dispatch.h"
#include "mcp/mcp.h"
#include "mcp/server.h"
#include "mcp/transport/session.h"
#include "mcp/tools/tool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEADERS_MAX 8
#define FUZZ_LINE_MAX (256 * KIB)

static struct {
	char *name, *value;
} headers[HEADERS_MAX];
static size_t header_count;
static size_t sent;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void echo(struct mcp_request *request, const json_t *arguments)
{
	const char *text = json_string_value(json_object_get(arguments, "text"));
	mcp_progress_of(request, 1, 2, text);
	mcp_log(request, MCP_ERROR, NULL, text ? text : "");
	content_reply(request, "%s", text ? text : "nothing");
}

static void fail(struct mcp_request *request, const json_t *arguments)
{
	struct error error;
	(void)arguments;
	error_set(&error, ERROR_BUSY, "no room");
	mcp_fail(request, &error);
}

/* Goes on until it is cancelled. */
static void hold(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	mcp_progress(request, "held", 4);
	mcp_progress(request, "dropped", 7);
}

static void answered(struct mcp_request *request, void *data, const json_t *response)
{
	(void)data;
	if (!request->open)
		return;
	require(response != NULL);
	content_reply(request, "%s", json_object_get(response, "error") ? "refused" : "answered");
}

static void question(struct mcp_request *request, const json_t *arguments)
{
	(void)arguments;
	if (!request->session || session_request_client(request->session, request, "roots/list",
							"{}", answered, NULL) < 0)
		content_refuse(request, "nobody to ask");
}

static const struct mcp_tool tools[] = {
    {.name = "echo",
     .description = "",
     .input = "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\","
	      "\"x-mcp-header\":\"Text\"},\"n\":{\"type\":\"integer\",\"x-mcp-header\":\"N\"},"
	      "\"in\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"boolean\","
	      "\"x-mcp-header\":\"B\"}}}}}",
     .scope = SCOPE_READ,
     .call = echo},
    {.name = "fail", .description = "", .input = "{}", .scope = SCOPE_READ, .call = fail},
    {.name = "hold", .description = "", .input = "{}", .scope = SCOPE_READ, .call = hold},
    {.name = "ask", .description = "", .input = "{}", .scope = SCOPE_READ, .call = question},
    {.name = "admin", .description = "", .input = "{}", .scope = SCOPE_ADMIN, .call = echo},
    {0},
};
static const struct mcp_tool *const tables[] = {tools, NULL};
static const struct mcp_face face = {
    .name = "fuzz", .features = FACE_LOGGING, .scope = SCOPE_READ, .tools = tables};

/* --- what comes back --- */

static void on_send(struct mcp_connection *connection, const struct buffer *message)
{
	(void)connection;
	sent++;
	require(!memchr(message->data, '\n', message->size));
	json_t *json = json_loadb(message->data, message->size, JSON_REJECT_DUPLICATES, NULL);
	require(json != NULL);
	size_t index;
	json_t *element, *first = json_is_array(json) ? json : json_pack("[O]", json);
	json_array_foreach(first, index, element)
	{
		require(json_is_string(json_object_get(element, "jsonrpc")));
		require(!json_is_null(json_object_get(element, "id")));
	}
	if (first != json)
		json_decref(first);
	json_decref(json);
}

/* --- what goes in --- */

static const char *get_header(const void *data, const char *name)
{
	(void)data;
	for (size_t i = 0; i < header_count; i++)
		if (strcmp(headers[i].name, name) == 0)
			return headers[i].value;
	return NULL;
}

static void add_header(const char *line, size_t size)
{
	const char *equals = memchr(line, '=', size);
	if (!equals || header_count == HEADERS_MAX)
		return;
	headers[header_count].name = strndup(line, (size_t)(equals - line));
	headers[header_count].value = strndup(equals + 1, size - (size_t)(equals + 1 - line));
	header_count++;
}

static void drop_headers(void)
{
	for (; header_count > 0; header_count--) {
		free(headers[header_count - 1].name);
		free(headers[header_count - 1].value);
	}
}

/* As http_post.c does it. */
static void check_headers(const char *line, size_t size)
{
	struct mcp_headers given = {.get = get_header};
	struct mcp_problem problem = {0};
	struct envelope envelope;
	struct message message;
	json_t *json;
	if (message_parse(line, size, &json, &problem) < 0)
		return;
	const char *version = get_header(NULL, "mcp-protocol-version");
	if (message_read(json, &message, &problem) == 0 && message.kind == MESSAGE_REQUEST &&
	    envelope_modern(&message, version) &&
	    envelope_read(&message, version, &envelope, &problem) == 0 &&
	    envelope_check_headers(&message, &given, &problem) == 0)
		(void)!envelope_check_parameters(json_object_get(message.params, "arguments"),
						 tools[0].input, &given, &problem);
	struct buffer text = BUFFER(64 * KIB);
	put_problem(&text, message.id, &problem);
	buffer_done(&text);
	json_decref(json);
}

static void give(struct mcp_connection *connection, const char *line, size_t size)
{
	if (size == 0)
		return;
	if (size > 2 && line[0] == 'H' && line[1] == ' ') {
		add_header(line + 2, size - 2);
		return;
	}
	if (header_count > 0)
		check_headers(line, size);
	/* A copy of exactly that size. */
	char *copy = malloc(size);
	require(copy != NULL);
	memcpy(copy, line, size);
	bool more = mcp_receive(connection, copy, size);
	free(copy);
	while (!more && connection->parsing)
		uv_run(connection->server->core->loop, UV_RUN_ONCE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uv_loop_t loop;
	static struct core core;
	static struct mcp_server *server;
	if (!server) {
		uv_loop_init(&loop);
		core.loop = &loop;
		server = mcp_server_new(&core);
	}
	struct mcp_connection connection = {
	    .server = server,
	    .principal = {.workspace = "fuzz", .scopes = SCOPE_READ | SCOPE_WRITE},
	    .view = {.face = &face, .toolsets = TOOLSET_ALL},
	    .send = on_send};
	const char *text = (const char *)data, *end = text + size;
	mcp_connection_init(&connection);
	while (text < end) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));
		size_t length = (size_t)((line_end ? line_end : end) - text);
		give(&connection, text, MIN(length, (size_t)FUZZ_LINE_MAX));
		text += length + 1;
	}
	require(connection.requests.count <= REQUESTS_MAX);
	mcp_connection_done(&connection);
	size_t before = sent;
	uv_run(&loop, UV_RUN_NOWAIT);
	require(sent == before);
	drop_headers();
	return 0;
}
