/* The messages between the daemon and the spawner: one SOCK_SEQPACKET message each, a fixed struct
 * of ids, digests, numbers and enums. They contain no path and no text that must be parsed: the
 * daemon serves untrusted clients, and these messages are everything that it can request from root.
 *
 * Both ends are the same binary (the spawner re-executes it), so the structs are the format. Each
 * request has a `request` number; its reply repeats it. The spawner works on requests for one
 * sandbox in order. Descriptors travel with the message they belong to. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/resources.h"

#define SPAWNER_PROTOCOL_VERSION 7

/* The descriptors that the spawner gives to the daemon. */
#define DAEMON_SPAWNER_FD 3     /* SOCK_SEQPACKET to the spawner */
#define DAEMON_UNIX_FD 4        /* the API's Unix socket, listening */
#define DAEMON_TCP_FD 5         /* the API's TCP socket, listening; with --tcp */
#define DAEMON_CERTIFICATE_FD 6 /* with --tls-certificate: its text, in memory */
#define DAEMON_KEY_FD 7

/* Exit codes of the daemon: 0 after SPAWN_QUIT, and these. Any other exit is a crash, after which
 * the spawner restarts it with back-off. */
#define DAEMON_EXIT_IDLE 64   /* idle for idle_exit_seconds: the spawner ends too */
#define DAEMON_EXIT_CONFIG 65 /* invalid configuration or store: a restart would not help */

enum tier { TIER_AUTO = 0, TIER_NAMESPACE = 1, TIER_GVISOR = 2, TIER_VM = 3, TIER_COUNT };

/* The limits, and why one is not enforced on this host. limit_reason_text() in proto/tiers.h has
 * the sentences for people. */
enum limit_kind {
	LIMIT_CPU,
	LIMIT_MEMORY,
	LIMIT_PIDS,
	LIMIT_DISK,
	LIMIT_INODES,
	LIMIT_FILES,
	LIMIT_COUNT
};

enum limit_reason {
	LIMIT_ENFORCED = 0,
	LIMIT_NO_CGROUP_CONTROLLER,
	LIMIT_NO_CGROUP_DELEGATION,
	LIMIT_NO_DISK_MECHANISM,
	LIMIT_NOT_ASKED,
	LIMIT_NEEDS_ROOT,
	LIMIT_CGROUP_SHARED,
	LIMIT_OTHER_KERNEL,
};

enum mount_mode { MOUNT_READ_ONLY = 0, MOUNT_READ_WRITE = 1, MOUNT_COPY_ON_WRITE = 2 };

enum spawn_type {
	/* daemon -> spawner */
	SPAWN_HELLO = 1,
	SPAWN_CREATE, /* a new sandbox; descriptors: one folder_grant per mount, in order */
	SPAWN_START,  /* starts a stopped sandbox from its files; the same fields and descriptors */
	SPAWN_KILL, /* ends the processes and keeps the files. Answered when all processes are gone,
		       with the last counters of its cgroups */
	SPAWN_DESTROY, /* KILL, and removes everything; answered after the kill, before the removal
			*/
	SPAWN_FREEZE,
	SPAWN_THAW,
	SPAWN_LIMITS, /* new limits for a running sandbox */
	/* The counters of its cgroups. Without an id: one SPAWN_COUNTED for each running
	 * sandbox, then the reply. */
	SPAWN_COUNTERS,
	SPAWN_LIST,  /* the sandboxes that exist on the host: one SPAWN_LISTED each, then the reply
		      */
	SPAWN_PROBE, /* what a tier can do here */
	SPAWN_RECLAIM, /* the host takes back as much memory of a frozen sandbox as it can */
	SPAWN_OWN,     /* a sandbox that was made with CREATE_POOLED has an owner now */
	/* spawner -> daemon */
	SPAWN_REPLY = 64,
	SPAWN_LISTED,
	SPAWN_ENDED,   /* unasked: the processes of a sandbox have ended */
	SPAWN_RELOAD,  /* unasked: SIGHUP came; read the configuration again */
	SPAWN_QUIT,    /* unasked: finish up and exit */
	SPAWN_COUNTED, /* of SPAWN_COUNTERS */
};

enum create_flag {
	CREATE_NESTED_USERNS = 1 << 0, /* user namespaces inside are allowed */
	CREATE_POOLED = 1 << 1,        /* without an owner yet; noted in its files, see locks.c */
};

/* The parts of a sandbox's root, as kinds and digests that the spawner can look up itself. An
 * image's environment, user and directory stay with the daemon: untrusted text must not reach the
 * privileged process. */
