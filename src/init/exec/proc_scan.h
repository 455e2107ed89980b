/* The processes of the sandbox, found by walking /proc, and the runner that each belongs to.
 * Static memory; opens no file of /proc that could make the reader wait for another process's
 * memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/* Opens /proc once, before user code could put something else in its place. 0 or -errno. */
NODISCARD int scan_begin(void);
/* Walks /proc. False if a process came or went meanwhile, so that the parent of some process was
 * not seen: its owner is then unknown, and another walk is needed. */
bool scan_processes(void);

/* About the last walk. `below` is a runner's pid, or SCAN_STRAYS: the children of PID 1 that are
 * neither launcher nor runner, and all below them. */
#define SCAN_STRAYS ((pid_t)-1)
uint32_t scan_count_live(pid_t below);
/* Processes that are neither stopped nor dead. */
uint32_t scan_count_running(pid_t below);
void scan_signal(pid_t below, int signal);
/* Calls `each` for each live process. */
void scan_each(pid_t below, void (*each)(void *data, pid_t pid, const char *command), void *data);
uint32_t scan_count_all(void);

/* Signals the foreground process group of the terminal of `pid`, a child of `parent`: those of
 * its processes that are below `parent`. False: there are none. */
bool scan_signal_foreground(pid_t pid, pid_t parent, int signal);
/* Signals `pid` if it is a child of `parent`, and nothing else. */
void scan_signal_child(pid_t pid, pid_t parent, int signal);
