/* What the files of the SQLite store share: the connection, its cached statements, errors.
 * Private to src/store. */
#pragma once

#include <sqlite3.h>

#include "store/store.h"

/* Values of enum sandbox_state in SQL: SQLite uses a partial index only if the query contains the
 * number as text. */
#define SQL_STOPPED "7"
#define SQL_ENDED "10"
_Static_assert(SANDBOX_STOPPED == 7 && SANDBOX_ENDED == 10, "SQL has the numbers of the enum");

#define STORE_FILE "caisson.db"
#define STORE_APPLICATION_ID 0x43535342 /* "CSSB", in the file's header */

/* One prepared statement each, made at its first use and cached. */
enum statement {
	STATEMENT_SANDBOX_INSERT,
	STATEMENT_SANDBOX_UPDATE,
	STATEMENT_SANDBOX_GET,
	STATEMENT_SANDBOX_PAGE, /* four of them: enum listing in sandbox_rows.c */
	STATEMENT_SANDBOX_PAGE_LAST = STATEMENT_SANDBOX_PAGE + 3,
	STATEMENT_SANDBOX_PRUNE_EXECS,
	STATEMENT_SANDBOX_PRUNE,
	STATEMENT_EXEC_INSERT,
	STATEMENT_EXEC_UPDATE,
	STATEMENT_EXEC_GET,
	STATEMENT_EXEC_DELETE,
	STATEMENT_EXEC_EACH,
	STATEMENT_TOKEN_INSERT,
	STATEMENT_TOKEN_BY_HASH,
	STATEMENT_TOKEN_REVOKE,
	STATEMENT_TOKEN_REVOKE_LABEL,
	STATEMENT_TOKEN_EACH,
	STATEMENT_SECRET_GET,
	STATEMENT_SECRET_INSERT,
	STATEMENT_REQUEST_GET,
	STATEMENT_REQUEST_PUT,
	STATEMENT_REQUEST_DELETE,
	STATEMENT_REQUEST_PRUNE,
	STATEMENT_USAGE_PUT,
	STATEMENT_USAGE_LAST,
	STATEMENT_USAGE_BY_SANDBOX,
	STATEMENT_USAGE_BY_WORKSPACE,
	STATEMENT_USAGE_ALL_BY_SANDBOX,
	STATEMENT_USAGE_ALL_BY_WORKSPACE,
	STATEMENT_USAGE_PRUNE,
	STATEMENT_SPENT_PUT,
	STATEMENT_SPENT_EACH,
	STATEMENT_BUDGET_PUT,
	STATEMENT_BUDGET_DELETE,
	STATEMENT_BUDGET_EACH,
	STATEMENT_TOKEN_BY_ID,
	STATEMENT_TOKEN_REVOKE_SANDBOX,
	STATEMENT_BEGIN,
	STATEMENT_COMMIT,
	STATEMENT_ROLLBACK,
	STATEMENT_ACTIVITY_INSERT,
	STATEMENT_ACTIVITY_PAGE, /* two for each of four: two orders, two directions */
	STATEMENT_ACTIVITY_PAGE_LAST = STATEMENT_ACTIVITY_PAGE + 7,
	STATEMENT_ACTIVITY_STARTED,
	STATEMENT_ACTIVITY_ENDS,
	STATEMENT_ACTIVITY_LAST,
	STATEMENT_ACTIVITY_PRUNED,
	STATEMENT_ACTIVITY_MARK_PRUNED,
	STATEMENT_ACTIVITY_DELETE,
	STATEMENT_ACTIVITY_OLDEST,
	STATEMENT_ACTIVITY_FIRST,
	STATEMENT_CONTEXT_INSERT,
	STATEMENT_CONTEXT_UPDATE,
	STATEMENT_CONTEXT_DELETE,
	STATEMENT_CONTEXT_EACH,
	STATEMENT_EXEC_OLDER,
	STATEMENT_EXEC_NEWER,
	STATEMENT_POOL_PUT,
	STATEMENT_POOL_DELETE,
	STATEMENT_POOL_HAS,
	STATEMENT_POOL_EACH,
	STATEMENT_COUNT
};

struct checkpointer;

struct store {
	sqlite3 *database;
	struct checkpointer *checkpointer; /* NULL: commits make checkpoints */
	sqlite3_stmt *statements[STATEMENT_COUNT];
	uint64_t token_changes;
	unsigned depth; /* nesting of store_transaction_begin() */
	bool broken;    /* the transaction is to be rolled back */
};

/* Numbered migrations: migration N takes a database from version N to N + 1. */
extern const char *const store_migrations[];
extern const int store_version;

/* A connection to a file that is not trusted until it is checked. */
NODISCARD int store_connect(const char *path, int flags, sqlite3 **ret_database,
			    struct error *error);
/* Fills the error from SQLite's last error: NO_SPACE, STORE_CORRUPT or STORE. */
int store_fail(sqlite3 *database, int code, const char *what, struct error *error);
/* Returns the cached statement, reset and without bindings; `sql` is used the first time. */
NODISCARD int store_statement(struct store *store, enum statement which, const char *sql,
			      sqlite3_stmt **ret_statement, struct error *error);
/* Steps a statement that writes: the only place where rows are written. */
int store_write(enum statement which, sqlite3_stmt *statement);
/* The same for a bound statement that returns no rows; the number of rows changed, or -1. */
NODISCARD int store_change(struct store *store, enum statement which, sqlite3_stmt *statement,
			   const char *what, struct error *error);
/* Ends the use of a statement and releases its locks. Takes NULL. */
void store_statement_end(sqlite3_stmt **statement);
#define END_STATEMENT CLEANUP(store_statement_end)
