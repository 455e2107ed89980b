/* A file or a directory from one sandbox into another: read (or packed) in the one and written (or
 * unpacked) in the other, streamed through the daemon no faster than the slower of the two. */
#pragma once

#include "core/file/files.h"

struct between;

struct between_spec {
	const struct principal *principal; /* who asks: for the activity */
	struct sandbox *from, *to;         /* ready, both */
	const char *from_path, *to_path;
	const char *user; /* in both; "" = root */
	bool recursive;   /* a directory may be copied */
	bool no_replace, parents;
};

/* A file appears in the other sandbox whole or not at all; of a directory that fails half way what
 * came is there. Calls back once, with the bytes of the files, or with an error that says on which
 * side it was. */
NODISCARD int between_start(const struct between_spec *spec,
			    void (*done)(void *data, uint64_t bytes, const struct error *error),
			    void *data, struct between **ret_between, struct error *error);
/* Nothing is called back any more; both sides end. */
void between_cancel(struct between *between);
