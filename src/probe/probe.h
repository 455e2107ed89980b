/* caisson-probe: a static program that is copied into a sandbox and tries there what must not
 * work, and what must. Each file has a table of attempts; main.c runs them and prints the
 * results. The expected results are only in tests/escape/manifest.json.
 *
 * An attempt runs in a process of its own for at most ten seconds. Its arguments do no harm to a
 * machine on which it succeeds. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NOWHERE ((long)"/nonexistent/probe")
#define HIGH_BITS (1L << 40)

/* Returned by an attempt if something in the environment is missing. */
#define UNTRIED (-2)

struct attempt {
	const char *name;
	long (*try)(void); /* -1 with errno, UNTRIED, or success; NULL: the call below */
	long call, arguments[6];
};

struct attempts {
	const struct attempt *list;
	size_t count;
};

extern const struct attempts calls_attempts, sockets_attempts, processes_attempts,
    privileges_attempts, modes_attempts, files_attempts, nested_attempts, neighbours_attempts,
    ordinary_attempts, runsc_attempts;

/* A flood runs until something stops it, and prints what: see floods.c. */
int flood_run(const char *name);
void flood_list(void);
/* Makes the objects that another sandbox looks for: see neighbours.c. Does not return. */
int neighbour_serve(const char *token);
/* Swaps files with links in a directory: see races.c. */
int races_swap(const char *directory, const char *target, double seconds);
/* Files that only root inside can make, for attempts of other users. */
int privileges_prepare(const char *program);
int privileges_report(void);

/* The runner of this exec: a fork of PID 1. */
extern int probe_runner;

/* The attempt found nothing that it could use: this counts as refused. */
static inline long absent(void)
{
	errno = ENOENT;
	return -1;
}

static inline long open_path(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

#define TRY(name)                                                                                  \
	{                                                                                          \
#name, try_##name, 0,                                                              \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}
#define NUMBERED(name, number, ...)                                                                \
	{                                                                                          \
		name, NULL, number,                                                                \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define CALL(name, ...) NUMBERED(#name, SYS_##name, __VA_ARGS__)
#define ATTEMPTS(name) const struct attempts name##_attempts = {name##_list, COUNT(name##_list)}
