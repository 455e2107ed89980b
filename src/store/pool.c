/* The rows of `pool`. See pool.h. Called by core/pool/pool.c; blocks for local disk only. */
#include "store/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/sqlite.h"

#define COLUMNS                                                                                    \
	"id, ready, stamp, tier, network, template, memory, disk, inodes, cpu_millis, pids,"       \
	" files, limit_reasons, rootfs_digest, cpu_ns"

void pool_row_done(struct pool_row *row)
{
	free(row->template);
	*row = (struct pool_row){0};
}

int store_pool_put(struct store *store, const struct pool_row *row, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_POOL_PUT,
			    "INSERT OR REPLACE INTO pool (" COLUMNS
			    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,"
			    " ?14, ?15)",
			    &statement, error) < 0)
		return -1;
	const struct limits *limits = &row->limits;
	sqlite3_bind_text(statement, 1, row->id.text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, row->ready);
	sqlite3_bind_int64(statement, 3, (int64_t)row->stamp);
	sqlite3_bind_int64(statement, 4, row->tier);
	sqlite3_bind_int64(statement, 5, row->network);
	sqlite3_bind_text(statement, 6, row->template ? row->template : "", -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 7, (int64_t)limits->memory);
	sqlite3_bind_int64(statement, 8, (int64_t)limits->disk);
	sqlite3_bind_int64(statement, 9, (int64_t)limits->inodes);
	sqlite3_bind_int64(statement, 10, limits->cpu_millis);
	sqlite3_bind_int64(statement, 11, limits->pids);
	sqlite3_bind_int64(statement, 12, limits->files);
	sqlite3_bind_blob(statement, 13, row->limit_reasons, sizeof(row->limit_reasons),
			  SQLITE_STATIC);
	sqlite3_bind_text(statement, 14, row->rootfs_digest, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 15, (int64_t)row->cpu_ns);
	return store_change(store, STATEMENT_POOL_PUT, statement, "writing a row of the pool",
			    error) < 0
		   ? -1
		   : 0;
}

int store_pool_delete(struct store *store, const struct id *id, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_POOL_DELETE, "DELETE FROM pool WHERE id = ?1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	return store_change(store, STATEMENT_POOL_DELETE, statement, "removing a row of the pool",
			    error);
}

int store_pool_has(struct store *store, const struct id *id, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_POOL_HAS, "SELECT 1 FROM pool WHERE id = ?1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	int code = sqlite3_step(statement);
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		return store_fail(store->database, code, "reading the pool", error);
	return code == SQLITE_ROW;
}

static void row_read(sqlite3_stmt *statement, struct pool_row *row)
{
	const char *template = (const char *)sqlite3_column_text(statement, 5);
	const char *digest = (const char *)sqlite3_column_text(statement, 13);
	const void *reasons = sqlite3_column_blob(statement, 12);
	row->stamp = (uint64_t)sqlite3_column_int64(statement, 2);
	row->tier = (uint32_t)sqlite3_column_int64(statement, 3);
	row->network = (uint32_t)sqlite3_column_int64(statement, 4);
	row->template = text_duplicate(template ? template : "");
	row->limits = (struct limits){
	    .memory = (uint64_t)sqlite3_column_int64(statement, 6),
	    .disk = (uint64_t)sqlite3_column_int64(statement, 7),
	    .inodes = (uint64_t)sqlite3_column_int64(statement, 8),
	    .cpu_millis = (uint32_t)sqlite3_column_int64(statement, 9),
	    .pids = (uint32_t)sqlite3_column_int64(statement, 10),
	    .files = (uint32_t)sqlite3_column_int64(statement, 11),
	};
	row->cpu_ns = (uint64_t)sqlite3_column_int64(statement, 14);
	row->ready = sqlite3_column_int64(statement, 1) == 1 && digest &&
		     text_copy(row->rootfs_digest, sizeof(row->rootfs_digest), digest) == 0 &&
		     sqlite3_column_bytes(statement, 12) == sizeof(row->limit_reasons);
	if (row->ready)
		memcpy(row->limit_reasons, reasons, sizeof(row->limit_reasons));
}

int store_pool_each(struct store *store, void (*each)(void *data, const struct pool_row *row),
		    void *data, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_POOL_EACH, "SELECT " COLUMNS " FROM pool", &statement,
			    error) < 0)
		return -1;
	for (;;) {
		int code = sqlite3_step(statement);
		if (code == SQLITE_DONE)
			return 0;
		if (code != SQLITE_ROW)
			return store_fail(store->database, code, "reading the pool", error);
		struct pool_row row = {0};
		const char *id = (const char *)sqlite3_column_text(statement, 0);
		if (!id || id_parse(id, &row.id) < 0)
			continue;
		row_read(statement, &row);
		each(data, &row);
		pool_row_done(&row);
	}
}
