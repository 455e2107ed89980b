/* A backup that is being made: backup.c decides which files belong to it, backup_archive.c writes
 * them. */
#pragma once

#include <stdint.h>

#include "cli/state/state.h"

struct archive;

struct backup {
	const struct state_options *options;
	char state[256];
	struct state_manifest manifest;
	int database;            /* the copy, already unlinked */
	int images[STATE_SLOTS]; /* a disk image, or the tar file of a tree */
	int trees[STATE_SLOTS];  /* the locked tree, or -1 */
	char *list; /* a line "ID s WORKSPACE" per live sandbox; "ID r" if not stopped */
	struct archive *archive;
	struct progress progress;
	int64_t wait_until; /* how long to wait for images of sandboxes that were just stopped */
};

/* The next range of data at or after `at`; start == size if there is none. Returns 0 or -errno. */
NODISCARD int file_next_data(int fd, uint64_t at, uint64_t size, uint64_t *ret_start,
			     uint64_t *ret_end);
/* Writes the manifest, the files that it lists and their digests into the archive `fd`. */
NODISCARD int backup_write_archive(struct backup *backup, int fd, struct error *error);
