/* See stage.h. */
#include "core/exec/stage.h"

#include "base/macros.h"
#include "store/store.h"

#define TRANSITION(from, event, to, action)                                                        \
	{                                                                                          \
		EXEC_STAGE_##from, EXEC_EVENT_##event, EXEC_STAGE_##to, EXEC_ACTION_##action       \
	}

static const struct {
	enum exec_stage from;
	enum exec_event event;
	enum exec_stage to;
	enum exec_action action;
} transitions[] = {
    TRANSITION(STARTING, STARTED, RUNNING, RUN),
    TRANSITION(STARTING, START_FAILED, SAVING, FAIL),
    TRANSITION(STARTING, LISTED, RUNNING, RUN),
    TRANSITION(STARTING, UNLISTED, SAVING, FAIL),
    TRANSITION(STARTING, EXITED, SAVING, END), /* its start was told to an earlier connection */
    TRANSITION(STARTING, KILLED, ASKING, ASK),
    TRANSITION(STARTING, GONE, STARTING, BREAK),
    TRANSITION(STARTING, OVERDUE, SAVING, GIVE_UP),
    TRANSITION(STARTING, LOST, SAVING, LOSE),

    TRANSITION(RUNNING, STARTED, RUNNING, BREAK),
    TRANSITION(RUNNING, START_FAILED, RUNNING, BREAK),
    TRANSITION(RUNNING, UNLISTED, SAVING, LOSE),
    TRANSITION(RUNNING, EXITED, SAVING, END),
    TRANSITION(RUNNING, KILLED, ASKING, ASK),
    TRANSITION(RUNNING, GONE, RUNNING, BREAK),
    TRANSITION(RUNNING, OVERDUE, SAVING, GIVE_UP),
    TRANSITION(RUNNING, LOST, SAVING, LOSE),

    TRANSITION(ASKING, STARTED, ASKING, BREAK),
    TRANSITION(ASKING, START_FAILED, ASKING, BREAK),
    TRANSITION(ASKING, COUNTED, SAVING, END),
    TRANSITION(ASKING, LOST, SAVING, END),

    TRANSITION(SAVING, STARTED, SAVING, BREAK),
    TRANSITION(SAVING, START_FAILED, SAVING, BREAK),
    TRANSITION(SAVING, HASHING, HASHING, NONE),
    TRANSITION(SAVING, SAVED, OVER, FORGET),
    TRANSITION(SAVING, NOT_SAVED, UNSAVED, RETRY),

    TRANSITION(HASHING, STARTED, HASHING, BREAK),
    TRANSITION(HASHING, START_FAILED, HASHING, BREAK),
    TRANSITION(HASHING, HASHED, SAVING, SAVE),

    TRANSITION(UNSAVED, STARTED, UNSAVED, BREAK),
    TRANSITION(UNSAVED, START_FAILED, UNSAVED, BREAK),
    TRANSITION(UNSAVED, SAVED, OVER, FORGET),

    TRANSITION(OVER, STARTED, OVER, BREAK),
    TRANSITION(OVER, START_FAILED, OVER, BREAK),
};

enum exec_stage exec_stage_of(uint32_t state)
{
	return state == EXEC_STARTING  ? EXEC_STAGE_STARTING
	       : state == EXEC_RUNNING ? EXEC_STAGE_RUNNING
				       : EXEC_STAGE_OVER;
}

enum exec_action exec_stage_step(enum exec_stage *stage, enum exec_event event)
{
	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
		if (transitions[i].from != *stage || transitions[i].event != event)
			continue;
		*stage = transitions[i].to;
		return transitions[i].action;
	}
	return EXEC_ACTION_NONE;
}
