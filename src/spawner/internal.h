/* What the files of the spawner share. One struct, one thread, one loop:
 *
 *   main.c         the steps of a start and of an end, as a list
 *   instance.c        directories, locks, the instance's name, the daemon's user
 *   uid_block.c    the block of uids that is this instance's
 *   init_file.c    root's own copy of caisson-init
 *   listeners.c       the API's sockets
 *   rootless.c     a spawner without root: its namespaces, and the daemon's way to its files
 *   earlier_namespace.c       the namespace of an earlier one, where sandboxes of it live
 *   privileges.c   what is given up, and when
 *   daemon_child.c       starting the daemon, and starting it again
 *   guests.c       the table of sandboxes: end, pause, and who waits for it
 *   boots.c        sandboxes that are being made or started
 *   worker.c       the long steps of drivers, in processes of their own
 *   guest_changes.c         those on a sandbox that runs: new limits, memory that is taken back
 *   memory_limit.c       sandboxes that hold more memory than they may
 *   adopt.c        finding again what an earlier spawner left
 *   trash.c        erasing files in processes of their own
 *   requests.c     one function per message of the daemon's
 *   mount_table.c  what is mounted where
 *   validate.c     no field of a message is believed
 *   loop.c         epoll: the daemon's socket, signals, the ends of sandboxes */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/error.h"
#include "tier/driver.h"
#include "tier/jail/jail.h"

/* All instances of a host share the uids from UID_RANGE_BASE on; each owns one block of them. */
#define UID_BLOCK_SLOTS SANDBOX_COUNT_PER_STATE_MAX
#define UID_BLOCKS (SANDBOX_COUNT_MAX / UID_BLOCK_SLOTS)

#define SPAWNER_PATH_MAX 512

/* Requests that wait for the same sandbox. A daemon that keeps to the order of things has two: a
 * stop that takes long, and the delete that follows it. */
#define ENTRY_WAITING_MAX 4

/* A step on one that runs, in a worker of its own (guest_changes.c). */
struct guest_change {
	enum change_kind {
		CHANGE_NONE = 0,
		CHANGE_LIMITS,
		CHANGE_LIMITS_BACK, /* the limits that it had: after LIMITS that did not end well */
		CHANGE_RECLAIM,
		CHANGE_ENFORCE_MEMORY, /* what it holds above its limit */
	} kind;
	pid_t worker;
	int socket;           /* its result comes from there; -1 when there is none */
	uint32_t request;     /* whom it is answered; 0: nobody */
	int64_t began, until; /* CLOCK_MONOTONIC: it is killed then */
	bool stopped;         /* it has been */
	struct limits limits;
	uint64_t memory; /* RECLAIM: before it */
};
#define CHANGE_IDLE ((struct guest_change){.kind = CHANGE_NONE, .socket = -1})

/* One sandbox, at the index that is its slot. */
struct entry {
	enum entry_state {
		ENTRY_FREE = 0,
		ENTRY_STOPPED, /* its files are there, no process is */
		ENTRY_RUNNING,
		ENTRY_FREEZING, /* it runs; its processes have been told to stop */
		ENTRY_THAWING,  /* it runs; its processes have been told to go on */
		ENTRY_DYING,    /* killed, or ended by itself: something of it is still there */
		ENTRY_ERASING,  /* gone for everyone; its slot is free when its files are */
		ENTRY_BOOTING,  /* `order` waits for a worker, or one carries it out */
	} state;
	const struct driver *driver;
	struct guest guest;
	/* ERASING, BOOTING: who does it; 0: it waits for its turn */
	pid_t worker;
	int worker_socket; /* its result comes from there; -1 when there is none */
	struct boot_order *order;
	uint32_t boot_request; /* whom the boot is answered; 0: nobody */
	uint64_t boot_turn;
	bool pooled;                /* nobody's: the daemon has it ready for somebody */
	bool end_requested;         /* BOOTING: it is to end before it has begun */
	struct guest_change change; /* while it runs, and until its worker is gone */
	struct guest_change
	    next_change;         /* it waits for END_OVER's worker to be gone; kind NONE: none */
	int memory_events;       /* while it runs; -1: its tier needs none (memory_limit.c) */
	int64_t memory_retry_at; /* CLOCK_MONOTONIC: it could not be helped, and is left alone */
	/* DYING: what was counted last. What is not known here was known before it died. */
	struct spawn_counters counters;

