/* The glob matcher: what matches, and that no pattern makes it slow. */
#include "base/pattern/pattern.h"

#include <errno.h>
#include <time.h>

#include "test.h"

static bool match_with(const char *text, const char *pattern, bool hidden)
{
	struct pattern *compiled FREE_PATTERN = NULL;
	if (pattern_compile_glob(pattern, strlen(pattern), hidden, &compiled) < 0)
		return false;
	return pattern_matches(compiled, text, strlen(text));
}

static bool match(const char *text, const char *pattern)
{
	return match_with(text, pattern, false);
}

TEST(wildcards)
{
	CHECK(match("a.c", "*.c"));
	CHECK(match("a.c", "a.c"));
	CHECK(!match("a.cc", "*.c"));
	CHECK(!match("d/a.c", "*.c"));
	CHECK(match("d/a.c", "*/*.c"));
	CHECK(match("abc", "a?c"));
	CHECK(!match("a/c", "a?c"));
	CHECK(match("a\xc3\xa9"
		    "c",
		    "a?c"));
	CHECK(match("a\xff"
		    "c",
		    "a?c"));
	CHECK(match("abc", "a**c"));
	CHECK(match("a*c", "a\\*c"));
	CHECK(!match("abc", "a\\*c"));
	CHECK(match("abc", "***"));
}

TEST(sets)
{
	CHECK(match("b", "[abc]"));
	CHECK(match("m", "[a-z]"));
	CHECK(!match("M", "[a-z]"));
	CHECK(match("M", "[!a-z]"));
	CHECK(match("M", "[^a-z]"));
	CHECK(!match("/", "[!a]"));
	CHECK(match("]", "[]]"));
	CHECK(match("-", "[a-]"));
	CHECK(match("7", "[[:digit:]]"));
	CHECK(!match("x", "[[:digit:]]"));
	CHECK(match("x", "[[:digit:]x]"));
	CHECK(match("[ab", "[ab"));
	CHECK(match("\xc3\xa9", "[\xc3\xa0-\xc3\xbf]"));
	CHECK(!match("a/b", "a[+-9]b"));
	CHECK(match("a\nb", "a[[:space:]]b"));
	/* Regular expressions refuse these. */
	CHECK(!match("b", "[c-a]"));
	CHECK(!match("b", "[[:no:]]"));
	CHECK(match("b", "[![:no:]]"));
}

TEST(braces)
{
	CHECK(match("a.c", "*.{c,h}"));
	CHECK(match("a.h", "*.{c,h}"));
	CHECK(!match("a.o", "*.{c,h}"));
	CHECK(match("ac", "{a,b}{c,d}"));
	CHECK(match("bd", "{a,b}{c,d}"));
	CHECK(!match("ab", "{a,b}{c,d}"));
	CHECK(match("x1", "x{,1}"));
	CHECK(match("x", "x{,1}"));
	CHECK(match("abd", "a{b{c,d},e}"));
	CHECK(match("ae", "a{b{c,d},e}"));
	CHECK(match("{a}", "{a}"));
	CHECK(match("{a,b", "{a,b"));
	CHECK(match("src/x.c", "{src,lib}/*.c"));
	CHECK(match("a/b", "{a/b,c}"));
	CHECK(match("a,b", "a,b"));
}

TEST(recursion)
{
	CHECK(match("a.c", "**/*.c"));
	CHECK(match("x/y/z/a.c", "**/*.c"));
	CHECK(match("x/y/z/a.c", "x/**/a.c"));
	CHECK(match("x/a.c", "x/**/a.c"));
	CHECK(!match("y/a.c", "x/**/a.c"));
	CHECK(match("a/b/c", "**"));
	CHECK(match("a", "**"));
	CHECK(match("a/b/c", "a/**"));
	CHECK(!match("a", "a/**"));
	CHECK(match("a/b", "{a,z}/**"));
	CHECK(match("x/y/t/q", "{**/t,u}/q"));
}

