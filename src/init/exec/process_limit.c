/* Ends a fork bomb. Called by the loop; reads a small file when a command begins, twice a second
 * while one runs, and ten times a second while forks are refused.
 *
 * The limit of processes alone does not protect the host and other sandboxes. The kernel checks
 * it last in a fork, after it has copied all mappings of the caller, and each copy takes the
 * lock of the mapped file's inode. The files of /usr are the host's own, so every fork and exec
 * on the host and in other sandboxes takes the same locks, above all libc's. Hundreds of
 * processes that fork without a pause queue there: the host's own forks waited up to 31 s
 * (docs/isolation.md). RLIMIT_NPROC, which the kernel checks first, helped against a bomb
 * written in C but not against one in Python, and it counts each uid of the sandbox separately.
 *
 * A program whose forks are refused now and then only gets EAGAIN, as with any limit: the rule is
 * in fork_refusals.h. */
#include "init/exec/process_limit.h"

#include "base/clock.h"
#include "init/exec/killing.h"
#include "init/exec/exec.h"
#include "init/exec/fork_refusals.h"
#include "init/runner/runners.h"
#include "init/loop.h"
#include "init/exec/proc_scan.h"
#include "init/setup/setup.h"

static struct {
	int events;
	int64_t look_at;
	struct fork_refusals counted;
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
	if (limit.events < 0 || exec_alive() == 0)
		return limit.look_at = NEVER;
	if (now < limit.look_at && limit.look_at != NEVER)
		return limit.look_at;
	/* What was refused to earlier commands counts, but this one is not ended for it. */
	bool first = limit.look_at == NEVER;
	int64_t above = fork_refusals_look(&limit.counted, now, setup_cgroup_number(limit.events));
	if (above > 0 && !first) {
		scan_processes();
		if (above > BOMB_REFUSALS_PER_PROCESS * (int64_t)scan_count_all()) {
			limit.counted.forgotten_at = 0;
			exec_end_largest();
		}
	}
	return limit.look_at = fork_refusals_next_look(&limit.counted, now);
}
