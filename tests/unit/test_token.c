/* Tokens: made, checked, refused without a reason, scopes in words. */
#include "core/account/token.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "test.h"

TEST_MAIN

static char directory[64];

static struct store *open_store(void)
{
	struct store *store = NULL;
	struct error error = {0};
	snprintf(directory, sizeof(directory), "/tmp/caisson-test-token-%d", (int)getpid());
	if (store_open(directory, &store, &error) < 0)
		test_fail(__FILE__, __LINE__, "open: %s", error.message);
	return store;
}

static void close_store(struct store *store)
{
	char name[512];
	store_close(store);
	DIR *entries = opendir(directory);
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		snprintf(name, sizeof(name), "%s/%s", directory, entry->d_name);
		unlink(name);
	}
	if (entries)
		closedir(entries);
	rmdir(directory);
}

static void check_rejected(struct core *core, const char *text)
{
	struct principal principal;
	struct error error = {0};
	CHECK_INT(token_check(core, text, &principal, &error), -1);
	CHECK_INT(error.kind, ERROR_UNAUTHENTICATED);
	CHECK_TEXT(error.message, "the token is not valid");
}

TEST(life_of_a_token)
{
	struct core core = {.store = open_store()};
	struct token_spec spec = {.workspace = "team-a", .scopes = SCOPE_READ | SCOPE_WRITE};
	char text[TOKEN_TEXT_SIZE], second[TOKEN_TEXT_SIZE];
	struct token_row row, other;
	struct principal principal;
	struct error error = {0};
	CHECK_INT(token_create(&core, &spec, text, &row, &error), 0);
	CHECK_INT(token_create(&core, &spec, second, &other, &error), 0);
	CHECK_INT(strlen(text), 47);
	CHECK(strcmp(text, second) != 0);
	CHECK_INT(token_check(&core, text, &principal, &error), 0);
	CHECK_TEXT(principal.workspace, "team-a");
	CHECK_INT(principal.scopes, SCOPE_READ | SCOPE_WRITE);
	CHECK(id_equal(&principal.token, &row.id) && !id_is_set(&principal.sandbox));
	CHECK(!principal.local && principal.uid == (uid_t)-1);

	char changed[TOKEN_TEXT_SIZE];
	memcpy(changed, text, sizeof(changed));
	changed[20] = changed[20] == 'x' ? 'y' : 'x';
	check_rejected(&core, changed);
	check_rejected(&core, "");
	check_rejected(&core, "csn_");
	check_rejected(&core, text + 1);
	memcpy(changed, text, sizeof(changed));
	changed[47] = 'A';
	changed[48] = '\0';
	check_rejected(&core, changed);

	CHECK_INT(store_token_revoke(core.store, &row.id, clock_wall(), &error), 0);
	check_rejected(&core, text);
	CHECK_INT(token_check(&core, second, &principal, &error), 0);
	token_row_done(&row);
	token_row_done(&other);
	close_store(core.store);
}

TEST(expiry_and_binding)
{
	struct core core = {.store = open_store()};
	struct id sandbox = id_new();
	struct token_spec spec = {.workspace = "w",
				  .scopes = SCOPE_ADMIN,
				  .expires_seconds = 3600,
				  .label = "run",
				  .sandbox = sandbox.text};
	char text[TOKEN_TEXT_SIZE];
	struct token_row row;
	struct principal principal;
	struct error error = {0};
	CHECK_INT(token_create(&core, &spec, text, &row, &error), 0);
	CHECK_INT(token_check(&core, text, &principal, &error), 0);
	CHECK(id_equal(&principal.sandbox, &sandbox));
	*clock_advance += 3500 * NSEC_PER_SEC;
	CHECK_INT(token_check(&core, text, &principal, &error), 0);
	*clock_advance += 100 * NSEC_PER_SEC;
	check_rejected(&core, text);
	token_row_done(&row);
	close_store(core.store);
}

TEST(bad_specs)
{
	struct core core = {.store = open_store()};
	struct token_spec specs[] = {
	    {.workspace = "", .scopes = SCOPE_READ},
	    {.workspace = "Upper", .scopes = SCOPE_READ},
	    {.workspace = "../x", .scopes = SCOPE_READ},
	    {.workspace = "w"},
	    {.workspace = "w", .scopes = 64},
	    {.workspace = "w", .scopes = SCOPE_READ, .expires_seconds = UINT64_MAX},
	    {.workspace = "w", .scopes = SCOPE_READ, .label = "a\nb"},
	    {.workspace = "w", .scopes = SCOPE_READ, .sandbox = "my-name"},
	};
	char text[TOKEN_TEXT_SIZE];
	struct token_row row;
	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		struct error error = {0};
		CHECK_INT(token_create(&core, &specs[i], text, &row, &error), -1);
		CHECK(error.kind == ERROR_INVALID || error.kind == ERROR_ID_MALFORMED);
	}
	close_store(core.store);
}

TEST(scopes)
{
	uint32_t scopes = 0;
	struct error error = {0};
	char text[64], small[10];
	CHECK_INT(scopes_parse("admin,sandboxes:read", &scopes, &error), 0);
	CHECK_INT(scopes, SCOPE_ADMIN | SCOPE_READ);
	scopes_text(SCOPE_ADMIN | SCOPE_READ | SCOPE_WRITE, text, sizeof(text));
	CHECK_TEXT(text, "sandboxes:read,sandboxes:write,admin");
	scopes_text(SCOPE_READ, small, sizeof(small));
	const char *bad[] = {"", ",", "admin,", ",admin", "Admin", "admin sandboxes:read", "adm"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_INT(scopes_parse(bad[i], &scopes, &error), -1);
		CHECK_INT(error.kind, ERROR_INVALID);
	}
}
