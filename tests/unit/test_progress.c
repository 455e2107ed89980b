/* The line that says how far a copy is. */
#include "cli/client/progress.h"

#include "base/clock.h"
#include "base/limits.h"
#include "test.h"

TEST_MAIN

static const char *line(uint64_t done, uint64_t total, int columns)
{
	static char text[128];
	struct progress progress = {.verb = "cp", .done = done, .total = total};
	CHECK(progress_line(&progress, 2 * NSEC_PER_SEC, columns, text) == (int)strlen(text));
	return text;
}

TEST(a_size_that_is_known)
{
	CHECK_TEXT(line(0, 20 * MIB, 80), "cp [                    ]   0% 0 B of 20 MiB, 0 B/s");
	CHECK_TEXT(line(10 * MIB, 20 * MIB, 80),
		   "cp [##########          ]  50% 10 MiB of 20 MiB, 5.0 MiB/s");
	CHECK_TEXT(line(20 * MIB, 20 * MIB, 80),
		   "cp [####################] 100% 20 MiB of 20 MiB, 10 MiB/s");
	/* It has grown. */
	CHECK_TEXT(line(40 * MIB, 20 * MIB, 80),
		   "cp [####################] 100% 40 MiB of 20 MiB, 20 MiB/s");
}

TEST(a_size_that_is_not_known)
{
	CHECK_TEXT(line(10 * MIB, 0, 80), "cp 10 MiB, 5.0 MiB/s");
}

TEST(a_narrow_terminal)
{
	CHECK_TEXT(line(10 * MIB, 20 * MIB, 11), "cp [######");
	CHECK_TEXT(line(10 * MIB, 0, 1), "");
}
