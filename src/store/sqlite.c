/* The SQLite connection: opening an untrusted file, migrating, caching statements, errors.
 *
 * Called by core at its start and by the files with rows. Blocks for local disk only. There are two
 * other connections, and a writer waits for neither: that of checkpoints (checkpoint.h), and that
 * of a person who inspects the file, hence the short busy time.
 *
 * A database is checked through a read-only connection before anything is written: one that is
 * damaged, foreign or newer stays unchanged. A new one is built under another name and renamed when
 * it is complete, so that caisson.db is never incomplete. */
#include "store/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "store/checkpoint.h"
#include "store/fault.h"

#define BUSY_MS 100
#define STORE_PATH_MAX 512

static void database_close(sqlite3 **database)
{
	sqlite3_close(*database);
	*database = NULL;
}
#define CLOSE_DATABASE CLEANUP(database_close)

int store_fail(sqlite3 *database, int code, const char *what, struct error *error)
{
	int errnum = database ? sqlite3_system_errno(database) : 0;
	const char *text = database ? sqlite3_errmsg(database) : sqlite3_errstr(code);
	code &= 0xff;
	if (code == SQLITE_FULL || (code == SQLITE_IOERR && (errnum == ENOSPC || errnum == EDQUOT)))
		return error_set(error, ERROR_NO_SPACE,
				 "database: %s: no space left for the state directory", what);
	if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
		return error_set(error, ERROR_STORE_CORRUPT, "database: %s: %s", what, text);
	if (code == SQLITE_IOERR || code == SQLITE_CANTOPEN || code == SQLITE_PERM)
		return error_set_errno(error, ERROR_STORE, errnum, "database: %s: %s", what, text);
	return error_set(error, ERROR_STORE, "database: %s: %s", what, text);
}

int store_statement(struct store *store, enum statement which, const char *sql,
		    sqlite3_stmt **ret_statement, struct error *error)
{
	sqlite3_stmt **cached = &store->statements[which];
	if (!*cached) {
		int code = sqlite3_prepare_v3(store->database, sql, -1, SQLITE_PREPARE_PERSISTENT,
					      cached, NULL);
		if (code != SQLITE_OK)
			return store_fail(store->database, code, "preparing a statement", error);
	}
	*ret_statement = *cached;
	return 0;
}

/* A row refused because of its contents (a taken name) is not a failure of the store. */
static void write_note(int code, int64_t began)
{
	bool well = code == SQLITE_DONE || code == SQLITE_ROW || code == SQLITE_OK ||
		    (code & 0xff) == SQLITE_CONSTRAINT;
	int64_t now = clock_monotonic();
	histogram_add(&statistics.store_writes, now - began);
	statistics.store_failures += !well;
	if (well)
		statistics.store_failing = 0;
	else if (statistics.store_failing == 0)
		statistics.store_failing = now;
}

static int database_read_number(sqlite3 *database, const char *sql, int64_t *ret_number,
				struct error *error);

int store_write(enum statement which UNUSED, sqlite3_stmt *statement)
{
	FAULT_WRITE(which, BEFORE);
	int64_t began = clock_monotonic();
	int code = sqlite3_step(statement);
	FAULT_WRITE(which, AFTER);
	write_note(code, began);
	return code;
}

int store_change(struct store *store, enum statement which, sqlite3_stmt *statement,
		 const char *what, struct error *error)
{
	int code = store_write(which, statement);
	if (code != SQLITE_DONE)
		return store_fail(store->database, code, what, error);
	return sqlite3_changes(store->database);
}

int store_test_write(struct store *store, struct error *error)
{
	int64_t version, began = clock_monotonic();
	char sql[64];
	if (store->depth > 0)
		return 0;
	if (database_read_number(store->database, "PRAGMA user_version", &version, error) < 0)
		return -1;
	/* Writing the same number again writes a page but changes nothing. */
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %lld", (long long)version);
	int code = sqlite3_exec(store->database, sql, NULL, NULL, NULL);
	write_note(code, began);
	return code == SQLITE_OK ? 0 : store_fail(store->database, code, "writing", error);
}

