/* The parts of a root that are the same in every sandbox: /dev and /proc. Paths are relative to
 * the working directory, the small root that PREPARE makes. For setup.c alone; may block; all
 * return 0 or -errno. */
#pragma once

#include "base/macros.h"

/* Makes /dev at `path`, while the host's /dev is still there. On failure *ret_step names the
 * step. */
NODISCARD int setup_devices(const char *path, const char **ret_step);
/* Mounts /proc at `path`, masks what it must not show with `empty_file` and `empty_directory`,
 * and puts `meminfo` over its own file. */
NODISCARD int setup_proc(const char *path, const char *empty_file, const char *empty_directory,
			 const char *meminfo, const char **ret_step);
/* After that, makes read-only what only the host's administrator should write. */
NODISCARD int setup_proc_readonly(const char *path, const char **ret_step);
