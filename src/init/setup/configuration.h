/* What CONFIGURE and the set-up say about every process to be started. Filled once by PID 1; a
 * launcher that is there before it is told, runners have it by being forked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "init/setup/setup.h"
#include "proto/init_messages.h"

struct configuration {
	struct setup setup;
	bool configured;
	uint32_t environment_count;
	struct bytes environment; /* in environment_room */
	uint8_t environment_room[EXEC_REQUEST_BYTES_MAX];
};

extern struct configuration configuration;
