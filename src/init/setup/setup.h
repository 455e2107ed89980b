/* How an init in the namespace tier gets from "just executed, alone in new namespaces, the host's
 * root still mounted" to "in the sandbox's own root with nothing of the host's left". The spawner
 * is at the other end of BOOT_FD and hands over descriptors and numbers (proto/boot_messages.h);
 * text from users comes later, with CONFIGURE. Runs before there is any other process: may block,
 * may fail; a failure is reported over BOOT_FD and ends the init. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/resources.h"
#include "boot/channel.h"
#include "proto/init_messages.h"

struct setup {
	/* The process of a container, with a kernel of its own and a root that others have made. */
	bool channel;
	struct boot_handles handles;
	int meminfo; /* the file that is mounted over /proc/meminfo, writable; -1 = none */
	struct limits limits;
	uint32_t flags; /* enum create_flag */
	uint32_t tree_count;
	int trees[SANDBOX_MOUNTS_MAX]; /* users' folders: detached mounts that are not placed yet */
	uint32_t tree_modes[SANDBOX_MOUNTS_MAX]; /* enum mount_mode */
};

/* Fills the setup of a container's process. Its limits are those it was started with. */
void setup_channel(struct setup *ret_setup);
/* Does everything up to entering the sandbox's root. Calls `prepared` when the host's root is
 * left and the cgroups are known, before it waits for ASSIGN. 0, or -1 with *ret_failure
 * (already reported). */
NODISCARD int setup_boot(struct setup *ret_setup, void (*prepared)(void),
			 struct failure *ret_failure);
/* Tells the spawner that the init listens, and closes BOOT_FD. */
void setup_ready(void);
/* CONFIGURE: sets the hostname and writes it to /etc/hostname and /etc/hosts, before any user's
 * folder is mounted. */
NODISCARD int setup_hostname(const char *hostname, struct failure *ret_failure);
/* CONFIGURE: puts a user's folder at a path inside (made if missing, resolved in the sandbox's
 * root, never through a symlink out of it). */
NODISCARD int setup_place_tree(struct setup *setup, uint32_t index, const char *path,
			       struct failure *ret_failure);
/* After that: closes the folders that were handed over and not placed. */
void setup_close_trees(struct setup *setup);
/* Opens what setup_harden() writes to under /proc/sys. Called by setup_boot() when /proc is
 * mounted and /proc/sys is not read-only yet, while the init has all capabilities. */
NODISCARD int harden_before_readonly(struct failure *ret_failure);
/* The last step, before any other process exists and any user code runs: capabilities and
 * bounding set reduced, no_new_privs, user.max_user_namespaces = 0, keyring, seccomp filter. What
 * is kept and why: docs/isolation.md. Everything forked later inherits it. */
NODISCARD int setup_harden(const struct setup *setup, struct failure *ret_failure);
/* The part that concerns a single process: for a launcher that was forked before setup_harden(). */
NODISCARD int setup_harden_process(const struct setup *setup, struct failure *ret_failure);
/* The number in a cgroup's file, as "123" or "max 123"; -1 when there is none. */
int64_t setup_cgroup_number(int fd);
/* Rewrites /proc/meminfo from the cgroup's usage. Called periodically by the loop; cheap. */
void setup_refresh_meminfo(const struct setup *setup);
