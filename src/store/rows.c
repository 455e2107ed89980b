/* The rows: one table of columns per kind of row says how a struct and its line in the database
 * correspond; inserts, updates and reads are made from it. Called by core, lists by api too; blocks
 * for local disk only. Each write is one transaction of one statement, but for pruning. What is
 * read back is checked: a damaged row is an error, not a surprise later. */
#include "store/sqlite.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

#define SQL_MAX 4096
#define PACKED_MAX (1024 * 1024) /* environment, metadata, mounts: capped far lower by the API */

enum column_type {
	COLUMN_ID, /* struct id */
	COLUMN_ID_OR_NULL,
	COLUMN_TEXT,   /* char *, may be NULL where the schema lets it */
	COLUMN_PACKED, /* char * and its uint32_t size */
	COLUMN_U32,
	COLUMN_U64,
	COLUMN_I64,
	COLUMN_BOOL,
	COLUMN_HASH,    /* uint8_t[32] */
	COLUMN_REASONS, /* uint32_t[LIMIT_COUNT], a byte each */
};

struct column {
	const char *name;
	enum column_type type;
	size_t offset, size_offset;
	bool fixed; /* never updated; these come first */
};

struct table {
	const char *name;
	const struct column *columns;
	size_t count, row_size;
};

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
    {"rootfs_digest", COLUMN_TEXT, SANDBOX(rootfs_digest)},
    {"network", COLUMN_U32, SANDBOX(network)},
    {"boot_origin", COLUMN_U32, SANDBOX(boot_origin)},
    {"boot_us", COLUMN_U64, SANDBOX(boot_us)},
    {"end_reason", COLUMN_U32, SANDBOX(end_reason)},
    {"end_message", COLUMN_TEXT, SANDBOX(end_message)},
};

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

#define TOKEN(member) offsetof(struct token_row, member)
static const struct column token_columns[] = {
    {"id", COLUMN_ID, TOKEN(id), .fixed = true},
    {"hash", COLUMN_HASH, TOKEN(hash)},
    {"workspace", COLUMN_TEXT, TOKEN(workspace)},
    {"label", COLUMN_TEXT, TOKEN(label)},
    {"scopes", COLUMN_U32, TOKEN(scopes)},
    {"sandbox", COLUMN_ID_OR_NULL, TOKEN(sandbox)},
    {"created_wall", COLUMN_I64, TOKEN(created_wall)},
    {"expires_wall", COLUMN_I64, TOKEN(expires_wall)},
    {"revoked_wall", COLUMN_I64, TOKEN(revoked_wall)},
};

#define TABLE(table_name, columns_of, row)                                                         \
	{                                                                                          \
		.name = table_name, .columns = columns_of, .count = ARRAY_SIZE(columns_of),        \
		.row_size = sizeof(row)                                                            \
	}
static const struct table sandboxes = TABLE("sandboxes", sandbox_columns, struct sandbox_row);
static const struct table execs = TABLE("execs", exec_columns, struct exec_row);
static const struct table tokens = TABLE("tokens", token_columns, struct token_row);

static void row_done(const struct table *table, void *row)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct column *column = &table->columns[i];
		if (column->type == COLUMN_TEXT || column->type == COLUMN_PACKED)
			free(*(char **)(void *)((char *)row + column->offset));
	}
	memset(row, 0, table->row_size);
}

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
	row_done(&sandboxes, row);
}

void exec_row_done(struct exec_row *row)
{
	row_done(&execs, row);
}

void token_row_done(struct token_row *row)
{
	row_done(&tokens, row);
}

/* Packed strings end with a NUL, or walking them would run past their end. */
static bool packed_valid(const void *data, uint32_t size)
{
	return data && size <= PACKED_MAX && ((const char *)data)[size - 1] == '\0';
}