TEST(leading_dots)
{
	CHECK(!match(".x", "*"));
	CHECK(match(".x", ".*"));
	CHECK(!match(".c", "*.c"));
	CHECK(!match(".x", "?x"));
	CHECK(!match(".x", "[.]x"));
	CHECK(!match("a/.git/x", "**/x"));
	CHECK(match("a/.git/x", "**/.git/x"));
	CHECK(match(".x", "**/.x"));
	CHECK(match_with(".c", "*.c", true));
	CHECK(match_with("a/.git/x", "**/x", true));
}

TEST(refused)
{
	struct pattern *compiled FREE_PATTERN = NULL;
	char *large = malloc(GLOB_MAX + 1);
	memset(large, '*', GLOB_MAX + 1);
	CHECK_INT(pattern_compile_glob("", 0, false, &compiled), -EINVAL);
	CHECK_INT(pattern_compile_glob("a\0b", 3, false, &compiled), -EINVAL);
	CHECK_INT(pattern_compile_glob(large, GLOB_MAX + 1, false, &compiled), -E2BIG);
	/* No glob of that size is too large for its program. */
	for (size_t i = 1; i < GLOB_MAX; i++)
		large[i] = i % 2 ? '*' : ',';
	large[0] = '{';
	large[GLOB_MAX - 1] = '}';
	CHECK_INT(pattern_compile_glob(large, GLOB_MAX, false, &compiled), 0);
	free(large);
}

TEST(directories_only)
{
	struct pattern *compiled FREE_PATTERN = NULL;
	CHECK_INT(pattern_compile_glob("a*/", 3, false, &compiled), 0);
	CHECK(pattern_wants_directory(compiled));
	CHECK(pattern_matches(compiled, "ab", 2));
	CHECK_INT(glob_fixed_prefix("src/lib/*.c", 11), 8);
	CHECK_INT(glob_fixed_prefix("*.c", 3), 0);
	CHECK_INT(glob_fixed_prefix("src/lib", 7), 4);
}

/* Patterns that take a backtracking matcher for ever. */
TEST(no_blow_up)
{
	char text[4096];
	memset(text, 'a', sizeof(text));
	clock_t before = clock();
	char pattern[2048];
	for (size_t i = 0; i < sizeof(pattern); i += 2)
		memcpy(pattern + i, "*a", 2);
	pattern[sizeof(pattern) - 1] = 'b';
	struct pattern *compiled FREE_PATTERN = NULL;
	CHECK_INT(pattern_compile_glob(pattern, sizeof(pattern), false, &compiled), 0);
	CHECK(!pattern_matches(compiled, text, sizeof(text)));
	pattern_free(&compiled);
	for (size_t i = 0; i + 6 <= sizeof(pattern); i += 6)
		memcpy(pattern + i, "{a,aa}", 6);
	CHECK_INT(pattern_compile_glob(pattern, 2046, false, &compiled), 0);
	CHECK(!pattern_matches(compiled, text, 300));
	CHECK(pattern_matches(compiled, text, 400));
	pattern_free(&compiled);
	for (size_t i = 0; i + 3 <= sizeof(pattern); i += 3)
		memcpy(pattern + i, "**/", 3);
	CHECK_INT(pattern_compile_glob(pattern, 2046, false, &compiled), 0);
	for (size_t i = 1; i < sizeof(text); i += 2)
		text[i] = '/';
	CHECK(pattern_matches(compiled, text, sizeof(text) - 1));
	pattern_free(&compiled);
	/* Beginnings of sets and groups without an end. */
	for (size_t i = 0; i + 3 <= sizeof(text); i += 3)
		memcpy(text + i, "{[:", 3);
	CHECK_INT(pattern_compile_glob(text, 4095, false, &compiled), 0);
	CHECK(pattern_matches(compiled, text, 4095));
	CHECK((clock() - before) / CLOCKS_PER_SEC < 10);
}

TEST_MAIN
