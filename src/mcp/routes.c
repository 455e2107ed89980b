/* The URLs of MCP: the view and the required rights of each. Called by the router for every
 * request; passes it on to mcp/transport/http_post.c and mcp/transport/http_get.c. For the router
 * these routes are open, since everything is checked here: a refusal must carry the challenge that
 * MCP clients look for. Nothing blocks. */
#include "mcp/mcp.h"

#include <stdio.h>
#include <string.h>

#include "base/statistics.h"
#include "base/text.h"
#include "core/account/access.h"
#include "mcp/transport/http.h"
#include "mcp/transport/lines.h"

#define SANDBOX_MCP "/v1/sandboxes/{sandbox}/mcp"

const char *http_single_header(const void *exchange, const char *name)
{
	const struct http_request *request = http_request(exchange);
	const char *value = NULL;
	for (size_t i = 0; i < request->header_count; i++) {
		if (request->headers[i].name[0] != name[0] ||
		    strcmp(request->headers[i].name, name) != 0)
			continue;
		if (value)
			return NULL;
		value = request->headers[i].value;
	}
	return value;
}

/* --- refusals --- */

static void respond_problem(struct call *call, const json_t *id, const struct mcp_problem *problem,
			    const struct http_header *header)
{
	struct buffer body DONE_BUFFER = BUFFER(16 * KIB);
	put_problem(&body, id, problem);
	http_respond(call->exchange, problem->status, "application/json", header, header ? 1 : 0,
		     body.data, body.size);
	call_answered(call);
}

void http_problem(struct call *call, const json_t *id, const struct mcp_problem *problem)
{
	respond_problem(call, id, problem, NULL);
}

void http_challenge_text(struct call *call, bool forbidden, enum scope scope,
			 char text[CHALLENGE_MAX])
{
	char base[512], metadata[512 + 256] = "";
	bool sent = http_header(call->exchange, "authorization") != NULL;
	const char *path = http_request(call->exchange)->path;
	if (strlen(path) < 128 && !strpbrk(path, "\"\\ ") &&
	    http_base_url(call, base, sizeof(base)))
		snprintf(metadata, sizeof(metadata),
			 ", resource_metadata=\"%s" METADATA_PATH "%s\"", base, path);
	if (forbidden)
		snprintf(text, CHALLENGE_MAX,
			 "Bearer realm=\"caisson\", error=\"insufficient_scope\", scope=\"%s\"%s",
			 scope_name(scope), metadata);
	else
		snprintf(text, CHALLENGE_MAX, "Bearer realm=\"caisson\"%s%s",
			 sent ? ", error=\"invalid_token\"" : "", metadata);
}

void http_challenge(struct call *call, const struct error *error, enum scope scope)
{
	const struct error_info *info = error_info(error->kind);
	struct mcp_problem problem;
	char text[CHALLENGE_MAX];
	problem_set(&problem, (enum mcp_code)info->rpc_code, info->http_status, "%s%s%s",
		    error->message, info->advice[0] ? ". " : "", info->advice);
	http_challenge_text(call, info->http_status == 403, scope, text);
	respond_problem(call, NULL, &problem, &(struct http_header){"WWW-Authenticate", text});
}

/* An error of the domain, before any message was read. */
static void mcp_call_refuse(struct call *call, const struct error *error)
{
	const struct error_info *info = error_info(error->kind);
	struct mcp_problem problem;
	problem_set(&problem, (enum mcp_code)info->rpc_code, info->http_status, "%s",
		    error->message);
	http_problem(call, NULL, &problem);
}

/* A refusal of the lines of `caisson mcp` is not in MCP's form. */
static bool mcp_owns(const char *path)
{
	static const char *const others[] = {"/mcp", "/v1/mcp", "/api/sandboxes/mcp"};
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (strcmp(path, others[i]) == 0)
			return true;
	}
	if (text_starts(path, "/mcp/"))
		return strcmp(path, MCP_LINES_PATH) != 0;
	if (!text_starts(path, "/v1/sandboxes/"))
		return false;
	const char *rest = strchr(path + strlen("/v1/sandboxes/"), '/');
	return rest && strcmp(rest, "/mcp") == 0;
}

static void mcp_refuse_unrouted(struct call *call, const struct error *error)
{
	const struct error_info *info = error_info(error->kind);
	struct mcp_problem problem;
	statistics.errors[error->kind]++;
	if (info->http_status == 401) {
		http_challenge(call, error, SCOPE_READ);
		return;
	}
	enum mcp_code code =
	    info->http_status == 405 ? MCP_INVALID_REQUEST : (enum mcp_code)info->rpc_code;
	problem_set(&problem, code, info->http_status, "%s", error->message);
	respond_problem(call, NULL, &problem,
			call->allow[0] ? &(struct http_header){"Allow", call->allow} : NULL);
}

/* --- who, and what they see --- */

