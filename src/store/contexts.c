/* The rows of `contexts`. See contexts.h. Called by core; blocks for local disk only. */
#include "store/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/sqlite.h"

#define COLUMNS                                                                                    \
	"id, sandbox, exec, control, language, created_wall, cells, cell_wall, timeout_ms,"        \
	" control_begin, out_begin, err_begin, ended_wall, reason, cwd, user, environment, once,"  \
	" cell"
#define ENVIRONMENT_MAX (256 * 1024)

void context_row_done(struct context_row *row)
{
	free(row->reason);
	free(row->cwd);
	free(row->user);
	free(row->environment);
	*row = (struct context_row){0};
}

static void row_bind(sqlite3_stmt *statement, const struct context_row *row)
{
	sqlite3_bind_text(statement, 1, row->id.text, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, row->sandbox.text, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 3, row->exec.text, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 4, row->control.text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 5, row->language);
	sqlite3_bind_int64(statement, 6, row->created_wall);
	sqlite3_bind_int64(statement, 7, (int64_t)row->cells);
	sqlite3_bind_int64(statement, 8, row->cell_wall);
	sqlite3_bind_int64(statement, 9, row->timeout_ms);
	sqlite3_bind_int64(statement, 10, (int64_t)row->control_begin);
	sqlite3_bind_int64(statement, 11, (int64_t)row->out_begin);
	sqlite3_bind_int64(statement, 12, (int64_t)row->err_begin);
	sqlite3_bind_int64(statement, 13, row->ended_wall);
	sqlite3_bind_text(statement, 14, row->reason, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 15, row->cwd, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 16, row->user, -1, SQLITE_STATIC);
	if (row->environment_size > 0)
		sqlite3_bind_blob(statement, 17, row->environment, (int)row->environment_size,
				  SQLITE_STATIC);
	sqlite3_bind_int64(statement, 18, row->once);
	if (id_is_set(&row->cell))
		sqlite3_bind_text(statement, 19, row->cell.text, -1, SQLITE_STATIC);
}

static int row_write(struct store *store, enum statement which, const char *sql,
		     const struct context_row *row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, which, sql, &statement, error) < 0)
		return -1;
	row_bind(statement, row);
	return store_change(store, which, statement, "writing a code context", error) < 0 ? -1 : 0;
}

int store_context_insert(struct store *store, const struct context_row *row, struct error *error)
{
	return row_write(store, STATEMENT_CONTEXT_INSERT,
			 "INSERT INTO contexts (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
			 " ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
			 row, error);
}

int store_context_update(struct store *store, const struct context_row *row, struct error *error)
{
	return row_write(store, STATEMENT_CONTEXT_UPDATE,
			 "UPDATE contexts SET exec = ?3, control = ?4, cells = ?7, cell_wall = ?8,"
			 " timeout_ms = ?9, control_begin = ?10, out_begin = ?11, err_begin = ?12,"
			 " ended_wall = ?13, reason = ?14, cell = ?19 WHERE id = ?1",
			 row, error);
}

int store_context_delete(struct store *store, const struct id *id, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_CONTEXT_DELETE, "DELETE FROM contexts WHERE id = ?1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	return store_change(store, STATEMENT_CONTEXT_DELETE, statement, "removing a code context",
			    error) < 0
		   ? -1
		   : 0;
}

static char *column_text(sqlite3_stmt *statement, int at)
{
	const char *text = (const char *)sqlite3_column_text(statement, at);
	return text ? text_duplicate(text) : NULL;
}

static bool column_read_id(sqlite3_stmt *statement, int at, struct id *id)
{
	const char *text = (const char *)sqlite3_column_text(statement, at);
	return text && id_parse(text, id) == 0;
}

static bool column_read_environment(sqlite3_stmt *statement, int at, struct context_row *row)
{
	const char *bytes = sqlite3_column_blob(statement, at);
	size_t size = (size_t)sqlite3_column_bytes(statement, at);
	if (size == 0)
		return true;
	if (size > ENVIRONMENT_MAX || bytes[size - 1] != '\0')
		return false;
	row->environment = malloc(size);
	if (!row->environment)
		abort();
	memcpy(row->environment, bytes, size);
	row->environment_size = (uint32_t)size;
	return true;
}

static bool row_read(sqlite3_stmt *statement, struct context_row *row)
{
	*row = (struct context_row){
	    .language = (uint32_t)sqlite3_column_int64(statement, 4),
	    .created_wall = sqlite3_column_int64(statement, 5),
	    .cells = (uint64_t)sqlite3_column_int64(statement, 6),
	    .cell_wall = sqlite3_column_int64(statement, 7),
	    .timeout_ms = (uint32_t)sqlite3_column_int64(statement, 8),
	    .control_begin = (uint64_t)sqlite3_column_int64(statement, 9),
	    .out_begin = (uint64_t)sqlite3_column_int64(statement, 10),
	    .err_begin = (uint64_t)sqlite3_column_int64(statement, 11),
	    .ended_wall = sqlite3_column_int64(statement, 12),
	    .reason = column_text(statement, 13),
	    .cwd = column_text(statement, 14),
	    .user = column_text(statement, 15),
	    .once = sqlite3_column_int64(statement, 17),
	};
	const char *control = (const char *)sqlite3_column_text(statement, 3);
	bool searched = sqlite3_column_type(statement, 18) != SQLITE_NULL;
	return column_read_id(statement, 0, &row->id) &&
	       column_read_id(statement, 1, &row->sandbox) &&
	       column_read_id(statement, 2, &row->exec) &&
	       ((control && !*control) || column_read_id(statement, 3, &row->control)) &&
	       (!searched || column_read_id(statement, 18, &row->cell)) &&
	       column_read_environment(statement, 16, row);
}

int store_context_each(struct store *store, const struct id *sandbox,
		       bool (*each)(void *data, const struct context_row *row), void *data,
		       struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_CONTEXT_EACH,
			    "SELECT " COLUMNS " FROM contexts WHERE sandbox = ?1"
			    " ORDER BY created_wall, id",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	for (;;) {
		int code = sqlite3_step(statement);
		if (code == SQLITE_DONE)
			return 0;
		if (code != SQLITE_ROW)
			return store_fail(store->database, code, "reading code contexts", error);
		struct context_row row;
		bool good = row_read(statement, &row);
		bool more = good && each(data, &row);
		context_row_done(&row);
		if (!good)
			return error_set(error, ERROR_STORE_CORRUPT,
					 "database: a row of contexts has no valid value");
		if (!more)
			return 0;
	}
}
