/* Access tokens: made, checked, described. A token is 256 random bits. The store has only its
 * SHA-256, without salt and without a slow hash, since guessing the token itself is impossible.
 *
 * Called by api and the command line's routes. Blocks for at most one store call: a valid token is
 * cached until the next write of any token, and only this process writes tokens. */
#include "core/account/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "core/core_private.h"
#include "proto/codec.h"

#define TOKEN_PREFIX "csn_"
#define TOKEN_RANDOM 32
#define TOKEN_LENGTH (sizeof(TOKEN_PREFIX) - 1 + 43)

static const struct {
	const char *name;
	uint32_t bit;
} scope_names[] = {
    {"sandboxes:read", SCOPE_READ},
    {"sandboxes:write", SCOPE_WRITE},
    {"admin", SCOPE_ADMIN},
};

static bool token_form_valid(const char *text)
{
	if (strnlen(text, TOKEN_LENGTH + 1) != TOKEN_LENGTH || !text_starts(text, TOKEN_PREFIX))
		return false;
	for (const char *at = text + sizeof(TOKEN_PREFIX) - 1; *at; at++)
		if (!((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
		      (*at >= '0' && *at <= '9') || *at == '-' || *at == '_'))
			return false;
	return true;
}

static int token_hash(const char *text, uint8_t hash[32], struct error *error)
{
	static EVP_MD_CTX *context;
	static const EVP_MD *sha256;
	unsigned size = 0;
	if (!context)
		context = EVP_MD_CTX_new();
	/* Fetched once, since a fetch costs more than the hash. */
	if (!sha256)
		sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!context || !sha256 || EVP_DigestInit_ex(context, sha256, NULL) != 1 ||
	    EVP_DigestUpdate(context, text, strlen(text)) != 1 ||
	    EVP_DigestFinal_ex(context, hash, &size) != 1 || size != 32)
		return error_set(error, ERROR_INTERNAL, "SHA-256 is unavailable");
	return 0;
}

static bool label_valid(const char *label)
{
	size_t length = strnlen(label, TOKEN_LABEL_MAX + 1);
	if (length == 0 || length > TOKEN_LABEL_MAX || !text_is_utf8(label, length))
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)label[i] < 0x20 || label[i] == 0x7f)
			return false;
	return true;
}

static int token_check_spec(const struct token_spec *spec, struct error *error)
{
	const uint32_t all = SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN;
	if (workspace_check(spec->workspace ? spec->workspace : "", error) < 0)
		return -1;
	if (spec->scopes == 0 || (spec->scopes & ~all))
		return error_set(error, ERROR_INVALID,
				 "a token needs scopes: sandboxes:read, sandboxes:write, admin");
	if (spec->expires_seconds > TOKEN_EXPIRES_MAX)
		return error_set(error, ERROR_INVALID, "a token expires within 100 years or never");
	if (spec->label && !label_valid(spec->label))
		return error_set(error, ERROR_INVALID,
				 "a label is 1 to %d bytes of UTF-8 without control characters",
				 TOKEN_LABEL_MAX);
	if (spec->sandbox && !id_valid(spec->sandbox))
		return error_set(error, ERROR_ID_MALFORMED,
				 "a token is bound to a sandbox by its id, not by its name");
	return 0;
}

int token_create(struct core *core, const struct token_spec *spec, char text[TOKEN_TEXT_SIZE],
		 struct token_row *ret_row, struct error *error)
{
	uint8_t random[TOKEN_RANDOM];
	if (token_check_spec(spec, error) < 0)
		return -1;
	struct token_row row = {
	    .id = id_new(),
	    .scopes = spec->scopes,
	    .created_wall = clock_wall(),
	};
	if (spec->expires_seconds)
		row.expires_wall = row.created_wall + (int64_t)spec->expires_seconds * NSEC_PER_SEC;
	if (spec->sandbox && id_parse(spec->sandbox, &row.sandbox) < 0)
		return error_set(error, ERROR_ID_MALFORMED, "malformed sandbox id");
	random_bytes(random, sizeof(random));
	memcpy(text, TOKEN_PREFIX, sizeof(TOKEN_PREFIX) - 1);
	base64url_encode_32(random, text + sizeof(TOKEN_PREFIX) - 1);
	OPENSSL_cleanse(random, sizeof(random));
	row.workspace = text_duplicate(spec->workspace);
	row.label = spec->label ? text_duplicate(spec->label) : NULL;
	if (token_hash(text, row.hash, error) < 0 ||
	    store_token_insert(core->store, &row, error) < 0) {
		OPENSSL_cleanse(text, TOKEN_TEXT_SIZE);
		token_row_done(&row);
		return -1;
	}
	*ret_row = row;
	return 0;
}

