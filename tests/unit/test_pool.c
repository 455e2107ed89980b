/* Sandboxes that are ready and nobody's: filled, given away, kept by the next daemon, never seen by
 * anybody else. With fake inits (fake_host.h). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/statistics.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/pool/pool_private.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

#define SIZE 2

static bool until_ready(struct fake_host *host, uint32_t count)
{
	int64_t until = clock_monotonic() + 20 * NSEC_PER_SEC;
	while ((statistics.pool_ready != count || statistics.pool_making > 0) &&
	       clock_monotonic() < until)
		fake_turn(host, 1);
	return statistics.pool_ready == count;
}

static struct fake_host *filled(void)
{
	struct fake_host *host = fake_host_new();
	host->config.pool_size = SIZE;
	host->config.pool_max = 4;
	fake_start(host);
	CHECK(until_ready(host, SIZE));
	return host;
}

static struct sandbox *create(struct fake_host *host, const struct sandbox_spec *spec)
{
	struct outcome outcome = {0};
	struct error error;
	if (sandbox_create(&host->core, &fake_principal, spec, outcome_created, &outcome, &error) <
	    0) {
		test_fail(__FILE__, __LINE__, "%s", error.message);
		return NULL;
	}
	CHECK(!outcome.done); /* never from within */
	CHECK(fake_until(host, &outcome.done));
	return outcome.sandbox;
}

static void count_row(void *data, const struct pool_row *row)
{
	CHECK(row->ready);
	++*(unsigned *)data;
}

static unsigned rows(struct fake_host *host)
{
	unsigned count = 0;
	struct error error;
	CHECK_INT(store_pool_each(host->core.store, count_row, &count, &error), 0);
	return count;
}

static struct fake_init *any_init(struct fake_host *host)
{
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		if (host->inits[i].used)
			return &host->inits[i];
	return NULL;
}

static void finish(struct fake_host *host)
{
	fake_stop(host);
	fake_host_free(host);
}

TEST(filled_and_seen_by_nobody)
{
	struct fake_host *host = filled();
	CHECK_INT(fake_existing(host), SIZE);
	CHECK_INT(rows(host), SIZE);
	CHECK_INT(host->core.sandbox_count, 0);
	CHECK(core_idle(&host->core));
	struct fake_init *init = any_init(host);
	CHECK(!sandbox_by_id(&host->core, &init->id));
	CHECK_TEXT(init->hostname, init->id.text);
	CHECK(init->deadline > clock_boot() && init->deadline <= clock_boot() + POOL_LIFE);
	finish(host);
}

/* It becomes the asker's with no question to the spawner but that it is told, and none to its init
 * but a deadline. */
TEST(given_to_who_asks)
{
	struct fake_host *host = filled();
	unsigned asked[32];
	memcpy(asked, host->requests, sizeof(asked));
	/* Nothing is made meanwhile, however slow the machine is. */
	host->core.private->pool.back_off = NSEC_PER_SEC;
	host->core.private->pool.refill_at = INT64_MAX;
	const struct pair environment = {"KEY", "value"};
	const struct sandbox_spec spec = {.name = "named",
					  .timeout_set = true,
					  .timeout_seconds = 50,
					  .environment = &environment,
					  .environment_count = 1};
	struct sandbox *sandbox = create(host, &spec);
	CHECK(sandbox && sandbox->guest_ready);
	if (!sandbox)
		return;
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	CHECK(init != NULL);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	CHECK_INT(sandbox->row.create_origin, ORIGIN_POOL);
	CHECK_INT(sandbox->row.limit_reasons[LIMIT_DISK], LIMIT_NO_DISK_MECHANISM);
	CHECK_INT(host->core.sandbox_count, 1);
	CHECK_INT(rows(host), SIZE - 1);
	CHECK_INT(asked[SPAWN_CREATE], host->requests[SPAWN_CREATE]);
	CHECK_INT(asked[SPAWN_LIMITS], host->requests[SPAWN_LIMITS]);
	fake_turn(host, 5);
	CHECK_INT(host->requests[SPAWN_OWN], 1);
	CHECK(init->deadline <= clock_boot() + 50 * NSEC_PER_SEC);
	/* Another takes its place. */
	host->core.private->pool.back_off = 0;
	pool_refill_at(&host->core, clock_boot());
	CHECK(until_ready(host, SIZE));
	CHECK_INT(rows(host), SIZE);
	finish(host);
}

