/* The regular expressions of grep: what matches and where, against tables and, for random patterns,
 * against the C library's. */
#include "base/pattern/pattern.h"

#include <errno.h>
#include <regex.h>
#include <time.h>

#include "test.h"

/* Where the first match begins, -1 for none, -2 when the pattern is refused. */
static int find_with(const char *pattern, const char *text, bool ignore_case)
{
	struct pattern *regex FREE_PATTERN = NULL;
	const char *reason = NULL;
	size_t at = 0;
	if (pattern_compile_regex(pattern, strlen(pattern), ignore_case, &regex, &reason) < 0)
		return reason && reason[0] ? -2 : -3;
	const struct pattern_text searched = {
	    .text = text, .end = strlen(text), .begins = true, .ends = true};
	return pattern_find(regex, &searched, &at) ? (int)at : -1;
}

static int find(const char *pattern, const char *text)
{
	return find_with(pattern, text, false);
}

TEST(table)
{
	static const struct {
		const char *pattern, *text;
		int at;
	} rows[] = {
	    {"abc", "xxabc", 2},
	    /* Nothing, repeated: as the first of a pattern it has no steps. */
	    {"(){2}", "x", 0},
	    {"(){1,3}x", "ax", 1},
	    {"()+x", "ax", 1},
	    {"(){2,}", "", 0},
	    {"((){2}){3}", "x", 0},
	    {"a.c",
	     "a\xc3\xa9"
	     "c",
	     0},
	    {"a.c",
	     "a\xff"
	     "c",
	     0},
	    {"a.c", "a\nc", -1},
	    {"^b", "a\nb", 2},
	    {"a$", "xa\nb", 1},
	    {"^$", "a\n\nb", 2},
	    {"x*", "aaa", 0},
	    {"a|b|cd", "xxcd", 2},
	    {"(a|b)c", "abc", 1},
	    {"(?:ab)+c", "ababc", 0},
	    {"a{2}", "baa", 1},
	    {"a{2,}b", "abaaab", 2},
	    {"a{1,2}b", "aaab", 1},
	    {"a{0}b", "ab", 1},
	    {"(){2}", "ab", 0},
	    {"()+b", "ab", 1},
	    {"(|){2,3}b", "ab", 1},
	    {"a{,2}b", "aaab", 1},
	    {"a{x", "a{x", 0},
	    {"a+?b", "aab", 0},
	    {"[a-c]+x", "zabcx", 1},
	    {"[^a-c]", "abcd", 3},
	    {"[]]", "a]", 1},
	    {"[^]]", "]a", 1},
	    {"[a-]", "-", 0},
	    {"[[:digit:]]+", "ab12", 2},
	    {"[[:alpha:]_]+", "12_a", 2},
	    {"\\d+", "ab12", 2},
	    {"\\w+", "- ab", 2},
	    {"\\s", "ab c", 2},
	    {"\\S", "  c", 2},
	    {"[\\d.]+", "ab1.2", 2},
	    {"[^\\d]", "12a", 2},
	    {"[\\D]", "12a", 2},
	    {"\\bcat\\b", "concat cat", 7},
	    {"\\Bcat", "cat concat", 7},
	    {"\\<c", "ac c", 3},
	    {"c\\>", "cc", 1},
	    {"a\\.b", "axb a.b", 4},
	    {"\\x41", "xA", 1},
	    {"\\t", "a\tb", 1},
	    {"[\xc3\xa0-\xc3\xbf]", "x\xc3\xa9", 1},
	    {"\xc3\xa9+", "e\xc3\xa9\xc3\xa9", 1},
	    {"(a*)*b", "aaab", 0},
	    {"(a|b)*abb", "ababb", 0},
	    {"(^a|b$)", "cb", 1},
	    {"()", "x", 0},
	    {"a||b", "x", 0},
	    {"abcd|bc", "abcx", 1},
	    {"bc|abcd", "abcd", 0},
	    {"def.*\\(", "  def f(x):", 2},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int at = find(rows[i].pattern, rows[i].text);
		if (at != rows[i].at)
			test_fail(__FILE__, __LINE__, "%s in \"%s\": %d, not %d", rows[i].pattern,
				  rows[i].text, at, rows[i].at);
	}
	CHECK_INT(find_with("HeLLo", "say hEllO", true), 4);
	CHECK_INT(find_with("[a-c]X", "Bx", true), 0);
	CHECK_INT(find_with("[^a]", "A", true), -1);
}