	/* How long the kernel takes over FREEZING, THAWING and DYING is up to the sandbox, so
	 * that nobody waits for it: the loop looks again, and answers whoever asked. */
	int64_t check_at;                    /* CLOCK_MONOTONIC; 0: nothing is under way */
	int64_t check_pause;                 /* until the look after that */
	int64_t answer_by;                   /* who still waits then is told so; 0: that has been */
	uint32_t waiting[ENTRY_WAITING_MAX]; /* their request numbers, in order */
	uint32_t waiting_count;
	bool erase_files;   /* DYING: its files go next */
	bool ended_unasked; /* DYING: by itself, which the daemon has to be told */
	bool unreported; /* DYING: the daemon need not be told, and never knew one that is erased */
	enum end_cause cause;
};
#define ENTRY_NONE                                                                                 \
	{                                                                                          \
		.guest.init = PROCESS_NONE, .worker_socket = -1, .change = {.socket = -1},         \
		.memory_events = -1                                                                \
	}

/* What a boot needs that was asked for, until it is done. */
struct boot_order {
	struct spawn_create create;
	struct mount mounts[SANDBOX_MOUNTS_MAX]; /* owned */
	enum boot_origin origin;
};

/* What a worker says. */
struct work_result {
	int result; /* 0, or -1 with error */
	struct error error;
	struct guest guest; /* its process's pidfd comes along, where it has one */
};

/* What a tier can do here: asked once, and again while it cannot be used. */
#define PROBE_WAITING_MAX 4
struct probe {
	pid_t worker;
	int socket;    /* -1: none is under way */
	int64_t until; /* CLOCK_MONOTONIC: it is killed then; 0: it has been */
	struct spawn_probe result;
	uint32_t waiting[PROBE_WAITING_MAX], waiting_count;
};

/* Messages that wait for room in the daemon's socket. While there are any, no request is read, so
 * that the answer to one LIST, an end, and the answers to a job and to those who wait per sandbox,
 * and a few words are all there can ever be. */
#define OUTBOX_MAX ((3 + ENTRY_WAITING_MAX) * UID_BLOCK_SLOTS + 64)

struct spawner {
	struct config config;
	const char *config_path; /* NULL: none */
	struct host host;
	const struct driver *(*driver_of)(enum tier tier);
	const struct jail *jail; /* host_jail, but in tests */
	uint64_t init_hash;      /* names the init that boots get, by its content */
	struct entry entries[UID_BLOCK_SLOTS];
	struct probe probes[TIER_COUNT];
	uint64_t boot_turns;
	uint32_t list_request;   /* waits until nothing is being made; 0: none */
	pid_t ended_workers[64]; /* workers that have said their say */
	uint32_t ended_worker_count;
	uint32_t worker_count; /* erasing */
	pid_t trash_worker;
	int64_t check_at;                    /* the earliest of the entries', or earlier; 0: none */
	int64_t end_timeout, freeze_timeout; /* 0: as guests.c has it */

	bool state_is_new, runtime_is_new; /* made at this start */
	int state_lock, runtime_lock;
	int uid_block; /* -1 until claimed */
	int unix_listener, tcp_listener;
	int tls_files[2];                  /* copies of the certificate and its key; -1: no TLS */
	char listen[CONFIG_HOST_MAX + 16]; /* what is really bound, when tcp_listener is */
	bool adopted;                      /* the table is true: what is not in it may be removed */

	int epoll, signals;
	int socket; /* to the daemon; -1 when there is none */
	struct spawn_message *outbox;
	size_t outbox_first, outbox_count;

	/* Starts a daemon, sets `socket` and `daemon`. NULL: the connection there is stays the only
	 * one, and the loop ends with it. */
	int (*start_daemon)(struct spawner *spawner, struct error *error);
	pid_t daemon;                              /* 0: none */
	int64_t daemon_started, daemon_restart_at; /* CLOCK_MONOTONIC; 0: not planned */
	uint32_t back_off_ms;
	int64_t daemon_kill_at; /* it has closed its socket: it has until then to be gone */
	bool quitting;
	int64_t quit_until;
	bool done;
	int exit_code;
};

struct spawner *spawner_new(const struct config *config);
void spawner_free(struct spawner *spawner);

/* tls_files.c: reads them, or reads them anew. */
NODISCARD int tls_files_load(struct spawner *spawner, struct error *error);
/* A descriptor to read the certificate (0) or the key (1) with; -ENOENT where there is no TLS. */
NODISCARD int tls_file_open(const struct spawner *spawner, int which);

