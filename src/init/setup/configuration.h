/* Settings for every process to be started, from the set-up and from CONFIGURE. Filled once by
 * PID 1 and inherited by fork; a launcher that was forked before CONFIGURE receives it in a
 * message. */
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
