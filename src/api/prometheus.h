/* The counters of requests for /metrics. */
#pragma once

#include "http/http.h"

/* Called once, before the daemon gives up the right to open files. */
void prometheus_start(void);
/* For struct http_handlers: counts the request by its route. */
void prometheus_answered(void *context, struct http_exchange *exchange, int status);