int token_each(struct core *core, bool (*each)(void *data, const struct token_row *row), void *data,
	       struct error *error)
{
	return store_token_each(core->store, each, data, error);
}

static bool token_live(const struct token_row *row, const uint8_t hash[32])
{
	return CRYPTO_memcmp(row->hash, hash, 32) == 0 && row->revoked_wall == 0 &&
	       (row->expires_wall == 0 || clock_wall() < row->expires_wall);
}

/* Where a token is cached. NULL: nowhere (a core that was never started). */
static struct token_seen *seen_place(struct core *core, const uint8_t hash[32])
{
	return core->private ? &core->private->tokens_seen[hash[0] % TOKENS_SEEN_MAX] : NULL;
}

static bool seen_live(const struct core *core, const struct token_seen *seen,
		      const uint8_t hash[32])
{
	return seen && seen->set && seen->changes == store_token_changes(core->store) &&
	       CRYPTO_memcmp(seen->hash, hash, 32) == 0 &&
	       (seen->expires_wall == 0 || clock_wall() < seen->expires_wall);
}

int token_check(struct core *core, const char *text, struct principal *ret_principal,
		struct error *error)
{
	struct token_row row = {0};
	struct principal principal = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	uint8_t hash[32];
	if (!token_form_valid(text))
		return error_set(error, ERROR_UNAUTHENTICATED, "the token is not valid");
	if (token_hash(text, hash, error) < 0)
		return -1;
	struct token_seen *seen = seen_place(core, hash);
	if (seen_live(core, seen, hash)) {
		*ret_principal = seen->principal;
		return 0;
	}
	uint64_t changes = store_token_changes(core->store);
	int found = store_token_by_hash(core->store, hash, &row, error);
	if (found < 0)
		return -1;
	bool live = found && token_live(&row, hash) &&
		    text_copy(principal.workspace, sizeof(principal.workspace), row.workspace) == 0;
	principal.scopes = row.scopes;
	principal.token = row.id;
	principal.sandbox = row.sandbox;
	principal.expires_wall = row.expires_wall;
	int64_t expires_wall = row.expires_wall;
	token_row_done(&row);
	if (!live)
		return error_set(error, ERROR_UNAUTHENTICATED, "the token is not valid");
	if (seen) {
		*seen = (struct token_seen){.changes = changes,
					    .expires_wall = expires_wall,
					    .set = true,
					    .principal = principal};
		memcpy(seen->hash, hash, sizeof(seen->hash));
	}
	*ret_principal = principal;
	return 0;
}

/* --- what is open with them --- */

static bool token_still_good(struct core *core, const struct id *id)
{
	struct token_row row = {0};
	struct error error;
	if (!id_is_set(id))
		return true; /* a URL that a local peer made */
	int found = store_token_by_id(core->store, id, &row, &error);
	/* If the store does not answer, no token counts as revoked. */
	if (found < 0) {
		log_warning("token %s: %s", id->text, error.message);
		return true;
	}
	bool good = found && row.revoked_wall == 0 &&
		    (row.expires_wall == 0 || clock_wall() < row.expires_wall);
	token_row_done(&row);
	return good;
}

/* Watchers of one token are usually adjacent: each token is looked up once. */
static void token_watchers_tell(void *data)
{
	struct core *core = data;
	struct id looked = {0};
	bool good = true;
	struct list due;
	core->private->tokens_telling = false;
	if (core->private->stopping)
		return;
	list_init(&due);
	list_each (&core->private->token_watchers, node) {
		struct token_watcher *watcher = list_entry(node, struct token_watcher, link);
		if (!id_equal(&watcher->token, &looked)) {
			looked = watcher->token;
			good = token_still_good(core, &looked);
		}
		bool expired = watcher->expires_wall != 0 && watcher->expires_wall <= clock_wall();
		if (good && !expired)
			continue;
		list_remove(node);
		list_append(&due, node);
	}
	while (!list_empty(&due)) {
		struct token_watcher *watcher = list_entry(due.next, struct token_watcher, link);
		list_remove(&watcher->link);
		watcher->ended(watcher);
	}
}

