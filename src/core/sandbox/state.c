/* See state.h. */
#include "core/sandbox/state.h"

#include "base/macros.h"

#define LOST_BY_STOP "the sandbox was stopped"
#define LOST_BY_END "the sandbox has ended"
#define LOST_WITHOUT_DAEMON                                                                        \
	"the sandbox's processes were gone when the daemon came back: the host was restarted, or " \
	"they were killed"
#define LOST_BY_INIT "the sandbox's init does not know it any more"

static const struct state_facts facts_of_states[] = {
    [SANDBOX_CREATING] =
	{.name = "creating", .passing = true, .booting = true, .holds = true, .lost = LOST_BY_INIT},
    [SANDBOX_RUNNING] = {.name = "running",
			 .lives = true,
			 .runs = true,
			 .may_exec = true,
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
			 .wakes = WAKES_BY_RESUME,
			 .lost = LOST_BY_INIT},
    [SANDBOX_PAUSED] = {.name = "paused",
			.lives = true,
			.clock_stands = true,
			.leaves_room = true,
			.counts_as = COUNTS_PAUSED,
			.wakes = WAKES_BY_RESUME,
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
			  .wakes = WAKES_BY_START,
			  .lost = LOST_BY_STOP},
    [SANDBOX_STOPPED] = {.name = "stopped",
			 .has_deadline = true,
			 .leaves_room = true,
			 .counts_as = COUNTS_ASLEEP,
			 .wakes = WAKES_BY_START,
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
	return &facts_of_states[state < ARRAY_SIZE(facts_of_states) && facts_of_states[state].name
				    ? state
				    : SANDBOX_ENDED];
}

#define ON(event) (1u << SANDBOX_EVENT_##event)
#define IN(state) (1u << SANDBOX_##state)
#define BOOTS (IN(CREATING) | IN(STARTING))
#define LIVES (IN(RUNNING) | IN(PAUSING) | IN(PAUSED) | IN(RESUMING))
#define STOPS (IN(STOPPING) | IN(STOPPED))
#define STAYS (BOOTS | LIVES | STOPS) /* neither deleted nor ended */
#define FOUND_ALIVE (ON(FOUND_RUNNING) | ON(FOUND_FROZEN))
#define FOUND (FOUND_ALIVE | ON(FOUND_STOPPED) | ON(FOUND_UNUSABLE))
#define SAME 0 /* the state does not change */

_Static_assert(SANDBOX_EVENTS <= 32, "a set of events is 32 bits");

/* All pairs that are possible. */
static const struct {
	uint32_t events, states;
	uint32_t next;
	enum sandbox_action action;
} steps[] = {
    {ON(STOP), IN(RUNNING), SANDBOX_STOPPING, SANDBOX_ACTION_SHUT_DOWN},
    /* Frozen processes do not read a request to end. */
    {ON(STOP), IN(PAUSED), SANDBOX_STOPPING, SANDBOX_ACTION_KILL},
    {ON(STOP), IN(STOPPING), SAME, SANDBOX_ACTION_JOIN},
    {ON(STOP), IN(STOPPED), SAME, SANDBOX_ACTION_DONE},

    {ON(START), IN(STOPPED), SANDBOX_STARTING, SANDBOX_ACTION_BOOT},
    {ON(START), IN(STARTING), SAME, SANDBOX_ACTION_JOIN},
    {ON(START), IN(RUNNING), SAME, SANDBOX_ACTION_DONE},

    {ON(PAUSE), IN(RUNNING), SANDBOX_PAUSING, SANDBOX_ACTION_FREEZE},
    {ON(PAUSE), IN(PAUSING), SAME, SANDBOX_ACTION_JOIN},
    {ON(PAUSE), IN(PAUSED), SAME, SANDBOX_ACTION_DONE},

    {ON(RESUME), IN(PAUSED), SANDBOX_RESUMING, SANDBOX_ACTION_THAW},
    {ON(RESUME), IN(PAUSING), SAME, SANDBOX_ACTION_TAKE_BACK},
    {ON(RESUME), IN(RESUMING), SAME, SANDBOX_ACTION_JOIN},
    {ON(RESUME), IN(RUNNING), SAME, SANDBOX_ACTION_DONE},

    {ON(DELETE), STAYS, SANDBOX_DELETING, SANDBOX_ACTION_DESTROY},
    {ON(DELETE), IN(DELETING), SAME, SANDBOX_ACTION_DESTROY},

    {ON(CONFIGURED), BOOTS, SANDBOX_RUNNING, SANDBOX_ACTION_RUN},
    {ON(BOOT_FAILED), IN(CREATING), SANDBOX_DELETING, SANDBOX_ACTION_DESTROY},
    /* Its files are kept. */
    {ON(BOOT_FAILED), IN(STARTING), SANDBOX_STOPPING, SANDBOX_ACTION_KILL},
    {ON(INIT_LOST), LIVES, SANDBOX_STOPPING, SANDBOX_ACTION_KILL},
    {ON(INIT_LOST), IN(STOPPING) | IN(DELETING), SAME, SANDBOX_ACTION_NONE},

    {ON(UNDONE), IN(CREATING), SANDBOX_ENDED, SANDBOX_ACTION_NONE},
    {ON(UNDONE), IN(PAUSING), SANDBOX_RUNNING, SANDBOX_ACTION_NONE},
    {ON(UNDONE), IN(RESUMING), SANDBOX_PAUSED, SANDBOX_ACTION_NONE},
    {ON(UNDONE), IN(STARTING), SANDBOX_STOPPED, SANDBOX_ACTION_NONE},
    {ON(FROZEN), IN(PAUSING), SANDBOX_PAUSED, SANDBOX_ACTION_RECLAIM},
    {ON(THAWED), IN(RESUMING), SANDBOX_RUNNING, SANDBOX_ACTION_RUN},
    /* Commands may have been started since: they would be frozen. */
    {ON(FROZEN_LATE), IN(RUNNING), SAME, SANDBOX_ACTION_THAW},
    {ON(FROZEN_LATE), ~IN(RUNNING), SAME, SANDBOX_ACTION_NONE},
    {ON(THAWED_LATE), IN(PAUSED), SANDBOX_RUNNING, SANDBOX_ACTION_RUN},
    {ON(THAWED_LATE), ~IN(PAUSED), SAME, SANDBOX_ACTION_NONE},
    {ON(KILLED), IN(STOPPING), SANDBOX_STOPPED, SANDBOX_ACTION_NONE},
    {ON(DESTROYED), IN(DELETING), SANDBOX_ENDED, SANDBOX_ACTION_NONE},

    {ON(PROCESSES_ENDED), BOOTS, SAME, SANDBOX_ACTION_FAIL_BOOT},
    {ON(PROCESSES_ENDED), LIVES, SANDBOX_STOPPED, SANDBOX_ACTION_LOSE},
    {ON(PROCESSES_ENDED), IN(STOPPING), SAME, SANDBOX_ACTION_KILL},
    {ON(PROCESSES_ENDED), IN(STOPPED) | IN(DELETING), SAME, SANDBOX_ACTION_NONE},
    {ON(DUE), BOOTS, SAME, SANDBOX_ACTION_FAIL_BOOT},
    {ON(DUE), IN(STOPPING), SAME, SANDBOX_ACTION_KILL},
    {ON(DUE), IN(DELETING), SAME, SANDBOX_ACTION_DESTROY},

    {ON(FOUND_RUNNING), LIVES, SANDBOX_RUNNING, SANDBOX_ACTION_ADOPT},
    {ON(FOUND_FROZEN), LIVES, SANDBOX_PAUSED, SANDBOX_ACTION_ADOPT},
    {FOUND_ALIVE, IN(STARTING), SAME, SANDBOX_ACTION_CONTINUE_BOOT},
    {FOUND_ALIVE, STOPS, SANDBOX_STOPPING, SANDBOX_ACTION_KILL},
    {ON(FOUND_STOPPED), STAYS & ~IN(CREATING), SANDBOX_STOPPED, SANDBOX_ACTION_LOSE},
    {ON(FOUND_UNUSABLE), STAYS, SAME, SANDBOX_ACTION_DELETE},
    {FOUND, IN(CREATING), SAME, SANDBOX_ACTION_DELETE},
    {FOUND, IN(DELETING), SAME, SANDBOX_ACTION_DESTROY},
};

struct state_step state_step(uint32_t state, enum sandbox_event event)
{
	uint32_t in =
	    state < ARRAY_SIZE(facts_of_states) && facts_of_states[state].name ? 1u << state : 0;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if ((steps[i].events & 1u << event) && (steps[i].states & in))
			return (struct state_step){
			    (enum sandbox_state)(steps[i].next == SAME ? state : steps[i].next),
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
