/* Shared by the files of the spawner. One struct, one thread, one loop:
 *
 *   main.c               the steps of a start and the clean-up, as a list
 *   instance.c           directories, the instance's name, the daemon's user
 *   locks.c              the locks of the state and the runtime directory
 *   uid_block.c          the block of uids that this instance owns
 *   init_file.c          root's own copy of caisson-init
 *   listeners.c          the API's sockets
 *   tls_files.c          the certificate and its key
 *   rootless.c           namespaces without root, and the daemon's access to its files
 *   earlier_namespace.c  the namespace of an earlier spawner whose sandboxes run
 *   privileges.c         which privileges are dropped, and when
 *   daemon_child.c       starts and restarts the daemon
 *   guests.c             the table of sandboxes: ending, pausing, waiting requests
 *   boots.c              creates and starts of sandboxes
 *   worker.c             slow operations of drivers, in forked processes
 *   guest_changes.c      slow changes of a running sandbox: limits, reclaiming memory
 *   memory_limit.c       sandboxes above their memory limit
 *   adopt.c              finds what an earlier spawner left
 *   trash.c              erases files in forked processes
 *   requests.c           one function per message of the daemon's
 *   mount_table.c        /proc/self/mountinfo
 *   validate.c           checks every field of a message
 *   loop.c               epoll: the daemon's socket, signals, ends of sandboxes, timers */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/error.h"
#include "tier/driver.h"
#include "tier/jail/jail.h"

/* All instances of a host share the uids from UID_RANGE_BASE on. Each owns one block of them. */
#define UID_BLOCK_SLOTS SANDBOX_COUNT_PER_STATE_MAX
#define UID_BLOCKS (SANDBOX_COUNT_MAX / UID_BLOCK_SLOTS)

#define SPAWNER_PATH_MAX 512

/* Requests that can wait for the same sandbox. A well-behaved daemon has two: a slow stop, and
 * the delete that follows it. */
#define ENTRY_WAITING_MAX 4

/* A change of a running sandbox, made by a worker (guest_changes.c). */
struct guest_change {
	enum change_kind {
		CHANGE_NONE = 0,
		CHANGE_LIMITS,
		CHANGE_LIMITS_BACK, /* puts the old limits back after a failed LIMITS */
		CHANGE_RECLAIM,
		CHANGE_ENFORCE_MEMORY, /* frees memory above the limit */
	} kind;
	pid_t worker;
	int socket;           /* the worker sends its result here; -1: none */
	uint32_t request;     /* request to answer; 0: none */
	int64_t began, until; /* CLOCK_MONOTONIC; at `until` the worker is killed */
	bool stopped;         /* the worker was killed */
	struct limits limits;
	uint64_t memory; /* RECLAIM: usage before it */
};
#define CHANGE_IDLE ((struct guest_change){.kind = CHANGE_NONE, .socket = -1})

/* The spawner's entry of one sandbox. Its index in the table is the sandbox's slot. */
struct guest_entry {
	enum guest_entry_state {
		ENTRY_FREE = 0,
		ENTRY_STOPPED, /* has files and no process */
		ENTRY_RUNNING,
		ENTRY_FREEZING, /* runs; its processes were told to stop */
		ENTRY_THAWING,  /* runs; its processes were told to continue */
		ENTRY_DYING,    /* was killed or ended by itself; leftovers exist */
		ENTRY_ERASING,  /* not visible any more; the slot is free once its files are
				 * erased */
		ENTRY_BOOTING,  /* `order` waits for a worker, or a worker carries it out */
	} state;
	const struct driver *driver;
	struct guest guest;
	/* ERASING, BOOTING: the worker; 0: it waits for one */
	pid_t worker;
	int worker_socket; /* the worker sends its result here; -1: none */
	struct boot_order *order;
	uint32_t boot_request; /* request that the boot answers; 0: none */
	uint64_t boot_turn;
	bool pooled;                     /* member of the daemon's pool: it has no owner */
	bool end_requested;              /* BOOTING: end it instead of starting it */
	struct guest_change change;      /* while it runs, and until the worker has ended */
	struct guest_change next_change; /* waits until ENFORCE_MEMORY's worker has ended; kind
					  * NONE: none */
	int memory_events;       /* while it runs; -1: its tier needs none (memory_limit.c) */
	int64_t memory_retry_at; /* CLOCK_MONOTONIC; after a failure it is left alone until then */
	/* DYING: final counters. Values that are unknown now may have been read before the kill. */
	struct spawn_counters counters;

