/* Which request goes where: the table of routes, and what is the same for all of them: match,
 * authenticate, authorise, look the sandbox up, read and parse the body. Called by the HTTP layer
 * for every request head, on the loop; nothing blocks: large bodies are parsed in a thread. */
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

#define READ SCOPE_READ
#define WRITE SCOPE_WRITE
#define ADMIN SCOPE_ADMIN
#define SB "/v1/sandboxes/{sandbox}"
#define EX SB "/execs/{exec}"

/* Bytes in base64 within JSON: for clients that cannot stream. Larger files go by PUT. */
#define FILE_JSON_BODY_MAX (12 * MIB)

const struct route api_routes[] = {
    {"GET", "/healthz", READ, ROUTE_OPEN, health_get},
    {"GET", "/v1/openapi.json", READ, ROUTE_OPEN, openapi_get},
    {"GET", "/v1/version", READ, 0, version_get},
    {"POST", "/v1/sandboxes", WRITE, ROUTE_JSON, sandbox_post},
    {"GET", "/v1/sandboxes", READ, 0, sandboxes_get, "state,name,all,limit,cursor"},
    {"GET", SB, READ, 0, sandbox_get},
    {"PATCH", SB, WRITE, ROUTE_SANDBOX | ROUTE_JSON, sandbox_patch},
    {"DELETE", SB, WRITE, ROUTE_SANDBOX, sandbox_delete_call},
    {"POST", SB "/stop", WRITE, ROUTE_SANDBOX, sandbox_stop_post},
    {"POST", SB "/start", WRITE, ROUTE_SANDBOX, sandbox_start_post},
    {"POST", SB "/pause", WRITE, ROUTE_SANDBOX, sandbox_pause_post},
    {"POST", SB "/resume", WRITE, ROUTE_SANDBOX, sandbox_resume_post},
    {"GET", SB "/metrics", READ, ROUTE_SANDBOX, sandbox_metrics_get},
    {"POST", SB "/exec", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_post, "detach"},
    {"GET", SB "/execs", READ, ROUTE_SANDBOX, execs_get, "limit"},
    {"GET", EX, READ, ROUTE_SANDBOX, exec_get},
    {"GET", EX "/output", READ, ROUTE_SANDBOX, exec_output_get, "stream,from,limit,follow"},
    {"POST", EX "/signal", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_signal_post},
    {"POST", EX "/stdin", WRITE, ROUTE_SANDBOX, exec_stdin_post, "close"},
    {"DELETE", EX, WRITE, ROUTE_SANDBOX, exec_delete},
    {"GET", SB "/files", READ, ROUTE_SANDBOX, file_get, "path,offset,length,user"},
    {"PUT", SB "/files", WRITE, ROUTE_SANDBOX, file_put,
     "path,mode,append,parents,no_replace,user"},
    {"POST", SB "/files", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_post, NULL, FILE_JSON_BODY_MAX},
    {"DELETE", SB "/files", WRITE, ROUTE_SANDBOX, file_delete, "path,recursive,user"},
    {"GET", SB "/files/stat", READ, ROUTE_SANDBOX, file_stat_get, "path,follow,user"},
    {"GET", SB "/files/list", READ, ROUTE_SANDBOX, file_list_get, "path,limit,user"},
    {"GET", SB "/files/readlink", READ, ROUTE_SANDBOX, file_readlink_get, "path,user"},
    {"GET", SB "/files/glob", READ, ROUTE_SANDBOX, file_glob_get, "pattern,path,hidden,limit,user"},
    {"GET", SB "/files/grep", READ, ROUTE_SANDBOX, file_grep_get,
     "pattern,path,regex,ignore_case,glob,limit,user"},
    {"GET", SB "/files/watch", READ, ROUTE_SANDBOX, file_watch_get, "path,recursive,user"},
    {"POST", SB "/files/mkdir", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_mkdir_post},
    {"POST", SB "/files/rename", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_rename_post},
    {"POST", SB "/files/copy", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_copy_post},
    {"POST", SB "/files/symlink", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_symlink_post},
    {"POST", SB "/files/chmod", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_chmod_post},
    {"POST", SB "/files/chown", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_chown_post},
    {"POST", SB "/files/replace", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_replace_post},
    {"POST", "/v1/tokens", ADMIN, ROUTE_JSON, token_post},
    {"GET", "/v1/tokens", ADMIN, 0, tokens_get},
    {"DELETE", "/v1/tokens/{token}", ADMIN, 0, token_delete},
    {"POST", "/mcp", READ, 0, mcp_unsupported},
    {"PUT", "/mcp", READ, 0, mcp_unsupported},
    {"POST", "/api/sandboxes/mcp", READ, 0, mcp_unsupported},
    {"PUT", "/api/sandboxes/mcp", READ, 0, mcp_unsupported},
    {0},
};

