/* Routes, and the surfaces that they belong to. A surface (REST, MCP) is a set of tables of routes
 * and the form of its refusals; the daemon's main mounts the surfaces, and the router does not
 * depend on a particular one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "core/account/token.h"
#include "http/http.h"

struct call;
struct field;

#define READ SCOPE_READ
#define WRITE SCOPE_WRITE
#define ADMIN SCOPE_ADMIN

enum route_flag {
	ROUTE_OPEN = 1 << 0,      /* no token needed */
	ROUTE_SANDBOX = 1 << 1,   /* {sandbox} is looked up: call->sandbox is a live one */
	ROUTE_JSON = 1 << 2,      /* the body is read and parsed first: call->body */
	ROUTE_ANY_QUERY = 1 << 3, /* query parameters are not checked */
	ROUTE_UNBOUND = 1 << 4,   /* not for a token that is bound to one sandbox */
	ROUTE_METRICS = 1 << 8,   /* no token needed if `[server] metrics_open` is set */
};

struct route {
	const char *method;
	const char *pattern; /* segments; {sandbox}, {exec}, {token} take one each */
	enum scope scope;
	uint32_t flags;
	void (*handle)(struct call *call);
	const struct field *query; /* what may be asked: call_query(); NULL: nothing */
	uint32_t body_max;         /* of ROUTE_JSON; 0 = HTTP_JSON_BODY_MAX */
	const struct field *body;  /* its fields: call_fields() */
};

/* Each function may be NULL. */
struct surface {
	/* NULL at the end; each table ends with a route without a method. */
	const struct route *const *tables;
	/* Requests to these paths are refused by `refuse`, even if no route is found; all others by
	 * reply_error(). */
	bool (*owns)(const char *path);
	void (*refuse)(struct call *call, const struct error *error);
	/* No route has that path, or not with that method: may replace `error` by a better one. The
	 * principal is known. */
	void (*explain)(struct call *call, const struct http_request *request, struct error *error);
};

/* The tables of all surfaces; both lists end with NULL. */
#define ROUTE_TABLES_MAX 64
void route_tables(const struct surface *const *surfaces,
		  const struct route *tables[ROUTE_TABLES_MAX + 1]);
/* Checks that every route of the tables can be matched within a call's bounds; -1 says which
 * cannot. */
NODISCARD int routes_check(const struct route *const *tables, struct error *error);