/* instance.c */
NODISCARD int instance_find_user(struct spawner *spawner, struct error *error);
NODISCARD int instance_make_roots(struct spawner *spawner, struct error *error);
NODISCARD int instance_make_directories(struct spawner *spawner, struct error *error);
NODISCARD int instance_check_reach(struct spawner *spawner, struct error *error);
/* In a child: its ids become the daemon's. 0 or -errno. */
NODISCARD int instance_become_daemon_user(const struct host *host);
/* FNV-1a: names things, protects nothing. */
uint64_t instance_hash(uint64_t hash, const void *data, size_t size);
#define INSTANCE_HASH_START 0xcbf29ce484222325ULL
/* locks.c */
NODISCARD int locks_take(struct spawner *spawner, struct error *error);

/* uid_block.c; `directory` is where all instances of the host meet. */
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
/* It has closed its end: it is about to exit, and is killed when it does not. */
void daemon_child_lost(struct spawner *spawner);
/* It broke the rules: its socket is closed and it is killed. It is started again later. */
void daemon_child_drop(struct spawner *spawner, const char *why);
/* It has ended: plan what comes next. */
void daemon_child_ended(struct spawner *spawner, int status);

/* guests.c */
struct entry *guests_find(struct spawner *spawner, const struct id *id);
/* All but those that are being erased. */
uint32_t guests_count(const struct spawner *spawner);
/* Is it up? One that is dying is not. */
bool guests_is_running(const struct entry *entry);
/* Is it in the table, or are there files of it that nobody could make sense of? */
bool guests_id_known(struct spawner *spawner, const struct id *id);
/* Is it the name of anything of ours: a sandbox, its cgroups, one that is being erased? */
bool guests_id_in_use(struct spawner *spawner, const struct id *id);
/* Ends its processes, and with `destroy` erases its files then. 0: there were none, and nothing is
 * erased; 1: `request` is answered when it has ended. */
NODISCARD int guests_stop(struct spawner *spawner, struct entry *entry, bool destroy,
			  uint32_t request, struct error *error);
/* 0: done; 1: `request` is answered when it is. */
NODISCARD int guests_freeze(struct spawner *spawner, struct entry *entry, bool frozen,
			    uint32_t request, struct error *error);
/* Its processes are gone or have been killed: it is STOPPED once the host has nothing of them. */
void guests_finish_dying(struct spawner *spawner, struct entry *entry);
/* A boot that came to nothing: what there is of it is killed, and with `erase` its files go. */
void guests_discard_boot(struct spawner *spawner, struct entry *entry, bool erase);
/* The loop looks at it again then. */
void guests_check_later(struct spawner *spawner, struct entry *entry, int64_t at);
/* Reaps it if it is ours, and stops watching it. */
void guests_forget_process(struct spawner *spawner, struct entry *entry);
/* A process whose end is the end of a sandbox has become readable. */
void guests_check_process(struct spawner *spawner, uint32_t slot);
/* Sees to what is under way and due. */
void guests_check_due(struct spawner *spawner);
/* The daemon is gone: nobody waits any more, and no pause that it would not know of is begun. */
void guests_forget_requests(struct spawner *spawner);
NODISCARD int guests_watch(struct spawner *spawner, struct entry *entry, struct error *error);
NODISCARD int guests_path(const struct spawner *spawner, const char *below, const struct id *id,
			  char path[SPAWNER_PATH_MAX]);

/* boots.c. Both take the mounts over when they return 1: `request` is answered when it listens, or
 * cannot. */
NODISCARD int boots_create(struct spawner *spawner, const struct id *id,
			   const struct spawn_create *create, struct mount *mounts,
			   uint32_t request, struct error *error);
NODISCARD int boots_start(struct spawner *spawner, struct entry *entry,
			  const struct spawn_create *create, struct mount *mounts, uint32_t request,
			  struct error *error);
/* It is somebody's, and its `slot` says so. */
NODISCARD int boots_mark_owned(struct spawner *spawner, struct entry *entry, struct error *error);
bool boots_is_booting(const struct entry *entry);
uint32_t boots_count(const struct spawner *spawner);
/* A worker's socket has become readable. */
void boots_take_result(struct spawner *spawner, uint32_t slot);
/* It takes too long. */
void boots_check_timeout(struct spawner *spawner, struct entry *entry);
/* One that is under way is to end: it dies as soon as it can. */
void boots_abort(struct spawner *spawner, struct entry *entry, bool destroy);
void boots_forget_order(struct entry *entry);
/* Orders that have not begun are dropped; nobody waits for the others. */
void boots_forget_requests(struct spawner *spawner);

/* guest_changes.c. The first two: 1: `request` is answered when it is done. */
NODISCARD int changes_set_limits(struct spawner *spawner, struct entry *entry,
				 const struct limits *limits, uint32_t request,
				 struct error *error);