	/* A sandbox can delay FREEZING, THAWING and DYING. So the spawner does not wait: the loop
	 * checks again and answers the requests. */
	int64_t check_at;    /* CLOCK_MONOTONIC of the next check; 0: nothing is under way */
	int64_t check_pause; /* time until the check after that */
	int64_t answer_by;   /* waiting requests get a time-out then; 0: they were answered */
	uint32_t waiting[ENTRY_WAITING_MAX]; /* their request numbers, in order */
	uint32_t waiting_count;
	bool erase_files;   /* DYING: erase its files afterwards */
	bool ended_unasked; /* DYING: it ended by itself, and the daemon is to be told */
	bool unreported;    /* DYING: do not tell the daemon; with erase_files the daemon never knew
			     * it */
	enum end_cause cause;
};
#define ENTRY_NONE                                                                                 \
	{                                                                                          \
		.guest.init = PROCESS_NONE, .worker_socket = -1, .change = {.socket = -1},         \
		.memory_events = -1                                                                \
	}

/* The parameters of a boot, kept until it is done. */
struct boot_order {
	struct spawn_create create;
	struct mount mounts[SANDBOX_MOUNTS_MAX]; /* owned */
	enum boot_origin origin;
};

/* The result that a worker sends. */
struct work_result {
	int result; /* 0, or -1 with error */
	struct error error;
	struct guest guest; /* its pidfd is sent along, if it has one */
};

/* The result of a tier's probe. A tier that cannot be used is probed again on request. */
#define PROBE_WAITING_MAX 4
struct probe {
	pid_t worker;
	int socket;    /* -1: no probe is running */
	int64_t until; /* CLOCK_MONOTONIC when the worker is killed; 0: it was killed */
	struct spawn_probe result;
	uint32_t waiting[PROBE_WAITING_MAX], waiting_count;
};

/* Messages that wait for room in the daemon's socket. No request is read while there are any. So
 * the outbox holds at most one LIST, an end per sandbox, the answers to its change and to its
 * waiting requests, and a few more. */
#define OUTBOX_MAX ((3 + ENTRY_WAITING_MAX) * UID_BLOCK_SLOTS + 64)

struct spawner {
	struct config config;
	const char *config_path; /* NULL: none */
	struct host host;
	const struct driver *(*driver_of)(enum tier tier);
	const struct jail *jail; /* host_jail, except in tests */
	uint64_t programs_hash;  /* of the init of new boots and of this program, by content */
	char rootfs_digest[ROOTFS_DIGEST_TEXT]; /* of ROOTFS_HOST; "" if it could not be prepared */
	struct guest_entry entries[UID_BLOCK_SLOTS];
	struct probe probes[TIER_COUNT];
	uint64_t boot_turns;
	uint32_t list_request;   /* waits until no boot is under way; 0: none */
	pid_t ended_workers[64]; /* workers that have sent their result */
	uint32_t ended_worker_count;
	uint32_t worker_count; /* workers that erase files */
	pid_t trash_worker;
	int64_t check_at;                    /* CLOCK_MONOTONIC, no later than the earliest check
					      * of an entry; 0: none */
	int64_t end_timeout, freeze_timeout; /* 0: the defaults of guests.c */

	bool state_is_new, runtime_is_new; /* made by this start */
	int state_lock, runtime_lock;
	int uid_block; /* -1 until it is claimed */
	int unix_listener, tcp_listener;
	int tls_files[2];                  /* copies of the certificate and its key; -1: no TLS */
	char listen[CONFIG_HOST_MAX + 16]; /* the address that tcp_listener is bound to */
	bool adopted;                      /* the table is complete: what it does not list may be
					    * removed */

	int epoll, signals;
	int socket; /* to the daemon; -1: no daemon */
	struct spawn_message *outbox;
	size_t outbox_first, outbox_count;

