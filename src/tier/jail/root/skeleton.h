/* The skeleton of template `host`: everything of its root that is not a bind of the host's.
 * Called by host_rootfs.c alone. The functions read the host through `host_root`, a descriptor
 * of its root directory, so that a test can pass another; they read files, so they may block. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"

/* Top directories besides /usr: links into it on most hosts, directories of their own on some. */
struct skeleton_place {
	const char *name;
	uint32_t place; /* enum boot_place; 0: only shown if it is a link */
};
#define SKELETON_PLACES 7
extern const struct skeleton_place skeleton_places[SKELETON_PLACES];

/* 1: a directory of the host's that is to be bound; 0: a link, or missing. */
NODISCARD int skeleton_place_is_bound(int host_root, const struct skeleton_place *place);

/* A digest of everything that skeleton_build() reads: names, modes, sizes, times, links. */
#define SKELETON_DIGEST_TEXT 65
NODISCARD int skeleton_digest(int host_root, char digest[SKELETON_DIGEST_TEXT],
			      struct error *error);
/* Fills `directory`, an empty one of ours. */
NODISCARD int skeleton_build(int host_root, int directory, struct error *error);
