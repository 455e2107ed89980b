/* Boots a guest: from nothing to an init that listens. Called by drivers in a worker, because it
 * blocks for milliseconds, ten seconds at most. */
#pragma once

#include "base/error.h"
#include "proto/boot_messages.h"
#include "tier/guest.h"

/* For a tier whose init runs further inside: the child executes this program with these
 * arguments. The program sets the sandbox up by the same messages (proto/boot_messages.h) and
 * boots the init itself. It has a readable descriptor of the init's file as BOOT_INIT_FD. */
#define BOOT_INIT_FD (BOOT_FD + 1)
struct boot_program {
	int fd;
	char *const *arguments;
};

/* For a driver's boot (tier/driver.h). guest->limits are the limits of its cgroups; `program`
 * NULL: the init. */
NODISCARD int boot_guest(const struct host *host, struct guest *guest, const struct boot *boot,
			 const struct boot_program *program, struct error *error);
