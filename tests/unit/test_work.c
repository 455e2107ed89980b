/* Turns of the loop and shares: how many pieces of whom run before the sockets are looked at again.
 * A piece takes as long as the test says, on a clock of the test's. */
#include "base/work.h"

#include <unistd.h>

#include "test.h"

TEST_MAIN

#define PIECE_NS (WORK_TURN_NS / 5)

static int64_t now;

static int64_t test_clock(void)
{
	return now;
}

static uv_loop_t loop;
static struct work_queue *queue;

static void begin(void)
{
	now = 1000;
	uv_loop_init(&loop);
	queue = work_queue_of(&loop);
	work_set_clock(queue, test_clock);
}

static void end(void)
{
	work_queue_release(queue);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&loop), 0);
}

/* Somebody who always wants more. */
struct flood {
	struct work work;
	struct work_share *share;
	int64_t cost;
	uint64_t ran;
	bool endless;
};

static void flood_run(struct work *work)
{
	struct flood *flood = container_of(work, struct flood, work);
	now += flood->cost;
	flood->ran++;
	if (flood->endless)
		work_wait(work, flood->share);
}

static struct flood flood_of(const char *name, int64_t cost, bool endless)
{
	return (struct flood){.work = {.run = flood_run},
			      .share = work_share_get(queue, name),
			      .cost = cost,
			      .endless = endless};
}

static void flood_end(struct flood *flood)
{
	work_cancel(&flood->work);
	work_share_release(flood->share);
}

/* Why there is a work queue at all. Should a later libuv fail this, the comments that say so are
 * wrong. */
struct again {
	uv_timer_t timer;
	uv_check_t check;
	unsigned runs, turns;
};

static void again_run(uv_timer_t *timer)
{
	struct again *again = timer->data;
	if (++again->runs < 1000)
		uv_timer_start(timer, again_run, 0, 0);
}

static void again_turn(uv_check_t *check)
{
	struct again *again = check->data;
	again->turns++;
}

TEST(a_timer_of_0_ms_runs_again_in_the_same_pass)
{
	struct again again = {0};
	uv_loop_init(&loop);
	uv_timer_init(&loop, &again.timer);
	uv_check_init(&loop, &again.check);
	again.timer.data = again.check.data = &again;
	uv_check_start(&again.check, again_turn);
	uv_timer_start(&again.timer, again_run, 0, 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	if (uv_version() < ((1 << 16) | (45 << 8)))
		CHECK_INT(again.runs, 1000);
	else
		CHECK(again.runs < 1000);
	CHECK_INT(again.turns, 1);
	uv_close((uv_handle_t *)&again.timer, NULL);
	uv_close((uv_handle_t *)&again.check, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&loop), 0);
}

TEST(a_turn_has_one_budget)
{
	begin();
	struct flood floods[3];
	for (int i = 0; i < 3; i++) {
		floods[i] = flood_of("one", PIECE_NS, true);
		work_wait(&floods[i].work, floods[i].share);
	}
	for (uint64_t turn = 1; turn <= 20; turn++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		CHECK_INT(work_pieces_run(queue), turn * (WORK_TURN_NS / PIECE_NS));
	}
	/* One share: the first that came is the first that runs. */
	CHECK(floods[0].ran - floods[2].ran <= 1);
	for (int i = 0; i < 3; i++)
		flood_end(&floods[i]);
	end();
}

/* A piece that takes longer than a turn: one per turn, so that the sockets are still looked at. */
TEST(a_turn_runs_at_least_one_piece)
{
	begin();
	struct flood flood = flood_of("one", 3 * WORK_TURN_NS, true);
	work_wait(&flood.work, flood.share);
	for (uint64_t turn = 1; turn <= 5; turn++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		CHECK_INT(flood.ran, turn);
	}
	flood_end(&flood);
	end();
}

