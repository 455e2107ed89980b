/* The rule is in the header. No system call, no memory but the caller's. */
#include "init/exec/fork_refusals.h"

#include "base/macros.h"

#define BUSY_PAUSE (BOMB_REFUSALS_GO_ON * REFUSAL_LASTS)
/* While next to nothing is refused. (cgroup version 1 does not notify of a refusal: Linux 6.18.) */
#define QUIET_PAUSE (500 * NSEC_PER_MSEC)

int64_t fork_refusals_look(struct fork_refusals *counted, int64_t now, int64_t refusals)
{
	int64_t added = MAX(refusals - counted->total, 0);
	int64_t before = MAX(counted->forgotten_at, now);
	counted->total += added;
	counted->forgotten_at = before + added * REFUSAL_LASTS;
	if (added < BOMB_REFUSALS_GO_ON)
		return 0;
	return MAX((before - now) / REFUSAL_LASTS - BOMB_REFUSALS, 0);
}

int64_t fork_refusals_next_look(const struct fork_refusals *counted, int64_t now)
{
	return now + (counted->forgotten_at - now >= BUSY_PAUSE ? BUSY_PAUSE : QUIET_PAUSE);
}
