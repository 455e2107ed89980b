/* Copies the database, and examines one from elsewhere. See copy.h. */
#include "store/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "store/sqlite.h"

#define BUSY_MS 5000
#define PATH_ROOM 512

static void database_close(sqlite3 **database)
{
	sqlite3_close(*database);
	*database = NULL;
}
#define CLOSE_DATABASE CLEANUP(database_close)

static int database_open(const char *path, int flags, sqlite3 **ret_database, struct error *error)
{
	CLOSE_DATABASE sqlite3 *database = NULL;
	int code = sqlite3_open_v2(
	    path, &database,
	    flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW, NULL);
	if (code != SQLITE_OK) {
		store_fail(database, code, "opening it", error);
		return error_prepend(error, "%s", path);
	}
	sqlite3_busy_timeout(database, BUSY_MS);
	sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	code = sqlite3_exec(database, "PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON",
			    NULL, NULL, NULL);
	if (code != SQLITE_OK)
		return store_fail(database, code, "setting it up", error);
	*ret_database = TAKE_PTR(database);
	return 0;
}

static int statement_prepare(sqlite3 *database, const char *sql, sqlite3_stmt **ret_statement,
			     struct error *error)
{
	int code = sqlite3_prepare_v2(database, sql, -1, ret_statement, NULL);
	return code == SQLITE_OK ? 0 : store_fail(database, code, "reading it", error);
}

int store_copy(const char *directory, const char *to, struct error *error)
{
	char from[PATH_ROOM];
	CLOSE_DATABASE sqlite3 *database = NULL;
	sqlite3_stmt *statement = NULL;
	if (text_format(from, sizeof(from), "%s/" STORE_FILE, directory) < 0)
		return error_set(error, ERROR_STORE, "%s: the path is too long", directory);
	if (access(to, F_OK) == 0)
		return error_set_errno(error, ERROR_STORE, EEXIST, "%s", to);
	if (database_open(from, SQLITE_OPEN_READONLY, &database, error) < 0 ||
	    statement_prepare(database, "VACUUM INTO ?", &statement, error) < 0)
		return -1;
	int code = sqlite3_bind_text(statement, 1, to, -1, SQLITE_STATIC);
	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	int result = code == SQLITE_DONE ? 0 : store_fail(database, code, "copying it", error);
	sqlite3_finalize(statement);
	if (result < 0)
		unlink(to);
	return result;
}

static int database_read_text(sqlite3 *database, const char *sql, char *text, size_t room,
			      struct error *error)
{
	sqlite3_stmt *statement = NULL;
	if (statement_prepare(database, sql, &statement, error) < 0)
		return -1;
	int code = sqlite3_step(statement), result = 0;
	if (code == SQLITE_ROW)
		snprintf(text, room, "%s", (const char *)sqlite3_column_text(statement, 0));
	else
		result = store_fail(database, code, "reading it", error);
	sqlite3_finalize(statement);
	return result;
}

static int database_read_number(sqlite3 *database, const char *sql, uint64_t maximum,
				uint64_t *ret_number, struct error *error)
{
	char text[32];
	if (database_read_text(database, sql, text, sizeof(text), error) < 0)
		return -1;
	if (text_to_u64(text, 0, maximum, ret_number) < 0)
		return error_set(error, ERROR_STORE_CORRUPT, "database: %s is \"%s\"", sql, text);
	return 0;
}

int store_copy_examine(const char *path, int *ret_version, struct error *error)
{
	CLOSE_DATABASE sqlite3 *database = NULL;
	uint64_t application, version;
	char check[256];
	if (database_open(path, SQLITE_OPEN_READONLY, &database, error) < 0 ||
	    database_read_number(database, "PRAGMA application_id", UINT32_MAX, &application,
				 error) < 0 ||
	    database_read_number(database, "PRAGMA user_version", INT32_MAX, &version, error) < 0)
		return -1;
	if (application != STORE_APPLICATION_ID || version < 1)
		return error_set(error, ERROR_STORE_CORRUPT, "it is not a caisson database");
	if (version > (uint64_t)store_version)
		return error_set(error, ERROR_STORE_NEWER,
				 "its schema has version %llu, this caisson knows up to %d",
				 (unsigned long long)version, store_version);
	if (database_read_text(database, "PRAGMA integrity_check(1)", check, sizeof(check), error) <
	    0)
		return -1;
	if (strcmp(check, "ok") != 0)
		return error_set(error, ERROR_STORE_CORRUPT, "database: %s", check);
	*ret_version = (int)version;
	return 0;
}

int store_copy_defer_deadlines(const char *path, int64_t nanoseconds, struct error *error)
{
	CLOSE_DATABASE sqlite3 *database = NULL;
	sqlite3_stmt *statement = NULL;
	if (database_open(path, SQLITE_OPEN_READWRITE, &database, error) < 0 ||
	    statement_prepare(database,
			      "UPDATE sandboxes SET deadline_wall = deadline_wall + ?1"
			      " WHERE state != " SQL_ENDED " AND deadline_wall != 0",
			      &statement, error) < 0)
		return -1;
	int code = sqlite3_bind_int64(statement, 1, nanoseconds);
	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	int result = code == SQLITE_DONE ? 0 : store_fail(database, code, "changing it", error);
	sqlite3_finalize(statement);
	return result;
}

int store_copy_each(const char *path,
		    bool (*each)(void *data, const struct id *id, const char *workspace,
				 bool stopped),
		    void *data, struct error *error)
{
	CLOSE_DATABASE sqlite3 *database = NULL;
	sqlite3_stmt *statement = NULL;
	if (database_open(path, SQLITE_OPEN_READONLY, &database, error) < 0 ||
	    statement_prepare(database,
			      "SELECT id, state = " SQL_STOPPED ", workspace FROM sandboxes"
			      " WHERE state != " SQL_ENDED " ORDER BY id",
			      &statement, error) < 0)
		return -1;
	int code;
	bool more = true;
	while (more && (code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct id id;
		const char *text = (const char *)sqlite3_column_text(statement, 0);
		const char *workspace = (const char *)sqlite3_column_text(statement, 2);
		if (!text || !workspace || id_parse(text, &id) < 0) {
			code = SQLITE_CORRUPT;
			break;
		}
		more = each(data, &id, workspace, sqlite3_column_int(statement, 1) != 0);
	}
	int result =
	    !more || code == SQLITE_DONE ? 0 : store_fail(database, code, "reading it", error);
	sqlite3_finalize(statement);
	return result;
}
