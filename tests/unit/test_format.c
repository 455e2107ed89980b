/* The init's own formatting says what the C library's does, for all that it knows. */
#include <limits.h>
#include <stdarg.h>

#include "base/format.h"
#include "test.h"

__attribute__((format(printf, 3, 4))) static int ours(char *to, size_t room, const char *format,
						      ...)
{
	va_list args;
	va_start(args, format);
	int length = format_text(to, room, format, args);
	va_end(args);
	return length;
}

#define SAME(...)                                                                                  \
	do {                                                                                       \
		for (size_t room = 0; room < 80; room += room < 8 ? 1 : 71) {                      \
			char expected[80] = "unchanged", actual[80] = "unchanged";                 \
			int length = snprintf(expected, room, __VA_ARGS__);                        \
			CHECK_INT(ours(actual, room, __VA_ARGS__), length);                        \
			CHECK_TEXT(actual, expected);                                              \
		}                                                                                  \
	} while (0)

TEST(integers)
{
	SAME("%d %i %u", INT_MIN, INT_MAX, UINT_MAX);
	SAME("%ld|%lld|%lu|%llu", LONG_MIN, LLONG_MAX, ULONG_MAX, 0ULL);
	SAME("%zu %jd %td", SIZE_MAX, (intmax_t)-1, (ptrdiff_t)-2);
	SAME("%x %lx %o %lo", 0xdeadbeefu, 0xfedcba9876543210ul, 0777u, 01234567012345ul);
	SAME("%x %u", 0u, 0u);
	SAME("%hhu %hu %hd", (unsigned char)200, (unsigned short)60000, (short)-3);
}

TEST(widths)
{
	SAME("[%8d][%-8d][%08d]", -42, -42, -42);
	SAME("[%03d][%2d][%1d]", 7, 123, 0);
	SAME("[%04x][%8lld]", 0xabu, -5LL);
	SAME("[%-7s][%7s][%2s]", "info", "info", "info");
	SAME("[%c][%3c][%-3c]", 'a', 'b', 'c');
}

TEST(strings)
{
	SAME("%s%s", "", "text");
	SAME("[%.3s][%.0s][%.10s]", "longer", "longer", "longer");
	SAME("[%.*s][%.*s]", 2, "longer", -1, "longer");
	SAME("100%% of %s", "it");
	/* No NUL behind what the precision ends: not read further. */
	const char bytes[3] = {'a', 'b', 'c'};
	SAME("%.*s", 3, bytes);
}

TEST(unknown_conversions)
{
	char text[16] = "unchanged";
	const char *format = "%5.2f";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	CHECK_INT(ours(text, sizeof(text), format, 1.0), -1);
	CHECK_TEXT(text, "");
	format = "half a conversion %";
	CHECK_INT(ours(text, sizeof(text), format, 0), -1);
#pragma GCC diagnostic pop
	CHECK_TEXT(text, "");
}

TEST_MAIN
