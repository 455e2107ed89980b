/* What the parts of bench/floor share: one sandbox made by hand, with nothing around it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

#define FLOOR_HIERARCHIES_MAX 8
#define FLOOR_PHASES_MAX 12
#define FLOOR_BINDS_MAX 6
#define FLOOR_WORD_LIMIT 64
#define FLOOR_SOCKET 3

/* As a create without a word about it has them (base/limits.h). */
#define FLOOR_MEMORY "536870912"
#define FLOOR_PIDS "528"
#define FLOOR_CPU_QUOTA "100000"

struct floor_options {
	const char *layer;     /* the template's lower layer */
	const char *image;     /* the empty disk that is copied for each */
	const char *directory; /* where the copies go */
	char *const *command;
	bool disk, cgroups;
};

struct floor_phase {
	const char *name;
	int64_t nanoseconds;
};

/* One sandbox from its first call to its removal. */
struct floor_sandbox {
	const struct floor_options *options;
	uint32_t slot; /* which uids, and its name */
	pid_t pid;
	int pidfd, socket, output, userns;
	int init_procs[FLOOR_HIERARCHIES_MAX], work_procs[FLOOR_HIERARCHIES_MAX];
	uint32_t hierarchy_count;
	int64_t began, phase_began, first_output, ended;
	struct floor_phase phases[FLOOR_PHASES_MAX];
	uint32_t phase_count;
};

/* Ends the program with what failed: a figure of half a sandbox is worth nothing. */
_Noreturn void floor_fail(const char *what);

/* Finds the cgroup hierarchies; once, before the first sandbox. */
void floor_find_cgroups(void);
/* Up to the first byte of the command's output. */
void floor_make(struct floor_sandbox *sandbox, const struct floor_options *options, uint32_t slot);
/* Kills it, waits for its end, removes all of it. */
void floor_remove(struct floor_sandbox *sandbox);

/* PID 1 of the sandbox; never returns. Its socket is `socket`, its output goes to `output`. */
_Noreturn void floor_inside(const struct floor_sandbox *sandbox, int socket, int output);
