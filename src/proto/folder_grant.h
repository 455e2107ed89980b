/* A folder that a user gives to a sandbox, in a form that the daemon can pass on but not forge.
 *
 * The daemon serves untrusted clients. If the spawner believed its "user 0 gives /etc, read-write",
 * then an attacker who takes over the daemon would be root. So the client makes a socket pair,
 * sends one message into it (the mode, the open directory as a descriptor, and its own pid, uid and
 * gid, which the kernel checks), closes that end, and passes on the other. Nothing can be added to
 * the queue of a socket whose other end is closed, so the spawner can trust the message. The daemon
 * can only use the same grant again.
 *
 * The socket's maker (SO_PEERCRED) need not be the sender of the message: at the client's end of a
 * connection it is the process that called listen(), and root listens on the API's socket. The only
 * check is that maker and sender have the same ids. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proto/spawner_messages.h"

/* "ro", "rw" or "cow", as at every edge and in the store; NULL for any other number. */
const char *mount_mode_name(uint32_t mode);
/* 0, or -EINVAL. */
NODISCARD int mount_mode_parse(const char *name, enum mount_mode *ret_mode);

struct folder_grant {
	int directory; /* open for reading; owned */
	uint32_t mode; /* enum mount_mode */
	uid_t uid;
	gid_t gid;
};

/* The client's side: a descriptor to pass on, or -errno. The caller keeps `directory`. */
NODISCARD int folder_grant_make(int directory, enum mount_mode mode);
/* The spawner's side. It only peeks at the message, so that the same socket can be used again
 * (START). */
NODISCARD int folder_grant_open(int socket, struct folder_grant *ret_grant, struct error *error);
void folder_grant_done(struct folder_grant *grant);