TEST(refused)
{
	const char *patterns[] = {"(a",
				  "[a",
				  "*a",
				  "a|*b",
				  "a\\",
				  "[b-a]",
				  "\\1(a)",
				  "a{2,1}",
				  "\\q",
				  "(?=a)",
				  "[[:no:]]",
				  "a{2000}",
				  "((a{1000}){1000})"};
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (find(patterns[i], "") != -2)
			test_fail(__FILE__, __LINE__, "%s is taken", patterns[i]);
	char deep[1000];
	memset(deep, '(', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	CHECK_INT(find(deep, ""), -2);
}

static uint32_t seed = 12345;

static uint32_t next_random(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

/* A pattern of the syntax that both understand alike. */
static size_t make_pattern(char *to, size_t room, int depth)
{
	static const char *atoms[] = {"a", "b", "c", ".", "[ab]", "[^a]", "[b-c]"};
	static const char *repeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}"};
	size_t used = 0;
	uint32_t parts = 1 + next_random(3);
	for (uint32_t i = 0; i < parts && used + 64 < room; i++) {
		if (depth > 0 && next_random(3) == 0) {
			to[used++] = '(';
			used += make_pattern(to + used, room - used - 32, depth - 1);
			to[used++] = '|';
			used += make_pattern(to + used, room - used - 16, depth - 1);
			to[used++] = ')';
		} else {
			used +=
			    (size_t)snprintf(to + used, room - used, "%s", atoms[next_random(7)]);
		}
		if (next_random(3) == 0)
			used +=
			    (size_t)snprintf(to + used, room - used, "%s", repeats[next_random(7)]);
	}
	to[used] = '\0';
	return used;
}

/* glibc's: musl's is wrong about some of these. */
TEST(agrees_with_the_library)
{
	for (int round = 0; round < 4000; round++) {
		char pattern[512] = "", text[24];
		size_t used = next_random(5) == 0 ? (size_t)snprintf(pattern, 2, "^") : 0;
		used += make_pattern(pattern + used, sizeof(pattern) - used - 2, 2);
		if (next_random(5) == 0)
			memcpy(pattern + used, "$", 2);
		regex_t library;
		if (regcomp(&library, pattern, REG_EXTENDED | REG_NEWLINE) != 0) {
			test_fail(__FILE__, __LINE__, "the library refuses %s", pattern);
			continue;
		}
		for (int i = 0; i < 12; i++) {
			size_t size = next_random(sizeof(text) - 1);
			for (size_t at = 0; at < size; at++)
				text[at] = "abcd\n"[next_random(5)];
			text[size] = '\0';
			regmatch_t match;
			int expected = regexec(&library, text, 1, &match, 0) ? -1 : match.rm_so;
			int at = find(pattern, text);
			if (at != expected)
				test_fail(__FILE__, __LINE__, "%s in \"%s\": %d, not %d", pattern,
					  text, at, expected);
		}
		regfree(&library);
	}
}

static bool stop(void *context)
{
	return ++*(int *)context > 2;
}

TEST(slow_ones_can_be_cancelled)
{
	const char *pattern = "(.*.*.*.*a){100}b";
	size_t size = 1 << 20, at;
	char *text = malloc(size);
	memset(text, 'a', size);
	struct pattern *regex FREE_PATTERN = NULL;
	const char *reason;
	int asked = 0;
	CHECK_INT(pattern_compile_regex(pattern, strlen(pattern), false, &regex, &reason), 0);
	const struct pattern_text searched = {.text = text,
					      .end = size,
					      .begins = true,
					      .ends = true,
					      .cancelled = stop,
					      .context = &asked};
	clock_t before = clock();
	CHECK_INT(pattern_find(regex, &searched, &at), -ECANCELED);
	CHECK_INT(asked, 3);
	CHECK((clock() - before) / CLOCKS_PER_SEC < 5);
	free(text);
}

TEST_MAIN
