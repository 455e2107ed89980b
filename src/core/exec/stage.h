/* An exec's life in memory as a table: the possible events in each stage, and the action that
 * follows.
 *
 *   starting ──> running ──> [asking] ──> ended
 *                   └──> given up ──────> ended
 *
 * What is stored and shown of it is row.state, which knows no more than starting, running, ended
 * and failed; one that was given up has ended for everybody but its init. Whether the end is
 * written is a matter of its own: enum exec_written. Pure; nothing blocks. The effects are in
 * frames.c, the writing in ends.c, the hashing in core/activity/exec.c. */
#pragma once

#include <stdint.h>

enum exec_stage {
	EXEC_STAGE_STARTING, /* the init has not confirmed the start */
	EXEC_STAGE_RUNNING,
	EXEC_STAGE_ASKING,   /* its result is kept; the spawner is asked for OOM kills */
	EXEC_STAGE_GIVEN_UP, /* it was overdue and ended as timed out; its init has not said so */
	EXEC_STAGE_ENDED,
	EXEC_STAGES
};

enum exec_written {
	EXEC_NOT_WRITTEN, /* it has not ended, or its end is being told in this turn */
	EXEC_TOLD,        /* the end is told, and will be hashed and written in a moment */
	EXEC_HASHING,     /* the end is told; it is written when its output is hashed */
	EXEC_UNSAVED,     /* it could not be written: repeated later; the init keeps the result */
	EXEC_WRITTEN,
};

enum exec_event {
	/* From its init. */
	EXEC_EVENT_STARTED,
	EXEC_EVENT_START_FAILED,
	EXEC_EVENT_LISTED,   /* as running */
	EXEC_EVENT_UNLISTED, /* the init does not know the exec */
	EXEC_EVENT_EXITED,
	EXEC_EVENT_KILLED, /* it exited, and the OOM killer may have done it */
	EXEC_EVENT_GONE,   /* its left-over processes have ended */
	/* From the daemon. */
	EXEC_EVENT_COUNTED, /* the spawner has answered, or cannot be asked */
	EXEC_EVENT_OVERDUE, /* its time-out has passed without a report of the init */
	EXEC_EVENT_LOST,    /* the sandbox's processes have ended */
	EXEC_EVENTS
};

/* What the caller has to do. */
enum exec_action {
	EXEC_ACTION_NONE,
	EXEC_ACTION_BREAK,   /* impossible: the init violates the protocol */
	EXEC_ACTION_RUN,     /* it runs */
	EXEC_ACTION_FAIL,    /* it ends as an exec that never ran */
	EXEC_ACTION_ASK,     /* keep the result and ask the spawner */
	EXEC_ACTION_END,     /* it ends with its result */
	EXEC_ACTION_LOSE,    /* it ends with an unknown result */
	EXEC_ACTION_GIVE_UP, /* it ends as timed out */
	EXEC_ACTION_LEAVE,   /* it has ended before: take only what it left running */
};

/* Moves *stage on. A pair that is not in the table changes nothing and requires no action. */
enum exec_action exec_stage_step(enum exec_stage *stage, enum exec_event event);
