/* Which of the spawner's ids are a sandbox's, and the maps that make them so.
 *
 * As the host's root every sandbox has a range of its own. Without root the spawner is root of a
 * user namespace in which 0 is the user who started it, and all sandboxes share what else there is:
 *
 *   with a range from /etc/subuid   1..65535 are the sandboxes', 65536 is the daemon's
 *                                   inside 0..65534 -> 1..65535: their root is not the user
 *                                   with folders of the user's, which only the user may open:
 *                                   inside 0 -> 0, 1..65534 -> 2..65535
 *   with one id                     inside 0 -> 0, and there is nobody else
 *
 * Called in the spawner and its workers; does not block, but for
 * ids_call_as_root(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/macros.h"
#include "tier/guest.h"

struct sandbox_ids {
	uint32_t owner;   /* its root, as the spawner sees it */
	uint32_t others;  /* inside 1, as the spawner sees it; the rest follows */
	uint32_t count;   /* ids that exist inside, from 0 on */
	uint32_t charged; /* whom the kernel charges its user namespace to */
	bool groups;      /* setgroups() works inside */
};

void ids_for_slot(const struct host *host, uint32_t slot, bool has_folders,
		  struct sandbox_ids *ret_ids);
/* The same of one that has files already: whoever they belong to goes on to be its root, whether or
 * not its folders are given again. */
void ids_for_sandbox(const struct host *host, const struct id *id, uint32_t slot, bool has_folders,
		     struct sandbox_ids *ret_ids);
/* Writes the maps of a process in a new user namespace of these ids. 0 or -errno. */
NODISCARD int ids_write_maps(const struct host *host, const struct sandbox_ids *ids, pid_t pid);

/* Takes on an effective uid for a moment, without a loss of capabilities, and gives it up again.
 * Between them nothing else is done but the one call that is to be made as that user. */
struct ids_disguise {
	int securebits;
	bool dumpable;    /* without root: our children's maps must stay ours to write */
	int death_signal; /* the kernel forgets it with the uid */
};
NODISCARD int ids_disguise_enter(const struct host *host, uid_t uid,
				 struct ids_disguise *ret_guise);
void ids_disguise_leave(const struct ids_disguise *guise);

/* Calls a function in a process of its own that is root over these ids, as the sandbox's is, and
 * waits for it. */
NODISCARD int ids_call_as_root(const struct host *host, const struct sandbox_ids *ids,
			       int (*function)(void *data, struct error *error), void *data,
			       struct error *error);
