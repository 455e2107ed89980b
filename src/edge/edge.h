/* The edge for the daemon: passes HTTP requests to the mounted surfaces. */
#pragma once

#include <sys/types.h>

#include "core/core.h"
#include "edge/route.h"
#include "http/http.h"

#define SERVER_URL_MAX 320

struct edge {
	struct core *core;
	struct http_server *server;            /* NULL until it exists; for its counters */
	const struct surface *const *surfaces; /* NULL at the end */
	uid_t owner;            /* of the runtime directory: trusted on the Unix socket like root */
	const char *last_route; /* for the loop's watchdog: the last begun route */
	char url[SERVER_URL_MAX]; /* of the TCP listener, as this host reaches it; "": none */
};

/* Called once, before the first request: mounts the surfaces. Invalid tables of routes end the
 * daemon. */
void edge_start(struct edge *edge, const struct surface *const *surfaces);
/* For struct http_handlers: context is the edge. */
void edge_handle(void *context, struct http_exchange *exchange);
