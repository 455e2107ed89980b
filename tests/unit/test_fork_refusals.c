/* Which patterns of refused forks are a fork bomb: looked at as PID 1 does, for ten minutes that
 * take no time. */
#include "init/exec/fork_refusals.h"

#include "base/macros.h"
#include "test.h"

TEST_MAIN

#define BEGIN (1000 * NSEC_PER_SEC)
#define LENGTH 600000 /* ms */
#define NEVER 0
#define TRIES_MAX 5

struct pattern {
	const char *what;
	int64_t rate;             /* refusals a second, */
	int64_t on, off;          /* for so many ms of each on + off, */
	int64_t tries[TRIES_MAX]; /* or one for each process at these ms */
	int64_t processes;
	int64_t end_by; /* ms, or NEVER */
};

static int64_t pattern_refusals(const struct pattern *pattern, int64_t at)
{
	int64_t count = 0;
	for (int i = 0; i < TRIES_MAX; i++)
		if (pattern->tries[i] > 0 && at >= pattern->tries[i])
			count += pattern->processes;
	if (pattern->rate == 0 || at < 0)
		return count;
	int64_t period = pattern->on + pattern->off;
	return pattern->rate * (at / period * pattern->on + MIN(at % period, pattern->on)) / 1000;
}

/* When it is recognised, in ms, if PID 1 began to look `early` ms before; or NEVER. */
static int64_t pattern_end(const struct pattern *pattern, int64_t early)
{
	struct fork_refusals counted = {0};
	for (int64_t now = BEGIN; now < BEGIN + LENGTH * NSEC_PER_MSEC;
	     now = fork_refusals_next_look(&counted, now)) {
		int64_t at = (now - BEGIN) / NSEC_PER_MSEC - early;
		int64_t above = fork_refusals_look(&counted, now, pattern_refusals(pattern, at));
		if (above > BOMB_REFUSALS_PER_PROCESS * pattern->processes)
			return at;
	}
	return NEVER;
}

static const struct pattern patterns[] = {
    {"C", .rate = 10000, .on = 1000, .processes = 512, .end_by = 1000},
    {"C, few processes", .rate = 10000, .on = 1000, .processes = 32, .end_by = 1000},
    {"Python", .rate = 3000, .on = 1000, .processes = 512, .end_by = 1500},
    {"Python, few processes", .rate = 2000, .on = 1000, .processes = 32, .end_by = 1000},
    {"Python, slow machine", .rate = 300, .on = 1000, .processes = 512, .end_by = 10000},
    {"short pauses", .rate = 2000, .on = 400, .off = 350, .processes = 32, .end_by = 1500},
    {"short pauses, many", .rate = 3000, .on = 400, .off = 350, .processes = 512, .end_by = 3000},
    {"a tenth of a second", .rate = 2000, .on = 100, .off = 100, .processes = 32, .end_by = 2000},
    {"long pauses", .rate = 2000, .on = 400, .off = 3600, .processes = 32, .end_by = 10000},
    {"longer pauses", .rate = 3000, .on = 600, .off = 9400, .processes = 512, .end_by = 15000},
    {"long pauses, C", .rate = 10000, .on = 50, .off = 2450, .processes = 32, .end_by = 10000},
    {"short bursts", .rate = 2000, .on = 50, .off = 450, .processes = 32, .end_by = 10000},

    {"fewer than are forgotten", .rate = 95, .on = 1000, .processes = 32},
    {"refused now and then", .rate = 33, .on = 1000, .processes = 64},
    {"make -j, once a minute", .rate = 5000, .on = 300, .off = 59700, .processes = 512},
    {"make -j, smaller", .rate = 2000, .on = 200, .off = 9800, .processes = 32},
    {"threads of Go: 20 tries in 0.2 s", .rate = 8 * 95, .on = 210, .off = 4790, .processes = 8},
    {"one burst", .rate = 56000, .on = 10, .off = 1000000, .processes = 32},
    {"shells", .tries = {1, 1001, 3001, 7001, 15001}, .processes = 32},
    {"shells, many", .tries = {1, 1001, 3001, 7001, 15001}, .processes = 512},
};

TEST(bombs_are_recognised_and_others_are_not)
{
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		const struct pattern *pattern = &patterns[i];
		for (int64_t early = 0; early < 1000; early += 7) {
			int64_t end = pattern_end(pattern, early);
			if (pattern->end_by == NEVER ? end != NEVER
						     : end == NEVER || end > pattern->end_by)
				test_fail(__FILE__, __LINE__, "%s, after %lld ms: at %lld",
					  pattern->what, (long long)early, (long long)end);
		}
	}
}

/* After a stall of PID 1, a bomb is still recognised, and the stall itself makes no bomb. */
TEST(stalls_change_nothing)
{
	struct fork_refusals counted = {0};
	CHECK_INT(fork_refusals_look(&counted, BEGIN, 0), 0);
	CHECK_INT(fork_refusals_look(&counted, BEGIN + 20 * NSEC_PER_SEC, 4000), 0);
	CHECK_INT(fork_refusals_look(&counted, BEGIN + 30 * NSEC_PER_SEC, 8000), 2500);
	CHECK_INT(fork_refusals_look(&counted, BEGIN + 200 * NSEC_PER_SEC, 9000), 0);
}

/* The count cannot be read. */
TEST(unreadable_count_is_no_refusal)
{
	struct fork_refusals counted = {0};
	CHECK_INT(fork_refusals_look(&counted, BEGIN, 1000), 0);
	CHECK_INT(fork_refusals_look(&counted, BEGIN + 1, -1), 0);
	CHECK_INT(fork_refusals_look(&counted, BEGIN + 2, 1000), 0);
	CHECK_INT(fork_refusals_look(&counted, BEGIN + 3, 1010), 499);
}
