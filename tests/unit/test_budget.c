/* Budgets and their periods, the queue, what the host is expected to need, and metering: what the
 * clock and the counters say becomes which sums, by the hour, across daemons. */
#include "core/account/budget.h"

#include "base/clock.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

#define SECOND NSEC_PER_SEC

static void check_bounds(uint32_t period, int64_t at, int64_t began, int64_t ends)
{
	int64_t found_began, found_ends;
	budget_bounds(period, at * SECOND, &found_began, &found_ends);
	CHECK_INT(found_began / SECOND, began);
	CHECK_INT(found_ends / SECOND, ends);
}

TEST(periods_of_the_calendar)
{
	check_bounds(PERIOD_MINUTE, 1700000039, 1699999980, 1700000040);
	check_bounds(PERIOD_MINUTE, 1700000040, 1700000040, 1700000100);
	check_bounds(PERIOD_DAY, 1700000000, 1699920000, 1700006400);
	check_bounds(PERIOD_MONTH, 1709164800, 1706745600, 1709251200); /* 29 February 2024 */
	check_bounds(PERIOD_MONTH, 1704067199, 1701388800, 1704067200); /* the end of 2023 */
	check_bounds(PERIOD_MONTH, 1704067200, 1704067200, 1706745600);
}

TEST(names)
{
	for (uint32_t what = 1; what < BUDGET_WHATS; what++)
		CHECK_INT(budget_what_parse(budget_what_name(what)), what);
	for (uint32_t period = 1; period < PERIODS; period++)
		CHECK_INT(budget_period_parse(budget_period_name(period)), period);
	CHECK_INT(budget_what_parse("gold"), 0);
	CHECK_INT(budget_period_parse(""), 0);
	CHECK(!budget_what_name(0) && !budget_what_name(BUDGET_WHATS));
	CHECK(budget_possible(BUDGET_MEMORY, PERIOD_NOW));
	CHECK(!budget_possible(BUDGET_MEMORY, PERIOD_DAY));
	CHECK(!budget_possible(BUDGET_EXECS, PERIOD_NOW));
	CHECK(!budget_possible(0, PERIOD_NOW) && !budget_possible(BUDGET_CPU, PERIODS));
}

TEST(percentile)
{
	uint64_t values[100];
	for (size_t i = 0; i < 100; i++)
		values[i] = 100 - i;
	CHECK_INT(admission_p95(values, 100), 95);
	CHECK_INT(admission_p95(values, 1), 1);
	CHECK_INT(admission_p95(values, 20), 19);
	CHECK_INT(admission_p95(values, 0), 0);
}

static const struct limits small = {.memory = 64 * MIB, .disk = 64 * MIB, .cpu_millis = 500};

static enum error_kind check_create(struct core *core, struct workspace *workspace, bool *never)
{
	struct error error = {0};
	return budget_check_create(core, workspace, &small, never, &error) == 0 ? ERROR_NONE
										: error.kind;
}

TEST(what_is_spent_survives)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct core *core = &host->core;
	struct error error = {0};
	bool never;
	struct workspace *team = workspace_get(core, "team");
	CHECK(workspace_get(core, "team") == team);
	const struct budget_wish wishes[] = {{BUDGET_CREATES, PERIOD_MONTH, 2},
					     {BUDGET_MEMORY, PERIOD_NOW, 32 * MIB}};
	CHECK_INT(budget_replace(core, team, wishes, 1, &error), 0);
	CHECK_INT(check_create(core, team, &never), ERROR_NONE);
	budget_spend(team, BUDGET_CREATES, 2);
	CHECK_INT(check_create(core, team, &never), ERROR_QUOTA_EXCEEDED);
	CHECK(!never);
	/* More than there may ever be: nobody waits for that. */
	CHECK_INT(budget_replace(core, team, wishes + 1, 1, &error), 0);
	CHECK_INT(check_create(core, team, &never), ERROR_QUOTA_EXCEEDED);
	CHECK(never);
	CHECK_INT(budget_replace(core, team, wishes, 1, &error), 0);
	meter_flush(core);
	fake_stop(host);
	fake_start(host);
	team = workspace_get(core, "team");
	CHECK_INT(team->own[BUDGET_CREATES][PERIOD_MONTH], 2);
	CHECK_INT(team->spent[BUDGET_CREATES][PERIOD_MONTH].amount, 2);
	CHECK_INT(check_create(core, team, &never), ERROR_QUOTA_EXCEEDED);
	/* Another period has another amount. */
	team->spent[BUDGET_CREATES][PERIOD_MONTH].ends_wall = clock_wall();
	CHECK_INT(check_create(core, team, &never), ERROR_NONE);
	fake_host_free(host);
}

