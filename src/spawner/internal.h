/* What the files of the spawner share. One struct, one thread, one loop:
 *
 *   main.c         the steps of a start and of an end, as a list
 *   place.c        directories, locks, the instance's name, its block of uids, the daemon's user
 *   init_file.c    root's own copy of caisson-init
 *   listen.c       the API's sockets
 *   privileges.c   what is given up, and when
 *   daemon.c       starting the daemon, and starting it again
 *   guests.c       the table of sandboxes: boot, end, pause, and who waits for it
 *   adopt.c        finding again what an earlier spawner left
 *   trash.c        erasing files in processes of their own
 *   requests.c     one function per message of the daemon's
 *   validate.c     no field of a message is believed
 *   loop.c         epoll: the daemon's socket, signals, the ends of sandboxes */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/error.h"
#include "tier/driver.h"

/* All instances of a host share the uids from UID_RANGE_BASE on; each owns one block of them. */
#define UID_BLOCKS 16
#define UID_BLOCK_SLOTS (SANDBOX_COUNT_MAX / UID_BLOCKS)

#define SPAWNER_PATH_MAX 512

/* Requests that wait for the same sandbox. A daemon that keeps to the order of things has two: a
 * stop that takes long, and the delete that follows it. */
#define ENTRY_WAITING_MAX 4

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
	} state;
	const struct driver *driver;
	struct guest guest;
	pid_t worker; /* ENTRY_ERASING: who does it; 0: it waits for its turn */

	/* How long the kernel takes over FREEZING, THAWING and DYING is up to the sandbox, so
	 * that nobody waits for it: the loop looks again, and answers whoever asked. */
	int64_t look_at;                     /* CLOCK_MONOTONIC; 0: nothing is under way */
	int64_t look_pause;                  /* until the look after that */
	int64_t wait_until;                  /* who still waits then is told so; 0: that has been */
	uint32_t waiting[ENTRY_WAITING_MAX]; /* their request numbers, in order */
	uint32_t waiting_count;
	bool destroy; /* DYING: its files go next */
	bool unasked; /* DYING: by itself, which the daemon has to be told */
	enum end_cause cause;
};

/* Messages that wait for room in the daemon's socket. While there are any, no request is read, so
 * that the answer to one LIST, an end and the answers to those who wait per sandbox, and a few
 * words are all there can ever be. */
#define OUTBOX_MAX ((2 + ENTRY_WAITING_MAX) * UID_BLOCK_SLOTS + 64)

struct spawner {
	struct config config;
	const char *config_path; /* NULL: none */
	struct host host;
	const struct driver *(*driver_of)(enum tier tier);
	struct entry entries[UID_BLOCK_SLOTS];
	uint32_t worker_count;
	pid_t trash_worker;
	int64_t look_at;                     /* the earliest of the entries', or earlier; 0: none */
	int64_t end_timeout, freeze_timeout; /* 0: as guests.c has it */

