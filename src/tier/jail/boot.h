/* Boots a guest: from nothing to an init that listens. Called by drivers, in a worker, since it
 * blocks for milliseconds, ten seconds at most. */
#pragma once

#include "base/error.h"
#include "proto/boot_messages.h"
#include "tier/guest.h"

/* A tier whose init is further in: the child becomes this program with these arguments, sets the
 * sandbox up by the same messages (proto/boot_messages.h) and boots the init itself. It has the
 * init's file, readable, as BOOT_INIT_FD. */
#define BOOT_INIT_FD (BOOT_FD + 1)
struct boot_program {
	int fd;
	char *const *arguments;
};

/* Of a driver's boot (tier/driver.h). guest->limits are what its cgroups are given; `program` NULL:
 * the init. */
NODISCARD int boot_guest(const struct host *host, struct guest *guest, const struct boot *boot,
			 const struct boot_program *program, struct error *error);