static int statement_run(struct store *store, enum statement which, const char *sql,
			 struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, which, sql, &statement, error) < 0)
		return -1;
	return store_change(store, which, statement, sql, error) < 0 ? -1 : 0;
}

int store_transaction_begin(struct store *store, struct error *error)
{
	if (store->depth == 0) {
		if (statement_run(store, STATEMENT_BEGIN, "BEGIN IMMEDIATE", error) < 0)
			return -1;
		store->broken = false;
	}
	store->depth++;
	return 0;
}

bool store_in_transaction(const struct store *store)
{
	return store->depth > 0;
}

int store_transaction_end(struct store *store, int result, struct error *error)
{
	struct error ignored;
	store->broken |= result < 0;
	if (store->depth == 0 || --store->depth > 0)
		return result;
	/* On a full disk SQLite rolls back by itself. */
	bool undone = sqlite3_get_autocommit(store->database) != 0;
	if (!store->broken && !undone &&
	    statement_run(store, STATEMENT_COMMIT, "COMMIT", error) == 0)
		return result;
	if (result >= 0 && (store->broken || undone))
		error_set(error, ERROR_STORE, "database: the transaction was rolled back");
	if (sqlite3_get_autocommit(store->database) == 0 &&
	    statement_run(store, STATEMENT_ROLLBACK, "ROLLBACK", &ignored) < 0)
		log_error("%s", ignored.message);
	return -1;
}

void store_statement_end(sqlite3_stmt **statement)
{
	if (!*statement)
		return;
	sqlite3_reset(*statement);
	sqlite3_clear_bindings(*statement);
	*statement = NULL;
}

static int database_execute(sqlite3 *database, const char *sql, const char *what,
			    struct error *error)
{
	int code = sqlite3_exec(database, sql, NULL, NULL, NULL);
	return code == SQLITE_OK ? 0 : store_fail(database, code, what, error);
}

static int database_read_number(sqlite3 *database, const char *sql, int64_t *ret_number,
				struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(database, sql, -1, &statement, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		*ret_number = sqlite3_column_int64(statement, 0);
	int result = code == SQLITE_ROW ? 0 : store_fail(database, code, "reading it", error);
	sqlite3_finalize(statement);
	return result;
}

int store_connect(const char *path, int flags, sqlite3 **ret_database, struct error *error)
{
	CLOSE_DATABASE sqlite3 *database = NULL;
	int code = sqlite3_open_v2(path, &database,
				   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL);
	if (code != SQLITE_OK) {
		store_fail(database, code, "opening it", error);
		return error_prepend(error, "%s", path);
	}
	sqlite3_extended_result_codes(database, 1);
	sqlite3_busy_timeout(database, BUSY_MS);
	/* The file is untrusted until it is checked: its schema may call no function with side
	 * effects. */
	sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	/* The daemon may write only to its own directories, so it cannot keep temporary files in
	 * /tmp. */
	if (database_execute(database, "PRAGMA temp_store = MEMORY", "setting it up", error) < 0)
		return error_prepend(error, "%s", path);
	*ret_database = TAKE_PTR(database);
	return 0;
}

/* Migrates a database to store_version. Each migration is committed together with its number. */
static int database_migrate(sqlite3 *database, struct error *error)
{
	int64_t version;
	if (database_read_number(database, "PRAGMA user_version", &version, error) < 0)
		return -1;
	for (; version < store_version; version++) {
		char number[64];
		snprintf(number, sizeof(number), "PRAGMA user_version = %d; COMMIT",
			 (int)version + 1);
		FAULT_WRITE(WRITE_MIGRATION, BEFORE);
		if (database_execute(database, "BEGIN IMMEDIATE", "migrating it", error) < 0)
			return -1;
		if (database_execute(database, store_migrations[version], "migrating it", error) <
			0 ||
		    database_execute(database, number, "migrating it", error) < 0) {
			sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL);
			return error_prepend(error, "migration %d", (int)version + 1);
		}
		FAULT_WRITE(WRITE_MIGRATION, AFTER);
	}
	return 0;
}

