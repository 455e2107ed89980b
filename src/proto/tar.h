/* The tar format of the sandbox's archives: ustar with pax headers. The reader also accepts GNU
 * tar's long names and large numbers. It gets its input from a function, so that it can be
 * fuzzed without a sandbox. The input is hostile: the first invalid byte ends reading. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/macros.h"

#define TAR_BLOCK 512u
/* The longest pax header or long name that is read. */
#define TAR_EXTRA_MAX (64u * 1024)

enum tar_type {
	TAR_FILE,
	TAR_DIRECTORY,
	TAR_SYMLINK,
	TAR_HARDLINK,
	TAR_SPECIAL, /* a device or a FIFO, which is skipped */
};

struct tar_entry {
	enum tar_type type;
	/* Clean: relative, without empty, "." or ".." components; "" is the archive's root. */
	char path[GUEST_PATH_MAX];
	/* Clean for a hard link; any text for a symbolic link. */
	char link[GUEST_PATH_MAX];
	uint32_t mode;
	uint32_t uid, gid;
	uint64_t size; /* of the data that follows; it is padded to a block */
	int64_t mtime;
	uint32_t mtime_ns;
};

struct tar_source {
	/* Reads exactly `size` bytes: 0, -ENODATA if there are fewer, or another -errno. */
	int (*read)(void *data, void *to, size_t size);
	void *data;
};

/* Reads the next entry: 1; 0 at the archive's end; -EBADMSG with *ret_why if it is malformed
 * (the entry's path is set as far as it was read); or an error of the source. The caller must
 * read the entry's data before the next entry. */
NODISCARD int tar_next(const struct tar_source *source, struct tar_entry *ret_entry,
		       const char **ret_why);
/* Cleans a path in place. NULL, or what is wrong with it. */
const char *tar_path_clean(char *path);

/* Writes an entry's header blocks into `to`; returns their size. */
#define TAR_HEADER_MAX (4 * TAR_BLOCK + 2 * GUEST_PATH_MAX)
size_t tar_write(const struct tar_entry *entry, uint8_t to[TAR_HEADER_MAX]);
