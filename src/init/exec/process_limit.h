/* Ends a command that keeps asking for processes beyond the sandbox's limit: a fork bomb. */
#pragma once

#include <stdint.h>

/* The work cgroup's pids.events, which struct setup owns; -1 if there is none. */
void process_limit_watch(int events);
/* Does what is due now; returns when to check again, or NEVER. */
int64_t process_limit_time(int64_t now);