enum rootfs_kind {
	ROOTFS_HOST = 1, /* this host's programs, and a layer that Caisson makes */
};
/* Names its layers: 64 digits of hex and a NUL. */
#define ROOTFS_DIGEST_TEXT 65
struct spawn_rootfs {
	uint32_t kind;                   /* enum rootfs_kind */
	char digest[ROOTFS_DIGEST_TEXT]; /* "": today's layers of that kind */
};

/* What is mounted beside the root. */
enum mount_source {
	MOUNT_FOLDER = 1, /* a user's folder; its descriptor is a folder_grant */
};
struct spawn_mount {
	uint32_t source; /* enum mount_source */
	uint32_t mode;   /* enum mount_mode */
};

struct spawn_create {
	uint32_t tier; /* not TIER_AUTO: the daemon has chosen */
	struct spawn_rootfs rootfs;
	uint32_t flags;
	struct limits limits;
	uint32_t mount_count;
	struct spawn_mount mounts[SANDBOX_MOUNTS_MAX];
};

#define SPAWN_PHASES_MAX 12
struct spawn_phase {
	char name[16]; /* a word from the driver, for people: "namespaces", "mounts", ... */
	uint32_t microseconds;
};

/* The counters. The host may lack any of them. */
enum counter_known {
	KNOWN_CPU,
	KNOWN_MEMORY,
	KNOWN_PEAK,
	KNOWN_OOM,
	KNOWN_PROCESSES,
	KNOWN_DISK,
	KNOWN_COUNT
};

struct spawn_counters {
	uint64_t cpu_ns;
	uint64_t memory, memory_peak;
	uint64_t oom_kills;
	uint32_t processes;
	uint64_t disk, disk_inodes; /* used */
	uint8_t known[KNOWN_COUNT]; /* 0 or 1, by enum counter_known */
};

/* An init that ends the sandbox at its deadline exits with END_DEADLINE. */
enum end_cause { END_EXITED = 0, END_KILLED = 1, END_DEADLINE = 2 };

struct spawn_listed {
	uint32_t tier;
	uint32_t running; /* 0: it has files but no process */
	uint32_t frozen;
	uint32_t pooled; /* according to the spawner */
	uint32_t pid;
	struct limits limits; /* `running`: the limits in force; pids as the tier counts them */
};

/* The last counters before its cgroups were removed. If it did not run, none in `counters` is
 * known. */
struct spawn_ended {
	uint32_t cause; /* enum end_cause */
	struct spawn_counters counters;
};

/* A sandbox's memory before and after SPAWN_RECLAIM; `done` 0: it was interrupted. */
struct spawn_reclaimed {
	uint32_t done;
	uint64_t before, after;
	uint64_t microseconds;
};

struct spawn_probe {
	uint32_t tier;
	uint32_t available;
	uint32_t limit_reasons[LIMIT_COUNT];
	/* 1: available by its name; `auto` does not choose it, and `missing` says why. */
	uint32_t by_name;
	uint64_t memory_min;  /* the smallest limit that it can run with */
	uint64_t memory_idle; /* a generous estimate of what an idle sandbox costs the host */
	char missing[256];    /* for people: what is missing, or "" */
};

struct spawn_message {
	uint32_t type; /* enum spawn_type */
	uint32_t request;
	struct id sandbox;
	uint32_t result;                 /* replies: enum error_kind */
	char message[ERROR_MESSAGE_MAX]; /* replies: the error's text, for people and the log */
	union {
		struct {
			uint32_t version;
			uint64_t programs; /* reply: hash of what makes new sandboxes, and of their
					      init */
			/* reply: the layers for boots of ROOTFS_HOST; "": none */
			char rootfs_digest[ROOTFS_DIGEST_TEXT];
		} hello;                    /* HELLO and its reply */
		struct spawn_create create; /* CREATE, START */
		struct limits limits;       /* LIMITS */
		uint32_t tier;              /* PROBE */
		struct {
			uint32_t pid;
			char rootfs_digest[ROOTFS_DIGEST_TEXT];
			uint32_t limit_reasons[LIMIT_COUNT];
			uint32_t phase_count;
			struct spawn_phase phases[SPAWN_PHASES_MAX];
		} created; /* reply to CREATE, START */
		/* COUNTED; replies to COUNTERS, KILL, DESTROY */
		struct spawn_counters counters;
		struct spawn_listed listed;
		struct spawn_probe probe; /* reply to PROBE */
		struct spawn_ended ended;
		struct spawn_reclaimed reclaimed; /* reply to RECLAIM */
	};
};