static int bind_column(sqlite3_stmt *statement, int at, const struct column *column,
		       const void *row)
{
	const char *place = (const char *)row + column->offset;
	const void *pointer;
	uint32_t size;
	uint8_t bytes[LIMIT_COUNT];
	switch (column->type) {
	case COLUMN_ID:
	case COLUMN_ID_OR_NULL:
		return *place ? sqlite3_bind_text(statement, at, place, ID_LENGTH, SQLITE_STATIC)
			      : sqlite3_bind_null(statement, at);
	case COLUMN_TEXT:
		memcpy(&pointer, place, sizeof(pointer));
		return sqlite3_bind_text(statement, at, pointer, -1, SQLITE_STATIC);
	case COLUMN_PACKED:
		memcpy(&pointer, place, sizeof(pointer));
		memcpy(&size, (const char *)row + column->size_offset, sizeof(size));
		if (size > 0 && !packed_valid(pointer, size))
			return SQLITE_MISMATCH;
		return sqlite3_bind_blob(statement, at, pointer, (int)size, SQLITE_STATIC);
	case COLUMN_U32:
		return sqlite3_bind_int64(statement, at, *(const uint32_t *)(const void *)place);
	case COLUMN_U64:
	case COLUMN_I64:
		return sqlite3_bind_int64(statement, at, *(const int64_t *)(const void *)place);
	case COLUMN_BOOL:
		return sqlite3_bind_int64(statement, at, *(const bool *)place);
	case COLUMN_HASH:
		return sqlite3_bind_blob(statement, at, place, 32, SQLITE_STATIC);
	case COLUMN_REASONS:
		for (size_t i = 0; i < LIMIT_COUNT; i++)
			bytes[i] = (uint8_t)((const uint32_t *)(const void *)place)[i];
		return sqlite3_bind_blob(statement, at, bytes, sizeof(bytes), SQLITE_TRANSIENT);
	}
	return SQLITE_MISUSE;
}

static int bind_row(sqlite3_stmt *statement, const struct table *table, const void *row)
{
	int code = SQLITE_OK;
	for (size_t i = 0; i < table->count && code == SQLITE_OK; i++)
		code = bind_column(statement, (int)i + 1, &table->columns[i], row);
	return code;
}

static bool read_text(sqlite3_stmt *statement, int at, char *place)
{
	const char *text = (const char *)sqlite3_column_text(statement, at);
	char *copy = text ? text_duplicate(text) : NULL;
	memcpy(place, &copy, sizeof(copy));
	return true;
}

static bool read_packed(sqlite3_stmt *statement, int at, char *place, char *size_place)
{
	const void *data = sqlite3_column_blob(statement, at);
	uint32_t size = (uint32_t)sqlite3_column_bytes(statement, at);
	if (size > 0 && !packed_valid(data, size))
		return false;
	char *copy = size > 0 ? malloc(size) : NULL;
	if (size > 0 && !copy)
		abort();
	if (copy)
		memcpy(copy, data, size);
	memcpy(place, &copy, sizeof(copy));
	memcpy(size_place, &size, sizeof(size));
	return true;
}

/* False when what is there cannot have been written by us. */
static bool read_column(sqlite3_stmt *statement, int at, const struct column *column, void *row)
{
	char *place = (char *)row + column->offset;
	int64_t number = sqlite3_column_int64(statement, at);
	const char *text;
	const uint8_t *bytes;
	switch (column->type) {
	case COLUMN_ID:
	case COLUMN_ID_OR_NULL:
		text = (const char *)sqlite3_column_text(statement, at);
		if (!text)
			return column->type == COLUMN_ID_OR_NULL;
		return id_parse(text, (struct id *)(void *)place) == 0;
	case COLUMN_TEXT:
		return read_text(statement, at, place);
	case COLUMN_PACKED:
		return read_packed(statement, at, place, (char *)row + column->size_offset);
	case COLUMN_U32:
		if (number < 0 || number > UINT32_MAX)
			return false;
		*(uint32_t *)(void *)place = (uint32_t)number;
		return true;
	case COLUMN_U64:
	case COLUMN_I64:
		*(int64_t *)(void *)place = number;
		return true;
	case COLUMN_BOOL:
		*(bool *)place = number != 0;
		return true;
	case COLUMN_HASH:
		bytes = sqlite3_column_blob(statement, at);
		if (!bytes || sqlite3_column_bytes(statement, at) != 32)
			return false;
		memcpy(place, bytes, 32);
		return true;
	case COLUMN_REASONS:
		bytes = sqlite3_column_blob(statement, at);
		for (int i = 0; i < LIMIT_COUNT && i < sqlite3_column_bytes(statement, at); i++)
			((uint32_t *)(void *)place)[i] = bytes[i];
		return true;
	}
	return false;
}

