/* Dispatches requests: checks the tables of the mounted surfaces, and does the common steps: match,
 * authenticate, authorise, look up the sandbox, read and parse the body. Called by the HTTP layer
 * for every request head, on the loop, as pieces of work of the caller's token (base/work.h); large
 * bodies are parsed in a thread. Nothing blocks. */
#include "edge/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "core/activity/activity.h"
#include "edge/call.h"
#include "edge/json/json_thread.h"
#include "edge/route_index.h"

/* --- the table itself --- */

/* The number of parameters of a pattern, or -1 if it is invalid: it must be absolute, and each
 * `{...}` a whole segment. */
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

/* Is there a path that both match? */
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

/* The methods of the paths that this pattern meets, as in an Allow header; `wrong` if a method
 * occurs twice. */
static size_t methods_beside(const struct route *const *tables, const struct route *route,
			     const char **wrong)
{
	size_t methods = 0;
	for (const struct route *const *table = tables; *table; table++) {
		for (const struct route *other = *table; other->method; other++) {
			if (!patterns_meet(route->pattern, other->pattern))
				continue;
			methods += strlen(other->method) + 2;
			if (other != route && strcmp(other->method, route->method) == 0 &&
			    strcmp(other->pattern, route->pattern) == 0)
				*wrong = "it stands there twice";
		}
	}
	return methods;
}

static int route_check(const struct route *const *tables, const struct route *route,
		       struct error *error)
{
	int parameters = pattern_parameters(route->pattern);
	const char *wrong = NULL;
	size_t methods = methods_beside(tables, route, &wrong);
	if (parameters < 0)
		wrong = "its pattern is malformed";
	else if (parameters > CALL_PARAMETERS_MAX)
		wrong = "it has more parameters than a call can hold";
	else if (route->flags & ROUTE_SANDBOX &&
		 (parameters == 0 || !text_starts(strchr(route->pattern, '{'), "{sandbox}")))
		wrong = "it looks for a sandbox that its path does not name";
	else if (methods > CALL_ALLOW_MAX)
		wrong = "the methods of its path do not fit into one Allow header";
	else if (!route->handle)
		wrong = "it has no handler";
	if (wrong)
		return error_set(error, ERROR_INTERNAL, "the route %s %s: %s", route->method,
				 route->pattern, wrong);
	return 0;
}

int routes_check(const struct route *const *tables, struct error *error)
{
	for (const struct route *const *table = tables; *table; table++)
		for (const struct route *route = *table; route->method; route++)
			if (route_check(tables, route, error) < 0)
				return -1;
	return 0;
}

void route_tables(const struct surface *const *surfaces,
		  const struct route *tables[ROUTE_TABLES_MAX + 1])
{
	size_t count = 0;
	for (; *surfaces; surfaces++) {
		for (const struct route *const *table = (*surfaces)->tables; *table; table++) {
			if (count == ROUTE_TABLES_MAX)
				abort();
			tables[count++] = *table;
		}
	}
	tables[count] = NULL;
}

void edge_start(struct edge *edge, const struct surface *const *surfaces)
{
	const struct route *tables[ROUTE_TABLES_MAX + 1];
	struct error error;
	route_tables(surfaces, tables);
	if (routes_check(tables, &error) < 0) {
		log_error("%s", error.message);
		abort();
	}
	route_index_build(tables);
	edge->surfaces = surfaces;
}

/* --- the body --- */

/* A larger body would exceed a piece of work, so a thread parses it. */
#define PARSE_INLINE_MAX (4 * KIB)

static void call_body_data(struct call *call, const char *data, size_t size)
{
	/* The HTTP layer has the same maximum and answers 413 itself. */
	if (buffer_append(&call->raw, data, size) < 0) {
		struct error error;
		error_set(&error, ERROR_TOO_LARGE, "the body is larger than %zu bytes",
			  call->raw.maximum);
		reply_error(call, &error);
	}
}

static int call_parse_body(const char *data, size_t size, json_t **ret_body, void *error)
{
	/* No body means no fields. */
	return json_parse(size ? data : "{}", size ? size : 2, ret_body, error);
}

/* After core_let_go() the daemon cannot report the result of a request any more. */
static void call_handle(struct call *call)
{
	struct error error;
	if (!(call->route->flags & ROUTE_OPEN) && core_check_serving(call->core, &error) < 0)
		reply_error(call, &error);
	else
		call->route->handle(call);
}

/* Releases the call. */
static void body_parsed(void *data, json_t *body, const void *error)
{
	struct call *call = data;
	call->body = body;
	if (call->exchange && body)
		call_handle(call);
	else if (call->exchange)
		reply_error(call, error);
	call_release(call);
}

static void call_body_end(struct call *call)
{
	static const struct json_parser parser = {call_parse_body, sizeof(struct error)};
	struct error error;
	call->stream.on_data = NULL;
	call->stream.on_end = NULL;
	call_hold(call);
	if (call->raw.size > PARSE_INLINE_MAX) {
		json_parse_begin(work_share_hold(call->share), &call->raw, &parser, body_parsed,
				 call);
		return;
	}
	json_t *body = NULL;
	if (call_parse_body(call->raw.data, call->raw.size, &body, &error) < 0)
		body = NULL;
	buffer_done(&call->raw);
	body_parsed(call, body, &error);
}

