/* The rows of requests with an Idempotency-Key. Called by core/account/idempotency.c; each call is
 * one statement and blocks for local disk only. */
#include "store/requests.h"

#include <stdlib.h>
#include <string.h>

#include "store/sqlite.h"

static void bind_key(sqlite3_stmt *statement, const char *workspace, const char *key)
{
	sqlite3_bind_text(statement, 1, workspace, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, key, -1, SQLITE_STATIC);
}

static bool column_read_id(sqlite3_stmt *statement, int at, struct id *id)
{
	const char *text = (const char *)sqlite3_column_text(statement, at);
	return !text || id_parse(text, id) == 0;
}

static bool column_read_answer(sqlite3_stmt *statement, int at, struct request_row *row)
{
	const void *data = sqlite3_column_blob(statement, at);
	int size = sqlite3_column_bytes(statement, at);
	if (!data || size <= 0)
		return true;
	if (size > REQUEST_ANSWER_MAX)
		return false;
	row->answer = malloc((size_t)size);
	if (!row->answer)
		abort();
	memcpy(row->answer, data, (size_t)size);
	row->answer_size = (size_t)size;
	return true;
}

int store_request_get(struct store *store, const char *workspace, const char *key,
		      struct request_row *ret_row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct request_row row = {0};
	if (store_statement(store, STATEMENT_REQUEST_GET,
			    "SELECT digest, sandbox, exec, answer, created_wall FROM requests"
			    " WHERE workspace = ?1 AND key = ?2",
			    &statement, error) < 0)
		return -1;
	bind_key(statement, workspace, key);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading a request", error);
	const void *digest = sqlite3_column_blob(statement, 0);
	if (!digest || sqlite3_column_bytes(statement, 0) != REQUEST_DIGEST_SIZE ||
	    !column_read_id(statement, 1, &row.sandbox) ||
	    !column_read_id(statement, 2, &row.exec) || !column_read_answer(statement, 3, &row))
		return error_set(error, ERROR_STORE_CORRUPT,
				 "database: a request has no valid value");
	memcpy(row.digest, digest, REQUEST_DIGEST_SIZE);
	row.created_wall = sqlite3_column_int64(statement, 4);
	*ret_row = row;
	return 1;
}

int store_request_put(struct store *store, const struct request_row *row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_REQUEST_PUT,
			    "INSERT OR REPLACE INTO requests (workspace, key, operation, digest,"
			    " sandbox, exec, answer, created_wall)"
			    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
			    &statement, error) < 0)
		return -1;
	bind_key(statement, row->workspace, row->key);
	sqlite3_bind_text(statement, 3, row->operation, -1, SQLITE_STATIC);
	sqlite3_bind_blob(statement, 4, row->digest, REQUEST_DIGEST_SIZE, SQLITE_STATIC);
	if (id_is_set(&row->sandbox))
		sqlite3_bind_text(statement, 5, row->sandbox.text, -1, SQLITE_STATIC);
	if (id_is_set(&row->exec))
		sqlite3_bind_text(statement, 6, row->exec.text, -1, SQLITE_STATIC);
	if (row->answer)
		sqlite3_bind_blob(statement, 7, row->answer, (int)row->answer_size, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 8, row->created_wall);
	return store_change(store, STATEMENT_REQUEST_PUT, statement, "writing a request", error) < 0
		   ? -1
		   : 0;
}

int store_request_delete(struct store *store, const char *workspace, const char *key,
			 struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_REQUEST_DELETE,
			    "DELETE FROM requests WHERE workspace = ?1 AND key = ?2", &statement,
			    error) < 0)
		return -1;
	bind_key(statement, workspace, key);
	return store_change(store, STATEMENT_REQUEST_DELETE, statement, "removing a request",
			    error) < 0
		   ? -1
		   : 0;
}

int store_request_prune(struct store *store, int64_t before_wall, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_REQUEST_PRUNE,
			    "DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests"
			    " WHERE created_wall < ?1 ORDER BY created_wall LIMIT 200)",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_int64(statement, 1, before_wall);
	return store_change(store, STATEMENT_REQUEST_PRUNE, statement, "removing old requests",
			    error) < 0
		   ? -1
		   : 0;
}
