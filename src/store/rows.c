/* Rows that a table of columns maps to structs. See rows.h. Blocks for local disk only. Each write
 * is one transaction of one statement. Rows are validated when they are read: a damaged row is an
 * error. */
#include "store/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

#define SQL_MAX 4096
#define PACKED_MAX (1024 * 1024) /* environment, metadata, mounts: the API's caps are far lower */

void rows_free_texts(const struct table *table, void *row)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct column *column = &table->columns[i];
		if (column->type == COLUMN_TEXT || column->type == COLUMN_PACKED)
			free(*(char **)(void *)((char *)row + column->offset));
	}
	memset(row, 0, table->row_size);
}

/* Packed strings must end with a NUL, because readers walk them to their end. */
static bool packed_valid(const void *data, uint32_t size)
{
	return data && size <= PACKED_MAX && ((const char *)data)[size - 1] == '\0';
}

static int column_bind(sqlite3_stmt *statement, int at, const struct column *column,
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

static int row_bind(sqlite3_stmt *statement, const struct table *table, const void *row)
{
	int code = SQLITE_OK;
	for (size_t i = 0; i < table->count && code == SQLITE_OK; i++)
		code = column_bind(statement, (int)i + 1, &table->columns[i], row);
	return code;
}

static bool column_read_text(sqlite3_stmt *statement, int at, char *place)
{
	const char *text = (const char *)sqlite3_column_text(statement, at);
	char *copy = text ? text_duplicate(text) : NULL;
	memcpy(place, &copy, sizeof(copy));
	return true;
}

static bool column_read_packed(sqlite3_stmt *statement, int at, char *place, char *size_place)
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

/* False for a value that we cannot have written. */
static bool column_read(sqlite3_stmt *statement, int at, const struct column *column, void *row)
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
		return column_read_text(statement, at, place);
	case COLUMN_PACKED:
		return column_read_packed(statement, at, place, (char *)row + column->size_offset);
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

static int row_read(sqlite3_stmt *statement, const struct table *table, void *row,
		    struct error *error)
{
	memset(row, 0, table->row_size);
	for (size_t i = 0; i < table->count; i++) {
		if (column_read(statement, (int)i, &table->columns[i], row))
			continue;
		rows_free_texts(table, row);
		return error_set(error, ERROR_STORE_CORRUPT, "database: %s.%s has no valid value",
				 table->name, table->columns[i].name);
	}
	return 0;
}

/* Statement texts made from the table. Their length does not depend on data, so any test shows that
 * they fit, and abort() is enough. */
static void sql_append(struct buffer *sql, const char *text)
{
	if (buffer_append_text(sql, text) < 0)
		abort();
}

static void sql_make_insert(const struct table *table, struct buffer *sql)
{
	sql_append(sql, "INSERT INTO ");
	sql_append(sql, table->name);
	for (size_t i = 0; i < table->count; i++) {
		sql_append(sql, i ? ", " : " (");
		sql_append(sql, table->columns[i].name);
	}
	sql_append(sql, ") VALUES (?1");
	for (size_t i = 1; i < table->count; i++)
		if (buffer_printf(sql, ", ?%zu", i + 1) < 0)
			abort();
	sql_append(sql, ")");
}

static void sql_make_update(const struct table *table, struct buffer *sql)
{
	const char *between = " SET ";
	sql_append(sql, "UPDATE ");
	sql_append(sql, table->name);
	for (size_t i = 0; i < table->count; i++) {
		if (table->columns[i].fixed)
			continue;
		if (buffer_printf(sql, "%s%s = ?%zu", between, table->columns[i].name, i + 1) < 0)
			abort();
		between = ", ";
	}
	sql_append(sql, " WHERE id = ?1");
}

static void sql_make_select(const struct table *table, const char *where, struct buffer *sql)
{
	for (size_t i = 0; i < table->count; i++) {
		sql_append(sql, i ? ", " : "SELECT ");
		sql_append(sql, table->columns[i].name);
	}
	sql_append(sql, " FROM ");
	sql_append(sql, table->name);
	sql_append(sql, " ");
	sql_append(sql, where);
}

int rows_write(struct store *store, enum statement which, const struct table *table,
	       enum row_write write, const void *row, struct error *error)
{
	DONE_BUFFER struct buffer sql = BUFFER(SQL_MAX);
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (!store->statements[which])
		write == ROW_INSERT ? sql_make_insert(table, &sql) : sql_make_update(table, &sql);
	if (store_statement(store, which, buffer_text(&sql), &statement, error) < 0)
		return -1;
	int code = row_bind(statement, table, row);
	if (code == SQLITE_OK)
		code = store_write(which, statement);
	if (code == SQLITE_DONE)
		return sqlite3_changes(store->database);
	if (code == SQLITE_CONSTRAINT_UNIQUE && table->refused)
		return table->refused(row, error);
	return store_fail(store->database, code,
			  write == ROW_INSERT ? "writing a row" : "changing a row", error);
}

int rows_select(struct store *store, enum statement which, const struct table *table,
		const char *where, sqlite3_stmt **ret_statement, struct error *error)
{
	DONE_BUFFER struct buffer sql = BUFFER(SQL_MAX);
	if (!store->statements[which])
		sql_make_select(table, where, &sql);
	return store_statement(store, which, buffer_text(&sql), ret_statement, error);
}

int rows_step_one(struct store *store, sqlite3_stmt *statement, const struct table *table,
		  void *row, struct error *error)
{
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading a row", error);
	return row_read(statement, table, row, error) < 0 ? -1 : 1;
}

int rows_step_each(struct store *store, sqlite3_stmt *statement, const struct table *table,
		   void *row, bool (*each)(void *data, const void *row), void *data,
		   struct error *error)
{
	for (;;) {
		int found = rows_step_one(store, statement, table, row, error);
		if (found <= 0)
			return found;
		bool more = each(data, row);
		rows_free_texts(table, row);
		if (!more)
			return 0;
	}
}
