/* The tables usage, spent and budgets. See usage.h. Called by core/account; blocks for local
 * disk only. A caller that writes many rows does so in one transaction, which costs one commit. */
#include "store/usage.h"

#include <string.h>

#include "store/sqlite.h"

#define PRUNE_BATCH_TEXT "500"

static void bind_u64(sqlite3_stmt *statement, int at, uint64_t value)
{
	sqlite3_bind_int64(statement, at, (sqlite3_int64)MIN(value, (uint64_t)INT64_MAX));
}

static uint64_t column_u64(sqlite3_stmt *statement, int at)
{
	sqlite3_int64 value = sqlite3_column_int64(statement, at);
	return value < 0 ? 0 : (uint64_t)value;
}

int store_usage_put(struct store *store, const struct usage_row *row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(
		store, STATEMENT_USAGE_PUT,
		"INSERT OR REPLACE INTO usage (sandbox, hour, workspace, name, alive_ns,"
		" paused_ns, cpu_ns, memory_byte_seconds, disk_byte_seconds,"
		" snapshot_byte_seconds, execs, counted_wall, cpu_seen_ns, disk_seen)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
		&statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, row->sandbox.text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, row->hour);
	sqlite3_bind_text(statement, 3, row->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 4, row->name, -1, SQLITE_STATIC);
	bind_u64(statement, 5, row->alive_ns);
	bind_u64(statement, 6, row->paused_ns);
	bind_u64(statement, 7, row->cpu_ns);
	bind_u64(statement, 8, row->memory_byte_seconds);
	bind_u64(statement, 9, row->disk_byte_seconds);
	bind_u64(statement, 10, row->snapshot_byte_seconds);
	bind_u64(statement, 11, row->execs);
	sqlite3_bind_int64(statement, 12, row->counted_wall);
	bind_u64(statement, 13, row->cpu_seen_ns);
	bind_u64(statement, 14, row->disk_seen);
	return store_change(store, STATEMENT_USAGE_PUT, statement, "writing usage", error) < 0 ? -1
											       : 0;
}

/* Reads the sums from column `at` on, in the order of the table. */
static void sums_read(sqlite3_stmt *statement, int at, struct usage_row *row)
{
	row->alive_ns = column_u64(statement, at);
	row->paused_ns = column_u64(statement, at + 1);
	row->cpu_ns = column_u64(statement, at + 2);
	row->memory_byte_seconds = column_u64(statement, at + 3);
	row->disk_byte_seconds = column_u64(statement, at + 4);
	row->snapshot_byte_seconds = column_u64(statement, at + 5);
	row->execs = column_u64(statement, at + 6);
}

int store_usage_last(struct store *store, const struct id *sandbox, struct usage_row *ret_row,
		     struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_USAGE_LAST,
			    "SELECT hour, alive_ns, paused_ns, cpu_ns, memory_byte_seconds,"
			    " disk_byte_seconds, snapshot_byte_seconds, execs, counted_wall,"
			    " cpu_seen_ns, disk_seen FROM usage WHERE sandbox = ?1"
			    " ORDER BY hour DESC LIMIT 1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading usage", error);
	*ret_row = (struct usage_row){.sandbox = *sandbox};
	ret_row->hour = sqlite3_column_int64(statement, 0);
	sums_read(statement, 1, ret_row);
	ret_row->counted_wall = sqlite3_column_int64(statement, 8);
	ret_row->cpu_seen_ns = column_u64(statement, 9);
	ret_row->disk_seen = column_u64(statement, 10);
	return 1;
}

#define ROWS                                                                                       \
	"SELECT sandbox, hour, workspace, name, alive_ns, paused_ns, cpu_ns,"                      \
	" memory_byte_seconds, disk_byte_seconds, snapshot_byte_seconds, execs FROM usage WHERE "

/* Each kind of query has its own statement, so that it walks an index in the order of its answer.
 * Hours are filtered row by row. */
static const struct {
	enum statement number;
	const char *sql;
} walks[2][2] = {
    [USAGE_BY_SANDBOX] = {{STATEMENT_USAGE_BY_SANDBOX,
			   ROWS "workspace = ?1 AND (sandbox, hour) > (?2, ?3)"
				" ORDER BY sandbox, hour LIMIT ?5"},
			  {STATEMENT_USAGE_ALL_BY_SANDBOX,
			   ROWS "(sandbox, hour) > (?2, ?3) ORDER BY sandbox, hour LIMIT ?5"}},
    [USAGE_BY_WORKSPACE] = {{STATEMENT_USAGE_BY_WORKSPACE,
			     ROWS "workspace = ?1 AND (hour, sandbox) > (?3, ?4) AND hour < ?6"
				  " ORDER BY hour, sandbox LIMIT ?5"},
			    {STATEMENT_USAGE_ALL_BY_WORKSPACE,
			     ROWS "(workspace, hour, sandbox) > (?2, ?3, ?4)"
				  " ORDER BY workspace, hour, sandbox LIMIT ?5"}},
};

