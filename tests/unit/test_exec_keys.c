/* The keys of execs, by which an init knows them: counted by their sandbox, never used twice. */
#include "core/core_private.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

/* One that has ended by itself. */
static struct exec *run(struct fake_host *host, struct sandbox *sandbox)
{
	const char *argv[] = {"echo", "x"};
	struct exec_spec spec = {.argv = argv, .argc = 2};
	struct exec *exec = NULL;
	struct error error;
	CHECK_INT(exec_start(sandbox, &spec, &exec, &error), 0);
	for (int i = 0; i < 200 && exec && !exec_ended(exec); i++)
		fake_turn(host, 10);
	fake_turn(host, 10);
	return exec;
}

TEST(keys_are_of_the_sandbox_and_used_once)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	fake_start(host);
	struct sandbox *one = fake_create(host, NULL), *other = fake_create(host, NULL);
	struct id id = one->row.id, other_id = other->row.id;
	for (uint64_t key = 1; key <= 3; key++) {
		struct exec *exec = run(host, one);
		CHECK_INT(exec->row.key, key);
		if (key > 1)
			CHECK_INT(exec_remove(exec, NULL, &error), 0);
	}
	CHECK_INT(run(host, other)->row.key, 1);
	fake_stop(host);
	fake_start(host);
	fake_turn(host, 50);
	one = sandbox_by_id(&host->core, &id);
	other = sandbox_by_id(&host->core, &other_id);
	CHECK(one && one->guest_ready && other && other->guest_ready);
	if (!one || !other)
		return;
	CHECK_INT(run(host, one)->row.key, 4);
	CHECK_INT(run(host, other)->row.key, 2);
	fake_host_free(host);
}

/* A frame about a key that this sandbox never gave out ends the link; another one's keys do not
 * count. */
TEST(keys_of_another_sandbox_are_unknown)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *one = fake_create(host, NULL), *other = fake_create(host, NULL);
	for (int i = 0; i < 3; i++)
		run(host, other);
	run(host, one);
	struct fake_init *init = fake_init_of(host, &one->row.id);
	unsigned hellos = init->frames[FRAME_HELLO];
	fake_init_send(init, FRAME_GONE, 1, NULL, 0);
	fake_turn(host, 10);
	CHECK(one->guest_ready);
	CHECK_INT(init->frames[FRAME_HELLO], hellos);
	fake_init_send(init, FRAME_GONE, 2, NULL, 0);
	fake_turn(host, 3);
	CHECK(!one->guest_ready || init->frames[FRAME_HELLO] > hellos);
	fake_host_free(host);
}