	/* Starts a daemon, sets `socket` and `daemon`. NULL: the existing connection is the only
	 * one, and the loop ends with it. */
	int (*start_daemon)(struct spawner *spawner, struct error *error);
	pid_t daemon;                              /* 0: none */
	int64_t daemon_started, daemon_restart_at; /* CLOCK_MONOTONIC; 0: not planned */
	uint32_t back_off_ms;
	int64_t daemon_kill_at; /* it closed its socket and is killed at this time; 0: not
				 * planned */
	bool quitting;
	int64_t quit_until;
	bool done;
	int exit_code;
};

struct spawner *spawner_new(const struct config *config);
void spawner_free(struct spawner *spawner);

/* tls_files.c: reads them, or reads them again. */
NODISCARD int tls_files_load(struct spawner *spawner, struct error *error);
/* Opens a read-only descriptor of the certificate (0) or the key (1); -ENOENT without TLS. */
NODISCARD int tls_file_open(const struct spawner *spawner, int which);

/* instance.c */
NODISCARD int instance_find_user(struct spawner *spawner, struct error *error);
NODISCARD int instance_make_roots(struct spawner *spawner, struct error *error);
NODISCARD int instance_make_directories(struct spawner *spawner, struct error *error);
NODISCARD int instance_check_reach(struct spawner *spawner, struct error *error);
/* In a child: takes on the daemon's ids. 0 or -errno. */
NODISCARD int instance_become_daemon_user(const struct host *host);
/* FNV-1a: for names only, not for security. */
uint64_t instance_hash(uint64_t hash, const void *data, size_t size);
#define INSTANCE_HASH_START 0xcbf29ce484222325ULL
/* locks.c */
NODISCARD int locks_take(struct spawner *spawner, struct error *error);

/* uid_block.c. `directory` is shared by all instances of the host. */
#define UID_BLOCK_DIRECTORY "/run/caisson-uids"
NODISCARD int uid_block_claim(const char *directory, const char *state, struct error *error);
void uid_block_release(const char *directory, int block);

/* init_file.c */
NODISCARD int init_file_install(struct spawner *spawner, struct error *error);

/* listeners.c */
NODISCARD int listeners_open(struct spawner *spawner, struct error *error);

/* privileges.c */
NODISCARD int privileges_raise_file_limit(struct spawner *spawner, struct error *error);
NODISCARD int privileges_narrow_first(struct spawner *spawner, struct error *error);
NODISCARD int privileges_narrow_second(struct spawner *spawner, struct error *error);

/* daemon_child.c */
NODISCARD int daemon_child_start(struct spawner *spawner, struct error *error);
/* It closed its socket: it should exit soon, and is killed if it does not. */
void daemon_child_lost(struct spawner *spawner);
/* It broke the protocol: its socket is closed, it is killed and restarted later. */
void daemon_child_drop(struct spawner *spawner, const char *why);
/* It has ended: restart it, or end the spawner. */
void daemon_child_ended(struct spawner *spawner, int status);

/* guests.c */
struct guest_entry *guests_find(struct spawner *spawner, const struct id *id);
/* All but those that are being erased. */
uint32_t guests_count(const struct spawner *spawner);
/* Whether it runs. One that is dying does not. */
bool guests_is_running(const struct guest_entry *entry);
/* Whether the id is in the table, or has files that could not be read. */
bool guests_id_known(struct spawner *spawner, const struct id *id);
/* Whether the id is used by anything of ours: a sandbox, its cgroups, one that is being erased. */
bool guests_id_in_use(struct spawner *spawner, const struct id *id);
/* Ends its processes, and erases its files afterwards if `destroy`. 0: it had none, and nothing
 * is erased; 1: `request` is answered when it has ended. */
NODISCARD int guests_stop(struct spawner *spawner, struct guest_entry *entry, bool destroy,
			  uint32_t request, struct error *error);
/* 0: done; 1: `request` is answered when it is done. */
NODISCARD int guests_freeze(struct spawner *spawner, struct guest_entry *entry, bool frozen,
			    uint32_t request, struct error *error);
/* Its processes are gone or were killed: it becomes STOPPED when nothing of them is left on the
 * host. */