TEST(a_newcomer_is_next_however_long_the_flood)
{
	begin();
	struct flood floods[32], other = flood_of("other", PIECE_NS, false);
	for (int i = 0; i < 32; i++) {
		floods[i] = flood_of("flood", PIECE_NS, true);
		work_wait(&floods[i].work, floods[i].share);
	}
	for (int turn = 0; turn < 50; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	uint64_t before = work_pieces_run(queue);
	for (uint64_t asked = 1; asked <= 10; asked++) {
		work_run(&other.work, other.share);
		uv_run(&loop, UV_RUN_NOWAIT);
		CHECK_INT(other.ran, asked); /* in the very turn in which it came */
	}
	/* And the flood went on beside it. */
	CHECK_INT(work_pieces_run(queue) - before, 10 * (WORK_TURN_NS / PIECE_NS));
	flood_end(&other);
	for (int i = 0; i < 32; i++)
		flood_end(&floods[i]);
	end();
}

/* Time is what is shared, not pieces. */
TEST(shares_have_the_same_time)
{
	begin();
	struct flood dear = flood_of("dear", 4 * PIECE_NS, true);
	struct flood cheap[8];
	work_wait(&dear.work, dear.share);
	for (int i = 0; i < 8; i++) {
		cheap[i] = flood_of("cheap", PIECE_NS / 10, true);
		work_wait(&cheap[i].work, cheap[i].share);
	}
	for (int turn = 0; turn < 400; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	int64_t dear_time = (int64_t)dear.ran * dear.cost, cheap_time = 0;
	for (int i = 0; i < 8; i++)
		cheap_time += (int64_t)cheap[i].ran * cheap[i].cost;
	CHECK(dear_time > 0 && labs(dear_time - cheap_time) <= 8 * PIECE_NS);
	flood_end(&dear);
	for (int i = 0; i < 8; i++)
		flood_end(&cheap[i]);
	end();
}

/* Who was away has saved nothing up; who forgets its share and comes back still owes. */
TEST(time_is_neither_saved_nor_forgotten)
{
	begin();
	struct flood stays = flood_of("stays", PIECE_NS, true);
	work_wait(&stays.work, stays.share);
	for (int turn = 0; turn < 100; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	struct flood late = flood_of("late", PIECE_NS, true);
	work_wait(&late.work, late.share);
	uint64_t before = stays.ran;
	for (int turn = 0; turn < 10; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
	CHECK(late.ran <= stays.ran - before + 1);
	flood_end(&late);
	struct flood again = flood_of("again", 5 * PIECE_NS, false);
	before = stays.ran;
	for (int turn = 0; turn < 20; turn++) {
		work_run(&again.work, again.share);
		work_share_release(again.share); /* the piece has its own, while it waits */
		uv_run(&loop, UV_RUN_NOWAIT);
		again.share = work_share_get(queue, "again");
	}
	CHECK((stays.ran - before) * PIECE_NS >= again.ran * 5 * PIECE_NS - 10 * PIECE_NS);
	flood_end(&again);
	flood_end(&stays);
	end();
}

/* In a quiet loop nothing waits, and the turn's time is counted all the same. */
TEST(at_once_while_there_is_time)
{
	begin();
	struct flood floods[8];
	for (int i = 0; i < 8; i++) {
		floods[i] = flood_of("one", PIECE_NS, false);
		work_run(&floods[i].work, floods[i].share);
	}
	CHECK_INT(work_pieces_run(queue), WORK_TURN_NS / PIECE_NS);
	CHECK(work_waits(&floods[7].work));
	uv_run(&loop, UV_RUN_NOWAIT);
	CHECK_INT(work_pieces_run(queue), WORK_TURN_NS / PIECE_NS + 1);
	uv_run(&loop, UV_RUN_NOWAIT);
	CHECK_INT(work_pieces_run(queue), 8);
	for (int i = 0; i < 8; i++)
		flood_end(&floods[i]);
	end();
}

/* A piece inside another, of another share, is paid by its own. */
static struct flood inner;

static void nest(struct work *work UNUSED)
{
	now += PIECE_NS;
	work_run(&inner.work, inner.share);
}

TEST(a_piece_within_a_piece)
{
	begin();
	struct work outer = {.run = nest};
	struct work_share *share = work_share_get(queue, "outer");
	inner = flood_of("inner", 3 * PIECE_NS, false);
	work_run(&outer, share);
	CHECK_INT(inner.ran, 1);
	/* Both wait now: the outer share has had less. */
	struct flood first = flood_of("inner", PIECE_NS, false);
	struct flood second = flood_of("outer", 10 * PIECE_NS, false);
	work_wait(&first.work, first.share);
	work_wait(&second.work, second.share);
	uv_run(&loop, UV_RUN_NOWAIT);
	CHECK_INT(second.ran, 1);
	CHECK_INT(first.ran, 0);
	flood_end(&first);
	flood_end(&second);
	flood_end(&inner);
	work_share_release(share);
	end();
}

/* Tasks: in which order they run is said by the pipes that they wait for. */
struct blocked {
	struct work_task task;
	int pipe[2];
	bool done;
};

static void blocked_run(struct work_task *task)
{
	struct blocked *blocked = container_of(task, struct blocked, task);
	char byte;
	while (read(blocked->pipe[0], &byte, 1) < 0)
		;
}

static void blocked_done(struct work_task *task)
{
	container_of(task, struct blocked, task)->done = true;
}

static void blocked_begin(struct blocked *blocked, struct work_share *share)
{
	*blocked = (struct blocked){.task = {.in_thread = blocked_run, .done = blocked_done}};
	CHECK_INT(pipe(blocked->pipe), 0);
	work_in_thread(&blocked->task, share);
}

static void blocked_end(struct blocked *blocked)
{
	close(blocked->pipe[1]);
	while (!blocked->done)
		uv_run(&loop, UV_RUN_ONCE);
	close(blocked->pipe[0]);
}

TEST(tasks_take_turns)
{
	begin();
	struct work_share *one = work_share_get(queue, "one");
	struct work_share *two = work_share_get(queue, "two");
	struct blocked of_one[4], of_two;
	for (int i = 0; i < 4; i++)
		blocked_begin(&of_one[i], one);
	blocked_begin(&of_two, two);
	blocked_end(&of_one[0]);
	blocked_end(&of_two); /* though others of the first share are older */
	for (int i = 1; i < 4; i++) {
		CHECK(!of_one[i].done);
		blocked_end(&of_one[i]);
	}
	work_share_release(one);
	work_share_release(two);
	end();
}
