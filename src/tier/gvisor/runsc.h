/* Which runsc this host has: path, release date, platforms. Called by the driver in workers,
 * because running runsc takes about 100 ms. The answer is kept in <state>/runsc while the
 * program is the same file. The shim only needs the path. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "tier/driver.h"

#define RUNSC_PATH_MAX 64
#define RUNSC_NAME_MAX 64

struct runsc {
	char path[RUNSC_PATH_MAX];
	char version[RUNSC_NAME_MAX]; /* as runsc prints it: "0.0~20221219.0",
				       * "release-20240212.0" */
	uint32_t date;                /* yyyymmdd from the version; 0: none */
	char platform[16];            /* the best one without KVM: systrap or ptrace */
};

/* The first existing path: 0 or -ENOENT. */
NODISCARD int runsc_find_path(char path[RUNSC_PATH_MAX]);
/* Runs runsc unless its answer was kept. -1 with *error: TIER_UNAVAILABLE, and what is missing. */
NODISCARD int runsc_find(const struct host *host, struct runsc *ret_runsc, struct error *error);
/* Why `auto` does not choose it, as a message; "" when it does. `now` is wall-clock time. */
void runsc_auto_objection(const struct runsc *runsc, int64_t now, char *text, size_t room);
