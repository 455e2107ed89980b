/* Time-outs, cancellation and strays: SIGKILL to everything below a runner, again until nothing is
 * left. PID 1 does it because it is not under the sandbox's quota. Called by the loop's timer and
 * by exec.c; one round is one walk of /proc (about 10 us per process). */
#include "init/killing.h"

#include <signal.h>

#include "base/clock.h"
#include "init/exec.h"
#include "init/launcher.h"
#include "init/loop.h"
#include "init/runners.h"
#include "init/scan.h"

/* From this round on processes are stopped before they are killed: a killed one makes room for the
 * next under the limit of processes, a stopped one does not. */
#define ROUNDS_BEFORE_STOPPING 4
#define STOPPING_WALKS_MAX 8
/* After this, and so many rounds, an exec has ended although something of it does not die. */
#define KILL_PATIENCE (2 * NSEC_PER_SEC)
#define KILL_ROUNDS 8
/* How long a runner with nothing below it may take to say so. */
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
	/* Frozen or waiting for a disk: nothing hurries them. */
	return 1000 * NSEC_PER_MSEC;
}

/* Kills what the last walk found below; with many rounds behind it, stops all of it first. */
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
	/* A kernel without subreapers (gVisor's) gives to PID 1 what loses its parent. */
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
	/* Nothing below it (any more, or yet): the runner only has to reap and report. One that was
	 * stopped from inside will not; its end is then the report. */
	if (exec->quiet_since == 0)
		exec->quiet_since = now;
	if (now - exec->quiet_since > RUNNER_PATIENCE && runner->pid > 0)
		kill(runner->pid, SIGKILL);
	exec->kill_at = now + kill_pause(exec->kill_rounds++);
}

static void strays_kill_round(bool complete, int64_t now)
{
	/* A runner that the launcher has made but not yet told of would look like a stray. (It is
	 * silent for hours in a sandbox that is frozen.) */
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