static void count_all(struct fake_host *host, uint64_t cpu_ns)
{
	struct outcome outcome = {0};
	struct error error;
	host->cpu_ns = cpu_ns;
	CHECK_INT(counters_refresh_all(&host->core, outcome_done, &outcome, &error), 0);
	CHECK(fake_until(host, &outcome.done));
}

/* What it has used before, its owner does not pay, also when the daemon is killed before it wrote
 * down anything else. */
TEST(counted_from_the_hand_out_on)
{
	struct fake_host *host = fake_host_new();
	struct usage_row usage;
	struct error error;
	host->config.pool_size = SIZE;
	host->cpu_ns = 100 * NSEC_PER_MSEC;
	fake_start(host);
	CHECK(until_ready(host, SIZE));
	count_all(host, 300 * NSEC_PER_MSEC);
	struct sandbox *sandbox = create(host, &(struct sandbox_spec){.name = "counted"});
	CHECK(sandbox && sandbox->row.create_origin == ORIGIN_POOL);
	if (!sandbox)
		return;
	const struct id id = sandbox->row.id;
	CHECK_INT(store_usage_last(host->core.store, &id, &usage, &error), 1);
	CHECK_INT(usage.cpu_seen_ns, 300 * NSEC_PER_MSEC);
	CHECK_INT(usage.cpu_ns, 0);
	/* As after kill -9: core_stop() writes nothing once the next daemon may. */
	host->core.private->let_go = true;
	fake_stop(host);
	fake_start(host);
	sandbox = sandbox_by_id(&host->core, &id);
	CHECK(sandbox && sandbox->row.state == SANDBOX_RUNNING);
	if (!sandbox)
		return;
	count_all(host, 340 * NSEC_PER_MSEC);
	CHECK_INT(sandbox->life->meter.row.cpu_ns, 40 * NSEC_PER_MSEC);
	finish(host);
}

/* The row and the end of the member's are one: where the store fails nobody gets it, and the next
 * does. */
TEST(put_back_when_the_name_is_taken)
{
	struct fake_host *host = filled();
	const struct sandbox_spec spec = {.name = "only"};
	CHECK(create(host, &spec) != NULL);
	CHECK(until_ready(host, SIZE));
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    -1);
	CHECK_INT(statistics.pool_ready, SIZE);
	CHECK_INT(rows(host), SIZE);
	CHECK_INT(host->core.sandbox_count, 1);
	struct sandbox *sandbox = create(host, &(struct sandbox_spec){.name = "other"});
	CHECK(sandbox && sandbox->row.create_origin == ORIGIN_POOL);
	finish(host);
}

static int refuse(void *data, const struct id *id, struct error *error)
{
	struct outcome *outcome = data;
	CHECK(id_is_set(id));
	(void)outcome;
	return error_set(error, ERROR_NO_SPACE, "no room for the key");
}

TEST(put_back_when_the_asker_refuses_its_id)
{
	struct fake_host *host = filled();
	const struct sandbox_spec spec = {.named = refuse};
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    -1);
	CHECK_INT(error.kind, ERROR_NO_SPACE);
	CHECK_INT(statistics.pool_ready, SIZE);
	CHECK_INT(rows(host), SIZE);
	finish(host);
}

TEST(cpu_and_pids_are_set)
{
	struct fake_host *host = filled();
	const struct sandbox_spec spec = {.limits = {.cpu_millis = 500, .pids = 77}};
	struct sandbox *sandbox = create(host, &spec);
	CHECK(sandbox && sandbox->row.create_origin == ORIGIN_POOL);
	CHECK_INT(host->requests[SPAWN_LIMITS], 1);
	CHECK(sandbox->guest_ready && sandbox->row.state == SANDBOX_RUNNING);
	finish(host);
}

/* What cannot be given so fails like any boot, and goes. */
TEST(limits_that_cannot_be_set)
{
	struct fake_host *host = filled();
	const struct sandbox_spec spec = {.limits = {.cpu_millis = 500}};
	struct outcome outcome = {0};
	struct error error;
	host->fail_type = SPAWN_LIMITS;
	host->fail_kind = ERROR_NO_SPACE;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    0);
	CHECK(fake_until(host, &outcome.done));
	CHECK_INT(outcome.error.kind, ERROR_NO_SPACE);
	CHECK(fake_until_count(host, 0));
	finish(host);
}

