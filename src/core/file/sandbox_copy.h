/* Copies a file or a directory from one sandbox into another: it is read (or packed) in one and
 * written (or unpacked) in the other, streamed through the daemon at the speed of the slower
 * one. */
#pragma once

#include "core/file/files.h"

struct sandbox_copy;

struct sandbox_copy_spec {
	const struct principal *principal; /* the caller, for the activity */
	struct sandbox *from, *to;         /* both are ready */
	const char *from_path, *to_path;
	const char *user; /* in both sandboxes; "" = root */
	bool recursive;   /* allows a directory */
	bool no_replace, parents;
};

/* A file appears in the other sandbox whole or not at all; of a directory whose copy fails half
 * way, the copied files stay. Calls back once, with the bytes of the files, or with an error that
 * names the side on which it occurred. */
NODISCARD int sandbox_copy_start(const struct sandbox_copy_spec *spec,
				 void (*done)(void *data, uint64_t bytes,
					      const struct error *error),
				 void *data, struct sandbox_copy **ret_copy, struct error *error);
/* Nothing is called back any more; both operations are cancelled. */
void sandbox_copy_cancel(struct sandbox_copy *copy);