static uint32_t queue_length(struct fake_host *host, const char *workspace)
{
	return workspace_get(&host->core, workspace)->queue_length;
}

static void create_of(struct fake_host *host, const char *workspace, uint32_t wait_ms,
		      uint64_t memory, struct outcome *outcome)
{
	struct principal principal = fake_principal;
	struct sandbox_spec spec = {.wait_ms = wait_ms, .limits.memory = memory};
	struct error error = {0};
	snprintf(principal.workspace, sizeof(principal.workspace), "%s", workspace);
	*outcome = (struct outcome){0};
	if (sandbox_create(&host->core, &principal, &spec, outcome_created, outcome, &error) < 0) {
		outcome->done = true;
		outcome->error = error;
	}
}

static void create_in(struct fake_host *host, const char *workspace, uint32_t wait_ms,
		      struct outcome *outcome)
{
	create_of(host, workspace, wait_ms, 0, outcome);
}

TEST(one_that_the_host_has_no_room_for_holds_up_no_other_workspace)
{
	struct fake_host *host = fake_host_new();
	host->config.sandboxes_max = 2;
	host->config.memory_overcommit = 1;
	fake_start(host);
	uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct outcome filler, large, a, behind, b, gone = {0};
	struct error error;
	create_in(host, "c", 0, &filler);
	CHECK(fake_until(host, &filler.done));
	create_of(host, "c", 0, total / 10 * 6, &large);
	CHECK(fake_until(host, &large.done));
	CHECK_INT(large.error.kind, ERROR_NONE);
	/* All wait for one of the two to go. */
	create_of(host, "a", 60000, total / 10 * 6, &a);
	create_in(host, "b", 60000, &b);
	CHECK_INT(sandbox_delete(filler.sandbox, NULL, END_REASON_USER, NULL, outcome_done, &gone,
				 &error),
		  0);
	CHECK(fake_until(host, &b.done));
	CHECK_INT(b.error.kind, ERROR_NONE);
	CHECK(!a.done);
	CHECK_INT(queue_length(host, "a"), 1);
	/* What is said in the end is how things are then, not how they were when it came. */
	gone = (struct outcome){0};
	create_in(host, "a", 30000, &behind);
	CHECK_INT(
	    sandbox_delete(b.sandbox, NULL, END_REASON_USER, NULL, outcome_done, &gone, &error), 0);
	CHECK(fake_until(host, &gone.done));
	create_queue_tend(&host->core, clock_boot() + 40 * NSEC_PER_SEC);
	CHECK(behind.done && !a.done);
	CHECK_INT(behind.error.kind, ERROR_HOST_CAPACITY);
	CHECK_INT(behind.error.queue_position, 2);
	CHECK(strstr(behind.error.message, "1 creates wait before this one"));
	CHECK(create_queue_leave(&host->core, &a));
	fake_host_free(host);
}

TEST(turns_between_workspaces)
{
	struct fake_host *host = fake_host_new();
	host->config.sandboxes_max = 1;
	fake_start(host);
	struct outcome first, a[2], b, refused;
	create_in(host, "a", 0, &first);
	CHECK(fake_until(host, &first.done));
	create_in(host, "a", 60000, &a[0]);
	create_in(host, "a", 60000, &a[1]);
	create_in(host, "b", 60000, &b);
	create_in(host, "b", 0, &refused);
	CHECK_INT(refused.error.kind, ERROR_BUSY);
	CHECK_INT(queue_length(host, "a"), 2);
	CHECK_INT(queue_length(host, "b"), 1);
	/* The host has room for one at a time: a's first, then b's, then a's second. */
	struct outcome *const order[] = {&a[0], &b, &a[1]};
	struct sandbox *sandbox = first.sandbox;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		struct outcome gone = {0};
		struct error error;
		CHECK_INT(sandbox_delete(sandbox, NULL, END_REASON_USER, NULL, outcome_done, &gone,
					 &error),
			  0);
		CHECK(fake_until(host, &order[i]->done));
		CHECK_INT(order[i]->error.kind, ERROR_NONE);
		for (size_t later = i + 1; later < ARRAY_SIZE(order); later++)
			CHECK(!order[later]->done);
		sandbox = order[i]->sandbox;
		if (!sandbox)
			break;
		CHECK(sandbox->queued_ms > 0);
	}
	/* Who leaves is not called, and the others move up. */
	create_in(host, "a", 60000, &a[0]);
	create_in(host, "a", 1, &a[1]);
	CHECK(create_queue_leave(&host->core, &a[0]));
	CHECK(!create_queue_leave(&host->core, &a[0]));
	CHECK(fake_until(host, &a[1].done));
	CHECK_INT(a[1].error.queue_position, 1);
	CHECK(!a[0].done);
	fake_host_free(host);
}