static bool is_cold(struct fake_host *host, const struct sandbox_spec *spec)
{
	struct sandbox *sandbox = create(host, spec);
	return sandbox && sandbox->row.create_origin == ORIGIN_COLD;
}

TEST(what_does_not_fit_is_made_from_nothing)
{
	struct fake_host *host = filled();
	struct pair many[POOL_ENVIRONMENT_MAX + 1];
	char names[POOL_ENVIRONMENT_MAX + 1][8];
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		snprintf(names[i], sizeof(names[i]), "K%zu", i);
		many[i] = (struct pair){names[i], ""};
	}
	const struct sandbox_spec specs[] = {
	    {.limits.memory = 100 * MIB},
	    {.limits.disk = 100 * MIB},
	    {.limits.files = 100},
	    {.flags = CREATE_NESTED_USERNS},
	    {.environment = many, .environment_count = ARRAY_SIZE(many)},
	};
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		CHECK(is_cold(host, &specs[i]));
		host->core.private->pool.quiet_until = INT64_MAX; /* nothing like it is made */
	}
	finish(host);
}

/* It is what was asked for last that there are some of. */
TEST(another_shape)
{
	struct fake_host *host = filled();
	const struct sandbox_spec spec = {.limits.memory = 100 * MIB};
	CHECK(is_cold(host, &spec));
	int64_t until = clock_monotonic() + 20 * NSEC_PER_SEC;
	struct sandbox *sandbox = NULL;
	while ((!sandbox || sandbox->row.create_origin != ORIGIN_POOL) &&
	       clock_monotonic() < until) {
		fake_turn(host, 30);
		sandbox = create(host, &spec);
	}
	CHECK_INT(sandbox->row.create_origin, ORIGIN_POOL);
	finish(host);
}

/* ---- Whose time is over. */

TEST(renewed_while_there_is_a_daemon)
{
	struct fake_host *host = filled();
	int64_t first = any_init(host)->deadline;
	for (int64_t passed = 0; passed < 2 * POOL_LIFE; passed += POOL_LIFE / 4)
		fake_pass(host, (unsigned)(POOL_LIFE / 4 / NSEC_PER_MSEC));
	fake_turn(host, 50);
	CHECK(any_init(host)->deadline > first + POOL_LIFE);
	CHECK_INT(statistics.pool_ready, SIZE);
	finish(host);
}

/* A daemon that stood still for longer than they live does not give one away. */
TEST(not_given_when_its_time_is_up)
{
	struct fake_host *host = filled();
	*clock_advance += (uint64_t)POOL_LIFE;
	CHECK(is_cold(host, &(struct sandbox_spec){0}));
	finish(host);
}

TEST(one_that_ends_is_replaced)
{
	struct fake_host *host = filled();
	struct id id = any_init(host)->id;
	fake_init_dies(any_init(host), END_DEADLINE);
	int64_t until = clock_monotonic() + 20 * NSEC_PER_SEC;
	while (fake_init_of(host, &id) && clock_monotonic() < until)
		fake_turn(host, 5);
	CHECK(!fake_init_of(host, &id));
	/* The next try waits a while. */
	fake_pass(host, 2000);
	CHECK(until_ready(host, SIZE));
	CHECK_INT(rows(host), SIZE);
	finish(host);
}

/* ---- Failures. */

TEST(a_boot_that_fails_is_tried_again_later)
{
	struct fake_host *host = fake_host_new();
	host->config.pool_size = SIZE;
	host->fail_type = SPAWN_CREATE;
	host->fail_kind = ERROR_NO_SPACE;
	fake_start(host);
	fake_turn(host, 100);
	CHECK_INT(host->requests[SPAWN_CREATE], 1);
	CHECK_INT(rows(host), 0);
	host->fail_type = 0;
	fake_pass(host, 2000);
	CHECK(until_ready(host, SIZE));
	finish(host);
}

