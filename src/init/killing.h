/* Killing: every process of an exec, and strays. One walk of /proc serves all that are being killed
 * at the moment; between walks the loop serves others. */
#pragma once

#include <stdint.h>

/* A runner was killed from inside: its processes are PID 1's children now. */
void strays_kill(void);
/* Does what is due now; returns when something is due next, or NEVER. */
int64_t killing_time(int64_t now);