static int read_row(sqlite3_stmt *statement, const struct table *table, void *row,
		    struct error *error)
{
	memset(row, 0, table->row_size);
	for (size_t i = 0; i < table->count; i++) {
		if (read_column(statement, (int)i, &table->columns[i], row))
			continue;
		row_done(table, row);
		return error_set(error, ERROR_STORE_CORRUPT, "database: %s.%s has no valid value",
				 table->name, table->columns[i].name);
	}
	return 0;
}

/* Statement texts made from the table. They have one size whatever the data, so that they fit is
 * proven the first time any test runs; hence the abort. */
static void append(struct buffer *sql, const char *text)
{
	if (buffer_append_text(sql, text) < 0)
		abort();
}

static void sql_insert(const struct table *table, struct buffer *sql)
{
	append(sql, "INSERT INTO ");
	append(sql, table->name);
	for (size_t i = 0; i < table->count; i++) {
		append(sql, i ? ", " : " (");
		append(sql, table->columns[i].name);
	}
	append(sql, ") VALUES (?1");
	for (size_t i = 1; i < table->count; i++)
		if (buffer_printf(sql, ", ?%zu", i + 1) < 0)
			abort();
	append(sql, ")");
}

static void sql_update(const struct table *table, struct buffer *sql)
{
	const char *between = " SET ";
	append(sql, "UPDATE ");
	append(sql, table->name);
	for (size_t i = 0; i < table->count; i++) {
		if (table->columns[i].fixed)
			continue;
		if (buffer_printf(sql, "%s%s = ?%zu", between, table->columns[i].name, i + 1) < 0)
			abort();
		between = ", ";
	}
	append(sql, " WHERE id = ?1");
}

static void sql_select(const struct table *table, const char *where, struct buffer *sql)
{
	for (size_t i = 0; i < table->count; i++) {
		append(sql, i ? ", " : "SELECT ");
		append(sql, table->columns[i].name);
	}
	append(sql, " FROM ");
	append(sql, table->name);
	append(sql, " ");
	append(sql, where);
}

enum row_write { ROW_INSERT, ROW_UPDATE };

/* Returns how many rows it wrote. */
static int write_row(struct store *store, enum statement which, const struct table *table,
		     enum row_write write, const void *row, struct error *error)
{
	DONE_BUFFER struct buffer sql = BUFFER(SQL_MAX);
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (!store->statements[which])
		write == ROW_INSERT ? sql_insert(table, &sql) : sql_update(table, &sql);
	if (store_statement(store, which, buffer_text(&sql), &statement, error) < 0)
		return -1;
	int code = bind_row(statement, table, row);
	if (code == SQLITE_OK)
		code = store_write(which, statement);
	if (code == SQLITE_DONE)
		return sqlite3_changes(store->database);
	if (code == SQLITE_CONSTRAINT_UNIQUE && table == &sandboxes)
		return error_set(error, ERROR_NAME_TAKEN, "the name \"%s\" is taken",
				 ((const struct sandbox_row *)row)->name);
	return store_fail(store->database, code,
			  write == ROW_INSERT ? "writing a row" : "changing a row", error);
}

/* A statement with a text made from table and `where`, ready to be bound. */
static int select_statement(struct store *store, enum statement which, const struct table *table,
			    const char *where, sqlite3_stmt **ret_statement, struct error *error)
{
	DONE_BUFFER struct buffer sql = BUFFER(SQL_MAX);
	if (!store->statements[which])
		sql_select(table, where, &sql);
	return store_statement(store, which, buffer_text(&sql), ret_statement, error);
}

/* The one row of a bound statement: 1 found, 0 not. */
static int step_one(struct store *store, sqlite3_stmt *statement, const struct table *table,
		    void *row, struct error *error)
{
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading a row", error);
	return read_row(statement, table, row, error) < 0 ? -1 : 1;
}

/* Every row of a bound statement; `each` returns false to stop. */
static int step_each(struct store *store, sqlite3_stmt *statement, const struct table *table,
		     void *row, bool (*each)(void *data, const void *row), void *data,
		     struct error *error)
{
	for (;;) {
		int found = step_one(store, statement, table, row, error);
		if (found <= 0)
			return found;
		bool more = each(data, row);
		row_done(table, row);
		if (!more)
			return 0;
	}
}

