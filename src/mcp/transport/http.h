/* Streamable HTTP: declarations that its files share. */
#pragma once

#include "edge/call.h"
#include "mcp/transport/message.h"
#include "mcp/server.h"

/* http_post.c, http_get.c: called after routes.c has determined the principal and the view. */
void http_post(struct call *call, struct mcp_server *server, const struct mcp_view *view);
void http_get(struct call *call, struct mcp_server *server, const struct mcp_view *view);
void http_delete(struct call *call, struct mcp_server *server, const struct mcp_view *view);

/* Answers with a JSON-RPC error and its status. id may be NULL. */
void http_problem(struct call *call, const json_t *id, const struct mcp_problem *problem);
/* 401 or 403 with a challenge; `scope` is the required scope. */
void http_challenge(struct call *call, const struct error *error, enum scope scope);
#define CHALLENGE_MAX 1024
/* The value of WWW-Authenticate. */
void http_challenge_text(struct call *call, bool forbidden, enum scope scope,
			 char text[CHALLENGE_MAX]);

/* well_known.c: RFC 9728. */
#define METADATA_PATH "/.well-known/oauth-protected-resource"
void metadata_get(struct call *call);
/* "scheme://host" as the client addressed us; false: its Host cannot be repeated. */
bool http_base_url(const struct call *call, char *to, size_t room);

/* A header that was sent once; NULL: missing, or sent twice. */
const char *http_single_header(const void *exchange, const char *name);
