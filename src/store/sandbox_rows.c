/* Rows of sandboxes. Called by core; blocks for local disk only. */
#include "store/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define SANDBOX(member) offsetof(struct sandbox_row, member)
static const struct column sandbox_columns[] = {
    {"id", COLUMN_ID, SANDBOX(id), .fixed = true},
    {"workspace", COLUMN_TEXT, SANDBOX(workspace), .fixed = true},
    {"created_wall", COLUMN_I64, SANDBOX(created_wall), .fixed = true},
    {"name", COLUMN_TEXT, SANDBOX(name)},
    {"template", COLUMN_TEXT, SANDBOX(template)},
    {"tier", COLUMN_U32, SANDBOX(tier)},
    {"state", COLUMN_U32, SANDBOX(state)},
    {"memory", COLUMN_U64, SANDBOX(limits.memory)},
    {"disk", COLUMN_U64, SANDBOX(limits.disk)},
    {"inodes", COLUMN_U64, SANDBOX(limits.inodes)},
    {"cpu_millis", COLUMN_U32, SANDBOX(limits.cpu_millis)},
    {"pids", COLUMN_U32, SANDBOX(limits.pids)},
    {"files", COLUMN_U32, SANDBOX(limits.files)},
    {"limit_reasons", COLUMN_REASONS, SANDBOX(limit_reasons)},
    {"flags", COLUMN_U32, SANDBOX(flags)},
    {"timeout_seconds", COLUMN_U32, SANDBOX(timeout_seconds)},
    {"idle_timeout_seconds", COLUMN_U32, SANDBOX(idle_timeout_seconds)},
    {"started_wall", COLUMN_I64, SANDBOX(started_wall)},
    {"ended_wall", COLUMN_I64, SANDBOX(ended_wall)},
    {"deadline_wall", COLUMN_I64, SANDBOX(deadline_wall)},
    {"paused_wall", COLUMN_I64, SANDBOX(paused_wall)},
    {"active_wall", COLUMN_I64, SANDBOX(active_wall)},
    {"drain_wall", COLUMN_I64, SANDBOX(drain_wall)},
    {"environment", COLUMN_PACKED, SANDBOX(environment), SANDBOX(environment_size)},
    {"metadata", COLUMN_PACKED, SANDBOX(metadata), SANDBOX(metadata_size)},
    {"mounts", COLUMN_PACKED, SANDBOX(mounts), SANDBOX(mounts_size)},
    {"labels", COLUMN_PACKED, SANDBOX(labels), SANDBOX(labels_size)},
    {"auto_pause_seconds", COLUMN_U32, SANDBOX(auto_pause_seconds)},
    {"options", COLUMN_U32, SANDBOX(options)},
    {"template_asked", COLUMN_TEXT, SANDBOX(template_asked)},
    {"rootfs_kind", COLUMN_U32, SANDBOX(rootfs_kind)},
    {"rootfs_digest", COLUMN_TEXT, SANDBOX(rootfs_digest)},
    {"network", COLUMN_U32, SANDBOX(network)},
    {"boot_origin", COLUMN_U32, SANDBOX(create_origin)},
    {"boot_us", COLUMN_U64, SANDBOX(boot_us)},
    {"last_exec_key", COLUMN_U64, SANDBOX(last_exec_key)},
    {"end_reason", COLUMN_U32, SANDBOX(end_reason)},
    {"end_message", COLUMN_TEXT, SANDBOX(end_message)},
};

static int sandbox_name_taken(const void *row, struct error *error)
{
	return error_set(error, ERROR_NAME_TAKEN, "the name \"%s\" is taken",
			 ((const struct sandbox_row *)row)->name);
}

static const struct table sandboxes =
    TABLE("sandboxes", sandbox_columns, struct sandbox_row, .refused = sandbox_name_taken);

