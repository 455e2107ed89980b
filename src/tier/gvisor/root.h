/* The mounts of a sandbox of the gvisor tier, made by its shim in its own mount namespace. There
 * are two roots: a small one with what runsc needs and nothing of the host's, and in it the
 * sandbox's root, which runsc serves to the guest. Called by shim.c before anything else runs. */
#pragma once

#include "base/macros.h"
#include "proto/boot_messages.h"

/* Names in the small root. */
#define ROOT_RUNSC "/runsc" /* the program; nothing else of the host's is there */
#define ROOT_GUEST "/r"     /* the sandbox's root */
#define ROOT_BUNDLE "/b"    /* the container's description */
#define ROOT_STATE "/s"     /* runsc's state */
#define ROOT_INIT "/i"      /* holds a copy of caisson-init */
#define ROOT_INIT_FILE "/i/init"
#define ROOT_ERRORS "/errors" /* runsc's error output */

/* Both return 0, or -errno with the step that failed. Leaves the host's root for the small one;
 * `init` is a readable descriptor of caisson-init. */
NODISCARD int gvisor_leave_host(const char *runsc, int init, const char **ret_step);
/* Descriptors in the order of ASSIGN: disk, lowers, binds. */
NODISCARD int gvisor_make_root(const struct boot_assign *request, const int *fds,
			       const char **ret_step);
