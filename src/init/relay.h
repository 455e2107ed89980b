/* Operations (files, port connections) as PID 1 sees them: it passes frames between the
 * connection and a runner and checks their type and credit, but not their contents. They belong
 * to one connection and end with it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "init/request.h"

#define OPERATIONS_MAX 128

void relay_begin(const struct request *request);
/* Has a runner read the command lines for an exec's LEFT_RUNNING. False: it cannot be done now. */
NODISCARD bool relay_begin_left_running(uint64_t key, const uint8_t *frame, size_t size);
void relay_data(const struct request *request);
void relay_data_end(uint64_t id);
void relay_credit(uint64_t id, uint32_t credit);
void relay_cancel(uint64_t id);
/* The connection has ended, and every operation with it. */
void relay_cancel_all(void);

/* False if the runner is dead: the operation gets another one. */
NODISCARD bool relay_send_to_runner(uint32_t index, uint32_t runner, const uint8_t *frame,
				    size_t size);
void relay_runner_failed(uint32_t index, const struct failure *failure);
void relay_runner_event(uint32_t index, uint32_t events);
/* The connection has room again: reads from the runners that had to wait. */
void relay_resume(void);
/* Does what is due now; returns when something is due next, or NEVER. */
int64_t relay_time(int64_t now);
