/* What keeps one client of MCP from taking the daemon for itself: alarms that come in a later turn,
 * the queue of searches, the account of messages. */
#include <uv.h>

#include "base/clock.h"
#include "mcp/alarm.h"
#include "mcp/pending_operation.h"
#include "mcp/request.h"
#include "mcp/transport/memory.h"
#include "test.h"

TEST_MAIN

struct ringing {
	uv_loop_t loop;
	struct alarm *alarm;
	unsigned count;
};

static void ring_again(void *data)
{
	struct ringing *ringing = data;
	if (++ringing->count < 1000)
		alarm_set(ringing->alarm, 0);
}

TEST(alarm_set_by_itself_leaves_the_loop)
{
	struct ringing ringing = {0};
	CHECK_INT(uv_loop_init(&ringing.loop), 0);
	ringing.alarm = alarm_after(&ringing.loop, 0, ring_again, &ringing);
	while (ringing.count == 0)
		uv_run(&ringing.loop, UV_RUN_ONCE);
	CHECK(ringing.count < 10);
	alarm_stop(&ringing.alarm);
	uv_run(&ringing.loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&ringing.loop), 0);
}

#define SEARCHES 40

struct searcher {
	struct tool_turn turn;
	struct mcp_request *request;
	unsigned *sum;
	unsigned turns;
};

static void search_come(void *data)
{
	struct searcher *searcher = data;
	int64_t until = clock_monotonic() + NSEC_PER_MSEC;
	while (clock_monotonic() < until)
		;
	searcher->turns++;
	++*searcher->sum;
	if (searcher->turns < 2)
		tool_turn_wait(searcher->request, &searcher->turn);
}

TEST(searches_share_a_turn_of_the_loop)
{
	uv_loop_t loop;
	struct core core = {.loop = &loop};
	struct mcp_request request = {.core = &core};
	unsigned sum = 0, most = 0;
	struct searcher searchers[SEARCHES] = {0}, never = {0};
	CHECK_INT(uv_loop_init(&loop), 0);
	tool_turn_cancel(&never.turn);
	for (size_t i = 0; i < SEARCHES; i++) {
		searchers[i] = (struct searcher){
		    {.come = search_come, .data = &searchers[i]}, &request, &sum, 0};
		tool_turn_wait(&request, &searchers[i].turn);
	}
	tool_turn_cancel(&searchers[7].turn);
	while (uv_loop_alive(&loop)) {
		unsigned before = sum;
		uv_run(&loop, UV_RUN_ONCE);
		most = MAX(most, sum - before);
	}
	CHECK_INT(most, 1); /* each takes longer than a turn has */
	for (size_t i = 0; i < SEARCHES; i++)
		CHECK_INT(searchers[i].turns, i == 7 ? 0 : 2);
	work_queue_release(core.work);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&loop), 0);
}

TEST(memory_of_messages_is_bounded)
{
	struct memory *all[MEMORY_MAX / (4 * MIB)] = {0}, *other = NULL;
	size_t held = 0;
	/* Of one workspace. */
	for (;; held++) {
		all[held] = memory_new("one");
		if (!memory_grow(all[held], 4 * MIB))
			break;
	}
	CHECK_INT(held, MEMORY_WORKSPACE_MAX / (4 * MIB));
	/* What is small is free, and others have their own. */
	CHECK(memory_grow(all[held], MEMORY_SMALL));
	CHECK(!memory_grow(all[held], 1));
	other = memory_new("two");
	CHECK(memory_grow(other, 4 * MIB));
	/* It is given back once, with the last reference. */
	struct memory *again = memory_hold(all[0]);
	memory_release(&all[0]);
	CHECK(!all[0]);
	CHECK(!memory_grow(all[held], 1));
	memory_release(&again);
	CHECK(memory_grow(all[held], 1));
	for (size_t i = 0; i <= held; i++)
		memory_release(&all[i]);
	memory_release(&other);
	memory_release(&other);
}

TEST(memory_of_all_messages_is_bounded)
{
	struct memory *all[2 * (MEMORY_MAX / (4 * MIB))] = {0};
	size_t held = 0;
	for (;; held++) {
		char workspace[16];
		snprintf(workspace, sizeof(workspace), "w%zu", held / 4);
		all[held] = memory_new(workspace);
		if (!memory_grow(all[held], 4 * MIB))
			break;
	}
	CHECK_INT(held, MEMORY_MAX / (4 * MIB));
	for (size_t i = 0; i <= held; i++)
		memory_release(&all[i]);
}
