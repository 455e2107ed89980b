/* Progress of a copy, a backup or a restore: one line on standard error, only on a terminal, shown
 * after half a second and erased at the end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *verb;
	uint64_t total, done; /* bytes; total 0: unknown */
	int64_t began, shown_at;
	int width; /* characters on the terminal now */
	bool terminal;
};

void progress_begin(struct progress *progress, const char *verb, uint64_t total);
void progress_add(struct progress *progress, uint64_t bytes);
/* Erases the line, at the end or before other output. The next progress_add() shows it again. */
void progress_clear(struct progress *progress);
/* The text of the line after `took` nanoseconds: "cp [#####     ]  50% 5 MiB of 10 MiB, 1 MiB/s",
 * without the bar if the total is unknown. At most columns - 1 characters. Returns its length. */
int progress_line(const struct progress *progress, int64_t took, int columns, char text[128]);
