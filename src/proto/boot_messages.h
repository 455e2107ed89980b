/* Messages between the spawner and the PID 1 that it boots (the init, or a tier's shim) over
 * BOOT_FD, a SOCK_SEQPACKET pair: numbers and descriptors only. There are two requests, so that
 * both ends work at the same time. PREPARE makes everything that does not depend on the template or
 * the user. ASSIGN follows when disk and layers are ready, and makes the root. */
#pragma once

#include <stdint.h>

#include "base/limits.h"
#include "base/resources.h"
#include "proto/init_messages.h"
#include "proto/spawner_messages.h"

/* PID 1's end of the pair. */
#define BOOT_FD 3
#define BOOT_LOWERS_MAX 8
#define BOOT_BINDS_MAX 16
/* The most descriptors that one message carries. */
#define BOOT_FDS_MAX (1 + BOOT_LOWERS_MAX + BOOT_BINDS_MAX + SANDBOX_MOUNTS_MAX)

enum boot_type { BOOT_PREPARE = 1, BOOT_ASSIGN = 2, BOOT_REPORT = 16 };

/* The descriptors come in the same message, in the order of the list at the end of the struct;
 * flags and counts say which of them are present. */
struct boot_prepare {
	uint32_t type; /* BOOT_PREPARE */
	uint32_t work_cgroup_count;
	uint32_t has_memory;    /* 1: the work cgroup counts memory */
	uint32_t has_processes; /* 1: the work cgroup limits processes */
	/* fds: listener, work cgroups..., memory usage, memory limit, memory statistics,
	 * pids.events */
};

struct boot_assign {
	uint32_t type; /* BOOT_ASSIGN */
	struct limits limits;
	uint32_t flags;       /* enum create_flag */
	uint32_t lower_count; /* overlay layers, topmost first: idmapped detached mounts */
	/* Directories of the host for template `host`: read-only detached mounts. */
	uint32_t bind_count;
	uint32_t bind_places[BOOT_BINDS_MAX];    /* where each goes: enum boot_place */
	uint32_t tree_count;                     /* users' folders */
	uint32_t tree_modes[SANDBOX_MOUNTS_MAX]; /* enum mount_mode */
	/* fds: disk (a detached mount that holds upper/, work/, and cow/N/{upper,work} for each
	 * copy-on-write tree N), lowers..., binds..., trees... */
};

enum boot_place { PLACE_USR = 1, PLACE_BIN, PLACE_SBIN, PLACE_LIB, PLACE_LIB32, PLACE_LIB64 };

/* Also sent by the spawner's child if it cannot execute PID 1's program (request 0, not ok). */
struct boot_report {
	uint32_t type;    /* BOOT_REPORT */
	uint32_t request; /* the type of the request, or 0: it listens */
	uint32_t ok;
	struct failure failure;
	uint32_t phase_count;
	struct spawn_phase phases[SPAWN_PHASES_MAX];
};