/* --- one request --- */

/* The first parameter that the route does not have is refused. A misspelt one must not be silently
 * ignored: `recursve=1` would remove something else. */
static int call_check_query_names(const struct route *route, const char *query, struct error *error)
{
	static const struct field secrets[] = {
	    {"token"}, {"access_token"}, {"api_key"}, {"apikey"}, {0}};
	if (route->flags & ROUTE_ANY_QUERY)
		return 0;
	for (size_t size; *query; query += size + (query[size] == '&')) {
		size_t name = strcspn(query, "=&");
		size = strcspn(query, "&");
		if (size == 0 || field_find(route->query, FIELDS_QUERY, query, name))
			continue;
		/* Addresses are logged and kept in histories. */
		if (field_find(secrets, FIELDS_QUERY, query, name))
			return error_set(error, ERROR_INVALID,
					 "a token is not taken from the URL: send it in the header "
					 "`Authorization: Bearer TOKEN`");
		return error_set(error, ERROR_INVALID, "unknown query parameter `%.*s`",
				 (int)MIN(name, (size_t)100), query);
	}
	return 0;
}

/* Authentication and authorization. A sandbox of another workspace, or another than the token's, is
 * not found: nobody learns that it exists. */
static int call_admit(struct call *call, const struct http_request *request, struct error *error)
{
	const struct route *route = call->route;
	struct sandbox *sandbox;
	bool open = route->flags & ROUTE_OPEN ||
		    (route->flags & ROUTE_METRICS && call->core->config.metrics_open);
	if (!open &&
	    (call_authenticate(call, error) < 0 ||
	     token_admit(&call->principal, route->scope, route->flags & ROUTE_UNBOUND, error) < 0))
		return -1;
	if (call_check_query_names(route, request->query, error) < 0)
		return -1;
	if (open || !(route->flags & ROUTE_SANDBOX))
		return 0;
	if (sandbox_find(call->core, &call->principal, call->parameters[0], &sandbox, error) < 0)
		return -1;
	call->sandbox = sandbox->row.id;
	return 0;
}

/* Before its route is known: refused in the form that clients of that path read. */
static void call_refuse(struct call *call, const struct error *error)
{
	const char *path = http_request(call->exchange)->path;
	for (const struct surface *const *surface = call->edge->surfaces; *surface; surface++) {
		if ((*surface)->owns && (*surface)->owns(path)) {
			(*surface)->refuse(call, error);
			return;
		}
	}
	reply_error(call, error);
}

/* No route has that path, or none with that method. A stranger does not learn which paths exist. */
static void call_refuse_unrouted(struct call *call, const struct http_request *request)
{
	struct error error;
	if (call_authenticate(call, &error) < 0) {
		call_refuse(call, &error);
		return;
	}
	if (call->allow[0])
		error_set(&error, ERROR_METHOD_NOT_ALLOWED, "%s is not possible here; possible: %s",
			  request->method, call->allow);
	else
		error_set(&error, ERROR_NO_ROUTE,
			  "there is no such route; /v1/openapi.json lists them, MCP is at /mcp");
	for (const struct surface *const *surface = call->edge->surfaces; *surface; surface++)
		if ((*surface)->explain)
			(*surface)->explain(call, request, &error);
	call_refuse(call, &error);
}

/* It is its turn: the share is known (call_find_share), everything else is determined now. */
static void call_begin(struct work *work)
{
	struct call *call = container_of(work, struct call, work);
	struct edge *edge = call->edge;
	const struct http_request *request = http_request(call->exchange);
	struct error error;
	call->route =
	    route_index_find(request->method, request->path, call->parameters, call->allow);
	edge->last_route = call->route ? call->route->pattern : "no route";
	/* The pattern, not the path: a parameter may be a secret. */
	log_debug("request %s: %s %s", call->request_id, request->method, edge->last_route);
	if (!call->route) {
		call_refuse_unrouted(call, request);
	} else if (call_admit(call, request, &error) < 0) {
		call_refuse(call, &error);
	} else if (!(call->route->flags & ROUTE_JSON)) {
		call_handle(call);
	} else {
		size_t maximum = call->route->body_max ? call->route->body_max : HTTP_JSON_BODY_MAX;
		call->raw = BUFFER(maximum);
		call->stream.on_data = call_body_data;
		call->stream.on_end = call_body_end;
		http_body_read(call->exchange, maximum);
	}
}

void edge_handle(void *context, struct http_exchange *exchange)
{
	struct call *call = call_new(context, exchange);
	struct error error;
	if (http_origin(exchange) == HTTP_ORIGIN_FOREIGN) {
		error_set(&error, ERROR_ORIGIN_FORBIDDEN,
			  "pages of that origin may not call this server");
		call_refuse(call, &error);
		return;
	}
	if (http_is_preflight(exchange)) {
		http_respond_preflight(exchange);
		call_answered(call);
		return;
	}
	call_find_share(call);
	call->work.run = call_begin;
	work_run(&call->work, call->share);
}
