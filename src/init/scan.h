/* What runs in the sandbox, by walking /proc, and who it belongs to. Static memory, no allocation;
 * /proc files that could make the reader wait for another process's memory are not opened. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/* Opens /proc once, before user code could put something else in its place. 0 or -errno. */
NODISCARD int scan_begin(void);
/* Walks. False when a process came or went so that somebody's parent was not seen: what belongs to
 * whom is then not the whole truth, and it takes another walk. */
bool scan_processes(void);

/* Of the last walk. `below` is a runner's pid, or SCAN_STRAYS: children of PID 1 that are neither
 * launcher nor runner, and what is below them. */
#define SCAN_STRAYS ((pid_t)-1)
uint32_t scan_count_live(pid_t below);
/* Those that are neither stopped nor dead. */
uint32_t scan_count_running(pid_t below);
void scan_signal(pid_t below, int signal);
/* Calls for each live one. */
void scan_each(pid_t below, void (*each)(void *data, pid_t pid, const char *command), void *data);
uint32_t scan_count_all(void);

/* Signals what has the terminal of `pid`, a child of `parent`: its foreground process group, as far
 * as it is below `parent`. False: there is none. */
bool scan_signal_foreground(pid_t pid, pid_t parent, int signal);
/* Signals `pid` if it is a child of `parent`, and nothing else. */
void scan_signal_child(pid_t pid, pid_t parent, int signal);
