/* Kills every process of an exec, and strays: processes whose runner is gone. Between two walks
 * of /proc the loop serves others. */
#pragma once

#include <stdint.h>

/* Begins to kill strays. Called when a runner was killed from inside: its processes are PID 1's
 * children now. */
void strays_kill(void);
/* Does what is due now; returns when something is due next, or NEVER. */
int64_t killing_time(int64_t now);