/* --- the table itself --- */

/* The parameters of a pattern, or -1 when it is none: absolute, each `{...}` a whole segment. */
static int pattern_parameters(const char *pattern)
{
	int count = 0;
	if (pattern[0] != '/')
		return -1;
	for (const char *at = pattern; *at; at++) {
		if (*at == '}' || (*at == '{' && at[-1] != '/'))
			return -1;
		if (*at != '{')
			continue;
		at += 1 + strcspn(at + 1, "/{}");
		if (*at != '}' || (at[1] != '/' && at[1] != '\0'))
			return -1;
		count++;
	}
	return count;
}

/* Whether some path is matched by both. */
static bool patterns_meet(const char *a, const char *b)
{
	while (*a == '/' && *b == '/') {
		size_t left = strcspn(++a, "/"), right = strcspn(++b, "/");
		if (*a != '{' && *b != '{' && (left != right || memcmp(a, b, left) != 0))
			return false;
		a += left;
		b += right;
	}
	return *a == '\0' && *b == '\0';
}

int routes_check(const struct route *routes, struct error *error)
{
	for (const struct route *route = routes; route->method; route++) {
		int parameters = pattern_parameters(route->pattern);
		size_t methods = 0;
		const char *wrong = NULL;
		for (const struct route *other = routes; other->method; other++) {
			if (!patterns_meet(route->pattern, other->pattern))
				continue;
			methods += strlen(other->method) + 2;
			if (other < route && strcmp(other->method, route->method) == 0 &&
			    strcmp(other->pattern, route->pattern) == 0)
				wrong = "it stands there twice";
		}
		if (parameters < 0)
			wrong = "its pattern is malformed";
		else if (parameters > CALL_PARAMETERS_MAX)
			wrong = "it has more parameters than a call can hold";
		else if (route->flags & ROUTE_SANDBOX &&
			 (parameters == 0 ||
			  !text_starts(strchr(route->pattern, '{'), "{sandbox}")))
			wrong = "it looks for a sandbox that its path does not name";
		else if (methods > CALL_ALLOW_MAX)
			wrong = "the methods of its path do not fit into one Allow header";
		else if (!route->handle)
			wrong = "it has no handler";
		if (wrong)
			return error_set(error, ERROR_INTERNAL, "the route %s %s: %s",
					 route->method, route->pattern, wrong);
	}
	return 0;
}

void api_start(void)
{
	struct error error;
	if (routes_check(api_routes, &error) < 0) {
		log_error("%s", error.message);
		abort();
	}
}

/* --- which one it is --- */

/* A `{...}` segment takes what stands there up to the next '/'. routes_check() has seen that there
 * are not too many. */
static bool path_matches(const char *pattern, const char *path,
			 char parameters[CALL_PARAMETERS_MAX][CALL_PARAMETER_MAX])
{
	int at = 0;
	while (*pattern) {
		if (*pattern != '{') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		size_t size = strcspn(path, "/");
		if (size == 0 || size >= CALL_PARAMETER_MAX)
			return false;
		memcpy(parameters[at], path, size);
		parameters[at++][size] = '\0';
		path += size;
		pattern = strchr(pattern, '}') + 1;
	}
	return *path == '\0';
}

