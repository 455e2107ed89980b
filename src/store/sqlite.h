/* What the files of the SQLite store share: the connection, its cached statements, errors.
 * Private to src/store. */
#pragma once

#include <sqlite3.h>

#include "store/store.h"

#define STORE_FILE "caisson.db"
#define STORE_APPLICATION_ID 0x43535342 /* "CSSB", in the file's header */

/* One prepared statement each, made at its first use and kept. */
enum statement {
	STATEMENT_SANDBOX_INSERT,
	STATEMENT_SANDBOX_UPDATE,
	STATEMENT_SANDBOX_GET,
	STATEMENT_SANDBOX_PAGE, /* four of them: enum listing in rows.c */
	STATEMENT_SANDBOX_PAGE_LAST = STATEMENT_SANDBOX_PAGE + 3,
	STATEMENT_SANDBOX_PRUNE_EXECS,
	STATEMENT_SANDBOX_PRUNE,
	STATEMENT_EXEC_INSERT,
	STATEMENT_EXEC_UPDATE,
	STATEMENT_EXEC_GET,
	STATEMENT_EXEC_DELETE,
	STATEMENT_EXEC_EACH,
	STATEMENT_EXEC_LAST_KEY,
	STATEMENT_TOKEN_INSERT,
	STATEMENT_TOKEN_BY_HASH,
	STATEMENT_TOKEN_REVOKE,
	STATEMENT_TOKEN_REVOKE_LABEL,
	STATEMENT_TOKEN_EACH,
	STATEMENT_COUNT
};

struct store {
	sqlite3 *database;
	sqlite3_stmt *statements[STATEMENT_COUNT];
};

/* The numbered migrations: migration N brings a database of version N to N + 1. */
extern const char *const store_migrations[];
extern const int store_version;

/* Fills the error from what SQLite says last: NO_SPACE, STORE_CORRUPT or STORE. */
int store_fail(sqlite3 *database, int code, const char *what, struct error *error);
/* The cached statement, reset and without bindings; `sql` is used the first time. */
NODISCARD int store_statement(struct store *store, enum statement which, const char *sql,
			      sqlite3_stmt **ret_statement, struct error *error);
/* Ends the use of a statement: what it holds locked is free again. Takes NULL. */
void store_statement_end(sqlite3_stmt **statement);
#define END_STATEMENT CLEANUP(store_statement_end)
