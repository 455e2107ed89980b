/* What /metrics counts of requests. */
#pragma once

#include "api/call.h"

/* Once, before the daemon gives up what it may open. */
void prometheus_start(void);
