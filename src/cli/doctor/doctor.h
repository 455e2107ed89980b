/* Shared by the files of `caisson doctor`: findings, and work that is bounded in time.
 *
 *   doctor.c         the verb: the list of checks, the output, the exit code
 *   bounded_child.c  work and programs in children that are killed when they take too long
 *   kernel.c         kernel, system calls, seccomp, Landlock, nftables
 *   namespace.c      namespaces, what restricts them, masked /proc, overlayfs
 *   user.c           the user, subordinate ids, cgroups and their delegation
 *   storage.c        the state directory, the disk limit's mechanism, idmapped mounts
 *   host.c           limits of the host, its clock, other instances
 *   kvm.c            virtualization, by running a guest
 *   gvisor.c         runsc: its age, and which of its platforms run
 *   tiers.c          each tier, proven by a sandbox that the daemon makes */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"
#include "cli/cli.h"

/* INFORMATION and WARNING do not change the exit code: only a limit or a convenience is missing.
 * FAILED: sandboxes need what is missing. */
enum verdict { VERDICT_OK, VERDICT_INFORMATION, VERDICT_WARNING, VERDICT_FAILED };

#define FINDING_TEXT_MAX 384
struct finding {
	enum verdict verdict;
	char text[FINDING_TEXT_MAX];
	char remedy[FINDING_TEXT_MAX]; /* a command or advice; "": nothing to do */
};

/* Checks return nothing: a failure to check is a finding too. */
void finding_set(struct finding *finding, enum verdict verdict, const char *format, ...)
    PRINTF_LIKE(3, 4);
void finding_set_remedy(struct finding *finding, const char *format, ...) PRINTF_LIKE(2, 3);

/* Runs `work` in a child that ends with this process at the latest. What it writes to `text` is
 * returned in the caller's `text`. Returns what `work` returned (0 to 254), -ETIMEDOUT if it was
 * killed, or another -errno. */
NODISCARD int doctor_run_child(int (*work)(void *data, char *text, size_t room), void *data,
			       int timeout_ms, char *text, size_t room);
/* In a child: closes all descriptors but the standard ones, these, and the one that
 * doctor_run_child() needs. */
void doctor_close_all_but(const int *fds, size_t count);
/* Runs a program in a pid namespace of its own, so that no process of it is left. text: the
 * beginning of its output. Returns its exit code, -ETIMEDOUT, or another -errno. */
NODISCARD int doctor_run_program(const char *const *argv, int timeout_ms, char *text, size_t room);
/* Looks for a program where the daemon does; false: not found. */
bool doctor_find_program(const char *name, char path[128]);
/* In a child: enters a user namespace in which we are root, and other namespaces. Returns 0 or an
 * errno. */
NODISCARD int doctor_enter_namespaces(int flags);
/* True if the file has this word ("overlay" in /proc/filesystems). */
bool doctor_file_has_word(const char *path, const char *word);
/* Reads a number from a file; -1 if there is none. */
int64_t doctor_read_number(const char *path);

/* The checks; `client` has the configuration. */
#define DOCTOR_CHECK(name) void name(const struct client *client, struct finding *finding)
DOCTOR_CHECK(doctor_check_kernel);
DOCTOR_CHECK(doctor_check_calls);
DOCTOR_CHECK(doctor_check_seccomp);
DOCTOR_CHECK(doctor_check_landlock);
DOCTOR_CHECK(doctor_check_nftables);
DOCTOR_CHECK(doctor_check_namespaces);
DOCTOR_CHECK(doctor_check_restrictions);
DOCTOR_CHECK(doctor_check_proc);
DOCTOR_CHECK(doctor_check_overlay);
DOCTOR_CHECK(doctor_check_user);
DOCTOR_CHECK(doctor_check_subordinate_ids);
DOCTOR_CHECK(doctor_check_cgroups);
DOCTOR_CHECK(doctor_check_delegation);
DOCTOR_CHECK(doctor_check_state);
DOCTOR_CHECK(doctor_check_disk_limit);
DOCTOR_CHECK(doctor_check_idmapped);
DOCTOR_CHECK(doctor_check_limits);
DOCTOR_CHECK(doctor_check_clock);
DOCTOR_CHECK(doctor_check_instance);
DOCTOR_CHECK(doctor_check_kvm);
DOCTOR_CHECK(doctor_check_runsc);

/* Every tier: {"name", "available", "proven", ...}; see docs/operations.md. */
json_t *doctor_tiers_json(struct client *client);