NODISCARD int changes_reclaim(struct spawner *spawner, struct entry *entry, uint32_t request,
			      struct error *error);
/* Nobody waits for it, and it gives way to the others. */
NODISCARD int changes_enforce_memory(struct spawner *spawner, struct entry *entry,
				     struct error *error);
bool changes_is_running(const struct entry *entry);
/* Its worker is killed; the loop hears of its end. */
void changes_stop(struct entry *entry);
/* It takes too long. */
void changes_check_timeout(struct spawner *spawner, struct entry *entry);
/* A worker's socket has become readable. */
void changes_take_result(struct spawner *spawner, uint32_t slot);

/* memory_limit.c */
void memory_limit_watch(struct spawner *spawner, struct entry *entry);
void memory_limit_unwatch(struct spawner *spawner, struct entry *entry);
/* Does it hold more than it may? Then that is ended. Also called with the counters of all, every
 * few seconds: for a kernel that does not tell. */
void memory_limit_check(struct spawner *spawner, struct entry *entry);
/* What was done about it came to nothing: it is tried again, but not at once. */
void memory_limit_note_failure(struct entry *entry, const char *why);
/* The descriptor of memory_limit_watch() has an event. */
void memory_limit_take_event(struct spawner *spawner, uint32_t slot);

/* worker.c */
/* Forks. In the child 0, with *socket for its result; in the parent its pid, with *socket to read
 * that from; or -errno. */
pid_t worker_fork(struct spawner *spawner, int *socket);
NODISCARD int worker_boot(struct spawner *spawner, struct entry *entry, struct error *error);
/* Its result, with its descriptors; -EPIPE: it ended without one. It is forgotten either way. */
NODISCARD int worker_receive_boot(struct spawner *spawner, struct entry *entry,
				  struct work_result *ret_result);
NODISCARD int worker_probe(struct spawner *spawner, enum tier tier, struct error *error);
void worker_take_probe(struct spawner *spawner, enum tier tier);
/* Ends probes that take too long; when to call again (CLOCK_MONOTONIC), 0: not by time. */
int64_t workers_check_probes(struct spawner *spawner);
/* At the end of everything: waits for those under way, three seconds at most. */
void workers_finish_probes(struct spawner *spawner);
/* It has ended or is about to. */
void worker_reap_later(struct spawner *spawner, pid_t worker);
void workers_reap(struct spawner *spawner);

/* adopt.c */
void adopt_guests(struct spawner *spawner);
void adopt_sweep_cgroups(struct spawner *spawner);

/* trash.c */
/* A stopped and released sandbox: its files move to the trash and are erased. */
void trash_move_entry(struct spawner *spawner, struct entry *entry);
/* Files that belong to no sandbox. */
void trash_move_files(struct spawner *spawner, const char *name);
/* Erases what is in the trash, in a process of its own. */
void trash_empty(struct spawner *spawner);
/* At the end of everything: waits for what is being erased, two seconds at most. */
void trash_wait(struct spawner *spawner);
/* A child has ended: was it one of ours? */
bool trash_reap(struct spawner *spawner);

/* mount_table.c */
/* The type of the file system that a descriptor is on. -ENOENT: a mount of another namespace. */
NODISCARD int mount_table_type(int fd, char *type, size_t room);
/* Where a directory is in its file system, with '/' at the end, whatever mounts lead there. */
#define MOUNT_PLACE_SIZE (2 * PATH_MAX + 2)
NODISCARD int mount_table_place(int fd, char place[MOUNT_PLACE_SIZE]);

/* validate.c */
/* Fills mounts[0..fd_count) as far as it got; the caller closes them. */
NODISCARD int validate_limits(const struct spawner *spawner, const struct limits *limits,
			      struct error *error);
NODISCARD int validate_create(const struct spawner *spawner, struct spawn_create *create,
			      const int *fds, size_t fd_count,
			      struct mount mounts[SANDBOX_MOUNTS_MAX], struct error *error);
void mounts_init(struct mount mounts[SANDBOX_MOUNTS_MAX]);
void mounts_done(struct mount mounts[SANDBOX_MOUNTS_MAX]);

/* requests.c */
/* Serves one message; the descriptors stay the caller's. */
void requests_serve(struct spawner *spawner, struct spawn_message *message, const int *fds,
		    size_t fd_count);
/* Answers a LIST. */
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
/* Queues and sends as far as there is room. */
void spawner_loop_send(struct spawner *spawner, const struct spawn_message *message);
void spawner_loop_run(struct spawner *spawner);
/* For a child that goes on without exec: signals as if they had never been touched. */
void spawner_loop_reset_signals(void);
