/* Rows of execs. Called by core; blocks for local disk only. */
#include "store/rows.h"

#define EXEC(member) offsetof(struct exec_row, member)
static const struct column exec_columns[] = {
    {"id", COLUMN_ID, EXEC(id), .fixed = true},
    {"key", COLUMN_U64, EXEC(key), .fixed = true},
    {"sandbox", COLUMN_ID, EXEC(sandbox), .fixed = true},
    {"command", COLUMN_TEXT, EXEC(command)},
    {"state", COLUMN_U32, EXEC(state)},
    {"flags", COLUMN_U32, EXEC(flags)},
    {"head", COLUMN_U64, EXEC(head)},
    {"tail", COLUMN_U64, EXEC(tail)},
    {"started_wall", COLUMN_I64, EXEC(started_wall)},
    {"ended_wall", COLUMN_I64, EXEC(ended_wall)},
    {"end", COLUMN_U32, EXEC(end)},
    {"code", COLUMN_U32, EXEC(code)},
    {"oom_killed", COLUMN_BOOL, EXEC(oom_killed)},
    {"out_total", COLUMN_U64, EXEC(out_total)},
    {"err_total", COLUMN_U64, EXEC(err_total)},
    {"wall_ns", COLUMN_U64, EXEC(wall_ns)},
    {"cpu_ns", COLUMN_U64, EXEC(cpu_ns)},
    {"peak_memory", COLUMN_U64, EXEC(peak_memory)},
    {"left_running", COLUMN_U32, EXEC(left_running)},
    {"timeout_ms", COLUMN_U32, EXEC(timeout_ms)},
    {"context", COLUMN_ID_OR_NULL, EXEC(context)},
    {"token", COLUMN_ID_OR_NULL, EXEC(token)},
    {"error_kind", COLUMN_U32, EXEC(error_kind)},
    {"error_message", COLUMN_TEXT, EXEC(error_message)},
};

static const struct table execs = TABLE("execs", exec_columns, struct exec_row);

void exec_row_done(struct exec_row *row)
{
	rows_free_texts(&execs, row);
}

/* Wraps a typed callback for rows_step_each(), which takes untyped ones. */
struct exec_each {
	bool (*each)(void *data, const struct exec_row *row);
	void *data;
};

static bool exec_each_call(void *data, const void *row)
{
	struct exec_each *call = data;
	return call->each(call->data, row);
}

int store_exec_insert(struct store *store, const struct exec_row *row, struct error *error)
{
	return rows_write(store, STATEMENT_EXEC_INSERT, &execs, ROW_INSERT, row, error) < 0 ? -1
											    : 0;
}

int store_exec_update(struct store *store, const struct exec_row *row, struct error *error)
{
	int changed = rows_write(store, STATEMENT_EXEC_UPDATE, &execs, ROW_UPDATE, row, error);
	if (changed == 0)
		return error_set(error, ERROR_EXEC_NOT_FOUND, "no record of exec %s", row->id.text);
	return changed < 0 ? -1 : 0;
}

int store_exec_get(struct store *store, const struct id *sandbox, const struct id *exec,
		   struct exec_row *ret_row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (rows_select(store, STATEMENT_EXEC_GET, &execs, "WHERE id = ?1 AND sandbox = ?2",
			&statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, exec->text, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, sandbox->text, -1, SQLITE_STATIC);
	return rows_step_one(store, statement, &execs, ret_row, error);
}

int store_exec_delete(struct store *store, const struct id *sandbox, const struct id *exec,
		      struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_EXEC_DELETE,
			    "DELETE FROM execs WHERE id = ?1 AND sandbox = ?2", &statement,
			    error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, exec->text, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, sandbox->text, -1, SQLITE_STATIC);
	return store_change(store, STATEMENT_EXEC_DELETE, statement, "removing an exec", error) < 0
		   ? -1
		   : 0;
}

int store_exec_each(struct store *store, const struct id *sandbox,
		    bool (*each)(void *data, const struct exec_row *row), void *data,
		    struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct exec_row row;
	struct exec_each call = {.each = each, .data = data};
	if (rows_select(store, STATEMENT_EXEC_EACH, &execs, "WHERE sandbox = ?1 ORDER BY key DESC",
			&statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	return rows_step_each(store, statement, &execs, &row, exec_each_call, &call, error);
}

int store_exec_from(struct store *store, const struct id *sandbox, uint64_t key, bool older,
		    bool (*each)(void *data, const struct exec_row *row), void *data,
		    struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct exec_row row;
	struct exec_each call = {.each = each, .data = data};
	if (rows_select(store, older ? STATEMENT_EXEC_OLDER : STATEMENT_EXEC_NEWER, &execs,
			older ? "WHERE sandbox = ?1 AND key < ?2 ORDER BY key DESC"
			      : "WHERE sandbox = ?1 AND key > ?2 ORDER BY key",
			&statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, (sqlite3_int64)MIN(key, (uint64_t)INT64_MAX));
	return rows_step_each(store, statement, &execs, &row, exec_each_call, &call, error);
}
