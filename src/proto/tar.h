/* The tar format as the sandbox's archives have it: ustar with pax headers; what GNU tar writes for
 * long names and large numbers is read too. The reader is fed by a function, so that it can be
 * fuzzed without a sandbox. What it reads is hostile: anything that is not exactly right ends it.
 */
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
	TAR_SPECIAL, /* a device, a FIFO: not made */
};

struct tar_entry {
	enum tar_type type;
	/* Clean: relative, no empty, "." or ".." component; "" is the archive's root. */
	char path[GUEST_PATH_MAX];
	/* A hard link's is clean too, a symbolic link's is any text. */
	char link[GUEST_PATH_MAX];
	uint32_t mode;
	uint32_t uid, gid;
	uint64_t size; /* of the data that follows, padded to a block */
	int64_t mtime;
	uint32_t mtime_ns;
};

struct tar_source {
	/* Exactly so many bytes: 0, -ENODATA when there are not so many, or another -errno. */
	int (*read)(void *data, void *to, size_t size);
	void *data;
};

/* The next entry: 1; 0 at the archive's end; -EBADMSG with *ret_why when it is malformed (the
 * entry's path is then as far known as it was), or what the source said. The entry's data must be
 * taken before the next is asked for. */
NODISCARD int tar_next(const struct tar_source *source, struct tar_entry *ret_entry,
		       const char **ret_why);
/* Cleans a path in place; what is wrong with it, or NULL. */
const char *tar_path_clean(char *path);

/* Writing. An entry's header blocks into `to`: how many bytes. */
#define TAR_HEADER_MAX (4 * TAR_BLOCK + 2 * GUEST_PATH_MAX)
size_t tar_write(const struct tar_entry *entry, uint8_t to[TAR_HEADER_MAX]);
