/* What the files of `caisson cp` share. */
#pragma once

#include "cli/cli.h"
#include "cli/client/progress.h"

struct copy {
	struct client *client;
	const char *sandbox;
	uint64_t files, skipped;
	struct progress progress; /* counts the bytes, shown or not */
	bool several;             /* sources: the target is a directory */
};

/* Says that something of another kind than files, directories and links is left out. */
void copy_skip(struct copy *copy, const char *path);
/* "/v1/sandboxes/ID" + rest + the path, encoded. */
NODISCARD int copy_url(struct copy *copy, struct buffer *url, const char *rest,
		       const char *guest_path, struct error *error);

/* cp_archive.c: a directory of this machine, as one archive, into a directory of the sandbox that
 * is made where it is missing. Takes the descriptor over. */
NODISCARD int copy_up_archive(struct copy *copy, int directory, const char *guest_path,
			      struct error *error);
