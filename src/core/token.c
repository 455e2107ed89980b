/* Access tokens: made, checked, described. A token is 256 random bits; the store has its SHA-256
 * alone, which needs no salt and no slowness since nothing shorter than the token can be guessed.
 *
 * Called by api and the command line's routes. Blocks for one store call. */
#include "core/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"

#define TOKEN_PREFIX "csn_"
#define TOKEN_RANDOM 32
#define TOKEN_LENGTH (sizeof(TOKEN_PREFIX) - 1 + 43)
#define TOKEN_EXPIRES_MAX (100ULL * 366 * 86400)
#define LABEL_MAX 63

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static const struct {
	const char *name;
	uint32_t bit;
} scope_names[] = {
    {"sandboxes:read", SCOPE_READ},
    {"sandboxes:write", SCOPE_WRITE},
    {"admin", SCOPE_ADMIN},
};

/* 32 bytes to 43 characters, no padding. */
static void encode(const uint8_t random[TOKEN_RANDOM], char *text)
{
	uint32_t bits = 0, held = 0;
	for (size_t i = 0; i < TOKEN_RANDOM; i++) {
		bits = bits << 8 | random[i];
		for (held += 8; held >= 6; held -= 6)
			*text++ = alphabet[bits >> (held - 6) & 63];
	}
	if (held > 0)
		*text++ = alphabet[bits << (6 - held) & 63];
	*text = '\0';
}

static bool token_form_valid(const char *text)
{
	return strnlen(text, TOKEN_LENGTH + 1) == TOKEN_LENGTH && text_starts(text, TOKEN_PREFIX) &&
	       strspn(text + sizeof(TOKEN_PREFIX) - 1, alphabet) == 43;
}

static int hash_token(const char *text, uint8_t hash[32], struct error *error)
{
	unsigned size = 32;
	if (EVP_Digest(text, strlen(text), hash, &size, EVP_sha256(), NULL) != 1 || size != 32)
		return error_set(error, ERROR_INTERNAL, "SHA-256 is not to be had");
	return 0;
}

static bool label_valid(const char *label)
{
	size_t length = strnlen(label, LABEL_MAX + 1);
	if (length == 0 || length > LABEL_MAX || !text_is_utf8(label, length))
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)label[i] < 0x20 || label[i] == 0x7f)
			return false;
	return true;
}

static int check_spec(const struct token_spec *spec, struct error *error)
{
	const uint32_t all = SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN;
	if (!spec->workspace || !workspace_valid(spec->workspace))
		return error_set(
		    error, ERROR_INVALID,
		    "a workspace is 1 to %d of a-z, 0-9, '-', '_' and '.', the first a "
		    "letter or digit",
		    WORKSPACE_MAX);
	if (spec->scopes == 0 || (spec->scopes & ~all))
		return error_set(error, ERROR_INVALID,
				 "a token needs scopes: sandboxes:read, sandboxes:write, admin");
	if (spec->expires_seconds > TOKEN_EXPIRES_MAX)
		return error_set(error, ERROR_INVALID, "a token expires within 100 years or never");
	if (spec->label && !label_valid(spec->label))
		return error_set(error, ERROR_INVALID,
				 "a label is 1 to %d bytes of UTF-8 without control characters",
				 LABEL_MAX);
	if (spec->sandbox && !id_valid(spec->sandbox))
		return error_set(error, ERROR_ID_MALFORMED,
				 "a token is bound to a sandbox by its id, not by its name");
	return 0;
}

int token_create(struct core *core, const struct token_spec *spec, char text[TOKEN_TEXT_SIZE],
		 struct token_row *ret_row, struct error *error)
{
	uint8_t random[TOKEN_RANDOM];
	if (check_spec(spec, error) < 0)
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
	encode(random, text + sizeof(TOKEN_PREFIX) - 1);
	OPENSSL_cleanse(random, sizeof(random));
	row.workspace = text_duplicate(spec->workspace);
	row.label = spec->label ? text_duplicate(spec->label) : NULL;
	if (hash_token(text, row.hash, error) < 0 ||
	    store_token_insert(core->store, &row, error) < 0) {
		OPENSSL_cleanse(text, TOKEN_TEXT_SIZE);
		token_row_done(&row);
		return -1;
	}
	*ret_row = row;
	return 0;
}

static bool token_live(const struct token_row *row, const uint8_t hash[32])
{
	return CRYPTO_memcmp(row->hash, hash, 32) == 0 && row->revoked_wall == 0 &&
	       (row->expires_wall == 0 || clock_wall() < row->expires_wall);
}

int token_check(struct core *core, const char *text, struct principal *ret_principal,
		struct error *error)
{
	struct token_row row = {0};
	struct principal principal = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	uint8_t hash[32];
	if (!token_form_valid(text))
		return error_set(error, ERROR_UNAUTHENTICATED, "the token is not valid");
	if (hash_token(text, hash, error) < 0)
		return -1;
	int found = store_token_by_hash(core->store, hash, &row, error);
	if (found < 0)
		return -1;
	bool live = found && token_live(&row, hash) &&
		    text_copy(principal.workspace, sizeof(principal.workspace), row.workspace) == 0;
	principal.scopes = row.scopes;
	principal.token = row.id;
	principal.sandbox = row.sandbox;
	token_row_done(&row);
	if (!live)
		return error_set(error, ERROR_UNAUTHENTICATED, "the token is not valid");
	*ret_principal = principal;
	return 0;
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

bool workspace_valid(const char *text)
{
	size_t length = strnlen(text, WORKSPACE_MAX + 1);
	return length > 0 && length <= WORKSPACE_MAX &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == length &&
	       strchr("-_.", text[0]) == NULL;
}