static bool method_matches(const struct route *route, const char *method)
{
	return strcmp(route->method, method) == 0 ||
	       (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* The route, or NULL with NO_ROUTE or METHOD_NOT_ALLOWED and the methods there are. */
static const struct route *match(struct call *call, const struct http_request *request,
				 struct error *error)
{
	size_t used = 0; /* routes_check() has seen that all of them fit */
	for (const struct route *route = api_routes; route->method; route++) {
		if (!path_matches(route->pattern, request->path, call->parameters))
			continue;
		if (method_matches(route, request->method))
			return route;
		used += (size_t)snprintf(call->allow + used, sizeof(call->allow) - used, "%s%s",
					 used ? ", " : "", route->method);
	}
	if (used)
		error_set(error, ERROR_METHOD_NOT_ALLOWED, "%s is not possible here; possible: %s",
			  request->method, call->allow);
	else
		error_set(error, ERROR_NO_ROUTE,
			  "there is no such route; /v1/openapi.json lists them");
	return NULL;
}

/* A misspelt parameter must not be silently ignored: `recursve=1` would remove something else. */
static int check_query(const struct route *route, const char *query, struct error *error)
{
	while (*query) {
		size_t size = strcspn(query, "&"), name = strcspn(query, "=&");
		bool known = size == 0;
		for (const char *at = route->query; at && *at && !known;) {
			size_t length = strcspn(at, ",");
			known = length == name && memcmp(at, query, name) == 0;
			at += length + (at[length] == ',');
		}
		if (!known)
			return error_set(error, ERROR_INVALID, "unknown query parameter `%.*s`",
					 (int)MIN(name, (size_t)100), query);
		query += size + (query[size] == '&');
	}
	return 0;
}

/* Another workspace's sandbox, or another than a token is bound to, is not found: nobody learns
 * that it exists. */
static int find_sandbox(struct call *call, struct error *error)
{
	struct sandbox *sandbox;
	if (sandbox_find(call->api->core, &call->principal, call->parameters[0], &sandbox, error) <
	    0)
		return -1;
	call->sandbox = sandbox->row.id;
	return 0;
}

static void body_data(struct call *call, const char *data, size_t size)
{
	/* The HTTP layer has the same maximum and answers 413 by itself. */
	if (buffer_append(&call->raw, data, size) < 0) {
		struct error error;
		error_set(&error, ERROR_TOO_LARGE, "the body is larger than %zu bytes",
			  call->raw.maximum);
		reply_error(call, &error);
	}
}

/* --- the body --- */

/* jansson takes some 50 ns a byte. What would hold up the loop goes to libuv's thread pool. */
#define PARSE_INLINE_MAX (16 * KIB)

struct parse {
	uv_work_t work;
	struct call *call; /* held */
	struct buffer raw;
	json_t *body;
	struct error error;
	int result;
};

static void parse_body(const struct buffer *raw, json_t **body, int *result, struct error *error)
{
	/* No body asks for nothing in particular. */
	bool empty = raw->size == 0;
	*result = json_parse(empty ? "{}" : raw->data, empty ? 2 : raw->size, body, error);
}

static void body_parsed(struct call *call, int result, const struct error *error)
{
	if (!call->exchange)
		return;
	if (result < 0)
		reply_error(call, error);
	else
		call->route->handle(call);
}

/* In a thread: touches nothing but the parse. */
static void parse_work(uv_work_t *work)
{
	struct parse *parse = container_of(work, struct parse, work);
	parse_body(&parse->raw, &parse->body, &parse->result, &parse->error);
}

static void parse_after(uv_work_t *work, int status)
{
	struct parse *parse = container_of(work, struct parse, work);
	struct call *call = parse->call;
	if (status < 0)
		parse->result = error_set(&parse->error, ERROR_CANCELLED, "the daemon ends");
	call->body = parse->body;
	body_parsed(call, parse->result, &parse->error);
	call_release(call);
	buffer_done(&parse->raw);
	free(parse);
}

static void body_end(struct call *call)
{
	call->stream.on_data = NULL;
	call->stream.on_end = NULL;
	if (call->raw.size > PARSE_INLINE_MAX) {
		struct parse *parse = calloc(1, sizeof(*parse));
		if (!parse)
			abort();
		parse->call = call_hold(call);
		parse->raw = call->raw;
		call->raw = BUFFER(0);
		uv_queue_work(call->api->core->loop, &parse->work, parse_work, parse_after);
		return;
	}
	struct error error;
	int result;
	parse_body(&call->raw, &call->body, &result, &error);
	buffer_done(&call->raw);
	body_parsed(call, result, &error);
}

static int admit(struct call *call, const struct http_request *request, struct error *error)
{
	const struct route *route = call->route;
	if (route->flags & ROUTE_OPEN)
		return check_query(route, request->query, error);
	if (authenticate(call, error) < 0 || authorize(&call->principal, route->scope, error) < 0 ||
	    check_query(route, request->query, error) < 0)
		return -1;
	if (route->flags & ROUTE_SANDBOX && find_sandbox(call, error) < 0)
		return -1;
	return 0;
}

void api_handle(void *context, struct http_exchange *exchange)
{
	struct api *api = context;
	const struct http_request *request = http_request(exchange);
	struct call *call = call_new(api, exchange);
	struct error error;
	call->route = match(call, request, &error);
	api->last_route = call->route ? call->route->pattern : "no route";
	/* A stranger is not told which paths there are. */
	if (!call->route) {
		struct error refused;
		reply_error(call, authenticate(call, &refused) < 0 ? &refused : &error);
		return;
	}
	if (admit(call, request, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (!(call->route->flags & ROUTE_JSON)) {
		call->route->handle(call);
		return;
	}
	size_t maximum = call->route->body_max ? call->route->body_max : HTTP_JSON_BODY_MAX;
	call->raw = BUFFER(maximum);
	call->stream.on_data = body_data;
	call->stream.on_end = body_end;
	http_body_read(exchange, maximum);
}