void sandbox_row_copy(const struct sandbox_row *from, struct sandbox_row *ret_row)
{
	*ret_row = *from;
	for (size_t i = 0; i < ARRAY_SIZE(sandbox_columns); i++) {
		const struct column *column = &sandbox_columns[i];
		char *row = (char *)ret_row, **text = (void *)(row + column->offset);
		if (column->type == COLUMN_TEXT && *text)
			*text = text_duplicate(*text);
		if (column->type != COLUMN_PACKED || !*text)
			continue;
		uint32_t size = *(uint32_t *)(void *)(row + column->size_offset);
		char *copy = malloc(MAX(size, 1u));
		if (!copy)
			abort();
		*text = memcpy(copy, *text, size);
	}
}

void sandbox_row_done(struct sandbox_row *row)
{
	rows_free_texts(&sandboxes, row);
}

/* Wraps a typed callback for rows_step_each(), which takes untyped ones. */
struct sandbox_each {
	bool (*each)(void *data, const struct sandbox_row *row);
	void *data;
};

static bool sandbox_each_call(void *data, const void *row)
{
	struct sandbox_each *call = data;
	return call->each(call->data, row);
}

int store_sandbox_insert(struct store *store, const struct sandbox_row *row, struct error *error)
{
	return rows_write(store, STATEMENT_SANDBOX_INSERT, &sandboxes, ROW_INSERT, row, error) < 0
		   ? -1
		   : 0;
}

int store_sandbox_update(struct store *store, const struct sandbox_row *row, struct error *error)
{
	int changed =
	    rows_write(store, STATEMENT_SANDBOX_UPDATE, &sandboxes, ROW_UPDATE, row, error);
	if (changed == 0)
		return error_set(error, ERROR_SANDBOX_NOT_FOUND, "no record of sandbox %s",
				 row->id.text);
	return changed < 0 ? -1 : 0;
}

