/* A sandbox's life as tables: each state's facts, and each pair of state and event. */
#include "core/sandbox/state.h"

#include <string.h>

#include "test.h"

TEST_MAIN

/* In the order of enum sandbox_state. passing, booting, lives, runs (u), may exec (x), clock
 * stands, has a deadline, holds, going, leaves room; what its time counts as; what wakes it. */
static const struct {
	const char *name, *facts;
	enum counts_as counts_as;
	enum wakes wakes;
} expected[] = {
    {"creating", "pb.....h..", COUNTS_NOT, WAKES_NOT},
    {"running", "..lux.dh..", COUNTS_ALIVE, WAKES_NOT},
    {"pausing", "p.l..c.h..", COUNTS_ALIVE, WAKES_BY_RESUME},
    {"paused", "..l..c...r", COUNTS_PAUSED, WAKES_BY_RESUME},
    {"resuming", "p.l..c.h..", COUNTS_PAUSED, WAKES_NOT},
    {"stopping", "p.....dh..", COUNTS_ALIVE, WAKES_BY_START},
    {"stopped", "......d..r", COUNTS_ASLEEP, WAKES_BY_START},
    {"starting", "pb....dh..", COUNTS_ASLEEP, WAKES_NOT},
    {"deleting", "........gr", COUNTS_NOT, WAKES_NOT},
    {"ended", "........g.", COUNTS_NOT, WAKES_NOT},
};

TEST(facts_of_each_state)
{
	CHECK_INT(ARRAY_SIZE(expected), SANDBOX_ENDED - SANDBOX_CREATING + 1);
	for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++) {
		const struct state_facts *facts = state_facts(state);
		const char letters[] = {facts->passing ? 'p' : '.',
					facts->booting ? 'b' : '.',
					facts->lives ? 'l' : '.',
					facts->runs ? 'u' : '.',
					facts->may_exec ? 'x' : '.',
					facts->clock_stands ? 'c' : '.',
					facts->has_deadline ? 'd' : '.',
					facts->holds ? 'h' : '.',
					facts->going ? 'g' : '.',
					facts->leaves_room ? 'r' : '.',
					'\0'};
		CHECK_TEXT(facts->name, expected[state - SANDBOX_CREATING].name);
		CHECK_TEXT(letters, expected[state - SANDBOX_CREATING].facts);
		CHECK_INT(facts->counts_as, expected[state - SANDBOX_CREATING].counts_as);
		CHECK_INT(facts->wakes, expected[state - SANDBOX_CREATING].wakes);
		CHECK(facts->lost && strlen(facts->lost) > 0);
	}
	CHECK(state_facts(0) == state_facts(SANDBOX_ENDED));
	CHECK(state_facts(UINT32_MAX) == state_facts(SANDBOX_ENDED));
}

/* A letter for each state: the one that follows (creating, running, pausing: P, paused: p,
 * resuming: R, stopping: S, stopped: s, starting: T, deleting, ended), and what is to be done. */
static const struct {
	const char *next, *actions;
} steps[] = {
    [SANDBOX_EVENT_STOP] = {"cSPSRSsTde", "!h!k!j=!!!"},
    [SANDBOX_EVENT_START] = {"crPpRSTTde", "!=!!!!bj!!"},
    [SANDBOX_EVENT_PAUSE] = {"cPPpRSsTde", "!fj=!!!!!!"},
    [SANDBOX_EVENT_RESUME] = {"crPRRSsTde", "!=<tj!!!!!"},
    [SANDBOX_EVENT_DELETE] = {"ddddddddde", "ddddddddd!"},
    [SANDBOX_EVENT_CONFIGURED] = {"rrPpRSsrde", "r!!!!!!r!!"},
    [SANDBOX_EVENT_BOOT_FAILED] = {"drPpRSsSde", "d!!!!!!k!!"},
    [SANDBOX_EVENT_INIT_LOST] = {"cSSSSSsTde", "!kkkk.!!.!"},
    [SANDBOX_EVENT_UNDONE] = {"errppSssde", ".!.!.!!.!!"},
    [SANDBOX_EVENT_FROZEN] = {"crppRSsTde", "!!m!!!!!!!"},
    [SANDBOX_EVENT_THAWED] = {"crPprSsTde", "!!!!r!!!!!"},
    [SANDBOX_EVENT_FROZEN_LATE] = {"crPpRSsTde", ".t........"},
    [SANDBOX_EVENT_THAWED_LATE] = {"crPrRSsTde", "...r......"},
    [SANDBOX_EVENT_KILLED] = {"crPpRssTde", "!!!!!.!!!!"},
    [SANDBOX_EVENT_DESTROYED] = {"crPpRSsTee", "!!!!!!!!.!"},
    [SANDBOX_EVENT_PROCESSES_ENDED] = {"cssssSsTde", "Fllllk.F.!"},
    [SANDBOX_EVENT_DUE] = {"crPpRSsTde", "F!!!!k!Fd!"},
    [SANDBOX_EVENT_FOUND_RUNNING] = {"crrrrSSTde", "Daaaakkcd!"},
    [SANDBOX_EVENT_FOUND_FROZEN] = {"cppppSSTde", "Daaaakkcd!"},
    [SANDBOX_EVENT_FOUND_STOPPED] = {"csssssssde", "Dllllllld!"},
    [SANDBOX_EVENT_FOUND_UNUSABLE] = {"crPpRSsTde", "DDDDDDDDd!"},
};

TEST(each_event_in_each_state)
{
	static const char states[] = "?crPpRSsTde", actions[] = "!.=j<hbfmtkdFDrlac";
	CHECK_INT(ARRAY_SIZE(steps), SANDBOX_EVENTS);
	for (int event = 0; event < SANDBOX_EVENTS; event++) {
		char next[SANDBOX_ENDED + 1] = "", done[SANDBOX_ENDED + 1] = "";
		for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++) {
			struct state_step step = state_step(state, (enum sandbox_event)event);
			next[state - SANDBOX_CREATING] = states[step.next];
			done[state - SANDBOX_CREATING] = actions[step.action];
		}
		CHECK_TEXT(next, steps[event].next);
		CHECK_TEXT(done, steps[event].actions);
		CHECK_INT(state_step(0, (enum sandbox_event)event).action, SANDBOX_ACTION_REFUSE);
		CHECK_INT(state_step(99, (enum sandbox_event)event).action, SANDBOX_ACTION_REFUSE);
	}
}
