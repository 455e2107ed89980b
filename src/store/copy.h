/* Copies of the database, for backups. Called by the command line, in a process that may be killed
 * at any time; blocks for local disk. The daemon may be running: it is neither disturbed nor asked.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"

/* The schema that this program writes. */
extern const int store_version;

/* A consistent copy of the database in `directory` as a new file. */
NODISCARD int store_copy(const char *directory, const char *to, struct error *error);
/* Is it a whole database of ours, and not newer than this program? */
NODISCARD int store_copy_examine(const char *path, int *ret_version, struct error *error);
/* Moves the time-outs of its sandboxes: what lies between a backup and its restore is no time. */
NODISCARD int store_copy_defer_deadlines(const char *path, int64_t nanoseconds,
					 struct error *error);
/* Its sandboxes that have not ended. The callback returns false to stop. */
NODISCARD int store_copy_each(const char *path,
			      bool (*each)(void *data, const struct id *id, bool stopped),
			      void *data, struct error *error);
