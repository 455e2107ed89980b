/* The rows of `activity`. See activity.h. Rows are validated when they are read: a damaged row is
 * an error.
 *
 * Pruning updates the workspace's `pruned` in the same transaction. So a client that continues from
 * an old sequence is told that entries are gone. */
#include "store/activity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "store/sqlite.h"

/* A deleted row costs about ten microseconds. */
#define PRUNE_BATCH 200
#define DETAILS_SIZE_MAX (64 * 1024)

#define COLUMNS                                                                                    \
	"sequence, workspace, sandbox, number, wall, kind, actor, exec, details, previous, hash"

void activity_row_done(struct activity_row *row)
{
	free(row->workspace);
	free(row->actor);
	free(row->details);
	*row = (struct activity_row){0};
}

int store_activity_insert(struct store *store, const struct activity_row *row,
			  uint64_t *ret_sequence, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_ACTIVITY_INSERT,
			    "INSERT INTO activity (workspace, sandbox, number, wall, kind, actor,"
			    " exec, details, previous, hash)"
			    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, row->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, row->sandbox.text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 3, (int64_t)row->number);
	sqlite3_bind_int64(statement, 4, row->wall);
	sqlite3_bind_int64(statement, 5, row->kind);
	sqlite3_bind_text(statement, 6, row->actor, -1, SQLITE_STATIC);
	if (id_is_set(&row->exec))
		sqlite3_bind_text(statement, 7, row->exec.text, -1, SQLITE_STATIC);
	if (row->details_size > 0)
		sqlite3_bind_blob(statement, 8, row->details, (int)row->details_size,
				  SQLITE_STATIC);
	sqlite3_bind_blob(statement, 9, row->previous, 32, SQLITE_STATIC);
	sqlite3_bind_blob(statement, 10, row->hash, 32, SQLITE_STATIC);
	int code = store_write(STATEMENT_ACTIVITY_INSERT, statement);
	if (code == SQLITE_DONE) {
		*ret_sequence = (uint64_t)sqlite3_last_insert_rowid(store->database);
		return 0;
	}
	store_fail(store->database, code, "writing an entry of the activity", error);
	return code == SQLITE_CONSTRAINT_UNIQUE ? 1 : -1;
}

/* --- reading --- */

static bool column_read_hash(sqlite3_stmt *statement, int at, uint8_t hash[32])
{
	const void *bytes = sqlite3_column_blob(statement, at);
	if (!bytes || sqlite3_column_bytes(statement, at) != 32)
		return false;
	memcpy(hash, bytes, 32);
	return true;
}

static bool column_read_details(sqlite3_stmt *statement, int at, struct activity_row *row)
{
	const char *bytes = sqlite3_column_blob(statement, at);
	size_t size = (size_t)sqlite3_column_bytes(statement, at), texts = 0;
	if (size == 0)
		return true;
	for (size_t i = 0; i < size; i++)
		texts += bytes[i] == '\0';
	if (size > DETAILS_SIZE_MAX || bytes[size - 1] != '\0' || texts % 2 != 0)
		return false;
	row->details = malloc(size);
	if (!row->details)
		abort();
	memcpy(row->details, bytes, size);
	row->details_size = (uint32_t)size;
	return true;
}

static bool row_read(sqlite3_stmt *statement, struct activity_row *row)
{
	const char *workspace = (const char *)sqlite3_column_text(statement, 1);
	const char *sandbox = (const char *)sqlite3_column_text(statement, 2);
	const char *actor = (const char *)sqlite3_column_text(statement, 6);
	const char *exec = (const char *)sqlite3_column_text(statement, 7);
	*row = (struct activity_row){
	    .sequence = (uint64_t)sqlite3_column_int64(statement, 0),
	    .number = (uint64_t)sqlite3_column_int64(statement, 3),
	    .wall = sqlite3_column_int64(statement, 4),
	    .kind = (uint32_t)sqlite3_column_int64(statement, 5),
	    .workspace = text_duplicate(workspace ? workspace : ""),
	    .actor = text_duplicate(actor ? actor : ""),
	};
	return workspace && actor && sandbox && id_parse(sandbox, &row->sandbox) == 0 &&
	       (!exec || id_parse(exec, &row->exec) == 0) &&
	       column_read_details(statement, 8, row) &&
	       column_read_hash(statement, 9, row->previous) &&
	       column_read_hash(statement, 10, row->hash);
}

