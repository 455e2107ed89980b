/* A sandbox's life as tables: each state's facts, and each pair of state and wish. */
#include "core/sandbox/state.h"

#include <string.h>

#include "test.h"

TEST_MAIN

/* In the order of enum sandbox_state. passing, booting, lives, clock stands, has a deadline, holds,
 * going, leaves room; and what its time counts as. */
static const struct {
	const char *name, *facts;
	enum counts_as counts_as;
} expected[] = {
    {"creating", "pb...h..", COUNTS_NOT},    {"running", "..l.dh..", COUNTS_ALIVE},
    {"pausing", "p.lc.h..", COUNTS_ALIVE},   {"paused", "..lc...r", COUNTS_PAUSED},
    {"resuming", "p.lc.h..", COUNTS_PAUSED}, {"stopping", "p...dh..", COUNTS_ALIVE},
    {"stopped", "....d..r", COUNTS_ASLEEP},  {"starting", "pb..dh..", COUNTS_ASLEEP},
    {"deleting", "......gr", COUNTS_NOT},    {"ended", "......g.", COUNTS_NOT},
};

TEST(facts_of_each_state)
{
	CHECK_INT(ARRAY_SIZE(expected), SANDBOX_ENDED - SANDBOX_CREATING + 1);
	for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++) {
		const struct state_facts *facts = state_facts(state);
		const char letters[] = {facts->passing ? 'p' : '.',
					facts->booting ? 'b' : '.',
					facts->lives ? 'l' : '.',
					facts->clock_stands ? 'c' : '.',
					facts->has_deadline ? 'd' : '.',
					facts->holds ? 'h' : '.',
					facts->going ? 'g' : '.',
					facts->leaves_room ? 'r' : '.',
					'\0'};
		CHECK_TEXT(facts->name, expected[state - SANDBOX_CREATING].name);
		CHECK_TEXT(letters, expected[state - SANDBOX_CREATING].facts);
		CHECK_INT(facts->counts_as, expected[state - SANDBOX_CREATING].counts_as);
		CHECK(facts->lost && strlen(facts->lost) > 0);
	}
	CHECK(state_facts(0) == state_facts(SANDBOX_ENDED));
	CHECK(state_facts(UINT32_MAX) == state_facts(SANDBOX_ENDED));
}

/* A letter for each state: refused, done, joins, begins, takes back. */
TEST(each_wish_in_each_state)
{
	static const char *const outcomes[] = {
	    [WISH_STOP] = "rbrbrjdrrr",
	    [WISH_START] = "rdrrrrbjrr",
	    [WISH_PAUSE] = "rbjdrrrrrr",
	    [WISH_RESUME] = "rdtbjrrrrr",
	};
	static const char letters[] = "rdjbt";
	CHECK_INT(ARRAY_SIZE(outcomes), WISH_COUNT);
	for (int wish = 0; wish < WISH_COUNT; wish++) {
		char found[SANDBOX_ENDED + 1] = "";
		for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++)
			found[state - SANDBOX_CREATING] =
			    letters[wish_outcome((enum wish)wish, state)];
		CHECK_TEXT(found, outcomes[wish]);
		CHECK_INT(wish_outcome((enum wish)wish, 0), OUTCOME_REFUSED);
		CHECK_INT(wish_outcome((enum wish)wish, 99), OUTCOME_REFUSED);
	}
}
