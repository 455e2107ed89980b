/* Rows of tokens. Called by core; blocks for local disk only. */
#include "store/rows.h"

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

static const struct table tokens = TABLE("tokens", token_columns, struct token_row);

void token_row_done(struct token_row *row)
{
	rows_free_texts(&tokens, row);
}

/* A typed callback for the untyped one of rows_step_each(). */
struct token_each {
	bool (*each)(void *data, const struct token_row *row);
	void *data;
};

static bool token_each_call(void *data, const void *row)
{
	struct token_each *call = data;
	return call->each(call->data, row);
}

int store_token_insert(struct store *store, const struct token_row *row, struct error *error)
{
	store->token_changes++;
	return rows_write(store, STATEMENT_TOKEN_INSERT, &tokens, ROW_INSERT, row, error) < 0 ? -1
											      : 0;
}

int store_token_by_hash(struct store *store, const uint8_t hash[32], struct token_row *ret_row,
			struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (rows_select(store, STATEMENT_TOKEN_BY_HASH, &tokens, "WHERE hash = ?1", &statement,
			error) < 0)
		return -1;
	sqlite3_bind_blob(statement, 1, hash, 32, SQLITE_STATIC);
	return rows_step_one(store, statement, &tokens, ret_row, error);
}

uint64_t store_token_changes(const struct store *store)
{
	return store->token_changes;
}

int store_token_revoke(struct store *store, const struct id *id, int64_t wall, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	store->token_changes++;
	/* The time of the first revocation is kept. */
	if (store_statement(store, STATEMENT_TOKEN_REVOKE,
			    "UPDATE tokens SET revoked_wall = iif(revoked_wall, revoked_wall, ?2)"
			    " WHERE id = ?1",
			    &statement, error) < 0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, wall);
	int changed =
	    store_change(store, STATEMENT_TOKEN_REVOKE, statement, "revoking a token", error);
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
	return store_change(store, STATEMENT_TOKEN_REVOKE_LABEL, statement, "revoking tokens",
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
	int revoked = store_change(store, STATEMENT_TOKEN_REVOKE_SANDBOX, statement,
				   "revoking tokens", error);
	store->token_changes += revoked != 0;
	return revoked;
}

int store_token_by_id(struct store *store, const struct id *id, struct token_row *ret_row,
		      struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	if (rows_select(store, STATEMENT_TOKEN_BY_ID, &tokens, "WHERE id = ?1", &statement, error) <
	    0)
		return -1;
	sqlite3_bind_text(statement, 1, id->text, -1, SQLITE_STATIC);
	return rows_step_one(store, statement, &tokens, ret_row, error);
}

int store_token_each(struct store *store, bool (*each)(void *data, const struct token_row *row),
		     void *data, struct error *error)
{
	END_STATEMENT sqlite3_stmt *statement = NULL;
	struct token_row row;
	struct token_each call = {.each = each, .data = data};
	if (rows_select(store, STATEMENT_TOKEN_EACH, &tokens,
			"ORDER BY created_wall DESC, rowid DESC", &statement, error) < 0)
		return -1;
	return rows_step_each(store, statement, &tokens, &row, token_each_call, &call, error);
}