static void counters(struct sandbox *sandbox, uint64_t cpu_ns, uint64_t memory, uint64_t disk)
{
	struct spawn_counters *to = &sandbox->counters;
	*to = (struct spawn_counters){.cpu_ns = cpu_ns, .memory = memory, .disk = disk};
	to->known[KNOWN_CPU] = to->known[KNOWN_MEMORY] = to->known[KNOWN_DISK] = 1;
	meter_counters(sandbox);
}

struct sums {
	struct usage_row row;
	unsigned rows;
};

static bool add_row(void *data, const struct usage_row *row)
{
	struct sums *sums = data;
	sums->row = *row;
	sums->rows++;
	return true;
}

static struct usage_row summed(struct fake_host *host, int64_t from_hour, int64_t to_hour)
{
	struct sums sums = {0};
	struct error error = {0};
	meter_flush(&host->core);
	struct usage_walk walk = {.from_hour = from_hour, .to_hour = to_hour, .at_hour = INT64_MIN};
	bool more;
	CHECK_INT(store_usage_walk(host->core.store, &walk, 1000, add_row, &sums, &more, &error),
		  0);
	CHECK(!more);
	return sums.row;
}

/* "box 3, box 3, " or "one 6, two 3, ": what a walk tells, so many rows at a time. */
struct told {
	struct buffer text;
	unsigned left; /* sums that are wanted */
};

static bool tell_row(void *data, const struct usage_row *row)
{
	struct told *told = data;
	if (told->left-- == 0)
		return false;
	return buffer_printf(&told->text, "%s %llu, ", row->name ? row->name : row->workspace,
			     (unsigned long long)row->execs) == 0;
}

static void expect_walk(struct store *store, struct usage_walk walk, uint32_t rows, unsigned wanted,
			const char *expected)
{
	struct told told = {.text = BUFFER(4096), .left = wanted};
	struct error error;
	bool more = true;
	for (int turns = 0; more && turns < 100; turns++)
		CHECK_INT(store_usage_walk(store, &walk, rows, tell_row, &told, &more, &error), 0);
	CHECK(!more);
	CHECK_TEXT(buffer_text(&told.text), expected);
	buffer_done(&told.text);
}

TEST(sums_do_not_depend_on_how_many_rows_are_read_at_once)
{
	static const char *const names[] = {"a", "b", "c"};
	struct fake_host *host = fake_host_new();
	struct error error;
	fake_start(host);
	struct store *store = host->core.store;
	for (size_t box = 0; box < ARRAY_SIZE(names); box++) {
		struct usage_row row = {
		    .workspace = box < 2 ? "one" : "two", .name = names[box], .execs = box + 1};
		memset(row.sandbox.text, (int)('a' + box), ID_LENGTH);
		for (row.hour = 10; row.hour < 14; row.hour++)
			CHECK_INT(store_usage_put(store, &row, &error), 0);
	}
	for (uint32_t rows = 1; rows < 14; rows++) {
		struct usage_walk walk = {.from_hour = 11, .to_hour = 13, .at_hour = INT64_MIN};
		expect_walk(store, walk, rows, 9, "a 2, b 4, c 6, ");
		expect_walk(store, walk, rows, 2, "a 2, b 4, ");
		walk.workspace = "one";
		expect_walk(store, walk, rows, 9, "a 2, b 4, ");
		memset(walk.at, 'a', ID_LENGTH);
		walk.at_hour = INT64_MAX;
		expect_walk(store, walk, rows, 9, "b 4, ");
		walk = (struct usage_walk){
		    .by = USAGE_BY_WORKSPACE, .from_hour = 11, .to_hour = 13, .at_hour = INT64_MIN};
		expect_walk(store, walk, rows, 9, "one 6, two 6, ");
		walk.workspace = "one";
		expect_walk(store, walk, rows, 9, "one 6, ");
		walk.from_hour = 20;
		walk.to_hour = 30;
		expect_walk(store, walk, rows, 9, "");
	}
	fake_host_free(host);
}

