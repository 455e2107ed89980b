/* PID 1's side of the launcher: starts it, asks it for runners, replaces it when it dies or does
 * not answer. The launcher's own code is in launcher_process.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/* Forks the first launcher before the loop and before CONFIGURE, so that it waits for the kernel
 * while PID 1 works. If this fails, launcher_begin_runners() forks one. */
void launcher_prepare(void);
/* Adds the launcher's socket to the loop, once the loop is open. */
NODISCARD int launcher_watch(void);
/* The sandbox is configured: runners may be made. 0 or -errno. */
NODISCARD int launcher_begin_runners(void);
/* Asks for the runners that are missing (runners_missing()). */
void launcher_refill(void);
/* The same, at this time or earlier. */
void launcher_refill_by(int64_t at);
bool launcher_has_pid(pid_t pid);
/* A runner may exist that is not in the table yet. */
bool launcher_owes_runner(void);

/* Its socket is readable. */
void launcher_event(void);
void launcher_reaped(void);
/* Does what is due now; returns when something is due next, or NEVER. */
int64_t launcher_time(int64_t now);
