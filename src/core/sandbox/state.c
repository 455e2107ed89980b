/* See state.h. */
#include "core/sandbox/state.h"

#include "base/macros.h"

#define LOST_BY_STOP "the sandbox was stopped"
#define LOST_BY_END "the sandbox has ended"
#define LOST_WITHOUT_DAEMON                                                                        \
	"the sandbox's processes were gone when the daemon came back: the host was restarted, or " \
	"they were killed"
#define LOST_BY_INIT "the sandbox's init does not know it any more"

static const struct state_facts facts[] = {
    [SANDBOX_CREATING] =
	{.name = "creating", .passing = true, .booting = true, .holds = true, .lost = LOST_BY_INIT},
    [SANDBOX_RUNNING] = {.name = "running",
			 .lives = true,
			 .has_deadline = true,
			 .holds = true,
			 .counts_as = COUNTS_ALIVE,
			 .lost = LOST_BY_INIT},
    [SANDBOX_PAUSING] = {.name = "pausing",
			 .passing = true,
			 .lives = true,
			 .clock_stands = true,
			 .holds = true,
			 .counts_as = COUNTS_ALIVE,
			 .lost = LOST_BY_INIT},
    [SANDBOX_PAUSED] = {.name = "paused",
			.lives = true,
			.clock_stands = true,
			.leaves_room = true,
			.counts_as = COUNTS_PAUSED,
			.lost = LOST_BY_INIT},
    [SANDBOX_RESUMING] = {.name = "resuming",
			  .passing = true,
			  .lives = true,
			  .clock_stands = true,
			  .holds = true,
			  .counts_as = COUNTS_PAUSED,
			  .lost = LOST_BY_INIT},
    [SANDBOX_STOPPING] = {.name = "stopping",
			  .passing = true,
			  .has_deadline = true,
			  .holds = true,
			  .counts_as = COUNTS_ALIVE,
			  .lost = LOST_BY_STOP},
    [SANDBOX_STOPPED] = {.name = "stopped",
			 .has_deadline = true,
			 .leaves_room = true,
			 .counts_as = COUNTS_ASLEEP,
			 .lost = LOST_WITHOUT_DAEMON},
    [SANDBOX_STARTING] = {.name = "starting",
			  .passing = true,
			  .booting = true,
			  .has_deadline = true,
			  .holds = true,
			  .counts_as = COUNTS_ASLEEP,
			  .lost = LOST_BY_INIT},
    [SANDBOX_DELETING] = {.name = "deleting",
			  .going = true,
			  .leaves_room = true,
			  .lost = LOST_BY_END},
    [SANDBOX_ENDED] = {.name = "ended", .going = true, .lost = LOST_BY_END},
};

const struct state_facts *state_facts(uint32_t state)
{
	return &facts[state < ARRAY_SIZE(facts) && facts[state].name ? state : SANDBOX_ENDED];
}

#define IN(state) (1u << SANDBOX_##state)
#define BOOTS (IN(CREATING) | IN(STARTING))
#define LIVES (IN(RUNNING) | IN(PAUSING) | IN(PAUSED) | IN(RESUMING))
#define STOPS (IN(STOPPING) | IN(STOPPED))
#define STAYS (BOOTS | LIVES | STOPS) /* neither deleted nor ended */
#define SAME 0                        /* the state does not change */
#define STEP(event, from, to, action)                                                              \
	{                                                                                          \
		SANDBOX_EVENT_##event, from, to, SANDBOX_ACTION_##action                           \
	}

