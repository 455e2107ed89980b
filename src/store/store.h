/* The store: what must survive the daemon. One narrow interface; SQLite (WAL) is the embedded
 * implementation, PostgreSQL comes with several hosts. Sandboxes and execs are written by core/
 * alone; api/ reads lists, and lists and revokes tokens.
 *
 * Every change of a sandbox's state is a row before it is an effect, so what a function below
 * writes is durable against a kill of the daemon when it returns. All are synchronous; those of one
 * row are short (measured below 0.2 ms), a list takes as long as it is: ask for pages. Strings in
 * rows are owned by the row; *_row_done() frees them. Lists go through a callback, so that nothing
 * is unbounded in memory; a callback must not call the store. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "proto/spawner_messages.h"

struct store;

/* What a sandbox is doing. Only core/ moves it, along the arrows in core/sandbox/state.h. The
 * numbers are in the database. */
enum sandbox_state {
	SANDBOX_CREATING = 1,
	SANDBOX_RUNNING,
	SANDBOX_PAUSING,
	SANDBOX_PAUSED,
	SANDBOX_RESUMING,
	SANDBOX_STOPPING,
	SANDBOX_STOPPED,
	SANDBOX_STARTING,
	SANDBOX_DELETING,
	SANDBOX_ENDED, /* the row is its tombstone */
};

enum end_reason {
	END_REASON_NONE = 0,
	END_REASON_USER = 1,
	END_REASON_TIMEOUT = 2,
	END_REASON_IDLE = 3,
	/* 4 is not used: the OOM killer ends commands, never an init. */
	END_REASON_HOST = 5,  /* its files are gone from the host */
	END_REASON_ERROR = 6, /* it could not be made, or broke */
};

enum sandbox_option {
	OPTION_WAKE_ON_READ = 1 << 0, /* a token that may only read wakes it too */
	OPTION_PERSISTENT = 1 << 1,   /* its idle time-out pauses it instead of ending it */
	OPTION_ONE_SHOT = 1 << 2,     /* of a one-shot run: a restarted daemon removes it */
	OPTION_DRAIN_DELETE = 1 << 3, /* while it is drained: it is deleted then, not stopped */
	OPTION_DETACHED = 1 << 4,     /* of a one-shot run that became a job, or is a task */
	OPTION_TIMEOUT_UNASKED =
	    1 << 5, /* timeout_seconds is the default: any other life replaces it */
};

struct sandbox_row {
	struct id id;
	char *workspace;
	char *name; /* NULL when it has none */
	char *template;
	uint32_t tier;
	uint32_t state;
	struct limits limits;
	uint32_t limit_reasons[LIMIT_COUNT];
	uint32_t flags;                /* enum create_flag */
	uint32_t timeout_seconds;      /* 0 = none */
	uint32_t idle_timeout_seconds; /* 0 = off */
	uint32_t auto_pause_seconds;   /* 0 = off: paused when idle for so long */
	uint32_t options;              /* enum sandbox_option */
	char *template_asked; /* NULL, or what was asked for where `template` is a substitute */
	char *rootfs_digest;  /* of the last boot; NULL before the first */
	uint32_t network;     /* enum network */
	uint32_t boot_origin; /* enum spawn_origin, of the last boot */
	uint64_t boot_us;     /* so long it took */
	int64_t created_wall, started_wall, ended_wall;
	int64_t deadline_wall; /* 0 = none */
	int64_t paused_wall;   /* since when its clock stands still; 0 = it runs */
	int64_t active_wall;   /* last exec, file or port activity */
	int64_t drain_wall;    /* takes no new commands and ends by then; 0 = it is not drained */
	char *environment;     /* packed "K=V\0...", environment_size bytes */
	uint32_t environment_size;
	char *metadata; /* packed "key\0value\0...", metadata_size bytes */
	uint32_t metadata_size;
	char *labels; /* the same; what selectors choose by */
	uint32_t labels_size;
	char *mounts; /* packed "mode\0guest path\0host path for people\0..." */
	uint32_t mounts_size;
	uint32_t end_reason;
	char *end_message; /* NULL, or why, for people */
};
void sandbox_row_done(struct sandbox_row *row);
/* With strings of its own. */
void sandbox_row_copy(const struct sandbox_row *from, struct sandbox_row *ret_row);

enum exec_state { EXEC_STARTING = 1, EXEC_RUNNING, EXEC_ENDED, EXEC_FAILED };

struct exec_row {
	struct id id;
	uint64_t key; /* its id in the init's protocol */
	struct id sandbox;
	char *command; /* for people: argv joined, cut to 1 KiB */
	uint32_t state;
	uint32_t flags;      /* enum exec_flag */
	uint64_t head, tail; /* retention of its logs */
	int64_t started_wall, ended_wall;
	uint32_t end; /* enum exec_end */
	uint32_t code;
	bool oom_killed;
	uint64_t out_total, err_total, wall_ns, cpu_ns, peak_memory;
	uint32_t left_running;
	uint32_t timeout_ms; /* 0 = none */
	struct id context;   /* the code context whose interpreter it is, or unset */
	struct id token;     /* who ran it; unset: a local peer */
	uint32_t error_kind; /* EXEC_FAILED */
	char *error_message;
};
void exec_row_done(struct exec_row *row);

