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

/* What is not here is refused. */
static const struct {
	const char *name;
	uint8_t outcomes[ARRAY_SIZE(facts)];
} wishes[WISH_COUNT] = {
    [WISH_STOP] = {"stopped",
		   {[SANDBOX_RUNNING] = OUTCOME_BEGINS,
		    [SANDBOX_PAUSED] = OUTCOME_BEGINS,
		    [SANDBOX_STOPPING] = OUTCOME_JOINS,
		    [SANDBOX_STOPPED] = OUTCOME_DONE}},
    [WISH_START] = {"started",
		    {[SANDBOX_STOPPED] = OUTCOME_BEGINS,
		     [SANDBOX_STARTING] = OUTCOME_JOINS,
		     [SANDBOX_RUNNING] = OUTCOME_DONE}},
    [WISH_PAUSE] = {"paused",
		    {[SANDBOX_RUNNING] = OUTCOME_BEGINS,
		     [SANDBOX_PAUSING] = OUTCOME_JOINS,
		     [SANDBOX_PAUSED] = OUTCOME_DONE}},
    [WISH_RESUME] = {"resumed",
		     {[SANDBOX_PAUSED] = OUTCOME_BEGINS,
		      [SANDBOX_PAUSING] = OUTCOME_TAKES_BACK,
		      [SANDBOX_RESUMING] = OUTCOME_JOINS,
		      [SANDBOX_RUNNING] = OUTCOME_DONE}},
};

enum wish_outcome wish_outcome(enum wish wish, uint32_t state)
{
	return state < ARRAY_SIZE(facts) ? (enum wish_outcome)wishes[wish].outcomes[state]
					 : OUTCOME_REFUSED;
}

const char *wish_name(enum wish wish)
{
	return wishes[wish].name;
}
