/* Decides from time and numbers alone whether refused forks are those of a fork bomb: see
 * process_limit.c, which looks at the numbers.
 *
 * The rule: each refused fork counts, and one is forgotten every 10 ms. It is a bomb if more than
 * 500 count, and two for each process, and 10 are added until the next look. So whatever pauses
 * it makes, a program that is refused more than 100 forks a second in the long run is ended.
 *
 * - A bomb written in C is refused 6000 to 13000 forks a second, one in Python 2000 to 4000, on a
 *   slow machine a tenth of that.
 * - 512 instances of bash that are all refused at once, and again after 1, 2, 4 and 8 s, are not
 *   ended. (At most 1348 count.)
 * - What was refused before a look may come from a program that has ended: nobody is ended if no
 *   more is refused. */
#pragma once

#include <stdint.h>

#include "base/clock.h"

#define REFUSAL_LASTS (10 * NSEC_PER_MSEC)
#define BOMB_REFUSALS 500
#define BOMB_REFUSALS_PER_PROCESS 2
#define BOMB_REFUSALS_GO_ON 10

struct fork_refusals {
	int64_t total;        /* at the last look, since the sandbox began */
	int64_t forgotten_at; /* when all of them will be forgotten */
};

/* Returns how many refusals above BOMB_REFUSALS counted before this look; 0 if they do not go on.
 * It is a bomb if these are more than BOMB_REFUSALS_PER_PROCESS for each process. */
int64_t fork_refusals_look(struct fork_refusals *counted, int64_t now, int64_t refusals);
/* When to look next. */
int64_t fork_refusals_next_look(const struct fork_refusals *counted, int64_t now);
