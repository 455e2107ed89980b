/* Which runsc this host has: where, of which date, with which platforms. Called by the driver in
 * workers, since it runs runsc, which takes about 100 ms; what it said is kept in <state>/runsc for
 * the next start and boot, as long as the program is the same file. The shim asks for its path
 * alone. */
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
	char version[RUNSC_NAME_MAX]; /* as runsc says it: "0.0~20221219.0", "release-20240212.0"
				       */
	uint32_t date;                /* yyyymmdd out of it; 0: there is none */
	char platform[16];            /* the best that works without KVM: systrap, or ptrace */
};

/* The first of the places where one may be: 0 or -ENOENT. */
NODISCARD int runsc_find_path(char path[RUNSC_PATH_MAX]);
/* Asks it, unless its answer was kept. -1 with *error: TIER_UNAVAILABLE, and what is missing. */
NODISCARD int runsc_find(const struct host *host, struct runsc *ret_runsc, struct error *error);
/* Why `auto` does not choose it, for people; "" when it does. `now` is wall-clock time. */
void runsc_auto_objection(const struct runsc *runsc, int64_t now, char *text, size_t room);