	int state_lock, runtime_lock;
	int uid_block; /* -1 until claimed */
	int unix_listener, tcp_listener;
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

/* place.c */
NODISCARD int place_find_user(struct spawner *spawner, struct error *error);
NODISCARD int place_make_roots(struct spawner *spawner, struct error *error);
NODISCARD int place_lock(struct spawner *spawner, struct error *error);
NODISCARD int place_make_directories(struct spawner *spawner, struct error *error);
NODISCARD int place_check_reach(struct spawner *spawner, struct error *error);
/* FNV-1a: names things, protects nothing. */
uint64_t place_hash(uint64_t hash, const void *data, size_t size);
#define PLACE_HASH_START 0xcbf29ce484222325ULL
/* uid_block.c; `directory` is where all instances of the host meet. */
#define UID_BLOCK_DIRECTORY "/run/caisson-uids"
NODISCARD int uid_block_claim(const char *directory, const char *state, struct error *error);
void uid_block_release(const char *directory, int block);

/* init_file.c */
NODISCARD int init_file_install(struct spawner *spawner, struct error *error);

/* listen.c */
NODISCARD int listen_open(struct spawner *spawner, struct error *error);

/* privileges.c */
NODISCARD int privileges_narrow_first(struct spawner *spawner, struct error *error);
NODISCARD int privileges_narrow_second(struct spawner *spawner, struct error *error);

/* daemon.c */
NODISCARD int daemon_child_start(struct spawner *spawner, struct error *error);
/* It has closed its end: it is about to exit, and is killed when it does not. */
void daemon_child_lost(struct spawner *spawner);
/* It broke the rules: its socket is closed and it is killed. It is started again later. */
void daemon_child_drop(struct spawner *spawner, const char *why);
/* It has ended: plan what comes next. */
void daemon_child_ended(struct spawner *spawner, int status);

/* guests.c */
struct entry *guests_find(struct spawner *spawner, const struct id *id);
uint32_t guests_count(const struct spawner *spawner); /* all but those that are being erased */
/* Is it up? One that is dying is not. */
bool guests_runs(const struct entry *entry);
/* Is it in the table, or are there files of it that nobody could make sense of? */
bool guests_known(struct spawner *spawner, const struct id *id);
NODISCARD int guests_create(struct spawner *spawner, const struct id *id,
			    const struct spawn_create *create, const struct folder_grant *folders,
			    struct entry **ret_entry, struct error *error);
NODISCARD int guests_start(struct spawner *spawner, struct entry *entry,
			   const struct spawn_create *create, const struct folder_grant *folders,
			   struct error *error);
/* Ends its processes, and with `destroy` erases its files then. 0: there were none, and nothing is
 * erased; 1: `request` is answered when it has ended. */
NODISCARD int guests_end(struct spawner *spawner, struct entry *entry, bool destroy,
			 uint32_t request, struct error *error);
/* 0: done; 1: `request` is answered when it is. */
NODISCARD int guests_freeze(struct spawner *spawner, struct entry *entry, bool frozen,
			    uint32_t request, struct error *error);
/* Its processes are gone or have been killed: it is STOPPED once the host has nothing of them. */
void guests_die(struct spawner *spawner, struct entry *entry);
/* A process whose end is the end of a sandbox has become readable. */
void guests_check_end(struct spawner *spawner, uint32_t slot);
/* Sees to what is under way and due. */
void guests_look(struct spawner *spawner);
/* The daemon is gone: nobody waits any more, and no pause that it would not know of is begun. */
void guests_forget_requests(struct spawner *spawner);
NODISCARD int guests_watch(struct spawner *spawner, struct entry *entry, struct error *error);
NODISCARD int guests_path(const struct spawner *spawner, const char *below, const struct id *id,
			  char path[SPAWNER_PATH_MAX]);

/* adopt.c */
void adopt_all(struct spawner *spawner);
void adopt_sweep(struct spawner *spawner);

/* trash.c */
/* A stopped and released sandbox: its files move to the trash and are erased. */
void trash_entry(struct spawner *spawner, struct entry *entry);
/* Files that belong to no sandbox. */
void trash_files(struct spawner *spawner, const char *name);
/* Erases what is in the trash, in a process of its own. */
void trash_empty(struct spawner *spawner);
/* A child has ended: was it one of ours? */
bool trash_reap(struct spawner *spawner);

/* validate.c */
/* Fills folders[0..fd_count) as far as it got; the caller closes them. */
NODISCARD int validate_limits(const struct spawner *spawner, const struct limits *limits,
			      struct error *error);
NODISCARD int validate_create(const struct spawner *spawner, struct spawn_create *create,
			      const int *fds, size_t fd_count,
			      struct folder_grant folders[SANDBOX_MOUNTS_MAX], struct error *error);

/* requests.c */
/* Serves one message; the descriptors stay the caller's. */
void requests_serve(struct spawner *spawner, struct spawn_message *message, const int *fds,
		    size_t fd_count);

/* loop.c */
#define LOOP_DAEMON (1ULL << 32)
#define LOOP_SIGNALS (2ULL << 32)
#define LOOP_GUEST (3ULL << 32) /* | slot */
NODISCARD int spawner_loop_open(struct spawner *spawner, struct error *error);
NODISCARD int spawner_loop_watch(struct spawner *spawner, struct error *error);
/* Queues and sends as far as there is room. */
void spawner_loop_send(struct spawner *spawner, const struct spawn_message *message);
void spawner_loop_run(struct spawner *spawner);
/* For a child that goes on without exec: signals as if they had never been touched. */
void spawner_loop_reset_signals(void);
