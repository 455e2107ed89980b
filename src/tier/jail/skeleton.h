/* The skeleton of template `host`: everything of its root that is not a bind of the host's. Called
 * by core/sandbox/template.c alone. Both functions look at the host through `host_root`, a
 * descriptor of its root directory, so that a test can give them another; both read files, so they
 * may block. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"

/* Top directories that a root has beside /usr: links into it on most hosts, directories of their
 * own on some. */
struct skeleton_place {
	const char *name;
	uint32_t place; /* enum boot_place; 0: shown only where it is a link */
};
#define SKELETON_PLACES 7
extern const struct skeleton_place skeleton_places[SKELETON_PLACES];

/* 1: a directory of the host's that is to be bound; 0: a link, or not there. */
NODISCARD int skeleton_place_is_bound(int host_root, const struct skeleton_place *place);

/* A digest of all that skeleton_build() would look at: names, modes, sizes, times, links. */
#define SKELETON_DIGEST_TEXT 65
NODISCARD int skeleton_digest(int host_root, char digest[SKELETON_DIGEST_TEXT],
			      struct error *error);
/* Fills `directory`, which is empty and ours. */
NODISCARD int skeleton_build(int host_root, int directory, struct error *error);
