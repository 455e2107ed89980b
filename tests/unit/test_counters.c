/* What core/ keeps of what sandboxes use, new limits of one that is there, and what a pause gives
 * back; with a spawner that does as it is told. */
#include "core/counters.h"

#include "base/clock.h"
#include "base/statistics.h"
#include "core/core_private.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

TEST(a_duration_is_in_one_bucket)
{
	struct histogram histogram = {0};
	histogram_add(&histogram, -1);
	histogram_add(&histogram, 50 * NSEC_PER_USEC);
	histogram_add(&histogram, 51 * NSEC_PER_USEC);
	histogram_add(&histogram, 3600 * NSEC_PER_SEC);
	CHECK_INT(histogram.buckets[0], 2);
	CHECK_INT(histogram.buckets[1], 1);
	CHECK_INT(histogram.buckets[HISTOGRAM_BOUNDS], 1);
	CHECK_INT(histogram_count(&histogram), 4);
	CHECK_INT(histogram.sum, 101 + 3600000000);
	for (size_t i = 1; i < HISTOGRAM_BOUNDS; i++)
		CHECK(histogram_bounds[i - 1] < histogram_bounds[i]);
}

static struct spawn_counters counted(uint64_t cpu_ns, uint64_t memory)
{
	struct spawn_counters counters = {.cpu_ns = cpu_ns, .memory = memory};
	counters.known[KNOWN_CPU] = counters.known[KNOWN_MEMORY] = 1;
	return counters;
}

TEST(what_is_not_known_stays)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct spawn_counters counters = counted(1000, 10), disk = {.disk = 5};
	CHECK_INT(counters_seen(sandbox), 0);
	CHECK(counters_sample(sandbox, 0) == NULL);
	counters_take(sandbox, &(struct spawn_counters){0});
	CHECK_INT(counters_seen(sandbox), 0);
	counters_take(sandbox, &counters);
	disk.known[KNOWN_DISK] = 1;
	counters_take(sandbox, &disk);
	CHECK_INT(sandbox->counters.memory, 10);
	CHECK_INT(sandbox->counters.disk, 5);
	CHECK(counters_seen(sandbox) > 0);
	/* Others look in between: one in ten seconds is kept. */
	CHECK(counters_sample(sandbox, 0) != NULL);
	CHECK(counters_sample(sandbox, 1) == NULL);
	CHECK(counters_sample(sandbox, SAMPLES_MAX) == NULL);
	fake_host_free(host);
}

static int change(struct fake_host *host, struct sandbox *sandbox, const struct limits *limits)
{
	struct outcome outcome = {0};
	struct error error;
	if (sandbox_set_limits(sandbox, NULL, limits, outcome_done, &outcome, &error) < 0)
		return (int)error.kind;
	CHECK(!outcome.done);
	CHECK(fake_until(host, &outcome.done));
	return (int)outcome.error.kind;
}

static struct limits stored(struct fake_host *host, const struct sandbox *sandbox)
{
	struct sandbox_row row = {0};
	struct error error;
	CHECK_INT(store_sandbox_get(host->core.store, &sandbox->row.id, &row, &error), 1);
	struct limits limits = row.limits;
	sandbox_row_done(&row);
	return limits;
}

TEST(limits_of_one_that_is_there)
{
	struct fake_host *host = fake_host_new();
	struct outcome outcome = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	const struct limits before = sandbox->row.limits;
	CHECK_INT(change(host, sandbox, &(struct limits){.cpu_millis = 250}), ERROR_NONE);
	CHECK_INT(stored(host, sandbox).cpu_millis, 250);
	CHECK_INT(host->requests[SPAWN_LIMITS], 1);
	/* What it is already asks nobody. */
	CHECK_INT(change(host, sandbox, &(struct limits){.cpu_millis = 250}), ERROR_NONE);
	CHECK_INT(host->requests[SPAWN_LIMITS], 1);
	CHECK_INT(change(host, sandbox, &(struct limits){.memory = 1}), ERROR_LIMIT_EXCEEDED);
	CHECK_INT(change(host, sandbox, &(struct limits){.disk = 64 * MIB}), ERROR_UNSUPPORTED);
	/* Refused by the kernel: the row is as before. */
	host->fail_type = SPAWN_LIMITS;
	host->fail_kind = ERROR_LIMIT_EXCEEDED;
	CHECK_INT(change(host, sandbox, &(struct limits){.memory = 64 * MIB}),
		  ERROR_LIMIT_EXCEEDED);
	CHECK_INT(sandbox->row.limits.memory, before.memory);
	CHECK_INT(stored(host, sandbox).memory, before.memory);
	host->fail_type = 0;
	/* One at a time. */
	host->hold_type = SPAWN_LIMITS;
	CHECK_INT(sandbox_set_limits(sandbox, NULL, &(struct limits){.pids = 99}, outcome_done,
				     &outcome, &error),
		  0);
	CHECK_INT(change(host, sandbox, &(struct limits){.pids = 98}), ERROR_CONFLICT);
	fake_turn(host, 5);
	fake_release(host);
	host->hold_type = 0;
	CHECK(fake_until(host, &outcome.done));
	CHECK_INT(stored(host, sandbox).pids, 99);
	fake_host_free(host);
}

static int stop(struct fake_host *host, struct sandbox *sandbox)
{
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(sandbox_stop(sandbox, &fake_principal, outcome_done, &outcome, &error), 0);
	CHECK(fake_until(host, &outcome.done));
	return (int)outcome.error.kind;
}