#define ALL 0, INT32_MAX

TEST(hours_get_their_share)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, "box");
	if (!sandbox)
		return;
	struct meter *meter = &sandbox->life->meter;
	int64_t shift = clock_wall() - clock_boot();
	/* As if nobody had looked since half an hour before the hour before last. */
	int64_t hour = clock_wall() / NSEC_PER_HOUR;
	int64_t since = (hour - 1) * NSEC_PER_HOUR - NSEC_PER_HOUR / 2;
	meter->counted = since - shift;
	meter->row.hour = since / NSEC_PER_HOUR;
	meter->row.disk_seen = 1000;
	uint64_t length = (uint64_t)(clock_wall() - since);
	counters(sandbox, 90 * SECOND, 1 << 20, 2000);
	struct usage_row first = summed(host, hour - 2, hour - 1);
	struct usage_row second = summed(host, hour - 1, hour);
	struct usage_row all = summed(host, ALL);
	/* The two clocks are read one after the other, here and there. */
	CHECK_INT((first.alive_ns + SECOND / 2) / SECOND, 1800);
	CHECK_INT((second.alive_ns + SECOND / 2) / SECOND, 3600);
	CHECK(all.alive_ns + SECOND >= length && all.alive_ns < length + 60 * SECOND);
	CHECK_INT(all.cpu_ns, 90 * SECOND);
	CHECK(second.cpu_ns > first.cpu_ns);
	CHECK_INT(second.disk_byte_seconds, 3600 * 1000);
	/* Without a sample before this one, this one counts for all of it. */
	CHECK_INT(all.memory_byte_seconds >> 20, (int64_t)(all.alive_ns / SECOND));
	fake_host_free(host);
}

TEST(counters_that_go_back)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, "box");
	if (!sandbox)
		return;
	counters(sandbox, 5 * SECOND, 0, 0);
	counters(sandbox, 7 * SECOND, 0, 0);
	/* Another boot: what it says is new. */
	counters(sandbox, 3 * SECOND, 0, 0);
	counters(sandbox, 4 * SECOND, 0, 0);
	CHECK_INT(summed(host, ALL).cpu_ns, 11 * SECOND);
	fake_host_free(host);
}

TEST(a_daemon_that_is_back_goes_on)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, "box");
	if (!sandbox)
		return;
	struct id id = sandbox->row.id;
	counters(sandbox, 5 * SECOND, 1 << 20, 4096);
	meter_flush(&host->core);
	fake_stop(host);
	fake_start(host);
	sandbox = sandbox_by_id(&host->core, &id);
	if (!sandbox) {
		CHECK(false);
		return;
	}
	/* As if it had been away for a minute. */
	sandbox->life->meter.counted -= 60 * SECOND;
	counters(sandbox, 6 * SECOND, 1 << 20, 4096);
	struct usage_row row = summed(host, ALL);
	CHECK_INT(row.cpu_ns, 6 * SECOND);
	CHECK(row.alive_ns >= 60 * SECOND && row.alive_ns < 120 * SECOND);
	CHECK(row.disk_byte_seconds >= 60 * 4096);
	/* Paused time is no time alive, and needs no memory. */
	struct outcome paused = {0};
	struct error error;
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &paused, &error), 0);
	CHECK(fake_until(host, &paused.done));
	uint64_t alive = summed(host, ALL).alive_ns, memory = summed(host, ALL).memory_byte_seconds;
	sandbox->life->meter.counted -= 3600 * SECOND;
	paused = (struct outcome){0};
	CHECK_INT(sandbox_resume(sandbox, NULL, outcome_done, &paused, &error), 0);
	CHECK(fake_until(host, &paused.done));
	row = summed(host, ALL);
	CHECK(row.paused_ns >= 3600 * SECOND);
	CHECK(row.alive_ns < alive + 60 * SECOND);
	CHECK_INT(row.memory_byte_seconds, memory);
	/* What is old goes. */
	CHECK(store_usage_prune(host->core.store, INT32_MAX, &error) > 0);
	CHECK_INT(store_usage_prune(host->core.store, INT32_MAX, &error), 0);
	fake_host_free(host);
}
