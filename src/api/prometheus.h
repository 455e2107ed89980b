/* What /metrics counts of requests. */
#pragma once

#include "http/http.h"

/* Once, before the daemon gives up what it may open. */
void prometheus_start(void);
/* For struct http_handlers: counts the request by its route. */
void prometheus_answered(void *context, struct http_exchange *exchange, int status);