/* Also of one that is stopped: its next start would fail. */
TEST(memory_that_its_tier_needs)
{
	struct fake_host *host = fake_host_new();
	struct outcome outcome = {0};
	struct error error = {.message = ""};
	host->second_memory_min = 128 * MIB;
	fake_start(host);
	struct sandbox_spec spec = {.tier = TIER_GVISOR, .limits.memory = 64 * MIB};
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    -1);
	CHECK_INT(error.kind, ERROR_LIMIT_EXCEEDED);
	CHECK_TEXT(error.message, "memory_mb is 64; isolation `gvisor` needs at least 128");
	spec.limits.memory = 128 * MIB;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    0);
	CHECK(fake_until(host, &outcome.done) && outcome.sandbox);
	if (!outcome.sandbox)
		return;
	struct sandbox *sandbox = outcome.sandbox;
	const struct limits less = {.memory = 64 * MIB}, more = {.memory = 200 * MIB};
	CHECK_INT(change(host, sandbox, &less), ERROR_LIMIT_EXCEEDED);
	CHECK_INT(stop(host, sandbox), ERROR_NONE);
	CHECK_INT(change(host, sandbox, &less), ERROR_LIMIT_EXCEEDED);
	const struct sandbox_change patch = {.limits = less};
	CHECK_INT(sandbox_change(sandbox, &fake_principal, &patch, outcome_done, &outcome, &error),
		  -1);
	CHECK_INT(error.kind, ERROR_LIMIT_EXCEEDED);
	CHECK_INT(stored(host, sandbox).memory, 128 * MIB);
	CHECK_INT(change(host, sandbox, &more), ERROR_NONE);
	CHECK_INT(stored(host, sandbox).memory, 200 * MIB);
	/* Another tier needs less. */
	CHECK_INT(change(host, fake_create(host, NULL), &less), ERROR_NONE);
	fake_host_free(host);
}

TEST(limits_that_a_crash_has_cut_short)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct id id = sandbox->row.id;
	const struct limits before = sandbox->row.limits;
	/* The row was written, the effect did not come about: it is asked for again. */
	host->limits = before;
	CHECK_INT(change(host, sandbox, &(struct limits){.cpu_millis = 250}), ERROR_NONE);
	fake_stop(host);
	fake_start(host);
	for (int i = 0; i < 100 && host->requests[SPAWN_LIMITS] < 2; i++)
		fake_turn(host, 5);
	CHECK_INT(host->requests[SPAWN_LIMITS], 2);
	CHECK_INT(sandbox_by_id(&host->core, &id)->row.limits.cpu_millis, 250);
	/* It cannot be: then the row says what is. */
	host->fail_type = SPAWN_LIMITS;
	host->fail_kind = ERROR_LIMIT_EXCEEDED;
	fake_stop(host);
	fake_start(host);
	for (int i = 0; i < 100 && host->requests[SPAWN_LIMITS] < 3; i++)
		fake_turn(host, 5);
	fake_turn(host, 10);
	sandbox = sandbox_by_id(&host->core, &id);
	CHECK_INT(sandbox->row.limits.cpu_millis, before.cpu_millis);
	CHECK_INT(stored(host, sandbox).cpu_millis, before.cpu_millis);
	fake_host_free(host);
}

TEST(an_idle_one_is_paused_unless_it_cannot_be)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	sandbox->row.auto_pause_seconds = 1;
	host->fail_type = SPAWN_FREEZE;
	host->fail_kind = ERROR_UNSUPPORTED;
	sandbox->life->active = clock_boot() - 2 * NSEC_PER_SEC;
	timers_wake_at(&host->core, clock_boot());
	for (int i = 0; i < 100 && host->requests[SPAWN_FREEZE] == 0; i++)
		fake_turn(host, 5);
	fake_turn(host, 5);
	CHECK_INT(host->requests[SPAWN_FREEZE], 1);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	host->fail_type = 0;
	sandbox->life->active = clock_boot() - 2 * NSEC_PER_SEC;
	timers_wake_at(&host->core, clock_boot());
	for (int i = 0; i < 100 && sandbox->row.state != SANDBOX_PAUSED; i++)
		fake_turn(host, 5);
	CHECK_INT(sandbox->row.state, SANDBOX_PAUSED);
	/* The host took its memory back, and nobody waits for that. */
	for (int i = 0; i < 100 && !sandbox->pause.known; i++)
		fake_turn(host, 5);
	CHECK(sandbox->pause.known);
	CHECK_INT(host->requests[SPAWN_RECLAIM], 1);
	fake_host_free(host);
}

TEST(a_pause_is_one_though_nothing_is_given_back)
{
	struct fake_host *host = fake_host_new();
	struct outcome pause = {0}, resume = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	host->fail_type = SPAWN_RECLAIM;
	host->fail_kind = ERROR_UNSUPPORTED;
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &pause, &error), 0);
	CHECK(fake_until(host, &pause.done));
	CHECK_INT(pause.error.kind, ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_PAUSED);
	CHECK(!sandbox->pause.known);
	CHECK_INT(sandbox_resume(sandbox, NULL, outcome_done, &resume, &error), 0);
	CHECK(fake_until(host, &resume.done));
	/* Who resumes does not wait for it, and who paused is told so. */
	pause = resume = (struct outcome){0};
	host->fail_type = 0;
	host->hold_type = SPAWN_RECLAIM;
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &pause, &error), 0);
	for (int i = 0; i < 100 && sandbox->row.state != SANDBOX_PAUSED; i++)
		fake_turn(host, 5);
	CHECK(!pause.done);
	CHECK_INT(sandbox_resume(sandbox, NULL, outcome_done, &resume, &error), 0);
	CHECK(fake_until(host, &resume.done));
	CHECK(pause.done);
	CHECK_INT(pause.error.kind, ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	fake_release(host);
	fake_turn(host, 5);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	fake_host_free(host);
}