static int database_check_integrity(sqlite3 *database, struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(database, "PRAGMA quick_check(1)", -1, &statement, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_step(statement);
	int result = 0;
	const char *text = NULL;
	if (code == SQLITE_ROW)
		text = (const char *)sqlite3_column_text(statement, 0);
	if (code != SQLITE_ROW)
		result = store_fail(database, code, "checking it", error);
	else if (!text || strcmp(text, "ok") != 0)
		result = error_set(error, ERROR_STORE_CORRUPT, "database: %s", text ? text : "?");
	sqlite3_finalize(statement);
	return result;
}

/* Checks that it is a complete database of ours and not newer than this program. Changes
 * nothing. */
static int database_check(const char *path, struct error *error)
{
	CLOSE_DATABASE sqlite3 *database = NULL;
	int64_t application, version;
	if (store_connect(path, SQLITE_OPEN_READONLY, &database, error) < 0)
		return -1;
	/* These come first, because both numbers are in the header even if the schema is newer. */
	if (database_read_number(database, "PRAGMA application_id", &application, error) < 0 ||
	    database_read_number(database, "PRAGMA user_version", &version, error) < 0)
		return error_prepend(error, "%s", path);
	if (application != STORE_APPLICATION_ID)
		return error_set(error, ERROR_STORE_CORRUPT,
				 "%s is not a caisson database (application id %08llx)", path,
				 (unsigned long long)application);
	if (version > store_version)
		return error_set(error, ERROR_STORE_NEWER,
				 "%s has schema version %lld, this caisson knows up to %d", path,
				 (long long)version, store_version);
	if (version < 1)
		return error_set(error, ERROR_STORE_CORRUPT, "%s has no schema", path);
	if (database_check_integrity(database, error) < 0)
		return error_prepend(error, "%s", path);
	return 0;
}

static void database_remove(const char *path)
{
	static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
	char name[STORE_PATH_MAX + 16];
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (text_format(name, sizeof(name), "%s%s", path, suffixes[i]) == 0)
			unlink(name);
}

static int database_build(const char *path, struct error *error)
{
	/* Created here to set its mode; SQLite gives its log files the same. */
	CLOSE_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "making %s", path);
	CLOSE_DATABASE sqlite3 *database = NULL;
	char number[64];
	snprintf(number, sizeof(number), "PRAGMA application_id = %d", STORE_APPLICATION_ID);
	if (store_connect(path, SQLITE_OPEN_READWRITE, &database, error) < 0 ||
	    database_execute(database, number, "making it", error) < 0 ||
	    database_migrate(database, error) < 0 ||
	    database_execute(database, "PRAGMA journal_mode = WAL", "making it", error) < 0)
		return -1;
	return 0;
}

static int database_create(const char *directory, const char *path, struct error *error)
{
	char made[STORE_PATH_MAX], log[STORE_PATH_MAX];
	if (text_format(made, sizeof(made), "%s.new", path) < 0 ||
	    text_format(log, sizeof(log), "%s-wal", path) < 0)
		return error_set(error, ERROR_STORE, "%s: the path is too long", directory);
	/* A log without its database would be replayed into the new one. */
	if (access(log, F_OK) == 0)
		return error_set(error, ERROR_STORE_CORRUPT,
				 "%s is missing but %s exists: the database is incomplete", path,
				 log);
	database_remove(made);
	FAULT_WRITE(WRITE_BUILD, BEFORE);
	if (database_build(made, error) < 0) {
		database_remove(made);
		return -1;
	}
	FAULT_WRITE(WRITE_BUILD, AFTER);
	CLOSE_FD int parent = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	FAULT_WRITE(WRITE_INSTALL, BEFORE);
	if (parent < 0 || rename(made, path) < 0 || fsync(parent) < 0) {
		int saved = errno;
		database_remove(made);
		return error_set_errno(error, error_kind_of_errno(saved), saved, "making %s", path);
	}
	FAULT_WRITE(WRITE_INSTALL, AFTER);
	return 0;
}

