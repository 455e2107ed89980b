/* Signals in PID 1, launcher and runners, and their defaults for what runners start. */
#pragma once

/* PID 1, at its start: whatever was inherited is the default again, nothing is blocked. */
void signals_reset(void);
/* Launcher and runners: SIGTERM to everything is for the commands, not for who supervises them. */
void signals_ignore(void);
/* A command, right before it is executed. Safe after vfork(). */
void signals_default(void);
