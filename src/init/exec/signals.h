/* Signals in PID 1, launcher and runners, and their defaults for what runners start. */
#pragma once

/* PID 1, at its start: sets inherited dispositions back to the default and unblocks all signals. */
void signals_reset(void);
/* Launcher and runners: SIGTERM to every process is meant for commands, not for their
 * supervisors. */
void signals_ignore(void);
/* A command, right before it is executed. Safe after vfork(). */
void signals_default(void);
