/* A folder that a user gives to a sandbox, in a form that the daemon can pass on but not make up.
 *
 * The daemon is the process that strangers talk to; were it believed when it says "user 0 gives
 * /etc, read-write", then whoever takes it over would be root. So the client makes a socket pair,
 * sends one message into it (the mode, the open directory as a descriptor, and its own pid, uid and
 * gid, which the kernel lets nobody make up), closes that end, and hands over the other. Nobody can
 * add to the queue of a socket whose other end is closed: the spawner reads who, what and how from
 * there. The daemon can at most use a grant again, for what was granted.
 *
 * Who made a socket (SO_PEERCRED) does not say who sent the message: at the client's end of a
 * connection it names whoever called listen(), and the API's socket was root's to listen on. It is
 * looked at only to be the same as the sender. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proto/spawner_messages.h"

/* "ro", "rw", "cow", as they are named at every edge and in the store; NULL for any other number.
 */
const char *mount_mode_name(uint32_t mode);
/* 0, or -EINVAL. */
NODISCARD int mount_mode_parse(const char *name, enum mount_mode *ret_mode);

struct folder_grant {
	int directory; /* open for reading; owned */
	uint32_t mode; /* enum mount_mode */
	uid_t uid;
	gid_t gid;
};

/* The client's side: a descriptor to hand over, or -errno. `directory` stays the caller's. */
NODISCARD int folder_grant_make(int directory, enum mount_mode mode);
/* The spawner's side. Only looks, so that the same socket serves again (START). */
NODISCARD int folder_grant_open(int socket, struct folder_grant *ret_grant, struct error *error);
void folder_grant_done(struct folder_grant *grant);