enum scope { SCOPE_READ = 1, SCOPE_WRITE = 2, SCOPE_ADMIN = 4 };

struct token_row {
	struct id id;
	uint8_t hash[32]; /* SHA-256 of the token; the token itself is nowhere */
	char *workspace;
	char *label; /* NULL or for people; "run" marks the one `make run` makes */
	uint32_t scopes;
	struct id sandbox;                  /* bound to one sandbox, or unset */
	int64_t created_wall, expires_wall; /* 0 = never */
	int64_t revoked_wall;
};
void token_row_done(struct token_row *row);

/* Opens or makes the database in a directory; migrates an older one. STORE_CORRUPT and STORE_NEWER
 * leave the file as it was. */
NODISCARD int store_open(const char *directory, struct store **ret_store, struct error *error);
void store_close(struct store *store);
/* Can it be written? Changes nothing. */
NODISCARD int store_try_write(struct store *store, struct error *error);

/* Several writes as one: all of them are there after store_end(), or none. They nest; the outermost
 * counts. `result` is how it went: below 0 everything since the outermost begin is undone, and so
 * is what that returns. */
NODISCARD int store_begin(struct store *store, struct error *error);
NODISCARD int store_end(struct store *store, int result, struct error *error);

/* NAME_TAKEN when a live sandbox of the workspace has that name. */
NODISCARD int store_sandbox_insert(struct store *store, const struct sandbox_row *row,
				   struct error *error);
/* Writes everything but id, workspace, created_wall. */
NODISCARD int store_sandbox_update(struct store *store, const struct sandbox_row *row,
				   struct error *error);
/* 1 found, 0 not. By id; tombstones too. */
NODISCARD int store_sandbox_get(struct store *store, const struct id *id,
				struct sandbox_row *ret_row, struct error *error);
/* Of a workspace (NULL: of all). live_only: without tombstones. Newest first (created_wall, then
 * id). The callback returns false to stop. */
NODISCARD int store_sandbox_each(struct store *store, const char *workspace, bool live_only,
				 bool (*each)(void *data, const struct sandbox_row *row),
				 void *data, struct error *error);
/* One page, newest first: rows of a workspace (NULL: of all), in a state (0: in any), with a name
 * (NULL: with any), that come after the row (before_created_wall, before_id) in that order;
 * before_created_wall 0 and before_id NULL or unset begin at the newest. At most `limit` rows. */
NODISCARD int store_sandbox_page(struct store *store, const char *workspace, bool live_only,
				 enum sandbox_state state, const char *name,
				 int64_t before_created_wall, const struct id *before_id,
				 uint32_t limit,
				 bool (*each)(void *data, const struct sandbox_row *row),
				 void *data, struct error *error);
/* Removes tombstones that ended before that, with their execs, the oldest first and a batch per
 * call: how many rows went; call again until it is 0. */
NODISCARD int store_sandbox_prune(struct store *store, int64_t ended_before_wall,
				  struct error *error);

NODISCARD int store_exec_insert(struct store *store, const struct exec_row *row,
				struct error *error);
NODISCARD int store_exec_update(struct store *store, const struct exec_row *row,
				struct error *error);
NODISCARD int store_exec_get(struct store *store, const struct id *sandbox, const struct id *exec,
			     struct exec_row *ret_row, struct error *error);
NODISCARD int store_exec_delete(struct store *store, const struct id *sandbox,
				const struct id *exec, struct error *error);
/* Newest first. */
NODISCARD int store_exec_each(struct store *store, const struct id *sandbox,
			      bool (*each)(void *data, const struct exec_row *row), void *data,
			      struct error *error);
/* The same from a key on: the older ones newest first, or the newer ones oldest first. */
NODISCARD int store_exec_from(struct store *store, const struct id *sandbox, uint64_t key,
			      bool older, bool (*each)(void *data, const struct exec_row *row),
			      void *data, struct error *error);
/* The highest exec key ever given out, so that keys are never used twice. */
NODISCARD int store_exec_last_key(struct store *store, uint64_t *ret_key, struct error *error);

NODISCARD int store_token_insert(struct store *store, const struct token_row *row,
				 struct error *error);
/* 1 found, 0 not. */
NODISCARD int store_token_by_hash(struct store *store, const uint8_t hash[32],
				  struct token_row *ret_row, struct error *error);
/* TOKEN_NOT_FOUND. One that was revoked before keeps its time. */
NODISCARD int store_token_revoke(struct store *store, const struct id *id, int64_t wall,
				 struct error *error);
/* Revokes every live token with that label; returns how many. */
NODISCARD int store_token_revoke_label(struct store *store, const char *label, int64_t wall,
				       struct error *error);
/* Revokes those that are bound to a sandbox; returns how many. */
NODISCARD int store_token_revoke_sandbox(struct store *store, const struct id *sandbox,
					 int64_t wall, struct error *error);
/* 1 found, 0 not. */
NODISCARD int store_token_by_id(struct store *store, const struct id *id, struct token_row *ret_row,
				struct error *error);
/* Another number after every write of a token: what was known of tokens before is then old. */
uint64_t store_token_changes(const struct store *store);
NODISCARD int store_token_each(struct store *store,
			       bool (*each)(void *data, const struct token_row *row), void *data,
			       struct error *error);
