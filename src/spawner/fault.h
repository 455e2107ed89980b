/* The spawner's fault points (base/fault.h), one per request served and per message sent, and
 * its part in moving time. Empty without -Dfault_points=true. */
#pragma once

#include "proto/spawn_fault.h"

#ifdef CAISSON_FAULT_POINTS

void spawner_fault_serve(const struct spawn_message *request, enum fault_moment moment);
void spawner_fault_send(const struct spawn_message *message, enum fault_moment moment);
#define FAULT_SERVE(request, moment) spawner_fault_serve(request, FAULT_##moment)
#define FAULT_SEND(message, moment) spawner_fault_send(message, FAULT_##moment)
/* Called with the time-out of each loop iteration; returns a shorter one. */
int spawner_fault_turn(int timeout_ms);
#define FAULT_TIMEOUT(timeout_ms) spawner_fault_turn(timeout_ms)

#else

#define FAULT_SERVE(request, moment) ((void)0)
#define FAULT_SEND(message, moment) ((void)0)
#define FAULT_TIMEOUT(timeout_ms) (timeout_ms)

#endif
