/* Shared by the files of `caisson cp`. */
#pragma once

#include "cli/cli.h"
#include "cli/client/progress.h"

struct copy {
	struct client *client;
	const char *sandbox;
	uint64_t files, skipped;
	struct progress progress; /* counts the bytes, shown or not */
	bool several;             /* several sources: the target is a directory */
};

/* Reports that something other than a file, a directory or a link is skipped. */
void copy_skip(struct copy *copy, const char *path);
/* Appends "/v1/sandboxes/ID" + rest + the encoded path. */
NODISCARD int copy_url(struct copy *copy, struct buffer *url, const char *rest,
		       const char *guest_path, struct error *error);

/* In cp_archive.c: copies a directory of this machine, as one archive, into a directory of the
 * sandbox, which is created if missing. Takes ownership of the descriptor. */
NODISCARD int copy_up_archive(struct copy *copy, int directory, const char *guest_path,
			      struct error *error);
