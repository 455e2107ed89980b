/* How far a copy, a backup or a restore is: one line on standard error, on a terminal alone, from
 * half a second on. It is gone when the work is done. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *verb;
	uint64_t total, done; /* bytes; total 0: nobody knows */
	int64_t began, shown_at;
	int width; /* of what the terminal shows now */
	bool terminal;
};

void progress_begin(struct progress *progress, const char *verb, uint64_t total);
void progress_add(struct progress *progress, uint64_t bytes);
/* Takes the line away, for another line or for good; the next bytes bring it back. */
void progress_clear(struct progress *progress);
/* The line after so many nanoseconds: "cp [#####     ]  50% 5 MiB of 10 MiB, 1 MiB/s", without the
 * bar where the total is not known. At most columns - 1 characters. Returns its length. */
int progress_line(const struct progress *progress, int64_t took, int columns, char text[128]);
