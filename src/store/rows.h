/* Rows that a table of columns maps to structs: inserts, updates, reads and their SQL are made from
 * that table. Used by sandbox_rows.c, exec_rows.c and token_rows.c; private to src/store. */
#pragma once

#include <stddef.h>

#include "base/macros.h"
#include "store/sqlite.h"

enum column_type {
	COLUMN_ID, /* struct id */
	COLUMN_ID_OR_NULL,
	COLUMN_TEXT,   /* char *, may be NULL where the schema allows it */
	COLUMN_PACKED, /* char * and its uint32_t size */
	COLUMN_U32,
	COLUMN_U64,
	COLUMN_I64,
	COLUMN_BOOL,
	COLUMN_HASH,    /* uint8_t[32] */
	COLUMN_REASONS, /* uint32_t[LIMIT_COUNT], one byte each */
};

struct column {
	const char *name;
	enum column_type type;
	size_t offset, size_offset;
	bool fixed; /* never updated; these columns come first */
};

struct table {
	const char *name;
	const struct column *columns;
	size_t count, row_size;
	/* Fills the error when a unique index refuses a row; NULL: report an error of the store. */
	int (*refused)(const void *row, struct error *error);
};

#define TABLE(table_name, columns_of, row, ...)                                                    \
	{                                                                                          \
		.name = table_name, .columns = columns_of, .count = ARRAY_SIZE(columns_of),        \
		.row_size = sizeof(row), ##__VA_ARGS__                                             \
	}

/* Frees the strings of a row and clears it. */
void rows_free_texts(const struct table *table, void *row);

enum row_write { ROW_INSERT, ROW_UPDATE };
/* Returns the number of rows written. */
NODISCARD int rows_write(struct store *store, enum statement which, const struct table *table,
			 enum row_write write, const void *row, struct error *error);
/* Prepares a statement made from the table and `where`. */
NODISCARD int rows_select(struct store *store, enum statement which, const struct table *table,
			  const char *where, sqlite3_stmt **ret_statement, struct error *error);
/* Reads the single row of a bound statement: 1 found, 0 not. */
NODISCARD int rows_step_one(struct store *store, sqlite3_stmt *statement, const struct table *table,
			    void *row, struct error *error);
/* Reads every row of a bound statement into `row`, until `each` returns false. */
NODISCARD int rows_step_each(struct store *store, sqlite3_stmt *statement,
			     const struct table *table, void *row,
			     bool (*each)(void *data, const void *row), void *data,
			     struct error *error);
