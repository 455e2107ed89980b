/* The unit tests' harness: each TEST is a function that registers itself; a failed CHECK says where
 * and goes on. Prints one line "ok NAME", "not ok NAME" or "skip NAME: WHY" per test; exits with 1
 * when any failed. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

extern struct test *test_first, **test_last;
extern int test_failures;
extern const char *test_skipped;
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define TEST(test_name)                                                                            \
	static void test_##test_name(void);                                                        \
	__attribute__((constructor)) static void register_##test_name(void)                        \
	{                                                                                          \
		static struct test test = {.name = #test_name, .run = test_##test_name};           \
		*test_last = &test;                                                                \
		test_last = &test.next;                                                            \
	}                                                                                          \
	static void test_##test_name(void)

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			test_fail(__FILE__, __LINE__, "%s", #condition);                           \
	} while (0)

#define CHECK_INT(actual, expected)                                                                \
	do {                                                                                       \
		long long _actual = (long long)(actual), _expected = (long long)(expected);        \
		if (_actual != _expected)                                                          \
			test_fail(__FILE__, __LINE__, "%s is %lld, not %lld", #actual, _actual,    \
				  _expected);                                                      \
	} while (0)

#define CHECK_TEXT(actual, expected)                                                               \
	do {                                                                                       \
		const char *_actual = (actual), *_expected = (expected);                           \
		if (!_actual || strcmp(_actual, _expected) != 0)                                   \
			test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #actual,         \
				  _actual ? _actual : "(null)", _expected);                        \
	} while (0)

/* Ends the test; tests/expected-skips has to account for it. */
#define SKIP(why)                                                                                  \
	do {                                                                                       \
		test_skipped = (why);                                                              \
		return;                                                                            \
	} while (0)

/* Programs of another architecture, under qemu's user mode. */
#define SKIP_WITHOUT_FILTERS                                                                       \
	do {                                                                                       \
		if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0)                                         \
			SKIP("this kernel takes no system call filters");                          \
	} while (0)

#define TEST_MAIN                                                                                  \
	struct test *test_first, **test_last = &test_first;                                        \
	int test_failures;                                                                         \
	const char *test_skipped;                                                                  \
	void test_fail(const char *file, int line, const char *format, ...)                        \
	{                                                                                          \
		va_list args;                                                                      \
		va_start(args, format);                                                            \
		printf("# %s:%d: ", file, line);                                                   \
		vprintf(format, args);                                                             \
		printf("\n");                                                                      \
		va_end(args);                                                                      \
		test_failures++;                                                                   \
	}                                                                                          \
	int main(void)                                                                             \
	{                                                                                          \
		int failed = 0;                                                                    \
		for (struct test *test = test_first; test; test = test->next) {                    \
			int before = test_failures;                                                \
			test_skipped = NULL;                                                       \
			test->run();                                                               \
			bool ok = test_failures == before;                                         \
			if (ok && test_skipped)                                                    \
				printf("skip %s: %s\n", test->name, test_skipped);                 \
			else                                                                       \
				printf("%s %s\n", ok ? "ok" : "not ok", test->name);               \
			fflush(stdout);                                                            \
			failed += !ok;                                                             \
		}                                                                                  \
		return failed ? 1 : 0;                                                             \
	}
