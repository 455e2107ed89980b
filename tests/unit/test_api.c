/* The API's parts that need no HTTP: the table of routes, what it asks of a token, the names of
 * mount modes. */
#include "edge/call.h"

#include <stdlib.h>

#include "api/api.h"
#include "fake_host.h"
#include "mcp/mcp.h"
#include "proto/folder_grant.h"
#include "test.h"

TEST_MAIN

static void handler(struct call *call)
{
	(void)call;
}

static void expect_bad(const struct route *routes, const char *word)
{
	struct error error = {0};
	const struct route *const tables[] = {routes, NULL};
	CHECK_INT(routes_check(tables, &error), -1);
	if (!strstr(error.message, word))
		test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.message, word);
}

TEST(routes)
{
	struct error error;
	const struct surface *const surfaces[] = {&rest_surface, &mcp_surface, NULL};
	const struct route *tables[ROUTE_TABLES_MAX + 1];
	route_tables(surfaces, tables);
	CHECK_INT(routes_check(tables, &error), 0);
	const struct route three[] = {
	    {"GET", "/fine/{a}/{b}", SCOPE_READ, 0, handler},
	    {"GET", "/v1/{a}/{b}/{c}", SCOPE_READ, 0, handler},
	    {0},
	};
	expect_bad(three, "more parameters");
	const char *const malformed[] = {"v1",    "",    "/{a",    "/{a}b",
					 "/x{a}", "/a}", "/{{a}}", "/{a/b}"};
	for (size_t i = 0; i < ARRAY_SIZE(malformed); i++) {
		const struct route routes[] = {{"GET", malformed[i], SCOPE_READ, 0, handler}, {0}};
		expect_bad(routes, "malformed");
	}
	const struct route twice[] = {
	    {"GET", "/a", SCOPE_READ, 0, handler},
	    {"GET", "/a", SCOPE_READ, 0, handler},
	    {0},
	};
	expect_bad(twice, "twice");
	const struct route nameless[] = {
	    {"GET", "/{exec}/{sandbox}", SCOPE_READ, ROUTE_SANDBOX, handler}, {0}};
	expect_bad(nameless, "sandbox");
	const struct route idle[] = {{"GET", "/a", SCOPE_READ, 0, NULL}, {0}};
	expect_bad(idle, "handler");
	/* They meet in one path, whose Allow would name them all. */
	const struct route many[] = {
	    {"METHOD-OF-TWENTY-ONE", "/a/{x}", SCOPE_READ, 0, handler},
	    {"METHOD-OF-TWENTY-TWO", "/{x}/b", SCOPE_READ, 0, handler},
	    {"METHOD-OF-TWENTY-TEN", "/a/b", SCOPE_READ, 0, handler},
	    {0},
	};
	expect_bad(many, "Allow");
}

TEST(token_rules)
{
	struct principal reader = {.scopes = SCOPE_READ}, admin = {.scopes = SCOPE_ADMIN};
	struct error error;
	CHECK_INT(token_admit(&reader, SCOPE_READ, true, &error), 0);
	CHECK_INT(token_admit(&reader, SCOPE_WRITE, false, &error), -1);
	CHECK(strstr(error.message, "sandboxes:write") != NULL);
	CHECK_INT(token_admit(&admin, SCOPE_ADMIN, false, &error), 0);
	CHECK_INT(id_parse("abcdefghijklmnop", &reader.sandbox), 0);
	admin.sandbox = reader.sandbox;
	CHECK_INT(token_admit(&reader, SCOPE_READ, false, &error), 0);
	CHECK_INT(token_admit(&reader, SCOPE_READ, true, &error), -1);
	CHECK_INT(error.kind, ERROR_FORBIDDEN);
	CHECK_TEXT(error.message, "this token is for one sandbox only");
	/* What is of the whole host is not for it, whatever the table says. */
	CHECK_INT(token_admit(&admin, SCOPE_ADMIN, false, &error), -1);
	CHECK_TEXT(error.message, "this token is for one sandbox only");
}

TEST(mount_modes)
{
	enum mount_mode mode = MOUNT_READ_ONLY;
	for (uint32_t i = 0; i <= MOUNT_COPY_ON_WRITE; i++) {
		CHECK_INT(mount_mode_parse(mount_mode_name(i), &mode), 0);
		CHECK_INT(mode, i);
	}
	CHECK_TEXT(mount_mode_name(MOUNT_COPY_ON_WRITE), "cow");
	CHECK(mount_mode_name(MOUNT_COPY_ON_WRITE + 1) == NULL);
	CHECK(mount_mode_parse("r", &mode) < 0);
	CHECK(mount_mode_parse("", &mode) < 0);
}
