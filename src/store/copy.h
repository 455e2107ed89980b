/* Copies of the database, for backups. Called by the command line, in a process that may be
 * killed at any time; blocks for local disk. The daemon may run and is not affected. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"

/* The schema version that this program writes. */
extern const int store_version;

/* Makes a consistent copy of the database in `directory` as a new file. */
NODISCARD int store_copy(const char *directory, const char *to, struct error *error);
/* Checks that it is a complete database of ours, and not newer than this program. */
NODISCARD int store_copy_examine(const char *path, int *ret_version, struct error *error);
/* Moves the deadlines of its sandboxes: the time between a backup and its restore does not
 * count. */
NODISCARD int store_copy_defer_deadlines(const char *path, int64_t nanoseconds,
					 struct error *error);
/* Calls `each` for the sandboxes that have not ended, until it returns false. */
NODISCARD int store_copy_each(const char *path,
			      bool (*each)(void *data, const struct id *id, const char *workspace,
					   bool stopped),
			      void *data, struct error *error);