static void token_watchers_tell_later(struct core *core)
{
	if (core->private->tokens_telling || list_empty(&core->private->token_watchers))
		return;
	core->private->tokens_telling = true;
	core_later(core, token_watchers_tell, core);
}

int token_revoke(struct core *core, const struct id *id, struct error *error)
{
	if (store_token_revoke(core->store, id, clock_wall(), error) < 0)
		return -1;
	token_watchers_tell_later(core);
	return 0;
}

void tokens_end_with(struct core *core, const struct id *sandbox)
{
	struct error error;
	int revoked = store_token_revoke_sandbox(core->store, sandbox, clock_wall(), &error);
	if (revoked < 0)
		log_warning("the tokens of sandbox %s: %s", sandbox->text, error.message);
	else if (revoked > 0)
		token_watchers_tell_later(core);
}

void token_watch(struct core *core, struct token_watcher *watcher)
{
	/* A core that was never started has no watchers (a test of the tokens alone). */
	if (!core->private)
		return;
	list_append(&core->private->token_watchers, &watcher->link);
	if (watcher->expires_wall != 0)
		timers_wake_at(core, clock_boot() + MAX(watcher->expires_wall - clock_wall(), 0));
}

void token_unwatch(struct token_watcher *watcher)
{
	list_remove(&watcher->link);
}

int64_t tokens_tend(struct core *core, int64_t now)
{
	int64_t wall = clock_wall(), next = INT64_MAX;
	list_each (&core->private->token_watchers, node) {
		int64_t expires = list_entry(node, struct token_watcher, link)->expires_wall;
		if (expires != 0 && expires <= wall)
			token_watchers_tell_later(core);
		else if (expires != 0)
			next = MIN(next, now + (expires - wall));
	}
	return next;
}

int scopes_parse(const char *text, uint32_t *ret_scopes, struct error *error)
{
	uint32_t scopes = 0;
	for (const char *word = text;; word++) {
		size_t length = strcspn(word, ",");
		uint32_t bit = 0;
		for (size_t i = 0; i < ARRAY_SIZE(scope_names); i++)
			if (strlen(scope_names[i].name) == length &&
			    memcmp(scope_names[i].name, word, length) == 0)
				bit = scope_names[i].bit;
		if (!bit)
			return error_set(error, ERROR_INVALID,
					 "unknown scope \"%.*s\": there are sandboxes:read, "
					 "sandboxes:write and admin",
					 (int)MIN(length, (size_t)64), word);
		scopes |= bit;
		word += length;
		if (!*word)
			break;
	}
	*ret_scopes = scopes;
	return 0;
}

void scopes_text(uint32_t scopes, char *text, size_t room)
{
	size_t used = 0;
	if (room > 0)
		text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(scope_names); i++) {
		if (!(scopes & scope_names[i].bit))
			continue;
		if (text_format(text + used, room - used, "%s%s", used ? "," : "",
				scope_names[i].name) < 0)
			return;
		used += strlen(text + used);
	}
}

bool principal_same(const struct principal *a, const struct principal *b)
{
	return strcmp(a->workspace, b->workspace) == 0 && id_equal(&a->token, &b->token) &&
	       a->local == b->local && (!a->local || a->uid == b->uid);
}

void principal_write(struct writer *writer, const struct principal *principal)
{
	write_text(writer, principal->workspace);
	write_text(writer, principal->token.text);
	write_u8(writer, principal->local);
	write_u64(writer, principal->local ? principal->uid : 0);
}

bool workspace_valid(const char *text)
{
	size_t length = strnlen(text, WORKSPACE_MAX + 1);
	return length > 0 && length <= WORKSPACE_MAX &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == length &&
	       strchr("-_.", text[0]) == NULL;
}

int workspace_check(const char *text, struct error *error)
{
	if (workspace_valid(text))
		return 0;
	return error_set(error, ERROR_INVALID,
			 "invalid workspace name `%.80s`; use 1 to %d characters of a-z, 0-9, '-', "
			 "'_' and '.', the first a letter or digit",
			 text, WORKSPACE_MAX);
}
