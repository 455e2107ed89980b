/* Which of the spawner's ids belong to a sandbox, and their uid and gid maps.
 *
 * As the host's root every sandbox has a range of its own. Without root the spawner is root of a
 * user namespace in which 0 is the user who started it, and all sandboxes share the other ids:
 *
 *   with a range from /etc/subuid   1..65535 are the sandboxes', 65536 is the daemon's
 *       inside 0..65534 -> 1..65535: their root is not the user
 *       with folders of the user's, which only the user may open:
 *       inside 0 -> 0, 1..65534 -> 2..65535
 *   with one id       inside 0 -> 0, and there are no others
 *
 * Called in the spawner and its workers; does not block, except ids_call_as_root(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/macros.h"
#include "tier/guest.h"

struct sandbox_ids {
	uint32_t owner;   /* its root, as the spawner sees it */
	uint32_t others;  /* the spawner's id for 1 inside; the rest follows */
	uint32_t count;   /* number of ids inside, from 0 on */
	uint32_t charged; /* the id that the kernel charges its user namespace to */
	bool groups;      /* setgroups() works inside */
};

void ids_for_slot(const struct host *host, uint32_t slot, bool has_folders,
		  struct sandbox_ids *ret_ids);
/* The same for a sandbox with files: their owner remains its root, whether or not its folders
 * are given again. */
void ids_for_sandbox(const struct host *host, const struct id *id, uint32_t slot, bool has_folders,
		     struct sandbox_ids *ret_ids);
/* Writes the maps of a process in a new user namespace of these ids. 0 or -errno. */
NODISCARD int ids_write_maps(const struct host *host, const struct sandbox_ids *ids, pid_t pid);

/* Takes on an effective uid without losing capabilities, and leaves it again. In between only
 * the one call is made that needs that user. */
struct ids_disguise {
	int securebits;
	bool dumpable;    /* without root: keeps our children's maps writable */
	int death_signal; /* the kernel clears it when the uid changes */
};
NODISCARD int ids_disguise_enter(const struct host *host, uid_t uid,
				 struct ids_disguise *ret_guise);
void ids_disguise_leave(const struct ids_disguise *guise);

/* Calls a function in a child that is root over these ids, like the sandbox's root, and waits
 * for it. */
NODISCARD int ids_call_as_root(const struct host *host, const struct sandbox_ids *ids,
			       int (*function)(void *data, struct error *error), void *data,
			       struct error *error);
/* Makes a user namespace with these maps, by a short-lived process. A descriptor or -errno. */
NODISCARD int ids_make_userns(const char *uid_map, const char *gid_map);
