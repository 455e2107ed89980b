/* URIs of resources against their templates: what a client sends is matched and decoded strictly.
 */
#include "mcp/resources/uri.h"

#include "test.h"

TEST_MAIN

#define FILE_TEMPLATE "sandbox://{sandbox}/files/{+path}"

static bool matches(const char *template, const char *uri)
{
	DONE_VARIABLES struct uri_variables variables = {0};
	return uri_match(template, uri, &variables);
}

TEST(plain_and_simple)
{
	DONE_VARIABLES struct uri_variables variables = {0};
	CHECK(matches("sandboxes://all", "sandboxes://all"));
	CHECK(!matches("sandboxes://all", "sandboxes://all/"));
	CHECK(!matches("sandboxes://all", "sandboxes://al"));
	CHECK(!matches("sandboxes://all", ""));
	CHECK(!matches("sandbox://{sandbox}", "sandbox://"));
	CHECK(!matches("sandbox://{sandbox}", "sandbox://a/b"));
	CHECK(uri_match("job://{sandbox}/{job}/{stream}", "job://demo/j1/std%6fut", &variables));
	CHECK_TEXT(variables.values[0], "demo");
	CHECK_TEXT(variables.values[1], "j1");
	CHECK_TEXT(variables.values[2], "stdout");
	CHECK(variables.values[3] == NULL);
	CHECK(!matches("job://{sandbox}/{job}/{stream}", "job://demo/j1"));
	CHECK(!matches("job://{sandbox}/{job}/{stream}", "job://demo/j1/stdout/x"));
}

static void path_is(const char *uri, const char *path)
{
	DONE_VARIABLES struct uri_variables variables = {0};
	CHECK(uri_match(FILE_TEMPLATE, uri, &variables));
	if (variables.values[1])
		CHECK_TEXT(variables.values[1], path);
}

TEST(paths)
{
	path_is("sandbox://a/files/etc/passwd", "etc/passwd");
	path_is("sandbox://a/files//etc/passwd", "/etc/passwd");
	path_is("sandbox://a/files/", "");
	path_is("sandbox://a/files/%2Fetc%2fpasswd", "/etc/passwd");
	path_is("sandbox://a/files/a%20b?c#d", "a b?c#d");
	path_is("sandbox://a/files/gr%C3%BC%c3%9Fe", "gr\xc3\xbc\xc3\x9f"
						     "e");
	path_is("sandbox://a/files/100%25", "100%");
}

TEST(hostile)
{
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%00y"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%0ay"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x\ny"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%7Fy"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%4"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%zz"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/x%+1"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/%ff"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/%c3"));
	CHECK(!matches(FILE_TEMPLATE, "sandbox://a/files/%ed%a0%80"));
	char *longest = malloc(RESOURCE_URI_MAX + 64);
	memset(longest, 'x', RESOURCE_URI_MAX + 63);
	longest[RESOURCE_URI_MAX + 63] = '\0';
	memcpy(longest, "sandbox://a/files/", 18);
	CHECK(!matches(FILE_TEMPLATE, longest));
	longest[RESOURCE_URI_MAX] = '\0';
	CHECK(matches(FILE_TEMPLATE, longest));
	free(longest);
}

TEST(names)
{
	CHECK(uri_has_variables(FILE_TEMPLATE));
	CHECK(!uri_has_variables("sandboxes://all"));
	CHECK(uri_names(FILE_TEMPLATE, "sandbox"));
	CHECK(uri_names(FILE_TEMPLATE, "path"));
	CHECK(!uri_names(FILE_TEMPLATE, "pat"));
	CHECK(!uri_names(FILE_TEMPLATE, "paths"));
	CHECK(!uri_names(FILE_TEMPLATE, "files"));
	CHECK(!uri_names(FILE_TEMPLATE, ""));
}
