/* /v1 for the daemon: hands HTTP requests to the domain. */
#pragma once

#include <sys/types.h>

#include "core/core.h"
#include "http/http.h"

struct api {
	struct core *core;
	struct http_server *server; /* NULL until there is one; for what is counted of it */
	uid_t owner;            /* of the runtime directory: trusted on the Unix socket like root */
	const char *last_route; /* for the loop's watchdog: what was begun last */
	char url[320];          /* of the TCP door, as one of this host reaches it; "": none */
};

/* Once, before the first request: a table of routes that does not hold is the end. */
void api_start(void);
/* For struct http_handlers: context is the api. */
void api_handle(void *context, struct http_exchange *exchange);
void api_answered(void *context, struct http_exchange *exchange, int status);