static const struct {
	enum sandbox_event event;
	uint32_t from;
	uint32_t to;
	enum sandbox_action action;
} steps[] = {
    STEP(STOP, IN(RUNNING), SANDBOX_STOPPING, SHUT_DOWN),
    STEP(STOP, IN(PAUSED), SANDBOX_STOPPING, KILL), /* frozen processes hear no polite request */
    STEP(STOP, IN(STOPPING), SAME, JOIN),
    STEP(STOP, IN(STOPPED), SAME, DONE),

    STEP(START, IN(STOPPED), SANDBOX_STARTING, BOOT),
    STEP(START, IN(STARTING), SAME, JOIN),
    STEP(START, IN(RUNNING), SAME, DONE),

    STEP(PAUSE, IN(RUNNING), SANDBOX_PAUSING, FREEZE),
    STEP(PAUSE, IN(PAUSING), SAME, JOIN),
    STEP(PAUSE, IN(PAUSED), SAME, DONE),

    STEP(RESUME, IN(PAUSED), SANDBOX_RESUMING, THAW),
    STEP(RESUME, IN(PAUSING), SAME, TAKE_BACK),
    STEP(RESUME, IN(RESUMING), SAME, JOIN),
    STEP(RESUME, IN(RUNNING), SAME, DONE),

    STEP(DELETE, STAYS, SANDBOX_DELETING, DESTROY),
    STEP(DELETE, IN(DELETING), SAME, DESTROY),

    STEP(CONFIGURED, BOOTS, SANDBOX_RUNNING, RUN),
    STEP(BOOT_FAILED, IN(CREATING), SANDBOX_DELETING, DESTROY),
    STEP(BOOT_FAILED, IN(STARTING), SANDBOX_STOPPING, KILL), /* its files are kept */
    STEP(INIT_LOST, LIVES, SANDBOX_STOPPING, KILL),
    STEP(INIT_LOST, IN(STOPPING) | IN(DELETING), SAME, NONE),

    STEP(UNDONE, IN(CREATING), SANDBOX_ENDED, NONE),
    STEP(UNDONE, IN(PAUSING), SANDBOX_RUNNING, NONE),
    STEP(UNDONE, IN(RESUMING), SANDBOX_PAUSED, NONE),
    STEP(UNDONE, IN(STARTING), SANDBOX_STOPPED, NONE),
    STEP(FROZEN, IN(PAUSING), SANDBOX_PAUSED, RECLAIM),
    STEP(THAWED, IN(RESUMING), SANDBOX_RUNNING, RUN),
    /* Commands may have been started since: they would stand still. */
    STEP(FROZEN_LATE, IN(RUNNING), SAME, THAW),
    STEP(FROZEN_LATE, ~IN(RUNNING), SAME, NONE),
    STEP(THAWED_LATE, IN(PAUSED), SANDBOX_RUNNING, RUN),
    STEP(THAWED_LATE, ~IN(PAUSED), SAME, NONE),
    STEP(KILLED, IN(STOPPING), SANDBOX_STOPPED, NONE),
    STEP(DESTROYED, IN(DELETING), SANDBOX_ENDED, NONE),

    STEP(PROCESSES_ENDED, BOOTS, SAME, FAIL_BOOT),
    STEP(PROCESSES_ENDED, LIVES, SANDBOX_STOPPED, LOSE),
    STEP(PROCESSES_ENDED, IN(STOPPING), SAME, KILL),
    STEP(PROCESSES_ENDED, IN(STOPPED) | IN(DELETING), SAME, NONE),
    STEP(DUE, BOOTS, SAME, FAIL_BOOT),
    STEP(DUE, IN(STOPPING), SAME, KILL),
    STEP(DUE, IN(DELETING), SAME, DESTROY),

    STEP(FOUND_RUNNING, LIVES, SANDBOX_RUNNING, ADOPT),
    STEP(FOUND_RUNNING, IN(STARTING), SAME, CONTINUE_BOOT),
    STEP(FOUND_RUNNING, STOPS, SANDBOX_STOPPING, KILL),
    STEP(FOUND_RUNNING, IN(CREATING), SAME, DELETE),
    STEP(FOUND_RUNNING, IN(DELETING), SAME, DESTROY),
    STEP(FOUND_FROZEN, LIVES, SANDBOX_PAUSED, ADOPT),
    STEP(FOUND_FROZEN, IN(STARTING), SAME, CONTINUE_BOOT),
    STEP(FOUND_FROZEN, STOPS, SANDBOX_STOPPING, KILL),
    STEP(FOUND_FROZEN, IN(CREATING), SAME, DELETE),
    STEP(FOUND_FROZEN, IN(DELETING), SAME, DESTROY),
    STEP(FOUND_STOPPED, LIVES | STOPS | IN(STARTING), SANDBOX_STOPPED, LOSE),
    STEP(FOUND_STOPPED, IN(CREATING), SAME, DELETE),
    STEP(FOUND_STOPPED, IN(DELETING), SAME, DESTROY),
    STEP(FOUND_UNUSABLE, STAYS, SAME, DELETE),
    STEP(FOUND_UNUSABLE, IN(DELETING), SAME, DESTROY),
};

struct state_step state_step(uint32_t state, enum sandbox_event event)
{
	uint32_t in = state < ARRAY_SIZE(facts) && facts[state].name ? 1u << state : 0;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (steps[i].event == event && (steps[i].from & in))
			return (struct state_step){
			    (enum sandbox_state)(steps[i].to == SAME ? state : steps[i].to),
			    steps[i].action};
	return (struct state_step){(enum sandbox_state)state, SANDBOX_ACTION_REFUSE};
}

const char *state_wish_name(enum sandbox_event wish)
{
	static const char *const names[] = {
	    [SANDBOX_EVENT_STOP] = "stopped",
	    [SANDBOX_EVENT_START] = "started",
	    [SANDBOX_EVENT_PAUSE] = "paused",
	    [SANDBOX_EVENT_RESUME] = "resumed",
	};
	return names[wish];
}