TEST(an_init_that_refuses_or_is_silent)
{
	struct fake_host *host = fake_host_new();
	host->config.pool_size = SIZE;
	host->refuse_next = true;
	fake_start(host);
	fake_turn(host, 100);
	CHECK_INT(statistics.pool_ready, 0);
	CHECK_INT(fake_existing(host), 0);
	host->refuse_next = false;
	host->silent_next = true;
	fake_pass(host, 2000);
	fake_pass(host, CONNECT_TIMEOUT_MS + 1000);
	fake_turn(host, 100);
	CHECK_INT(fake_existing(host), 0);
	host->silent_next = false;
	fake_pass(host, 10000);
	CHECK(until_ready(host, SIZE));
	finish(host);
}

/* ---- The next daemon. */

TEST(kept_by_the_next_daemon)
{
	struct fake_host *host = filled();
	struct id id = any_init(host)->id;
	unsigned created = host->requests[SPAWN_CREATE];
	fake_stop(host);
	*clock_advance += 5 * NSEC_PER_SEC;
	fake_start(host);
	CHECK(until_ready(host, SIZE));
	CHECK_INT(host->requests[SPAWN_CREATE], created);
	CHECK(fake_init_of(host, &id)->deadline >= clock_boot() + POOL_LIFE - 3 * NSEC_PER_SEC);
	struct sandbox *sandbox = create(host, &(struct sandbox_spec){0});
	CHECK(sandbox && sandbox->row.create_origin == ORIGIN_POOL);
	finish(host);
}

static void check_not_kept(struct fake_host *host)
{
	fake_start(host);
	CHECK(until_ready(host, SIZE));
	CHECK_INT(fake_existing(host), SIZE);
	CHECK_INT(rows(host), SIZE);
	CHECK_INT(host->requests[SPAWN_CREATE], 2 * SIZE);
	finish(host);
}

TEST(not_kept_with_another_init)
{
	struct fake_host *host = filled();
	fake_stop(host);
	host->programs_hash++;
	check_not_kept(host);
}

/* A file of /etc that every sandbox has a copy of has changed while nothing ran. */
TEST(not_kept_with_other_layers)
{
	struct fake_host *host = filled();
	fake_stop(host);
	(void)!text_copy(host->rootfs_digest, sizeof(host->rootfs_digest), "another digest");
	check_not_kept(host);
}

TEST(not_kept_with_another_configuration)
{
	struct fake_host *host = filled();
	fake_stop(host);
	host->config.defaults.memory = 300 * MIB;
	check_not_kept(host);
}

TEST(not_kept_when_nothing_runs)
{
	struct fake_host *host = filled();
	fake_stop(host);
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		host->inits[i].running = false;
	check_not_kept(host);
}

/* A daemon that was killed while it made one. */
TEST(half_made_ones_are_destroyed)
{
	struct fake_host *host = fake_host_new();
	host->config.pool_size = SIZE;
	host->hold_type = SPAWN_COUNTERS;
	fake_start(host);
	fake_turn(host, 100);
	CHECK_INT(fake_existing(host), 1);
	struct id id = any_init(host)->id;
	fake_stop(host);
	host->hold_type = 0;
	host->held_count = 0;
	fake_start(host);
	CHECK(until_ready(host, SIZE));
	CHECK(!fake_init_of(host, &id));
	CHECK_INT(fake_existing(host), SIZE);
	finish(host);
}

TEST(of_rows_whose_sandboxes_are_gone_nothing_stays)
{
	struct fake_host *host = filled();
	fake_stop(host);
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		host->inits[i].used = false;
	host->config.pool_size = 0;
	fake_start(host);
	CHECK_INT(rows(host), 0);
	finish(host);
}

/* ---- The end. */

static void note(void *data)
{
	*(bool *)data = true;
}

TEST(destroyed_at_a_clean_end)
{
	struct fake_host *host = filled();
	bool ended = false;
	core_end_pool(&host->core, note, &ended);
	CHECK(fake_until(host, &ended));
	CHECK_INT(fake_existing(host), 0);
	CHECK_INT(rows(host), 0);
	fake_turn(host, 50);
	CHECK_INT(fake_existing(host), 0);
	finish(host);
}

TEST(switched_off_by_a_reload)
{
	struct fake_host *host = filled();
	struct config config = host->config;
	config.pool_size = 0;
	core_configure(&host->core, &config);
	fake_turn(host, 100);
	CHECK_INT(fake_existing(host), 0);
	CHECK_INT(rows(host), 0);
	config.pool_size = SIZE;
	core_configure(&host->core, &config);
	CHECK(until_ready(host, SIZE));
	finish(host);
}

