/* The store: what must survive the daemon, behind one narrow interface. SQLite (WAL) is the
 * embedded implementation; PostgreSQL comes with several hosts. Only core calls it.
 *
 * Every change of a sandbox's state is written before it takes effect. So when a function below
 * returns, its writes survive a kill of the daemon. All functions are synchronous. A function for
 * one row is short (measured below 0.2 ms). The time of a list grows with its length, so ask for
 * pages. Rows own their strings; *_row_done() frees them. Lists use a callback, so that memory is
 * bounded; the callback must not call the store. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "base/id.h"
#include "proto/spawner_messages.h"

struct store;

/* The state of a sandbox. Only core changes it, by the table in core/sandbox/state.h. The
 * database contains the numbers. */
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
	/* 4 is unused: the OOM killer kills commands, never an init. */
	END_REASON_HOST = 5,  /* its files are gone from the host */
	END_REASON_ERROR = 6, /* it could not be made, or it failed */
};

enum sandbox_option {
	OPTION_WAKE_ON_READ = 1 << 0, /* reads with a read-only token resume it too */
	OPTION_PERSISTENT = 1 << 1,   /* its idle time-out pauses it instead of ending it */
	OPTION_ONESHOT = 1 << 2,      /* of a one-shot run: removed by a restarted daemon */
	OPTION_DRAIN_DELETE = 1 << 3, /* deleted after it is drained, not stopped */
	OPTION_DETACHED = 1 << 4,     /* of a one-shot run that became a job, or is a task */
	OPTION_TIMEOUT_UNASKED =
	    1 << 5, /* timeout_seconds is the default and may be replaced by any other time-out */
};

struct sandbox_row {
	struct id id;
	char *workspace;
	char *name; /* NULL without a name */
	char *template;
	uint32_t tier;
	uint32_t state;
	struct limits limits;
	uint32_t limit_reasons[LIMIT_COUNT];
	uint32_t flags;                /* enum create_flag */
	uint32_t timeout_seconds;      /* 0 = none */
	uint32_t idle_timeout_seconds; /* 0 = off */
	uint32_t auto_pause_seconds;   /* 0 = off: idle time after which it is paused */
	uint32_t options;              /* enum sandbox_option */
	char *template_asked;   /* NULL, or the requested template that `template` replaces */
	uint32_t rootfs_kind;   /* enum rootfs_kind */
	char *rootfs_digest;    /* of the last boot; before the first: the one to boot, or NULL */
	uint32_t network;       /* enum network */
	uint32_t create_origin; /* enum create_origin, of the last boot */
	uint64_t boot_us;       /* how long the last boot took */
	/* The highest key that an exec of it ever had, so that none is used twice. The store raises
	 * it when it deletes an exec; the rows of those that it keeps may have higher ones. */
	uint64_t last_exec_key;
	int64_t created_wall, started_wall, ended_wall;
	int64_t deadline_wall; /* 0 = none */
	int64_t paused_wall;   /* when its clock stopped; 0 = it runs */
	int64_t active_wall;   /* last exec, file or port activity */
	int64_t drain_wall;    /* takes no new commands and ends at this time; 0 = not drained */
	char *environment;     /* packed "K=V\0...", environment_size bytes */
	uint32_t environment_size;
	char *metadata; /* packed "key\0value\0...", metadata_size bytes */
	uint32_t metadata_size;
	char *labels; /* packed like metadata; for selectors */
	uint32_t labels_size;
	char *mounts; /* packed "mode\0guest path\0host path for people\0..." */
	uint32_t mounts_size;
	uint32_t end_reason;
	char *end_message; /* NULL, or the reason, for people */
};
void sandbox_row_done(struct sandbox_row *row);
/* The copy has strings of its own. */
void sandbox_row_copy(const struct sandbox_row *from, struct sandbox_row *ret_row);

/* Those from EXEC_ENDED on have ended. */
enum exec_state { EXEC_STARTING = 1, EXEC_RUNNING, EXEC_ENDED, EXEC_FAILED };

struct exec_row {
	struct id id;
	uint64_t key; /* within its sandbox, rising: its id in the init's protocol */
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
	struct id token;     /* the token that started it; unset: a local peer */
	uint32_t error_kind; /* EXEC_FAILED */
	char *error_message;
};
void exec_row_done(struct exec_row *row);

enum scope { SCOPE_READ = 1, SCOPE_WRITE = 2, SCOPE_ADMIN = 4 };