void guests_finish_dying(struct spawner *spawner, struct guest_entry *entry);
/* Kills what a failed boot left, and erases its files if `erase`. */
void guests_discard_boot(struct spawner *spawner, struct guest_entry *entry, bool erase);
/* The loop checks it again at that time. */
void guests_check_later(struct spawner *spawner, struct guest_entry *entry, int64_t at);
/* Reaps the process if it is our child, and stops watching it. */
void guests_forget_process(struct spawner *spawner, struct guest_entry *entry);
/* The pidfd of the process that represents a sandbox has become readable. */
void guests_check_process(struct spawner *spawner, uint32_t slot);
/* Checks all entries that are due. */
void guests_check_due(struct spawner *spawner);
/* The daemon is gone: drops the requests that wait, and undoes pauses under way. */
void guests_forget_requests(struct spawner *spawner);
NODISCARD int guests_watch(struct spawner *spawner, struct guest_entry *entry, struct error *error);
NODISCARD int guests_path(const struct spawner *spawner, const char *below, const struct id *id,
			  char path[SPAWNER_PATH_MAX]);

/* boots.c. Both take the mounts over when they return 1: then `request` is answered when the
 * init listens, or when the boot fails. */
NODISCARD int boots_create(struct spawner *spawner, const struct id *id,
			   const struct spawn_create *create, struct mount *mounts,
			   uint32_t request, struct error *error);
NODISCARD int boots_start(struct spawner *spawner, struct guest_entry *entry,
			  const struct spawn_create *create, struct mount *mounts, uint32_t request,
			  struct error *error);
/* The sandbox has an owner now: notes that in its `slot` file. */
NODISCARD int boots_mark_owned(struct spawner *spawner, struct guest_entry *entry,
			       struct error *error);
bool boots_is_booting(const struct guest_entry *entry);
uint32_t boots_count(const struct spawner *spawner);
/* A worker's socket has become readable. */
void boots_take_result(struct spawner *spawner, uint32_t slot);
/* Kills a worker that takes too long. */
void boots_check_timeout(struct spawner *spawner, struct guest_entry *entry);
/* Ends a sandbox that is being booted, as soon as possible. */
void boots_abort(struct spawner *spawner, struct guest_entry *entry, bool destroy);
void boots_forget_order(struct guest_entry *entry);
/* Orders that no worker has begun are dropped; the others have no request to answer any more. */
void boots_forget_requests(struct spawner *spawner);

/* guest_changes.c. The first two return 1: `request` is answered when it is done. */
NODISCARD int changes_set_limits(struct spawner *spawner, struct guest_entry *entry,
				 const struct limits *limits, uint32_t request,
				 struct error *error);
NODISCARD int changes_reclaim(struct spawner *spawner, struct guest_entry *entry, uint32_t request,
			      struct error *error);
/* Has no request, and yields to the other changes. */
NODISCARD int changes_enforce_memory(struct spawner *spawner, struct guest_entry *entry,
				     struct error *error);
bool changes_is_running(const struct guest_entry *entry);
/* Kills its worker; the loop is told of its end. */
void changes_stop(struct guest_entry *entry);
/* Kills a worker that takes too long. */
void changes_check_timeout(struct spawner *spawner, struct guest_entry *entry);
/* A worker's socket has become readable. */
void changes_take_result(struct spawner *spawner, uint32_t slot);

/* memory_limit.c */
void memory_limit_watch(struct spawner *spawner, struct guest_entry *entry);
void memory_limit_unwatch(struct spawner *spawner, struct guest_entry *entry);
/* Whether it uses more memory than its limit; if so, begins to enforce the limit. Also called
 * every few seconds with all counters, for kernels that send no event. */
void memory_limit_check(struct spawner *spawner, struct guest_entry *entry);
/* Enforcing failed: it is retried, but not at once. */
void memory_limit_note_failure(struct guest_entry *entry, const char *why);
/* The descriptor of memory_limit_watch() has an event. */
void memory_limit_take_event(struct spawner *spawner, uint32_t slot);

/* worker.c */
/* Forks. Returns 0 in the child, with *socket to send its result; its pid in the parent, with
 * *socket to receive it; or -errno. */