static uint64_t number_add(uint64_t one, uint64_t two)
{
	return one > (uint64_t)INT64_MAX - MIN(two, (uint64_t)INT64_MAX) ? INT64_MAX : one + two;
}

static void sums_add(struct usage_row *sum, const struct usage_row *row)
{
	sum->alive_ns = number_add(sum->alive_ns, row->alive_ns);
	sum->paused_ns = number_add(sum->paused_ns, row->paused_ns);
	sum->cpu_ns = number_add(sum->cpu_ns, row->cpu_ns);
	sum->memory_byte_seconds = number_add(sum->memory_byte_seconds, row->memory_byte_seconds);
	sum->disk_byte_seconds = number_add(sum->disk_byte_seconds, row->disk_byte_seconds);
	sum->snapshot_byte_seconds =
	    number_add(sum->snapshot_byte_seconds, row->snapshot_byte_seconds);
	sum->execs = number_add(sum->execs, row->execs);
}

static int row_read(sqlite3_stmt *statement, struct usage_row *row, struct error *error)
{
	const char *id = (const char *)sqlite3_column_text(statement, 0);
	*row = (struct usage_row){
	    .hour = sqlite3_column_int64(statement, 1),
	    .workspace = (const char *)sqlite3_column_text(statement, 2),
	    .name = (const char *)sqlite3_column_text(statement, 3),
	};
	sums_read(statement, 4, row);
	if (!id || id_parse(id, &row->sandbox) < 0 || !row->workspace ||
	    strlen(row->workspace) > USAGE_TEXT_MAX ||
	    (row->name && strlen(row->name) > USAGE_TEXT_MAX))
		return error_set(error, ERROR_STORE_CORRUPT, "a damaged row of usage");
	return 0;
}

/* The sum is complete; false when the callback wants no more. */
static bool walk_emit_sum(struct usage_walk *walk,
			  bool (*each)(void *data, const struct usage_row *row), void *data)
{
	if (!walk->sum.workspace)
		return true;
	bool go_on = each(data, &walk->sum);
	walk->sum = (struct usage_row){0};
	return go_on;
}

static bool walk_sum_includes(const struct usage_walk *walk, const struct usage_row *row)
{
	if (walk->by == USAGE_BY_SANDBOX)
		return id_equal(&walk->sum.sandbox, &row->sandbox);
	return strcmp(walk->sum.workspace, row->workspace) == 0;
}

/* 1: continue, 0: the callback wants no more. */
static int walk_add_row(struct usage_walk *walk, const struct usage_row *row,
			bool (*each)(void *data, const struct usage_row *row), void *data)
{
	bool sandboxes = walk->by == USAGE_BY_SANDBOX;
	memcpy(walk->at_sandbox, row->sandbox.text, sizeof(walk->at_sandbox));
	const char *at = sandboxes ? row->sandbox.text : row->workspace;
	memcpy(walk->at, at, strlen(at) + 1);
	walk->at_hour = row->hour;
	if (row->hour < walk->from_hour || row->hour >= walk->to_hour)
		return 1;
	if (walk->sum.workspace && !walk_sum_includes(walk, row) &&
	    !walk_emit_sum(walk, each, data))
		return 0;
	if (!walk->sum.workspace) {
		memcpy(walk->sum_workspace, row->workspace, strlen(row->workspace) + 1);
		walk->sum.workspace = walk->sum_workspace;
		if (sandboxes)
			walk->sum.sandbox = row->sandbox;
	}
	if (sandboxes && row->name) {
		memcpy(walk->sum_name, row->name, strlen(row->name) + 1);
		walk->sum.name = walk->sum_name;
	}
	sums_add(&walk->sum, row);
	return 1;
}