int store_sandbox_get(struct store *store, const struct id *id, struct sandbox_row *ret_row,
		      struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (rows_select(store, STATEMENT_SANDBOX_GET, &sandboxes, "WHERE id = ?1", &statement,
			error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	return rows_step_one(store, statement, &sandboxes, ret_row, error);
}

/* The ways to list sandboxes. Each has an index in the order of the list. INDEXED BY makes
 * SQLite use it, because sorting all rows would block the loop. */
enum listing { LISTING_ALL, LISTING_LIVE, LISTING_OF_WORKSPACE, LISTING_LIVE_OF_WORKSPACE };

#define AFTER_CURSOR                                                                               \
	"(created_wall, id) < (?2, ?3) AND (?4 = 0 OR state = ?4) AND (?5 IS NULL OR name = ?5)"   \
	" ORDER BY created_wall DESC, id DESC LIMIT ?6"

/* A one-shot run has been answered, and its sandbox is being removed: nobody asks for it. */
#define ONESHOT_OVER "(state = 9 AND options & 4)"
_Static_assert(SANDBOX_DELETING == 9 && OPTION_ONESHOT == 4, "both say the same");

static const char *const listings[] = {
    [LISTING_ALL] = "INDEXED BY sandboxes_by_time WHERE " AFTER_CURSOR,
    [LISTING_LIVE] =
	"INDEXED BY sandboxes_live_by_time WHERE state != " SQL_ENDED " AND " AFTER_CURSOR,
    [LISTING_OF_WORKSPACE] =
	"INDEXED BY sandboxes_by_workspace WHERE workspace = ?1 AND " AFTER_CURSOR,
    [LISTING_LIVE_OF_WORKSPACE] = "INDEXED BY sandboxes_live_by_workspace"
				  " WHERE workspace = ?1 AND state != " SQL_ENDED
				  " AND NOT " ONESHOT_OVER " AND " AFTER_CURSOR,
};
_Static_assert(STATEMENT_SANDBOX_PAGE + LISTING_LIVE_OF_WORKSPACE == STATEMENT_SANDBOX_PAGE_LAST,
	       "a statement for each listing");

/* A limit below 0 means no limit. */
static int sandboxes_list(struct store *store, const char *workspace, bool live_only,
			  enum sandbox_state state, const char *name, int64_t before_created_wall,
			  const struct id *before_id, int64_t limit, struct sandbox_each *call,
			  struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct sandbox_row row;
	/* Only live sandboxes have a state other than `ended`, so the shorter index suffices. */
	bool live = live_only || (state != 0 && state != SANDBOX_ENDED);
	enum listing listing = workspace ? (live ? LISTING_LIVE_OF_WORKSPACE : LISTING_OF_WORKSPACE)
					 : (live ? LISTING_LIVE : LISTING_ALL);
	if (rows_select(store, (enum statement)(STATEMENT_SANDBOX_PAGE + listing), &sandboxes,
			listings[listing], &statement, error) < 0)
		return -1;
	bool begin = before_created_wall == 0;
	if (workspace)
		sqlite3_bind_text(statement, 1, workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, begin ? INT64_MAX : before_created_wall);
	sqlite3_bind_text(statement, 3, begin || !before_id ? "" : before_id->text, -1,
			  SQLITE_STATIC);
	sqlite3_bind_int(statement, 4, (int)state);
	sqlite3_bind_text(statement, 5, name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 6, limit);
	return rows_step_each(store, statement, &sandboxes, &row, sandbox_each_call, call, error);
}

int store_sandbox_each(struct store *store, const char *workspace, bool live_only,
		       bool (*each)(void *data, const struct sandbox_row *row), void *data,
		       struct error *error)
{
	struct sandbox_each call = {.each = each, .data = data};
	return sandboxes_list(store, workspace, live_only, 0, NULL, 0, NULL, -1, &call, error);
}

int store_sandbox_page(struct store *store, const char *workspace, bool live_only,
		       enum sandbox_state state, const char *name, int64_t before_created_wall,
		       const struct id *before_id, uint32_t limit,
		       bool (*each)(void *data, const struct sandbox_row *row), void *data,
		       struct error *error)
{
	struct sandbox_each call = {.each = each, .data = data};
	return sandboxes_list(store, workspace, live_only, state, name, before_created_wall,
			      before_id, limit, &call, error);
}

/* An iteration of the loop may take a few milliseconds; a deleted row costs about ten
 * microseconds. */
#define PRUNE_BATCH 500
#define PRUNE_BATCH_TEXT "500"
_Static_assert(PRUNE_BATCH == 500, "both say the same");
#define OLDEST_TOMBSTONES                                                                          \
	"(SELECT id FROM sandboxes WHERE state = " SQL_ENDED " AND ended_wall < ?1"                \
	" ORDER BY ended_wall LIMIT " PRUNE_BATCH_TEXT ")"

static int tombstones_delete(struct store *store, enum statement which, const char *sql,
			     int64_t ended_before_wall, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, which, sql, &statement, error) < 0)
		return -1;
	sqlite3_bind_int64(statement, 1, ended_before_wall);
	return store_change(store, which, statement, "removing tombstones", error);
}

int store_sandbox_prune(struct store *store, int64_t ended_before_wall, struct error *error)
{
	/* A sandbox may have thousands of execs: they are deleted first, and counted too. */
	int execs_gone =
	    tombstones_delete(store, STATEMENT_SANDBOX_PRUNE_EXECS,
			      "DELETE FROM execs WHERE rowid IN (SELECT rowid FROM execs WHERE"
			      " sandbox IN " OLDEST_TOMBSTONES " LIMIT " PRUNE_BATCH_TEXT ")",
			      ended_before_wall, error);
	if (execs_gone < 0 || execs_gone == PRUNE_BATCH)
		return execs_gone;
	int gone = tombstones_delete(store, STATEMENT_SANDBOX_PRUNE,
				     "DELETE FROM sandboxes WHERE id IN " OLDEST_TOMBSTONES,
				     ended_before_wall, error);
	return gone < 0 ? -1 : execs_gone + gone;
}