/* A read-only connection may leave SQLite's log files beside a database that had none. A refused
 * database must stay unchanged. */
static void database_remove_new_logs(const char *path, bool had_log)
{
	char log[STORE_PATH_MAX], index[STORE_PATH_MAX];
	struct stat info;
	if (!had_log && text_format(log, sizeof(log), "%s-wal", path) == 0 &&
	    text_format(index, sizeof(index), "%s-shm", path) == 0 && lstat(log, &info) == 0 &&
	    info.st_size == 0) {
		unlink(log);
		unlink(index);
	}
}

/* Only the daemon's user may read them, because they contain the hashes of tokens. */
static int directory_prepare(const char *directory, struct error *error)
{
	struct stat info;
	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "database directory %s", directory);
	if (stat(directory, &info) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "database directory %s", directory);
	if (!S_ISDIR(info.st_mode))
		return error_set(error, ERROR_STORE, "%s is not a directory", directory);
	if ((info.st_mode & 0077) && chmod(directory, 0700) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "database directory %s", directory);
	return 0;
}

static int store_open_database(const char *directory, struct store *store, struct error *error)
{
	char path[STORE_PATH_MAX], log[STORE_PATH_MAX];
	struct stat info;
	if (text_format(path, sizeof(path), "%s/" STORE_FILE, directory) < 0)
		return error_set(error, ERROR_STORE, "%s: the path is too long", directory);
	if (directory_prepare(directory, error) < 0)
		return -1;
	if (lstat(path, &info) < 0) {
		if (errno != ENOENT)
			return error_set_errno(error, ERROR_STORE, errno, "%s", path);
		if (database_create(directory, path, error) < 0 || lstat(path, &info) < 0)
			return -1;
	}
	if (!S_ISREG(info.st_mode) || info.st_size == 0)
		return error_set(error, ERROR_STORE_CORRUPT, "%s is %s", path,
				 S_ISREG(info.st_mode) ? "empty" : "not a regular file");
	bool had_log = text_format(log, sizeof(log), "%s-wal", path) < 0 || access(log, F_OK) == 0;
	if (database_check(path, error) < 0) {
		database_remove_new_logs(path, had_log);
		return -1;
	}
	if (store_connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, &store->database,
			  error) < 0)
		return -1;
	/* NORMAL in WAL mode: committed data survives the daemon's death. A power failure may
	 * lose the last transactions, but never damages the database. */
	if (database_execute(store->database,
			     "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
			     "PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;"
			     "PRAGMA journal_size_limit = 8388608",
			     "setting it up", error) < 0 ||
	    database_migrate(store->database, error) < 0)
		return -1;
	FAULT_WATCH_ROWS(store->database);
	return 0;
}

int store_open(const char *directory, struct store **ret_store, struct error *error)
{
	struct store *store = calloc(1, sizeof(*store));
	if (!store)
		return error_set(error, ERROR_NO_MEMORY, "no memory for the store");
	if (store_open_database(directory, store, error) < 0) {
		store_close(store);
		return -1;
	}
	*ret_store = store;
	return 0;
}

int store_checkpoint_in_thread(struct store *store, uv_loop_t *loop, struct error *error)
{
	return checkpointer_new(store->database, sqlite3_db_filename(store->database, "main"), loop,
				&store->checkpointer, error);
}

void store_close(struct store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < STATEMENT_COUNT; i++)
		sqlite3_finalize(store->statements[i]);
	checkpointer_free(store->checkpointer);
	sqlite3_close(store->database);
	free(store);
}
