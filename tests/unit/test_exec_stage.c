/* An exec's life as a table: each pair of stage and event. */
#include "core/exec/exec.h"
#include "test.h"

TEST_MAIN

/* A letter for each event, in the order of enum exec_event: the stage that follows (starting,
 * running, asking, given up, ended); and what is to be done (LEAVE: l). */
static const struct {
	const char *next, *actions;
} expected[] = {
    [EXEC_STAGE_STARTING] = {"rereeassge", "RFRFEA!.GL"},
    [EXEC_STAGE_RUNNING] = {"rrreearrge", "!!.LEA!.GL"},
    [EXEC_STAGE_ASKING] = {"aaaaaaaeae", "!!.....E.E"},
    [EXEC_STAGE_GIVEN_UP] = {"gegeeeggge", "....ll...."},
    [EXEC_STAGE_ENDED] = {"eeeeeeeeee", "!!........"},
};

TEST(each_event_in_each_stage)
{
	static const char stages[] = "srage", actions[] = ".!RFAELGl";
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

TEST(ended_states)
{
	for (uint32_t state = EXEC_STARTING; state <= EXEC_FAILED; state++) {
		const struct exec exec = {.row.state = state};
		CHECK_INT(exec_ended(&exec), state == EXEC_ENDED || state == EXEC_FAILED);
	}
}

TEST(facts_of_each_end)
{
	static const struct {
		const char *name, *state, *log;
		int code;
	} ends[] = {
	    [EXEC_END_EXITED] = {"exited", "exited", "", 9},
	    [EXEC_END_SIGNALED] = {"signaled", "killed", "killed", 137},
	    [EXEC_END_TIMED_OUT] = {"timed_out", "timed_out", "time-out", 124},
	    [EXEC_END_CANCELLED] = {"cancelled", "cancelled", "cancelled", 137},
	    [EXEC_END_LOST] = {"lost", "lost", "lost", -1},
	    [EXEC_END_TOO_MANY_PROCESSES] = {"too_many_processes", "killed",
					     "killed: too many processes", 137},
	};
	CHECK_INT(ARRAY_SIZE(ends), EXEC_ENDS);
	for (uint32_t end = 0; end < EXEC_ENDS; end++) {
		const struct exec_end_facts *facts = exec_end_facts(end);
		struct exec_row row = {.state = EXEC_ENDED, .end = end, .code = 9};
		CHECK_TEXT(facts->name, ends[end].name);
		CHECK_TEXT(exec_state_text(&row), ends[end].state);
		CHECK_TEXT(facts->log ? facts->log : "", ends[end].log);
		CHECK_INT(exec_exit_code(&row), ends[end].code);
	}
	CHECK(exec_end_facts(EXEC_ENDS) == exec_end_facts(EXEC_END_LOST));
}