/* Two statements per order, with an index in that order: nothing is sorted. The first reads only
 * the index: where does a scan of so many entries end? */
#define FILTERS                                                                                    \
	" AND (?4 IS NULL OR instr(?4, ',' || kind || ',') > 0)"                                   \
	" AND (?5 = 0 OR wall >= ?5) AND (?6 = 0 OR wall < ?6)"                                    \
	" AND (?7 IS NULL OR sandbox = ?7)"
#define ORDER(owner, place, after, until, last, order)                                             \
	{                                                                                          \
		"SELECT count(*), " last "(" place ") FROM (SELECT " place                         \
		" FROM activity WHERE " owner " = ?1 AND " place " " after " ?2 ORDER BY " place   \
		" " order " LIMIT ?3)",                                                            \
		    "SELECT " COLUMNS " FROM activity WHERE " owner " = ?1 AND " place " " after   \
		    " ?2 AND " place " " until " ?3" FILTERS " ORDER BY " place " " order          \
	}

static const struct {
	const char *scan, *page;
} orders[] = {
    ORDER("sandbox", "number", ">", "<=", "max", "ASC"),
    ORDER("sandbox", "number", "<", ">=", "min", "DESC"),
    ORDER("workspace", "sequence", ">", "<=", "max", "ASC"),
    ORDER("workspace", "sequence", "<", ">=", "min", "DESC"),
};

/* One of them, and the part of it that a query reads. */
struct scan {
	int order;
	const char *owner;
	int64_t after, until;
	bool cut; /* as many entries as `scan` allows: there may be more behind it */
};