static int face_unknown(struct error *error)
{
	struct buffer names DONE_BUFFER = BUFFER(KIB);
	for (size_t i = 0; face_name(i); i++)
		(void)!buffer_printf(&names, ", /mcp/%s", face_name(i));
	return error_set(error, ERROR_NO_ROUTE,
			 "there is no server of that name; there are /mcp, /mcp/readonly, "
			 "/mcp/x/TOOLSETS%s",
			 buffer_text(&names));
}

static int call_find_face(struct call *call, struct mcp_server *server, struct mcp_view *view,
			  struct error *error)
{
	const char *pattern = call->route->pattern;
	*view = (struct mcp_view){.face = mcp_home_face,
				  .toolsets = TOOLSET_DEFAULT,
				  .block_seconds = server->core->config.mcp_block_seconds};
	if (strcmp(pattern, SANDBOX_MCP) == 0) {
		view->face = &pandastack_face;
	} else if (text_starts(pattern, "/mcp/x/")) {
		if (toolsets_parse(call->parameters[0], &view->toolsets, error) < 0) {
			error->kind = ERROR_NO_ROUTE;
			return -1;
		}
	} else if (strcmp(pattern, "/mcp/admin") == 0) {
		view->face = &admin_face;
	} else if (strcmp(pattern, "/mcp/{face}") == 0) {
		view->face = face_by_name(call->parameters[0]);
		if (!view->face)
			return face_unknown(error);
	}
	size_t size = strlen(pattern), end = strlen("/readonly");
	view->read_only = size > end && strcmp(pattern + size - end, "/readonly") == 0;
	return 0;
}

static bool mcp_call_admit(struct call *call, struct mcp_server *server, struct mcp_view *view)
{
	struct sandbox *sandbox;
	struct error error;
	if (call_authenticate(call, &error) < 0) {
		http_challenge(call, &error, SCOPE_READ);
		return false;
	}
	if (call_find_face(call, server, view, &error) < 0) {
		mcp_call_refuse(call, &error);
		return false;
	}
	call_server_url(call, view->base);
	if (token_admit(&call->principal, view->face->scope, false, &error) < 0) {
		http_challenge(call, &error, view->face->scope);
		return false;
	}
	if (!(view->face->features & FACE_SANDBOX_EACH))
		return true;
	if (sandbox_find(call->core, &call->principal, call->parameters[0], &sandbox, &error) < 0) {
		mcp_call_refuse(call, &error);
		return false;
	}
	view->sandbox = sandbox->row.id;
	return true;
}

static struct mcp_server *served_server;

struct mcp_server *mcp_served(void)
{
	return served_server;
}

void mcp_serve(struct mcp_server *server)
{
	served_server = server;
}

static void mcp_call_enter(struct call *call,
			   void (*handle)(struct call *call, struct mcp_server *server,
					  const struct mcp_view *view))
{
	struct mcp_server *server = served_server;
	struct mcp_view view;
	struct error error;
	/* The router accepts every origin on a Unix socket, since browsers cannot reach it
	 * themselves; a program that forwards one there may not have checked it. */
	if (!http_origin_known(call->exchange)) {
		error_set(&error, ERROR_ORIGIN_FORBIDDEN,
			  "pages of that origin may not call this server");
		mcp_call_refuse(call, &error);
		return;
	}
	if (!server) {
		error_set(&error, ERROR_DAEMON_RESTARTING, "the server ends");
		mcp_call_refuse(call, &error);
		return;
	}
	if (mcp_call_admit(call, server, &view))
		handle(call, server, &view);
}

static void mcp_post(struct call *call)
{
	mcp_call_enter(call, http_post);
}

static void mcp_get(struct call *call)
{
	mcp_call_enter(call, http_get);
}

static void mcp_delete(struct call *call)
{
	mcp_call_enter(call, http_delete);
}

#define ENDPOINT(path)                                                                             \
	{"POST", path, READ, ROUTE_OPEN, mcp_post}, {"GET", path, READ, ROUTE_OPEN, mcp_get},      \
	    {"DELETE", path, READ, ROUTE_OPEN, mcp_delete},                                        \
	{                                                                                          \
		"GET", METADATA_PATH path, READ, ROUTE_OPEN, metadata_get                          \
	}

static const struct route routes[] = {
    ENDPOINT("/mcp"),
    ENDPOINT("/v1/mcp"),
    ENDPOINT("/api/sandboxes/mcp"),
    ENDPOINT("/mcp/readonly"),
    ENDPOINT("/mcp/x/{toolsets}"),
    ENDPOINT("/mcp/x/{toolsets}/readonly"),
    {"POST", MCP_LINES_PATH, READ, 0, lines_post, lines_query},
    ENDPOINT("/mcp/admin"),
    ENDPOINT("/mcp/{face}"),
    ENDPOINT(SANDBOX_MCP),
    {"GET", METADATA_PATH, READ, ROUTE_OPEN, metadata_get},
    {0},
};

static const struct route *const tables[] = {routes, NULL};
const struct surface mcp_surface = {
    .tables = tables, .owns = mcp_owns, .refuse = mcp_refuse_unrouted};
