/* What /metrics counts of requests. */
#pragma once

#include "edge/call.h"

/* Once, before the daemon gives up what it may open. */
void prometheus_start(void);
