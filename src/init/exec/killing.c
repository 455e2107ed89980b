/* Time-outs, cancellation and strays: SIGKILL to everything below a runner, in rounds until
 * nothing is left. PID 1 does this because the sandbox's cpu quota does not apply to it. Called
 * by the loop's timer and by exec.c; a round is one walk of /proc (about 10 us per process). */
#include "init/exec/killing.h"

#include <signal.h>

#include "base/clock.h"
#include "init/exec/exec.h"
#include "init/runner/launcher.h"
#include "init/loop.h"
#include "init/runner/runners.h"
#include "init/exec/proc_scan.h"

/* From this round on, processes are stopped before they are killed: killing one makes room for
 * another fork under the limit of processes, stopping does not. */
#define ROUNDS_BEFORE_STOPPING 4
#define STOPPING_WALKS_MAX 8
/* After this time and this many rounds an exec counts as ended, although one of its processes
 * does not die. */
#define KILL_PATIENCE (2 * NSEC_PER_SEC)
#define KILL_ROUNDS 8
/* How long a runner without processes below it may take to report that. */
#define RUNNER_PATIENCE (100 * NSEC_PER_MSEC)

static int64_t strays_at = NEVER;
static uint32_t stray_rounds, stray_waits;

void strays_kill(void)
{
	stray_rounds = 0;
	stray_waits = 0;
	strays_at = 0;
}

static int64_t kill_pause(uint32_t rounds)
{
	if (rounds < 20)
		return 1 * NSEC_PER_MSEC;
	if (rounds < 100)
		return 10 * NSEC_PER_MSEC;
	/* Frozen or waiting for a disk: faster rounds do not help. */
	return 1000 * NSEC_PER_MSEC;
}

/* Kills the processes that the last walk found below; after many rounds, stops all of them
 * first. */
static void tree_kill(pid_t below, uint32_t rounds)
{
	if (rounds >= ROUNDS_BEFORE_STOPPING) {
		for (int i = 0; i < STOPPING_WALKS_MAX && scan_count_running(below) > 0; i++) {
			scan_signal(below, SIGSTOP);
			scan_processes();
		}
	}
	scan_signal(below, SIGKILL);
}

void exec_kill(struct exec *exec, uint32_t cause)
{
	if (!exec->leader_ended && exec->cause == 0)
		exec->cause = cause;
	if (exec->killing || exec->runner < 0)
		return;
	exec->killing = true;
	exec->kill_rounds = 0;
	exec->quiet_since = 0;
	exec->kill_at = 0;
	exec->kill_began = clock_boot();
	exec->kill_hopeless = false;
	/* On a kernel without subreapers (gVisor's), orphans become PID 1's children. */
	strays_kill();
}

static void exec_kill_round(struct exec *exec, bool complete, int64_t now)
{
	struct runner *runner = runner_at((uint32_t)exec->runner);
	if (!exec->kill_hopeless && exec->kill_rounds > KILL_ROUNDS &&
	    now - exec->kill_began > KILL_PATIENCE) {
		exec->kill_hopeless = true;
		exec_try_end(exec);
	}
	if (!complete || scan_count_live(runner->pid) > 0) {
		tree_kill(runner->pid, exec->kill_rounds);
		exec->quiet_since = 0;
		exec->kill_at = now + kill_pause(exec->kill_rounds++);
		return;
	}
	/* The runner has no process below it, any more or yet: it only has to reap and report. A
	 * runner that was stopped from inside does not do that, so it is killed. */
	if (exec->quiet_since == 0)
		exec->quiet_since = now;
	if (now - exec->quiet_since > RUNNER_PATIENCE && runner->pid > 0)
		kill(runner->pid, SIGKILL);
	exec->kill_at = now + kill_pause(exec->kill_rounds++);
}

static void strays_kill_round(bool complete, int64_t now)
{
	/* A runner that the launcher has made and not reported yet looks like a stray. (In a
	 * frozen sandbox that can take hours.) */
	if (launcher_owes_runner()) {
		strays_at = now + kill_pause(stray_waits++);
		return;
	}
	if (complete && scan_count_live(SCAN_STRAYS) == 0) {
		strays_at = NEVER;
		return;
	}
	tree_kill(SCAN_STRAYS, stray_rounds);
	strays_at = now + kill_pause(stray_rounds++);
}

int64_t killing_time(int64_t now)
{
	bool due = strays_at <= now;
	for (uint32_t i = 0; i < exec_table_size(); i++) {
		struct exec *exec = exec_at(i);
		due = due || (exec->key && exec->killing && exec->kill_at <= now);
	}
	/* One walk of /proc serves everything that is being killed. */
	bool complete = due && scan_processes();
	if (strays_at <= now)
		strays_kill_round(complete, now);
	int64_t next = strays_at;
	for (uint32_t i = 0; i < exec_table_size(); i++) {
		struct exec *exec = exec_at(i);
		if (exec->key && exec->killing && exec->kill_at <= now && exec->runner >= 0)
			exec_kill_round(exec, complete, now);
		if (exec->key && exec->killing)
			next = MIN(next, exec->kill_at);
	}
	return next;
}
