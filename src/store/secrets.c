/* Keys of this installation. Each is written once and never replaced, because its signatures
 * must stay valid. Called by core at the first use of a key; reads or writes one row. */
#include "store/secrets.h"

#include <string.h>

#include "base/random.h"
#include "store/sqlite.h"

/* 1 found, 0 not. */
static int secret_read(struct store *store, const char *name, size_t size, uint8_t *ret_value,
		       struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_SECRET_GET,
			    "SELECT value FROM secrets WHERE name = ?1", &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		return 0;
	if (code != SQLITE_ROW)
		return store_fail(store->database, code, "reading a secret", error);
	const void *value = sqlite3_column_blob(statement, 0);
	if (!value || (size_t)sqlite3_column_bytes(statement, 0) != size)
		return error_set(error, ERROR_STORE_CORRUPT, "the secret `%s` is not %zu bytes",
				 name, size);
	memcpy(ret_value, value, size);
	return 1;
}

static int secret_insert(struct store *store, const char *name, size_t size, const uint8_t *value,
			 struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (store_statement(store, STATEMENT_SECRET_INSERT,
			    "INSERT INTO secrets (name, value) VALUES (?1, ?2)", &statement,
			    error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	sqlite3_bind_blob(statement, 2, value, (int)size, SQLITE_STATIC);
	return store_change(store, STATEMENT_SECRET_INSERT, statement, "writing a secret", error) <
		       0
		   ? -1
		   : 0;
}

int store_secret_get_or_make(struct store *store, const char *name, size_t size,
			     int (*make)(void *data, uint8_t *value, size_t size,
					 struct error *error),
			     void *data, uint8_t *ret_value, struct error *error)
{
	uint8_t value[SECRET_SIZE_MAX];
	if (size == 0 || size > sizeof(value))
		return error_set(error, ERROR_INTERNAL, "a secret of %zu bytes", size);
	int found = secret_read(store, name, size, value, error);
	if (found == 0 && (make(data, value, size, error) < 0 ||
			   secret_insert(store, name, size, value, error) < 0))
		found = -1;
	if (found >= 0)
		memcpy(ret_value, value, size);
	explicit_bzero(value, sizeof(value));
	return found < 0 ? -1 : 0;
}

static int secret_make_random(void *data, uint8_t *value, size_t size, struct error *error)
{
	(void)data;
	(void)error;
	random_bytes(value, size);
	return 0;
}

int store_secret_get(struct store *store, const char *name, size_t size, uint8_t *ret_value,
		     struct error *error)
{
	return store_secret_get_or_make(store, name, size, secret_make_random, NULL, ret_value,
					error);
}
