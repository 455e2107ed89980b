/* caisson-probe: a static program that is carried into a sandbox and tries there what must not
 * work, and what must. One table of attempts per file; main.c runs them and prints what came of
 * each. What should have come of it is in tests/escape/manifest.json alone.
 *
 * An attempt runs in a process of its own with ten seconds to live. Its arguments are such that
 * nothing happens to a machine on which it succeeds. */
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

/* What an attempt's function returns where it lacks something of the environment. */
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

/* A flood runs until something stops it, and says what did: see floods.c. */
int flood_run(const char *name);
void flood_list(void);
/* What another sandbox looks for: see neighbours.c. Does not return. */
int neighbour_serve(const char *token);
/* Swaps files with links in a directory: see races.c. */
int races_swap(const char *directory, const char *target, double seconds);
/* Files that only root inside can make, for attempts of other users. */
int privileges_prepare(const char *program);
int privileges_report(void);

/* The process that carries out the exec we are: a fork of PID 1's. */
extern int probe_runner;

/* An attempt that found nothing to take: refused by absence. */
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