/* ---- What goes wrong around it. */

static int begin_create(struct fake_host *host, const struct sandbox_spec *spec,
			struct outcome *outcome, struct error *error)
{
	return sandbox_create(&host->core, &fake_principal, spec, outcome_created, outcome, error);
}

TEST(the_daemon_ends_before_the_asker_is_told)
{
	struct fake_host *host = filled();
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(begin_create(host, &(struct sandbox_spec){0}, &outcome, &error), 0);
	finish(host);
	CHECK(outcome.done);
}

TEST(a_create_does_not_cut_the_back_off_short)
{
	struct fake_host *host = fake_host_new();
	struct outcome outcome = {0};
	struct error error;
	host->config.pool_size = SIZE;
	host->fail_type = SPAWN_CREATE;
	host->fail_kind = ERROR_NO_SPACE;
	fake_start(host);
	fake_turn(host, 100);
	CHECK_INT(host->requests[SPAWN_CREATE], 1);
	CHECK_INT(begin_create(host, &(struct sandbox_spec){0}, &outcome, &error), 0);
	CHECK(fake_until(host, &outcome.done));
	fake_turn(host, 100);
	CHECK_INT(host->requests[SPAWN_CREATE], 2);
	finish(host);
}

/* Its init may have ended it already: it is not told to live on. */
TEST(one_whose_time_has_passed_is_destroyed)
{
	struct fake_host *host = filled();
	*clock_advance += (uint64_t)POOL_LIFE;
	timers_wake_at(&host->core, clock_boot());
	host->core.private->pool.quiet_until = INT64_MAX;
	fake_turn(host, 20);
	CHECK_INT(statistics.pool_ready, 0);
	finish(host);
}

/* The spawner counts those that it has not destroyed yet. */
TEST(never_more_than_the_maximum_exist)
{
	struct fake_host *host = filled();
	host->hold_type = SPAWN_DESTROY;
	for (int i = 0; i < 10; i++) {
		core_configure(&host->core, &host->config);
		fake_turn(host, 50);
	}
	CHECK(fake_existing(host) <= host->config.pool_max);
	fake_release(host);
	CHECK(until_ready(host, SIZE));
	CHECK(fake_existing(host) <= host->config.pool_max);
	finish(host);
}

TEST(a_spawner_that_cannot_be_asked_for_limits)
{
	struct fake_host *host = filled();
	struct outcome outcome = {0};
	struct error error;
	const struct sandbox_spec spec = {.limits = {.cpu_millis = 500}};
	uv_poll_stop(&host->poll);
	while (counters_refresh_all(&host->core, NULL, NULL, &error) == 0)
		;
	CHECK_INT(error.kind, ERROR_BUSY);
	CHECK_INT(begin_create(host, &spec, &outcome, &error), 0);
	CHECK(fake_until(host, &outcome.done));
	CHECK_INT(outcome.error.kind, ERROR_BUSY);
	finish(host);
}

/* An earlier daemon stood still while this one started, and then gave one away. */
TEST(one_that_another_daemon_gave_away)
{
	struct fake_host *host = filled();
	struct sandbox *first = create(host, &(struct sandbox_spec){0});
	CHECK(until_ready(host, SIZE));
	struct sandbox_row row;
	struct outcome outcome = {0};
	struct error error;
	list_each (&host->core.private->pool.members, node) {
		sandbox_row_copy(&first->row, &row);
		row.id = list_entry(node, struct pooled, link)->row.id;
		CHECK_INT(store_pool_delete(host->core.store, &row.id, &error), 1);
		CHECK_INT(store_sandbox_insert(host->core.store, &row, &error), 0);
		sandbox_row_done(&row);
	}
	unsigned destroyed = host->requests[SPAWN_DESTROY];
	/* One who asks is told to try again; the other is only forgotten. */
	CHECK_INT(begin_create(host, &(struct sandbox_spec){0}, &outcome, &error), -1);
	CHECK_INT(error.kind, ERROR_BUSY);
	pool_configure(&host->core);
	CHECK_INT(host->requests[SPAWN_DESTROY], destroyed);
	CHECK(create(host, &(struct sandbox_spec){0}) != NULL);
	finish(host);
}
