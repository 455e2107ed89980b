/* An exec's life as a table: each pair of stage and event. */
#include "core/exec/stage.h"

#include "store/store.h"
#include "test.h"

TEST_MAIN

/* A letter for each event, in the order of enum exec_event: the stage that follows (starting,
 * running, asking, saving: v, hashing, unsaved, over); and what is to be done. */
static const struct {
	const char *next, *actions;
} expected[] = {
    [EXEC_STAGE_STARTING] = {"rvrvvassvvssss", "RFRFEA!.GL...."},
    [EXEC_STAGE_RUNNING] = {"rrrvvarrvvrrrr", "!!.LEA!.GL...."},
    [EXEC_STAGE_ASKING] = {"aaaaaaavavaaaa", "!!.....E.E...."},
    [EXEC_STAGE_SAVING] = {"vvvvvvvvvvhvou", "!!..........ft"},
    [EXEC_STAGE_HASHING] = {"hhhhhhhhhhhvhh", "!!.........S.."},
    [EXEC_STAGE_UNSAVED] = {"uuuuuuuuuuuuou", "!!..........f."},
    [EXEC_STAGE_OVER] = {"oooooooooooooo", "!!............"},
};

TEST(each_event_in_each_stage)
{
	static const char stages[] = "sravhuo", actions[] = ".!RFAELGSft";
	CHECK_INT(ARRAY_SIZE(expected), EXEC_STAGES);
	for (int stage = 0; stage < EXEC_STAGES; stage++) {
		char next[EXEC_EVENTS + 1] = "", done[EXEC_EVENTS + 1] = "";
		for (int event = 0; event < EXEC_EVENTS; event++) {
			enum exec_stage at = (enum exec_stage)stage;
			done[event] = actions[exec_stage_step(&at, (enum exec_event)event)];
			next[event] = stages[at];
		}
		CHECK_TEXT(next, expected[stage].next);
		CHECK_TEXT(done, expected[stage].actions);
	}
}

TEST(stage_of_a_row)
{
	CHECK_INT(exec_stage_of(EXEC_STARTING), EXEC_STAGE_STARTING);
	CHECK_INT(exec_stage_of(EXEC_RUNNING), EXEC_STAGE_RUNNING);
	CHECK_INT(exec_stage_of(EXEC_ENDED), EXEC_STAGE_OVER);
	CHECK_INT(exec_stage_of(EXEC_FAILED), EXEC_STAGE_OVER);
}