/* Runs a bound statement that returns no rows; how many rows it changed. */
static int step_change(struct store *store, enum statement which, sqlite3_stmt *statement,
		       const char *what, struct error *error)
{
	int code = store_write(which, statement);
	if (code != SQLITE_DONE)
		return store_fail(store->database, code, what, error);
	return sqlite3_changes(store->database);
}

int store_sandbox_insert(struct store *store, const struct sandbox_row *row, struct error *error)
{
	return write_row(store, STATEMENT_SANDBOX_INSERT, &sandboxes, ROW_INSERT, row, error) < 0
		   ? -1
		   : 0;
}

int store_sandbox_update(struct store *store, const struct sandbox_row *row, struct error *error)
{
	int changed =
	    write_row(store, STATEMENT_SANDBOX_UPDATE, &sandboxes, ROW_UPDATE, row, error);
	if (changed == 0)
		return error_set(error, ERROR_SANDBOX_NOT_FOUND, "no record of sandbox %s",
				 row->id.text);
	return changed < 0 ? -1 : 0;
}

int store_sandbox_get(struct store *store, const struct id *id, struct sandbox_row *ret_row,
		      struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (select_statement(store, STATEMENT_SANDBOX_GET, &sandboxes, "WHERE id = ?1", &statement,
			     error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	return step_one(store, statement, &sandboxes, ret_row, error);
}

/* A typed callback behind the untyped one of step_each(). */
struct each_call {
	bool (*sandbox)(void *data, const struct sandbox_row *row);
	bool (*exec)(void *data, const struct exec_row *row);
	bool (*token)(void *data, const struct token_row *row);
	void *data;
};

static bool each_sandbox(void *data, const void *row)
{
	struct each_call *call = data;
	return call->sandbox(call->data, row);
}

static bool each_exec(void *data, const void *row)
{
	struct each_call *call = data;
	return call->exec(call->data, row);
}

static bool each_token(void *data, const void *row)
{
	struct each_call *call = data;
	return call->token(call->data, row);
}

/* How sandboxes are listed. Each has an index in the order of the list; INDEXED BY makes sure that
 * it is used, since a sort of all rows would not fit into a turn of the loop. */
enum listing { LISTING_ALL, LISTING_LIVE, LISTING_OF_WORKSPACE, LISTING_LIVE_OF_WORKSPACE };

#define AFTER_CURSOR                                                                               \
	"(created_wall, id) < (?2, ?3) AND (?4 = 0 OR state = ?4) AND (?5 IS NULL OR name = ?5)"   \
	" ORDER BY created_wall DESC, id DESC LIMIT ?6"

static const char *const listings[] = {
    [LISTING_ALL] = "INDEXED BY sandboxes_by_time WHERE " AFTER_CURSOR,
    [LISTING_LIVE] = "INDEXED BY sandboxes_live_by_time WHERE state != 10 AND " AFTER_CURSOR,
    [LISTING_OF_WORKSPACE] =
	"INDEXED BY sandboxes_by_workspace WHERE workspace = ?1 AND " AFTER_CURSOR,
    [LISTING_LIVE_OF_WORKSPACE] = "INDEXED BY sandboxes_live_by_workspace"
				  " WHERE workspace = ?1 AND state != 10 AND " AFTER_CURSOR,
};
_Static_assert(STATEMENT_SANDBOX_PAGE + LISTING_LIVE_OF_WORKSPACE == STATEMENT_SANDBOX_PAGE_LAST,
	       "a statement for each listing");

/* A limit below 0 is none. */
static int list_sandboxes(struct store *store, const char *workspace, bool live_only,
			  enum sandbox_state state, const char *name, int64_t before_created_wall,
			  const struct id *before_id, int64_t limit, struct each_call *call,
			  struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct sandbox_row row;
	/* A state other than `ended` is a live one's: the shorter index does. */
	bool live = live_only || (state != 0 && state != SANDBOX_ENDED);
	enum listing listing = workspace ? (live ? LISTING_LIVE_OF_WORKSPACE : LISTING_OF_WORKSPACE)
					 : (live ? LISTING_LIVE : LISTING_ALL);
	if (select_statement(store, (enum statement)(STATEMENT_SANDBOX_PAGE + listing), &sandboxes,
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
	return step_each(store, statement, &sandboxes, &row, each_sandbox, call, error);
}

int store_sandbox_each(struct store *store, const char *workspace, bool live_only,
		       bool (*each)(void *data, const struct sandbox_row *row), void *data,
		       struct error *error)
{
	struct each_call call = {.sandbox = each, .data = data};
	return list_sandboxes(store, workspace, live_only, 0, NULL, 0, NULL, -1, &call, error);
}

int store_sandbox_page(struct store *store, const char *workspace, bool live_only,
		       enum sandbox_state state, const char *name, int64_t before_created_wall,
		       const struct id *before_id, uint32_t limit,
		       bool (*each)(void *data, const struct sandbox_row *row), void *data,
		       struct error *error)
{
	struct each_call call = {.sandbox = each, .data = data};
	return list_sandboxes(store, workspace, live_only, state, name, before_created_wall,
			      before_id, limit, &call, error);
}

/* A turn of the loop may take some milliseconds, and a deleted row costs about ten microseconds. */
#define PRUNE_BATCH 500
#define PRUNE_BATCH_TEXT "500"
_Static_assert(PRUNE_BATCH == 500, "both say the same");
#define OLDEST_TOMBSTONES                                                                          \
	"(SELECT id FROM sandboxes WHERE state = 10 AND ended_wall < ?1"                           \
	" ORDER BY ended_wall LIMIT " PRUNE_BATCH_TEXT ")"

static int prune_step(struct store *store, enum statement which, const char *sql,
		      int64_t ended_before_wall, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, which, sql, &statement, error) < 0)
		return -1;
	sqlite3_bind_int64(statement, 1, ended_before_wall);
	return step_change(store, which, statement, "removing tombstones", error);
}

int store_sandbox_prune(struct store *store, int64_t ended_before_wall, struct error *error)
{
	/* The execs of each may be thousands: they go first, counted too. */
	int execs_gone = prune_step(store, STATEMENT_SANDBOX_PRUNE_EXECS,
				    "DELETE FROM execs WHERE key IN (SELECT key FROM execs WHERE"
				    " sandbox IN " OLDEST_TOMBSTONES " LIMIT " PRUNE_BATCH_TEXT ")",
				    ended_before_wall, error);
	if (execs_gone < 0 || execs_gone == PRUNE_BATCH)
		return execs_gone;
	int gone = prune_step(store, STATEMENT_SANDBOX_PRUNE,
			      "DELETE FROM sandboxes WHERE id IN " OLDEST_TOMBSTONES,
			      ended_before_wall, error);
	return gone < 0 ? -1 : execs_gone + gone;
}

int store_exec_insert(struct store *store, const struct exec_row *row, struct error *error)
{
	return write_row(store, STATEMENT_EXEC_INSERT, &execs, ROW_INSERT, row, error) < 0 ? -1 : 0;
}

int store_exec_update(struct store *store, const struct exec_row *row, struct error *error)
{
	int changed = write_row(store, STATEMENT_EXEC_UPDATE, &execs, ROW_UPDATE, row, error);
	if (changed == 0)
		return error_set(error, ERROR_EXEC_NOT_FOUND, "no record of exec %s", row->id.text);
	return changed < 0 ? -1 : 0;
}

int store_exec_get(struct store *store, const struct id *sandbox, const struct id *exec,
		   struct exec_row *ret_row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (select_statement(store, STATEMENT_EXEC_GET, &execs, "WHERE id = ?1 AND sandbox = ?2",
			     &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, exec->text, -1, SQLITE_STATIC);
	sqlite3_bind_text(statement, 2, sandbox->text, -1, SQLITE_STATIC);
	return step_one(store, statement, &execs, ret_row, error);
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
	return step_change(store, STATEMENT_EXEC_DELETE, statement, "removing an exec", error) < 0
		   ? -1
		   : 0;
}

int store_exec_each(struct store *store, const struct id *sandbox,
		    bool (*each)(void *data, const struct exec_row *row), void *data,
		    struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct exec_row row;
	struct each_call call = {.exec = each, .data = data};
	if (select_statement(store, STATEMENT_EXEC_EACH, &execs,
			     "WHERE sandbox = ?1 ORDER BY key DESC", &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	return step_each(store, statement, &execs, &row, each_exec, &call, error);
}

int store_exec_from(struct store *store, const struct id *sandbox, uint64_t key, bool older,
		    bool (*each)(void *data, const struct exec_row *row), void *data,
		    struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct exec_row row;
	struct each_call call = {.exec = each, .data = data};
	if (select_statement(store, older ? STATEMENT_EXEC_OLDER : STATEMENT_EXEC_NEWER, &execs,
			     older ? "WHERE sandbox = ?1 AND key < ?2 ORDER BY key DESC"
				   : "WHERE sandbox = ?1 AND key > ?2 ORDER BY key",
			     &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, (sqlite3_int64)MIN(key, (uint64_t)INT64_MAX));
	return step_each(store, statement, &execs, &row, each_exec, &call, error);
}

int store_exec_last_key(struct store *store, uint64_t *ret_key, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_EXEC_LAST_KEY,
			    "SELECT seq FROM sqlite_sequence WHERE name = 'execs'", &statement,
			    error) < 0)
		return -1;
	int code = sqlite3_step(statement);
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		return store_fail(store->database, code, "reading the last exec key", error);
	*ret_key = code == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
	return 0;
}

int store_token_insert(struct store *store, const struct token_row *row, struct error *error)
{
	store->token_changes++;
	return write_row(store, STATEMENT_TOKEN_INSERT, &tokens, ROW_INSERT, row, error) < 0 ? -1
											     : 0;
}

int store_token_by_hash(struct store *store, const uint8_t hash[32], struct token_row *ret_row,
			struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (select_statement(store, STATEMENT_TOKEN_BY_HASH, &tokens, "WHERE hash = ?1", &statement,
			     error) < 0)
		return -1;
	sqlite3_bind_blob(statement, 1, hash, 32, SQLITE_STATIC);
	return step_one(store, statement, &tokens, ret_row, error);
}

uint64_t store_token_changes(const struct store *store)
{
	return store->token_changes;
}

int store_token_revoke(struct store *store, const struct id *id, int64_t wall, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	store->token_changes++;
	/* The first revocation's time stays. */
	if (store_statement(store, STATEMENT_TOKEN_REVOKE,
			    "UPDATE tokens SET revoked_wall = iif(revoked_wall, revoked_wall, ?2)"
			    " WHERE id = ?1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, wall);
	int changed =
	    step_change(store, STATEMENT_TOKEN_REVOKE, statement, "revoking a token", error);
	if (changed == 0)
		return error_set(error, ERROR_TOKEN_NOT_FOUND, "no token %s", id->text);
	return changed < 0 ? -1 : 0;
}

int store_token_revoke_label(struct store *store, const char *label, int64_t wall,
			     struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	store->token_changes++;
	if (store_statement(store, STATEMENT_TOKEN_REVOKE_LABEL,
			    "UPDATE tokens SET revoked_wall = ?2 WHERE label = ?1 AND"
			    " revoked_wall = 0",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, label, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, wall);
	return step_change(store, STATEMENT_TOKEN_REVOKE_LABEL, statement, "revoking tokens",
			   error);
}

int store_token_revoke_sandbox(struct store *store, const struct id *sandbox, int64_t wall,
			       struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_TOKEN_REVOKE_SANDBOX,
			    "UPDATE tokens SET revoked_wall = ?2 WHERE sandbox = ?1 AND"
			    " revoked_wall = 0",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, sandbox->text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, wall);
	int revoked =
	    step_change(store, STATEMENT_TOKEN_REVOKE_SANDBOX, statement, "revoking tokens", error);
	store->token_changes += revoked != 0;
	return revoked;
}

int store_token_by_id(struct store *store, const struct id *id, struct token_row *ret_row,
		      struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (select_statement(store, STATEMENT_TOKEN_BY_ID, &tokens, "WHERE id = ?1", &statement,
			     error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	return step_one(store, statement, &tokens, ret_row, error);
}

int store_token_each(struct store *store, bool (*each)(void *data, const struct token_row *row),
		     void *data, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct token_row row;
	struct each_call call = {.token = each, .data = data};
	if (select_statement(store, STATEMENT_TOKEN_EACH, &tokens,
			     "ORDER BY created_wall DESC, rowid DESC", &statement, error) < 0)
		return -1;
	return step_each(store, statement, &tokens, &row, each_token, &call, error);
}
