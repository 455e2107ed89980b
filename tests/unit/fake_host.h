/* A host for the tests of core/ without root: a spawner and inits that live in the test's own loop,
 * at the other end of real sockets. They do what they are told by the fields below, so that a test
 * can be slow, wrong or gone where it wants. */
#pragma once

#include <uv.h>

#include "base/buffer.h"
#include "core/activity/activity.h"
#include "core/core.h"
#include "core/exec/exec.h"
#include "core/file/files.h"
#include "core/sandbox/sandbox.h"
#include "proto/init_messages.h"

#define FAKE_INITS_MAX 128
#define FAKE_RECORDS_MAX 64

/* An exec as a fake init knows it. */
struct fake_record {
	uint64_t key;
	struct exec_status status;
	int logs[2];
	bool late;
};

/* Which version of the protocol each says it speaks. */
extern uint32_t fake_init_version;

struct fake_init {
	struct fake_host *host;
	struct id id;
	bool used, running, frozen, configured;
	bool silent;           /* accepts, answers nothing */
	bool deaf;             /* does not accept: who connects waits */
	bool refuse;           /* answers CONFIGURE with REFUSED */
	bool quiet;            /* does not answer LEFT_RUNNING */
	bool gone_before_list; /* what execs have left ends when LIST is on its way */
	int listener, connection;
	uv_poll_t listener_poll, connection_poll;
	bool listening, connected;
	struct buffer in;
	int fds[8];
	size_t fd_count;
	struct fake_record records[FAKE_RECORDS_MAX];
	/* What came, for the test to look at. */
	char hostname[64];
	char environment[4096];
	size_t environment_size;
	int64_t deadline;
	uint64_t consumed, forgotten;
	uint32_t mount_count;
	unsigned frames[80];              /* how many of each type */
	struct buffer written;            /* DATA of file writes, STDIN */
	uint64_t operation;               /* the last FILE's id */
	struct signal_request signals[8]; /* the first ones */
	uint8_t operation_kind;
	int64_t window; /* DATA bytes that may be sent */
};

struct fake_host {
	uv_loop_t *loop;
	char state[64], runtime[64];
	struct config config;
	struct core core;
	int daemon_fd, spawner_fd; /* the two ends */
	uv_poll_t poll;
	bool poll_open;
	struct fake_init inits[FAKE_INITS_MAX];
	unsigned requests[32];      /* how many of each spawn_type */
	struct spawn_create booted; /* the last CREATE or START */
	/* How the spawner behaves. */
	bool namespace_available;
	uint64_t second_memory_min; /* a tier, by name only, that needs so much; 0: there is none */
	uint32_t fail_type;         /* this request fails ... */
	enum error_kind fail_kind;
	uint32_t hold_type; /* this request is not answered until fake_release() */
	struct spawn_message held[FAKE_INITS_MAX];
	unsigned held_count;
	uint64_t oom_kills, cpu_ns;             /* as COUNTERS has them, of all */
	uint64_t programs_hash;                 /* as HELLO has it */
	char rootfs_digest[ROOTFS_DIGEST_TEXT]; /* the same; of every boot */
	struct limits limits;                   /* of all that it lists; 0: it does not know */
	bool refuse_next, silent_next;          /* of the next init */
	unsigned mount_fds;
	/* What core said. */
	bool ready, lost, failed;
};

/* New directories and a loop; the core is not started. */
struct fake_host *fake_host_new(void);
/* Removes everything. */
void fake_host_free(struct fake_host *host);
/* Starts core and turns the loop until it is ready (or has failed). */
void fake_start(struct fake_host *host);
/* Stops core as a crash would: nothing is written any more. The fake sandboxes live on. */
void fake_stop(struct fake_host *host);

/* Turns the loop until *flag, at most a few seconds; false when it never came. */
bool fake_until(struct fake_host *host, const bool *flag);
/* Until core has that many live sandboxes. */
bool fake_until_count(struct fake_host *host, uint32_t count);
/* Moves time by that much; what it has made due has its turns. */
void fake_pass(struct fake_host *host, unsigned milliseconds);
/* That long, and on a busy machine as many turns as fit into it on an idle one: both ends live in
 * this loop, so that turns are what they need. */
void fake_turn(struct fake_host *host, unsigned milliseconds);

struct fake_init *fake_init_of(struct fake_host *host, const struct id *id);
/* The number of fakes that exist, and that run. */
unsigned fake_existing(const struct fake_host *host);
void fake_release(struct fake_host *host);
/* The init's process ends; SPAWN_ENDED is sent. */
void fake_init_dies(struct fake_init *init, enum end_cause cause);
void fake_init_disconnect(struct fake_init *init);
void fake_init_send(struct fake_init *init, uint16_t type, uint64_t id, const void *payload,
		    size_t size);
struct fake_record *fake_record(struct fake_init *init, uint64_t key);
/* A `late` one runs. */
void fake_started(struct fake_init *init, uint64_t key);
/* Prints on behalf of an exec: the log, then PROGRESS. */
void fake_print(struct fake_init *init, uint64_t key, int stream, const char *text, size_t size);
void fake_exit(struct fake_init *init, uint64_t key, enum exec_end end, uint32_t code,
	       uint32_t left_running);
/* What an ended one left running has ended. */
void fake_gone(struct fake_init *init, uint64_t key);

/* What asynchronous functions of core/ answered. */
struct outcome {
	bool done;
	struct sandbox *sandbox;
	struct error error; /* kind NONE on success */
};
void outcome_created(void *data, struct sandbox *sandbox, const struct error *error);
void outcome_done(void *data, const struct error *error);
extern const struct principal fake_principal;
/* Who is named in the newest entry of that kind in the sandbox's activity; "": there is none. */
void fake_actor(struct sandbox *sandbox, enum activity_kind kind, char actor[ACTIVITY_ACTOR_MAX]);
/* Creates a sandbox and waits; NULL when it failed. */
struct sandbox *fake_create(struct fake_host *host, const char *name);