static int scan_find_end(struct store *store, const struct activity_query *query, struct scan *scan,
			 struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (query->scan == 0)
		return 0;
	if (store_statement(store, (enum statement)(STATEMENT_ACTIVITY_PAGE + 4 + scan->order),
			    orders[scan->order].scan, &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, scan->owner, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, scan->after);
	sqlite3_bind_int64(statement, 3, query->scan);
	int code = sqlite3_step(statement);
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading the activity", error);
	scan->cut = sqlite3_column_int64(statement, 0) == query->scan;
	scan->until = sqlite3_column_type(statement, 1) == SQLITE_NULL
			  ? scan->after
			  : sqlite3_column_int64(statement, 1);
	return 0;
}

static int scan_read(struct store *store, const struct activity_query *query,
		     const struct scan *scan,
		     bool (*each)(void *data, const struct activity_row *row), void *data,
		     struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	bool by_sequence = scan->order >= 2, more = true;
	uint64_t seen = query->after;
	int code = SQLITE_DONE;
	if (store_statement(store, (enum statement)(STATEMENT_ACTIVITY_PAGE + scan->order),
			    orders[scan->order].page, &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, scan->owner, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, scan->after);
	sqlite3_bind_int64(statement, 3, scan->until);
	sqlite3_bind_text(statement, 4, query->kinds, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 5, query->since_wall);
	sqlite3_bind_int64(statement, 6, query->to_wall);
	if (by_sequence && query->sandbox)
		sqlite3_bind_text(statement, 7, query->sandbox->text, -1, SQLITE_STATIC);
	for (uint32_t found = 0; more && found < query->limit; found++) {
		struct activity_row row;
		if ((code = sqlite3_step(statement)) != SQLITE_ROW)
			break;
		bool good = row_read(statement, &row);
		more = good && each(data, &row);
		if (more)
			seen = by_sequence ? row.sequence : row.number;
		activity_row_done(&row);
		if (!good)
			return error_set(error, ERROR_STORE_CORRUPT,
					 "database: a row of activity has no valid value");
	}
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		return store_fail(store->database, code, "reading the activity", error);
	if (code == SQLITE_DONE && query->scan > 0 && scan->until != scan->after)
		seen = (uint64_t)scan->until; /* it has read all of it, matching or not */
	if (query->ret_seen)
		*query->ret_seen = seen;
	if (query->ret_more)
		*query->ret_more = code == SQLITE_ROW || scan->cut;
	return 0;
}

int store_activity_each(struct store *store, const struct activity_query *query,
			bool (*each)(void *data, const struct activity_row *row), void *data,
			struct error *error)
{
	bool by_sequence = !query->sandbox || query->by_sequence, descending = query->descending;
	struct scan scan = {
	    .order = (by_sequence ? 2 : 0) + (descending ? 1 : 0),
	    .owner = by_sequence ? query->workspace : query->sandbox->text,
	    .after = descending && query->after == 0 ? INT64_MAX : (int64_t)query->after,
	    .until = descending ? 0 : INT64_MAX,
	};
	return scan_find_end(store, query, &scan, error) < 0
		   ? -1
		   : scan_read(store, query, &scan, each, data, error);
}

int store_activity_ends(struct store *store, const struct id *sandbox, uint64_t *ret_first,
			uint64_t *ret_last, uint8_t ret_hash[32], struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(
		store, STATEMENT_ACTIVITY_ENDS,
		"SELECT (SELECT min(number) FROM activity WHERE sandbox = ?1), number, hash"
		" FROM activity WHERE sandbox = ?1 ORDER BY number DESC LIMIT 1",
		&statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading the activity", error);
	*ret_first = (uint64_t)sqlite3_column_int64(statement, 0);
	*ret_last = (uint64_t)sqlite3_column_int64(statement, 1);
	if (!column_read_hash(statement, 2, ret_hash))
		return error_set(error, ERROR_STORE_CORRUPT,
				 "database: activity.hash has no valid value");
	return 1;
}

int store_activity_started(struct store *store, const struct id *exec, struct id *ret_sandbox,
			   uint64_t *ret_number, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	/* 20 is ACTIVITY_EXEC_STARTED; the index contains only these. */
	if (store_statement(store, STATEMENT_ACTIVITY_STARTED,
			    "SELECT sandbox, number FROM activity WHERE exec = ?1 AND kind = 20"
			    " ORDER BY sequence LIMIT 1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, exec->text, -1, SQLITE_STATIC);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading the activity", error);
	const char *sandbox = (const char *)sqlite3_column_text(statement, 0);
	*ret_number = (uint64_t)sqlite3_column_int64(statement, 1);
	if (!sandbox || id_parse(sandbox, ret_sandbox) < 0)
		return error_set(error, ERROR_STORE_CORRUPT,
				 "database: activity.sandbox has no valid value");
	return 1;
}

/* The number that a bound statement returns; 0 without a row. */
static int statement_read_number(struct store *store, sqlite3_stmt *statement, uint64_t *ret_number,
				 struct error *error)
{
	int code = sqlite3_step(statement);
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		return store_fail(store->database, code, "reading the activity", error);
	*ret_number = code == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
	return 0;
}

int store_activity_last(struct store *store, uint64_t *ret_sequence, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_ACTIVITY_LAST,
			    "SELECT seq FROM sqlite_sequence WHERE name = 'activity'", &statement,
			    error) < 0)
		return -1;
	return statement_read_number(store, statement, ret_sequence, error);
}

int store_activity_pruned(struct store *store, const char *workspace, uint64_t *ret_sequence,
			  struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_ACTIVITY_PRUNED,
			    "SELECT sequence FROM activity_pruned WHERE workspace = ?1", &statement,
			    error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, workspace, -1, SQLITE_STATIC);
	return statement_read_number(store, statement, ret_sequence, error);
}

/* --- pruning --- */

static int workspace_mark_pruned(struct store *store, const char *workspace, uint64_t sequence,
				 struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_ACTIVITY_MARK_PRUNED,
			    "INSERT INTO activity_pruned (workspace, sequence) VALUES (?1, ?2)"
			    " ON CONFLICT (workspace) DO UPDATE SET"
			    " sequence = max(sequence, excluded.sequence)",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, (int64_t)sequence);
	return store_change(store, STATEMENT_ACTIVITY_MARK_PRUNED, statement,
			    "pruning the activity", error) < 0
		   ? -1
		   : 0;
}

static int entry_delete(struct store *store, uint64_t sequence, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_ACTIVITY_DELETE,
			    "DELETE FROM activity WHERE sequence = ?1", &statement, error) < 0)
		return -1;
	sqlite3_bind_int64(statement, 1, (int64_t)sequence);
	return store_change(store, STATEMENT_ACTIVITY_DELETE, statement, "pruning the activity",
			    error) < 0
		   ? -1
		   : 0;
}

struct prunable_entry {
	uint64_t sequence, number;
	struct id sandbox;
	char workspace[64];
};

/* Reads the next oldest entries and returns their number; *ret_young: the one after them is too
 * young. */