pid_t worker_fork(struct spawner *spawner, int *socket);
/* Adds a worker's socket to the loop. `doing` names this in errors. On failure the worker is killed
 * and *socket closed. */
NODISCARD int worker_watch(struct spawner *spawner, pid_t worker, int *socket, uint64_t data,
			   const char *doing, struct error *error);
NODISCARD int worker_boot(struct spawner *spawner, struct guest_entry *entry, struct error *error);
/* Its result, with its descriptors; -EPIPE: it ended without one. The worker is forgotten either
 * way. */
NODISCARD int worker_receive_boot(struct spawner *spawner, struct guest_entry *entry,
				  struct work_result *ret_result);
NODISCARD int worker_probe(struct spawner *spawner, enum tier tier, struct error *error);
void worker_take_probe(struct spawner *spawner, enum tier tier);
/* Kills probes that take too long. Returns when to call again (CLOCK_MONOTONIC); 0: never. */
int64_t workers_check_probes(struct spawner *spawner);
/* When the spawner ends: waits for probes, three seconds at most. */
void workers_finish_probes(struct spawner *spawner);
/* The worker has ended or is about to. */
void worker_reap_later(struct spawner *spawner, pid_t worker);
void workers_reap(struct spawner *spawner);

/* adopt.c */
void adopt_guests(struct spawner *spawner);
void adopt_sweep_cgroups(struct spawner *spawner);

/* trash.c */
/* Moves the files of a stopped and released sandbox to the trash and begins to erase them. */
void trash_move_entry(struct spawner *spawner, struct guest_entry *entry);
/* Moves files that belong to no sandbox. */
void trash_move_files(struct spawner *spawner, const char *name);
/* Erases everything in the trash, in a child. */
void trash_empty(struct spawner *spawner);
/* When the spawner ends: waits for erasing, two seconds at most. */
void trash_wait(struct spawner *spawner);
/* A child has ended. Returns whether it was one of ours. */
bool trash_reap(struct spawner *spawner);

/* mount_table.c */
/* The file system type of the mount that a descriptor is on. -ENOENT: the mount is in another
 * namespace. */
NODISCARD int mount_table_type(int fd, char *type, size_t room);
/* The path of a directory within its file system, with '/' at the end, whatever mounts lead to
 * it. */
#define MOUNT_PLACE_SIZE (2 * PATH_MAX + 2)
NODISCARD int mount_table_place(int fd, char place[MOUNT_PLACE_SIZE]);

/* validate.c */
/* Fills mounts[0..fd_count), on failure only some of them; the caller closes them. */
NODISCARD int validate_limits(const struct spawner *spawner, const struct limits *limits,
			      struct error *error);
NODISCARD int validate_create(const struct spawner *spawner, struct spawn_create *create,
			      const int *fds, size_t fd_count,
			      struct mount mounts[SANDBOX_MOUNTS_MAX], struct error *error);
void mounts_init(struct mount mounts[SANDBOX_MOUNTS_MAX]);
void mounts_done(struct mount mounts[SANDBOX_MOUNTS_MAX]);

/* requests.c */
/* Serves one message; the caller keeps the descriptors. */
void requests_serve(struct spawner *spawner, struct spawn_message *message, const int *fds,
		    size_t fd_count);
/* Answers a LIST request. */
void requests_list(struct spawner *spawner, uint32_t request);

/* loop.c */
#define LOOP_DAEMON (1ULL << 32)
#define LOOP_SIGNALS (2ULL << 32)
#define LOOP_GUEST (3ULL << 32)  /* | slot */
#define LOOP_WORKER (4ULL << 32) /* | slot */
#define LOOP_PROBE (6ULL << 32)  /* | tier */
#define LOOP_CHANGE (7ULL << 32) /* | slot */
#define LOOP_MEMORY (8ULL << 32) /* | slot */
NODISCARD int spawner_loop_open(struct spawner *spawner, struct error *error);
NODISCARD int spawner_loop_watch(struct spawner *spawner, struct error *error);
/* Queues a message and sends what the socket takes. */
void spawner_loop_send(struct spawner *spawner, const struct spawn_message *message);
void spawner_loop_run(struct spawner *spawner);
/* For a child that does not exec: resets all signals to their defaults. */
void spawner_loop_reset_signals(void);
