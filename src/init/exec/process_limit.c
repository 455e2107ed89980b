/* Ends a fork bomb. Called by the loop; reads a small file twice a second while a command runs,
 * and ten times a second while forks are refused.
 *
 * The limit of processes alone does not protect the host and other sandboxes. The kernel checks
 * it last in a fork, after it has copied all mappings of the caller, and each copy takes the
 * lock of the mapped file's inode. The files of /usr are the host's own, so every fork and exec
 * on the host and in other sandboxes takes the same locks, above all libc's. Hundreds of
 * processes that fork without a pause queue there: the host's own forks waited up to 31 s
 * (docs/isolation.md). RLIMIT_NPROC, which the kernel checks first, helped against a bomb
 * written in C but not against one in Python, and it counts each uid of the sandbox separately.
 *
 * A program whose forks are refused now and then only gets EAGAIN, as with any limit. */
#include "init/exec/process_limit.h"

#include "base/clock.h"
#include "init/exec/killing.h"
#include "init/exec/exec.h"
#include "init/runner/runners.h"
#include "init/loop.h"
#include "init/exec/proc_scan.h"
#include "init/setup/setup.h"

/* A bomb is recognised by WINDOW_REFUSALS refusals in each of more than WINDOWS successive
 * windows, and PROCESS_REFUSALS for each process. A bomb written in C makes 600 to 1300 refusals
 * in a window, one in Python 200 to 400, on a slow machine a tenth of that; a shell retries
 * after seconds. */
#define WINDOW (100 * NSEC_PER_MSEC)
#define WINDOW_REFUSALS 10
#define WINDOWS 5u
#define PROCESS_REFUSALS 2u
/* The pause while nothing is refused. (cgroup version 1 does not notify of a refusal: Linux
 * 6.18.) */
#define QUIET (500 * NSEC_PER_MSEC)

static struct {
	int events;
	int64_t seen;  /* refusals at the last check */
	int64_t begun; /* refusals when the windows began */
	int64_t look_at;
	unsigned windows;
} limit = {.events = -1, .look_at = NEVER};

void process_limit_watch(int events)
{
	limit.events = events;
}

/* Ends the command with the most processes, or the strays if they are more. */
static void exec_end_largest(void)
{
	struct exec *largest = NULL;
	uint32_t most = scan_count_live(SCAN_STRAYS);
	for (uint32_t i = 0; i < exec_table_size(); i++) {
		struct exec *exec = exec_at(i);
		if (!exec->key || exec->runner < 0)
			continue;
		/* One is being killed already and may be the bomb: another would be killed for
		 * nothing. */
		if (exec->killing)
			return;
		uint32_t live = scan_count_live(runner_at((uint32_t)exec->runner)->pid);
		if (live > most) {
			most = live;
			largest = exec;
		}
	}
	if (largest)
		exec_kill(largest, EXEC_END_TOO_MANY_PROCESSES);
	else
		strays_kill();
}

int64_t process_limit_time(int64_t now)
{
	if (limit.events < 0 || exec_alive() == 0) {
		limit.look_at = NEVER;
		limit.windows = 0;
		return NEVER;
	}
	if (now < limit.look_at)
		return limit.look_at = MIN(limit.look_at, now + QUIET);
	int64_t refusals = setup_cgroup_number(limit.events);
	bool many = refusals - limit.seen >= WINDOW_REFUSALS;
	limit.seen = refusals;
	limit.look_at = now + (many ? WINDOW : QUIET);
	limit.windows = many ? limit.windows + 1 : 0;
	if (limit.windows <= 1)
		limit.begun = refusals;
	if (limit.windows > WINDOWS) {
		scan_processes();
		if (refusals - limit.begun >= PROCESS_REFUSALS * scan_count_all()) {
			limit.windows = 0;
			exec_end_largest();
		}
	}
	return limit.look_at;
}
