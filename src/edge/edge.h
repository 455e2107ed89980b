/* The edge for the daemon: hands HTTP requests to the surfaces that are mounted on it. */
#pragma once

#include <sys/types.h>

#include "core/core.h"
#include "edge/route.h"
#include "http/http.h"

#define SERVER_URL_MAX 320

struct edge {
	struct core *core;
	struct http_server *server; /* NULL until there is one; for what is counted of it */
	const struct surface *const *surfaces; /* NULL at the end */
	uid_t owner;            /* of the runtime directory: trusted on the Unix socket like root */
	const char *last_route; /* for the loop's watchdog: what was begun last */
	char url[SERVER_URL_MAX]; /* of the TCP door, as one of this host reaches it; "": none */
};

/* Once, before the first request: mounts the surfaces. A table of routes that does not hold is the
 * end. */
void edge_start(struct edge *edge, const struct surface *const *surfaces);
/* For struct http_handlers: context is the edge. */
void edge_handle(void *context, struct http_exchange *exchange);