int store_usage_walk(struct store *store, struct usage_walk *walk, uint32_t rows,
		     bool (*each)(void *data, const struct usage_row *row), void *data,
		     bool *ret_more, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	bool all = walk->workspace == NULL;
	uint32_t count = 0;
	int code;
	if (store_statement(store, walks[walk->by][all].number, walks[walk->by][all].sql,
			    &statement, error) < 0)
		return -1;
	/* The hours of one workspace are in order: begin at the first requested one. */
	int64_t hour = walk->at_hour;
	if (walk->by == USAGE_BY_WORKSPACE && !all) {
		hour = walk->at[0] ? hour : walk->from_hour;
		sqlite3_bind_int64(statement, 6, walk->to_hour);
	}
	if (!all)
		sqlite3_bind_text(statement, 1, walk->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, walk->at, -1, SQLITE_TRANSIENT);
	sqlite3_bind_int64(statement, 3, hour);
	sqlite3_bind_text(statement, 4, walk->at_sandbox, -1, SQLITE_TRANSIENT);
	sqlite3_bind_int64(statement, 5, rows);
	*ret_more = false;
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct usage_row row;
		count++;
		if (row_read(statement, &row, error) < 0)
			return -1;
		if (!walk_add_row(walk, &row, each, data))
			return 0;
	}
	if (code != SQLITE_DONE)
		return store_fail(store->database, code, "reading usage", error);
	*ret_more = count == rows;
	if (!*ret_more)
		walk_emit_sum(walk, each, data);
	return 0;
}

int store_usage_prune(struct store *store, int64_t before_hour, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_USAGE_PRUNE,
			    "DELETE FROM usage WHERE (sandbox, hour) IN (SELECT sandbox, hour"
			    " FROM usage WHERE hour < ?1 ORDER BY hour LIMIT " PRUNE_BATCH_TEXT ")",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_int64(statement, 1, before_hour);
	return store_change(store, STATEMENT_USAGE_PRUNE, statement, "removing old usage", error);
}

int store_spent_put(struct store *store, const struct spent_row *row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_SPENT_PUT,
			    "INSERT OR REPLACE INTO spent (workspace, what, period, period_wall,"
			    " amount) VALUES (?1, ?2, ?3, ?4, ?5)",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, row->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, row->what);
	sqlite3_bind_int64(statement, 3, row->period);
	sqlite3_bind_int64(statement, 4, row->period_wall);
	bind_u64(statement, 5, row->amount);
	return store_change(store, STATEMENT_SPENT_PUT, statement, "writing what was spent",
			    error) < 0
		   ? -1
		   : 0;
}

int store_spent_each(struct store *store, bool (*each)(void *data, const struct spent_row *row),
		     void *data, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_SPENT_EACH,
			    "SELECT workspace, what, period, period_wall, amount FROM spent",
			    &statement, error) < 0)
		return -1;
	int code;
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct spent_row row = {
		    .workspace = (const char *)sqlite3_column_text(statement, 0),
		    .what = (uint32_t)sqlite3_column_int64(statement, 1),
		    .period = (uint32_t)sqlite3_column_int64(statement, 2),
		    .period_wall = sqlite3_column_int64(statement, 3),
		    .amount = column_u64(statement, 4),
		};
		if (row.workspace && !each(data, &row))
			return 0;
	}
	if (code != SQLITE_DONE)
		return store_fail(store->database, code, "reading what was spent", error);
	return 0;
}

int store_budget_put(struct store *store, const struct budget_row *row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_BUDGET_PUT,
			    "INSERT OR REPLACE INTO budgets (workspace, what, period, maximum)"
			    " VALUES (?1, ?2, ?3, ?4)",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, row->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, row->what);
	sqlite3_bind_int64(statement, 3, row->period);
	sqlite3_bind_int64(statement, 4, row->maximum);
	return store_change(store, STATEMENT_BUDGET_PUT, statement, "writing a budget", error) < 0
		   ? -1
		   : 0;
}

int store_budget_delete(struct store *store, const char *workspace, uint32_t what, uint32_t period,
			struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_BUDGET_DELETE,
			    "DELETE FROM budgets WHERE workspace = ?1 AND"
			    " (?2 = 0 OR (what = ?2 AND period = ?3))",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, what);
	sqlite3_bind_int64(statement, 3, period);
	return store_change(store, STATEMENT_BUDGET_DELETE, statement, "removing a budget", error);
}

int store_budget_each(struct store *store, bool (*each)(void *data, const struct budget_row *row),
		      void *data, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_BUDGET_EACH,
			    "SELECT workspace, what, period, maximum FROM budgets", &statement,
			    error) < 0)
		return -1;
	int code;
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct budget_row row = {
		    .workspace = (const char *)sqlite3_column_text(statement, 0),
		    .what = (uint32_t)sqlite3_column_int64(statement, 1),
		    .period = (uint32_t)sqlite3_column_int64(statement, 2),
		    .maximum = sqlite3_column_int64(statement, 3),
		};
		if (row.workspace && !each(data, &row))
			return 0;
	}
	if (code != SQLITE_DONE)
		return store_fail(store->database, code, "reading budgets", error);
	return 0;
}