struct token_row {
	struct id id;
	uint8_t hash[32]; /* SHA-256 of the token; the token itself is not stored */
	char *workspace;
	char *label; /* NULL, or a text for people; "run" marks the token of `make run` */
	uint32_t scopes;
	struct id sandbox;                  /* bound to one sandbox, or unset */
	int64_t created_wall, expires_wall; /* 0 = never */
	int64_t revoked_wall;
};
void token_row_done(struct token_row *row);

/* Opens or makes the database in a directory, and migrates an older one. STORE_CORRUPT and
 * STORE_NEWER leave the file unchanged. */
NODISCARD int store_open(const char *directory, struct store **ret_store, struct error *error);
/* From now on a thread of the loop, not a commit, moves the log of writes into the database, which
 * waits for the disk. */
NODISCARD int store_checkpoint_in_thread(struct store *store, uv_loop_t *loop, struct error *error);
void store_close(struct store *store);
/* Tests whether it can be written, without changing anything. */
NODISCARD int store_test_write(struct store *store, struct error *error);

/* A transaction: after store_transaction_end() either all writes are in the database or none.
 * They nest; the outermost counts. `result` below 0 rolls back everything since the outermost
 * begin, and is returned. */
NODISCARD int store_transaction_begin(struct store *store, struct error *error);
bool store_in_transaction(const struct store *store);
NODISCARD int store_transaction_end(struct store *store, int result, struct error *error);

/* NAME_TAKEN when a live sandbox of the workspace has that name. */
NODISCARD int store_sandbox_insert(struct store *store, const struct sandbox_row *row,
				   struct error *error);
/* Writes everything but id, workspace, created_wall. */
NODISCARD int store_sandbox_update(struct store *store, const struct sandbox_row *row,
				   struct error *error);
/* 1 found, 0 not. By id; tombstones too. */
NODISCARD int store_sandbox_get(struct store *store, const struct id *id,
				struct sandbox_row *ret_row, struct error *error);
/* Sandboxes of a workspace (NULL: of all), newest first (created_wall, then id). live_only:
 * without tombstones. Stops when the callback returns false. */
NODISCARD int store_sandbox_each(struct store *store, const char *workspace, bool live_only,
				 bool (*each)(void *data, const struct sandbox_row *row),
				 void *data, struct error *error);
/* One page, newest first, of at most `limit` rows: of a workspace (NULL: all), in a state (0:
 * any), with a name (NULL: any), after the row (before_created_wall, before_id) in that order.
 * before_created_wall 0 and before_id NULL or unset begin at the newest. */
NODISCARD int store_sandbox_page(struct store *store, const char *workspace, bool live_only,
				 enum sandbox_state state, const char *name,
				 int64_t before_created_wall, const struct id *before_id,
				 uint32_t limit,
				 bool (*each)(void *data, const struct sandbox_row *row),
				 void *data, struct error *error);
/* Removes a batch of tombstones that ended before that time, with their execs, the oldest first.
 * Returns the number of rows; call again until it is 0. */
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
/* The same from a key on: older ones newest first, or newer ones oldest first. */
NODISCARD int store_exec_from(struct store *store, const struct id *sandbox, uint64_t key,
			      bool older, bool (*each)(void *data, const struct exec_row *row),
			      void *data, struct error *error);

NODISCARD int store_token_insert(struct store *store, const struct token_row *row,
				 struct error *error);
/* 1 found, 0 not. */
NODISCARD int store_token_by_hash(struct store *store, const uint8_t hash[32],
				  struct token_row *ret_row, struct error *error);
/* TOKEN_NOT_FOUND. A token that was already revoked keeps its time. */
NODISCARD int store_token_revoke(struct store *store, const struct id *id, int64_t wall,
				 struct error *error);
/* Revokes every live token with that label; returns their number. */
NODISCARD int store_token_revoke_label(struct store *store, const char *label, int64_t wall,
				       struct error *error);
/* Revokes the tokens bound to a sandbox; returns their number. */
NODISCARD int store_token_revoke_sandbox(struct store *store, const struct id *sandbox,
					 int64_t wall, struct error *error);
/* 1 found, 0 not. */
NODISCARD int store_token_by_id(struct store *store, const struct id *id, struct token_row *ret_row,
				struct error *error);
/* A counter that changes with every write of a token: then cached tokens are stale. */
uint64_t store_token_changes(const struct store *store);
NODISCARD int store_token_each(struct store *store,
			       bool (*each)(void *data, const struct token_row *row), void *data,
			       struct error *error);
