/* Boots a guest: from nothing to an init that listens, in one go or in two. Called by drivers;
 * in one go, and the first part of two, in a worker, since they block for milliseconds, ten seconds
 * at most; the second part of two, in the spawner, does not wait. */
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

/* Of a driver's boot, boot_ahead, assign and assigned (tier/driver.h). guest->limits are what its
 * cgroups are given; `program` NULL: the init. */
NODISCARD int boot_guest(const struct host *host, struct guest *guest, const struct boot *boot,
			 const struct boot_program *program, struct error *error);
NODISCARD int boot_ahead(const struct host *host, struct guest *guest, const struct boot *boot,
			 struct prepared *ret_prepared, struct error *error);
NODISCARD int boot_assign(const struct host *host, struct guest *guest, struct prepared *prepared,
			  const struct boot *boot, struct error *error);
NODISCARD int boot_assigned(const struct host *host, struct guest *guest, struct prepared *prepared,
			    struct error *error);