static int entries_read_oldest(struct store *store, int64_t wall, uint64_t after,
			       struct prunable_entry *rows, bool *ret_young, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	int count = 0, code;
	*ret_young = false;
	if (store_statement(store, STATEMENT_ACTIVITY_OLDEST,
			    "SELECT sequence, wall, workspace, sandbox, number FROM activity"
			    " WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_int64(statement, 1, (int64_t)after);
	sqlite3_bind_int(statement, 2, PRUNE_BATCH);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		if (sqlite3_column_int64(statement, 1) >= wall) {
			*ret_young = true;
			return count;
		}
		struct prunable_entry *row = &rows[count];
		const char *workspace = (const char *)sqlite3_column_text(statement, 2);
		const char *sandbox = (const char *)sqlite3_column_text(statement, 3);
		row->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
		row->number = (uint64_t)sqlite3_column_int64(statement, 4);
		if (!workspace || !sandbox || id_parse(sandbox, &row->sandbox) < 0 ||
		    text_copy(row->workspace, sizeof(row->workspace), workspace) < 0)
			return error_set(error, ERROR_STORE_CORRUPT,
					 "database: a row of activity has no valid value");
		count++;
	}
	return code == SQLITE_DONE
		   ? count
		   : store_fail(store->database, code, "reading the activity", error);
}

int store_activity_prune_age(struct store *store, int64_t wall, uint64_t *cursor,
			     bool (*keep)(void *data, const struct id *sandbox, uint64_t number),
			     void *data, bool *ret_more, struct error *error)
{
	struct prunable_entry *rows = calloc(PRUNE_BATCH, sizeof(*rows));
	bool young;
	int gone = 0, result = 0;
	if (!rows)
		abort();
	*ret_more = false;
	int count = entries_read_oldest(store, wall, *cursor, rows, &young, error);
	if (count <= 0) {
		free(rows);
		return count;
	}
	/* Call `keep` before anything is written, because it may use the store. */
	for (int i = 0; i < count; i++)
		if (keep(data, &rows[i].sandbox, rows[i].number))
			rows[i].number = 0;
	result = store_transaction_begin(store, error);
	for (int i = 0; i < count && result == 0; i++) {
		if (rows[i].number == 0)
			continue;
		result = entry_delete(store, rows[i].sequence, error);
		bool last = i + 1 == count || strcmp(rows[i].workspace, rows[i + 1].workspace) != 0;
		/* Several deleted entries in a row need only one mark: that of the last one. */
		if (result == 0 && (last || rows[i + 1].number == 0))
			result = workspace_mark_pruned(store, rows[i].workspace, rows[i].sequence,
						       error);
		gone++;
	}
	result = store_transaction_end(store, result, error);
	if (result == 0) {
		*cursor = rows[count - 1].sequence;
		*ret_more = !young && count == PRUNE_BATCH;
	}
	free(rows);
	return result < 0 ? -1 : gone;
}

int store_activity_prune_sandbox(struct store *store, const char *workspace,
				 const struct id *sandbox, uint64_t first, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct prunable_entry *rows = calloc(PRUNE_BATCH, sizeof(*rows));
	int count = 0, code = SQLITE_ROW, result = 0;
	if (!rows)
		abort();
	if (store_statement(store, STATEMENT_ACTIVITY_FIRST,
			    "SELECT sequence FROM activity WHERE sandbox = ?1 AND number < ?2"
			    " ORDER BY number LIMIT ?3",
			    &statement, error) < 0) {
		free(rows);
		return -1;
	}
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, (int64_t)first);
	sqlite3_bind_int(statement, 3, PRUNE_BATCH);
	while (count < PRUNE_BATCH && (code = sqlite3_step(statement)) == SQLITE_ROW)
		rows[count++].sequence = (uint64_t)sqlite3_column_int64(statement, 0);
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		result = store_fail(store->database, code, "reading the activity", error);
	store_statement_end(&statement);
	if (result == 0 && count > 0 && (result = store_transaction_begin(store, error)) == 0) {
		for (int i = 0; i < count && result == 0; i++)
			result = entry_delete(store, rows[i].sequence, error);
		if (result == 0)
			result = workspace_mark_pruned(store, workspace, rows[count - 1].sequence,
						       error);
		result = store_transaction_end(store, result, error);
	}
	free(rows);
	return result < 0 ? -1 : count;
}
