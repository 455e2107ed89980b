/* What the files of `caisson doctor` share: a finding, and work that is bounded in time.
 *
 *   doctor.c           the verb: which checks there are, what is printed, the exit code
 *   run.c       work and programs in children that are killed when they take too long
 *   kernel.c    kernel, system calls, seccomp, Landlock, nftables
 *   namespace.c namespaces, what restricts them, masked /proc, overlayfs
 *   user.c      who asks, subordinate ids, cgroups and their delegation
 *   storage.c   the state directory, the disk limit's mechanism, idmapped mounts
 *   host.c      limits of the host, its clock, other instances
 *   kvm.c       virtualization, by running a guest
 *   gvisor.c    runsc: its age, and which of its platforms run
 *   tiers.c     each tier, proven by a sandbox through the daemon */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"
#include "cli/cli.h"

/* INFORMATION and WARNING never fail the whole: a limit or a convenience is missing. FAILED: what
 * sandboxes need is missing. */
enum verdict { VERDICT_OK, VERDICT_INFORMATION, VERDICT_WARNING, VERDICT_FAILED };

#define FINDING_TEXT_MAX 384
struct finding {
	enum verdict verdict;
	char text[FINDING_TEXT_MAX];
	char remedy[FINDING_TEXT_MAX]; /* a command, or what to do; "": nothing is to be done */
};

/* All return nothing: what goes wrong while looking is a finding too. */
void finding_set(struct finding *finding, enum verdict verdict, const char *format, ...)
    PRINTF_LIKE(3, 4);
void finding_set_remedy(struct finding *finding, const char *format, ...) PRINTF_LIKE(2, 3);

/* Does `work` in a child, which ends with this process at the latest; what it leaves in text comes
 * back. Returns what work returned (0 to 254), or -ETIMEDOUT: it was killed, or another -errno. */
NODISCARD int doctor_run_child(int (*work)(void *data, char *text, size_t room), void *data,
			       int timeout_ms, char *text, size_t room);
/* In a child: closes all but the standard descriptors, these, and what doctor_run_child() needs. */
void doctor_close_all_but(const int *fds, size_t count);
/* Runs a program and all it starts in a pid namespace of its own, so that nothing of it is left;
 * text: the beginning of what it printed. Its exit code, -ETIMEDOUT, or another -errno. */
NODISCARD int doctor_run_program(const char *const *argv, int timeout_ms, char *text, size_t room);
/* Where the daemon looks for programs; false: it is not there. */
bool doctor_find_program(const char *name, char path[128]);
/* In a child: a user namespace in which we are root, and other namespaces. 0 or an errno. */
NODISCARD int doctor_enter_namespaces(int flags);
/* A word of a file of words ("overlay" in /proc/filesystems). */
bool doctor_file_has_word(const char *path, const char *word);
/* A number from a file; -1 when there is none. */
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
