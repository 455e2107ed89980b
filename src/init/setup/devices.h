/* The two parts of a root that do not depend on what a sandbox is for: its /dev and its /proc.
 * Paths are relative to the working directory, which is the small root that PREPARE makes. Private
 * to the set-up; may block; all return 0 or -errno. */
#pragma once

#include "base/macros.h"

/* /dev at `path`: must run while the host's is still there. On failure *ret_step says at what. */
NODISCARD int setup_devices(const char *path, const char **ret_step);
/* /proc at `path`, with what it must not show masked by `empty_file` and `empty_directory`, and
 * `meminfo` in the place of its own. */
NODISCARD int setup_proc(const char *path, const char *empty_file, const char *empty_directory,
			 const char *meminfo, const char **ret_step);
/* Then, in it, read-only what only an administrator of the host would write. */
NODISCARD int setup_proc_readonly(const char *path, const char **ret_step);
