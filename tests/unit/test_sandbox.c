/* The life of sandboxes: made, refused, undone, paused, stopped, deleted, timed out, and found
 * again by the next daemon whatever the last one was doing. */
#include "core/sandbox/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/sandbox/template.h"
#include "fake_host.h"
#include "fake_init.h"
#include "test.h"

TEST_MAIN

static void expect_refused(struct fake_host *host, const struct sandbox_spec *spec,
			   enum error_kind kind, const char *part)
{
	struct outcome outcome = {0};
	struct error error = {0};
	int result =
	    sandbox_create(&host->core, &fake_principal, spec, outcome_created, &outcome, &error);
	if (result == 0 || error.kind != kind || !strstr(error.message, part))
		test_fail(__FILE__, __LINE__, "not refused with kind %d and `%s`: %d, kind %d: %s",
			  kind, part, result, error.kind, error.message);
}

static enum error_kind run(struct fake_host *host,
			   int (*function)(struct sandbox *sandbox,
					   const struct principal *principal, SANDBOX_DONE,
					   struct error *error),
			   struct sandbox *sandbox)
{
	struct outcome outcome = {0};
	struct error error;
	if (function(sandbox, &fake_principal, outcome_done, &outcome, &error) < 0)
		return error.kind;
	CHECK(!outcome.done);
	CHECK(fake_until(host, &outcome.done));
	return outcome.error.kind;
}

static int delete_it(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		     struct error *error)
{
	return sandbox_delete(sandbox, principal, END_REASON_USER, NULL, done, data, error);
}

static int ready_without(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
			 struct error *error)
{
	return sandbox_ready(sandbox, principal, false, done, data, error);
}

static int ready_with(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		      struct error *error)
{
	return sandbox_ready(sandbox, principal, true, done, data, error);
}

static bool in_environment(const struct fake_init *init, const char *variable)
{
	struct bytes packed = {(const uint8_t *)init->environment, init->environment_size};
	size_t at = 0;
	const char *text;
	while ((text = packed_next(packed, &at)))
		if (strcmp(text, variable) == 0)
			return true;
	return false;
}

TEST(create_and_delete)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	CHECK(host->ready);
	struct pair environment[] = {{"A", "1"}, {"HOME", "/workspace"}};
	struct pair metadata[] = {{"owner", "me"}};
	struct mount_spec mount = {MOUNT_COPY_ON_WRITE, "/workspace/src", "/home/me/src",
				   open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	struct sandbox_spec spec = {.name = "first",
				    .environment = environment,
				    .environment_count = 2,
				    .metadata = metadata,
				    .metadata_count = 1,
				    .mounts = &mount,
				    .mount_count = 1};
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    0);
	CHECK(!outcome.done);
	CHECK(fake_until(host, &outcome.done));
	close(mount.fd);
	struct sandbox *sandbox = outcome.sandbox;
	if (!sandbox)
		return;
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	CHECK_TEXT(init->hostname, sandbox->row.id.text); /* the name is for the next start */
	CHECK(in_environment(init, "A=1"));
	CHECK(in_environment(init, "HOME=/workspace"));
	CHECK(!in_environment(init, "HOME=/root"));
	CHECK(in_environment(init, "LANG=C.UTF-8"));
	CHECK_INT(init->mount_count, 1);
	CHECK_INT(host->booted.mounts[0].source, MOUNT_FOLDER);
	CHECK_INT(host->booted.mounts[0].mode, mount.mode);
	CHECK_INT(host->mount_fds, 1);
	CHECK(init->deadline > clock_boot());
	CHECK_INT(sandbox->phase_count, 5);
	CHECK_TEXT(sandbox->phases[0].name, "store");
	CHECK_TEXT(sandbox->phases[1].name, "namespaces");
	CHECK_TEXT(sandbox->phases[3].name, "connect");
	CHECK_TEXT(sandbox->phases[4].name, "configure");
	CHECK(sandbox->row.boot_us > 0);
	CHECK_INT(sandbox->row.limit_reasons[LIMIT_DISK], LIMIT_NO_DISK_MECHANISM);
	int64_t left = sandbox_expires_in(&sandbox->row);
	CHECK(left > 590 && left <= 600);

	struct sandbox *found;
	CHECK_INT(sandbox_find(&host->core, &fake_principal, "first", &found, &error), 0);
	CHECK(found == sandbox);
	struct principal stranger = {.workspace = "other"};
	CHECK_INT(sandbox_find(&host->core, &stranger, sandbox->row.id.text, &found, &error), -1);
	CHECK_INT(error.kind, ERROR_SANDBOX_NOT_FOUND);
	CHECK_INT(sandbox_find(&host->core, &fake_principal, "No Name", &found, &error), -1);
	CHECK_INT(error.kind, ERROR_ID_MALFORMED);
	expect_refused(host, &(struct sandbox_spec){.name = "first"}, ERROR_NAME_TAKEN, "first");

	struct id id = sandbox->row.id;
	CHECK_INT(run(host, delete_it, sandbox), ERROR_NONE);
	CHECK_INT(fake_existing(host), 0);
	CHECK_INT(host->core.sandbox_count, 0);
	CHECK_INT(sandbox_find(&host->core, &fake_principal, id.text, &found, &error), -1);
	CHECK_INT(error.kind, ERROR_SANDBOX_ENDED);
	CHECK(strstr(error.message, "user") != NULL);
	struct sandbox_row row;
	CHECK_INT(sandbox_find_row(&host->core, &fake_principal, id.text, &row, &error), 0);
	CHECK_INT(row.state, SANDBOX_ENDED);
	CHECK_INT(row.end_reason, END_REASON_USER);
	sandbox_row_done(&row);
	CHECK(fake_create(host, "first") != NULL);
	fake_host_free(host);
}

TEST(what_is_refused)
{
	struct fake_host *host = fake_host_new();
	host->config.maximum.memory = 1024 * MIB;
	host->config.timeout_seconds_max = 3600;
	fake_start(host);
	expect_refused(host, &(struct sandbox_spec){.name = "Not-a-name"}, ERROR_ID_MALFORMED,
		       "Not-a-name");
	expect_refused(host, &(struct sandbox_spec){.name = "abcdefghijklmnop"}, ERROR_ID_MALFORMED,
		       "form of an id");
	expect_refused(host, &(struct sandbox_spec){.template = "python-3.12"},
		       ERROR_TEMPLATE_UNAVAILABLE, "python-3.12");
	expect_refused(host, &(struct sandbox_spec){.tier = TIER_VM}, ERROR_TIER_UNAVAILABLE,
		       "flux capacitor");
	expect_refused(host, &(struct sandbox_spec){.limits.memory = 2048 * MIB},
		       ERROR_LIMIT_EXCEEDED, "memory_mb is 2048; it must be 16 to 1024");
	expect_refused(host, &(struct sandbox_spec){.limits.cpu_millis = 5}, ERROR_LIMIT_EXCEEDED,
		       "cpu is 0.005; it must be 0.01 to");
	expect_refused(host, &(struct sandbox_spec){.timeout_seconds = 4000}, ERROR_LIMIT_EXCEEDED,
		       "timeout_seconds is 4000; it must be 1 to 3600");
	expect_refused(host, &(struct sandbox_spec){.timeout_set = true}, ERROR_LIMIT_EXCEEDED,
		       "timeout_seconds is 0");
	struct pair bad = {"A=B", "1"};
	expect_refused(host, &(struct sandbox_spec){.environment = &bad, .environment_count = 1},
		       ERROR_INVALID, "A=B");
	struct mount_spec mount = {MOUNT_READ_ONLY, "/a/../etc", "/x", 0};
	expect_refused(host, &(struct sandbox_spec){.mounts = &mount, .mount_count = 1},
		       ERROR_INVALID, "/a/../etc");
	CHECK_INT(host->requests[SPAWN_CREATE], 0);
	CHECK_INT(host->core.sandbox_count, 0);
	host->core.config.sandboxes_max = 1;
	CHECK(fake_create(host, NULL) != NULL);
	expect_refused(host, &(struct sandbox_spec){0}, ERROR_BUSY, "1 sandboxes");
	fake_host_free(host);
}

static enum error_kind failed_create(struct fake_host *host, struct id *ret_id)
{
	struct outcome outcome = {0};
	struct error error;
	if (sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){.name = "broken"},
			   outcome_created, &outcome, &error) < 0)
		return error.kind;
	*ret_id = list_entry(host->core.sandboxes.previous, struct sandbox, link)->row.id;
	CHECK(fake_until(host, &outcome.done));
	CHECK(outcome.sandbox == NULL);
	fake_turn(host, 5);
	return outcome.error.kind;
}

static void expect_tombstone(struct fake_host *host, const struct id *id, enum end_reason reason,
			     const char *part)
{
	struct sandbox_row row = {0};
	struct error error;
	CHECK_INT(sandbox_find_row(&host->core, &fake_principal, id->text, &row, &error), 0);
	CHECK_INT(row.state, SANDBOX_ENDED);
	CHECK_INT(row.end_reason, reason);
	if (!row.end_message || !strstr(row.end_message, part))
		test_fail(__FILE__, __LINE__, "the tombstone says `%s`, not `%s`",
			  row.end_message ? row.end_message : "", part);
	sandbox_row_done(&row);
}

TEST(failed_creates_are_undone)
{
	struct fake_host *host = fake_host_new();
	struct id id;
	fake_start(host);
	host->fail_type = SPAWN_CREATE;
	host->fail_kind = ERROR_NO_SPACE;
	CHECK_INT(failed_create(host, &id), ERROR_NO_SPACE);
	expect_tombstone(host, &id, END_REASON_ERROR, "the fake fails");
	host->fail_type = 0;
	host->refuse_next = true;
	CHECK_INT(failed_create(host, &id), ERROR_INVALID);
	expect_tombstone(host, &id, END_REASON_ERROR, "no such mount point");
	CHECK_INT(fake_existing(host), 0);
	CHECK_INT(host->core.sandbox_count, 0);
	host->refuse_next = false;
	CHECK(fake_create(host, "broken") != NULL);
	fake_host_free(host);
}

TEST(init_dies_while_created)
{
	struct fake_host *host = fake_host_new();
	struct outcome outcome = {0};
	struct error error;
	fake_start(host);
	host->silent_next = true;
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){0},
				 outcome_created, &outcome, &error),
		  0);
	fake_turn(host, 20);
	CHECK_INT(fake_existing(host), 1);
	struct id id = host->inits[0].id;
	fake_init_dies(&host->inits[0], END_KILLED);
	CHECK(fake_until(host, &outcome.done));
	CHECK_INT(outcome.error.kind, ERROR_GUEST_GONE);
	fake_turn(host, 5);
	expect_tombstone(host, &id, END_REASON_ERROR, "booted");
	CHECK_INT(fake_existing(host), 0);
	fake_host_free(host);
}

TEST(deleted_while_created)
{
	struct fake_host *host = fake_host_new();
	struct outcome created = {0}, deleted = {0};
	struct error error;
	fake_start(host);
	host->hold_type = SPAWN_CREATE;
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){0},
				 outcome_created, &created, &error),
		  0);
	fake_turn(host, 5);
	struct sandbox *sandbox = list_entry(host->core.sandboxes.next, struct sandbox, link);
	CHECK_INT(
	    sandbox_delete(sandbox, NULL, END_REASON_USER, NULL, outcome_done, &deleted, &error),
	    0);
	fake_release(host);
	CHECK(fake_until(host, &deleted.done));
	CHECK(created.done);
	CHECK_INT(created.error.kind, ERROR_SANDBOX_ENDED);
	CHECK_INT(deleted.error.kind, ERROR_NONE);
	CHECK_INT(fake_existing(host), 0);
	fake_host_free(host);
}

TEST(fifty_at_once)
{
	struct fake_host *host = fake_host_new();
	static struct outcome outcomes[50];
	struct error error;
	memset(outcomes, 0, sizeof(outcomes));
	fake_start(host);
	for (int i = 0; i < 50; i++)
		CHECK_INT(sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){0},
					 outcome_created, &outcomes[i], &error),
			  0);
	for (int i = 0; i < 50; i++) {
		CHECK(fake_until(host, &outcomes[i].done));
		CHECK(outcomes[i].sandbox != NULL);
	}
	CHECK_INT(host->core.sandbox_count, 50);
	fake_host_free(host);
}

TEST(pause_and_resume)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	int64_t deadline = sandbox->row.deadline_wall;
	CHECK_INT(run(host, sandbox_resume, sandbox), ERROR_NONE);
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_PAUSED);
	CHECK(init->frozen);
	CHECK_INT(init->deadline, 0);
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
	CHECK_INT(run(host, sandbox_start, sandbox), ERROR_SANDBOX_STATE);
	fake_turn(host, 60);
	CHECK_INT(run(host, sandbox_resume, sandbox), ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	/* Its clock stood still. */
	CHECK(sandbox->row.deadline_wall >= deadline + 50 * NSEC_PER_MSEC);
	fake_turn(host, 5);
	CHECK(init->deadline > clock_boot());
	/* Work wakes it, unless whoever asks may not. */
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
	CHECK_INT(run(host, ready_without, sandbox), ERROR_SANDBOX_PAUSED);
	fake_turn(host, 10);
	CHECK_INT(sandbox->row.state, SANDBOX_PAUSED);
	sandbox->row.options |= OPTION_WAKE_ON_READ;
	CHECK_INT(run(host, ready_without, sandbox), ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
	CHECK_INT(run(host, ready_with, sandbox), ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	CHECK(!init->frozen);
	host->fail_type = SPAWN_FREEZE;
	host->fail_kind = ERROR_UNSUPPORTED;
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_UNSUPPORTED);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	fake_host_free(host);
}

TEST(stop_and_start)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	CHECK_INT(run(host, sandbox_stop, sandbox), ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_STOPPED);
	CHECK_INT(init->frames[FRAME_SHUTDOWN], 1);
	CHECK(!init->running);
	CHECK_INT(run(host, sandbox_stop, sandbox), ERROR_NONE);
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_SANDBOX_STATE);
	CHECK_INT(run(host, ready_without, sandbox), ERROR_SANDBOX_STATE);
	CHECK_INT(run(host, ready_with, sandbox), ERROR_NONE);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	CHECK(init->running);
	CHECK_INT(run(host, sandbox_stop, sandbox), ERROR_NONE);
	host->fail_type = SPAWN_START;
	host->fail_kind = ERROR_NO_MEMORY;
	CHECK_INT(run(host, sandbox_start, sandbox), ERROR_NO_MEMORY);
	fake_turn(host, 10);
	CHECK_INT(sandbox->row.state, SANDBOX_STOPPED);
	CHECK_INT(run(host, ready_with, sandbox), ERROR_NO_MEMORY);
	fake_turn(host, 10);
	host->fail_type = 0;
	CHECK_INT(run(host, sandbox_start, sandbox), ERROR_NONE);
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
	CHECK_INT(run(host, sandbox_stop, sandbox), ERROR_NONE);
	CHECK_INT(run(host, delete_it, sandbox), ERROR_NONE);
	fake_host_free(host);
}

TEST(two_wait_for_one_transition)
{
	struct fake_host *host = fake_host_new();
	struct outcome outcomes[3] = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	host->hold_type = SPAWN_FREEZE;
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &outcomes[0], &error), 0);
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &outcomes[1], &error), 0);
	CHECK_INT(sandbox_ready(sandbox, NULL, true, outcome_done, &outcomes[2], &error), 0);
	CHECK_INT(sandbox_ready(sandbox, NULL, false, outcome_done, NULL, &error), -1);
	CHECK_INT(error.kind, ERROR_SANDBOX_PAUSED);
	CHECK_INT(sandbox_stop(sandbox, NULL, outcome_done, NULL, &error), -1);
	CHECK_INT(error.kind, ERROR_CONFLICT);
	fake_turn(host, 5);
	CHECK(!outcomes[0].done && !outcomes[1].done && !outcomes[2].done);
	fake_release(host);
	for (int i = 0; i < 3; i++) {
		CHECK(fake_until(host, &outcomes[i].done));
		CHECK_INT(outcomes[i].error.kind, ERROR_NONE);
	}
	CHECK_INT(host->requests[SPAWN_FREEZE], 1);
	/* One at once, so that a pause that has not come about never does; one for the pause. */
	CHECK_INT(host->requests[SPAWN_THAW], 2);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	fake_host_free(host);
}

TEST(destroy_is_tried_again)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	host->fail_type = SPAWN_DESTROY;
	host->fail_kind = ERROR_TIMED_OUT;
	CHECK_INT(run(host, delete_it, sandbox), ERROR_TIMED_OUT);
	CHECK_INT(sandbox->row.state, SANDBOX_DELETING);
	CHECK_INT(run(host, ready_with, sandbox), ERROR_SANDBOX_STATE);
	host->fail_type = 0;
	fake_pass(host, 5000);
	CHECK(fake_until_count(host, 0));
	CHECK_INT(fake_existing(host), 0);
	fake_host_free(host);
}

TEST(processes_end_by_themselves)
{
	struct fake_host *host = fake_host_new();
	struct outcome waits = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	fake_init_dies(init, END_KILLED);
	fake_turn(host, 10);
	CHECK_INT(sandbox->row.state, SANDBOX_STOPPED);
	CHECK(sandbox->guest == NULL);
	CHECK_INT(run(host, sandbox_start, sandbox), ERROR_NONE);
	fake_init_disconnect(init);
	fake_turn(host, 2);
	CHECK_INT(sandbox_ready(sandbox, NULL, false, outcome_done, &waits, &error), 0);
	CHECK(fake_until(host, &waits.done));
	CHECK_INT(waits.error.kind, ERROR_NONE);
	struct id id = sandbox->row.id;
	fake_init_dies(init, END_DEADLINE);
	fake_turn(host, 10);
	expect_tombstone(host, &id, END_REASON_TIMEOUT, "time-out");
	CHECK_INT(fake_existing(host), 0);
	fake_host_free(host);
}

TEST(time_outs)
{
	struct fake_host *host = fake_host_new();
	struct outcome outcomes[3] = {0};
	struct error error;
	fake_start(host);
	/* Each, and what is between them, is longer than a machine stalls. */
	struct sandbox_spec absolute = {.timeout_seconds = 40};
	struct sandbox_spec idle = {.idle_timeout_seconds = 70};
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &absolute, outcome_created,
				 &outcomes[0], &error),
		  0);
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &idle, outcome_created, &outcomes[1],
				 &error),
		  0);
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &absolute, outcome_created,
				 &outcomes[2], &error),
		  0);
	for (int i = 0; i < 3; i++)
		CHECK(fake_until(host, &outcomes[i].done));
	struct id ids[2] = {outcomes[0].sandbox->row.id, outcomes[1].sandbox->row.id};
	struct sandbox *paused = outcomes[2].sandbox;
	CHECK_INT(run(host, sandbox_pause, paused), ERROR_NONE);
	fake_pass(host, 20 * 1000);
	CHECK_INT(host->core.sandbox_count, 3);
	fake_pass(host, 20 * 1000);
	CHECK(fake_until_count(host, 2));
	expect_tombstone(host, &ids[0], END_REASON_TIMEOUT, "time-out");
	sandbox_touch(outcomes[1].sandbox);
	fake_pass(host, 50 * 1000);
	CHECK_INT(host->core.sandbox_count, 2);
	fake_pass(host, 20 * 1000);
	CHECK(fake_until_count(host, 1));
	expect_tombstone(host, &ids[1], END_REASON_IDLE, "idle");
	CHECK_INT(paused->row.state, SANDBOX_PAUSED);
	CHECK_INT(run(host, sandbox_resume, paused), ERROR_NONE);
	CHECK_INT(sandbox_set_timeout(paused, 0, &error), 0);
	fake_pass(host, 45 * 1000);
	CHECK_INT(host->core.sandbox_count, 1);
	CHECK_INT(sandbox_expires_in(&paused->row), -1);
	fake_turn(host, 5);
	CHECK_INT(fake_init_of(host, &paused->row.id)->deadline, 0);
	fake_host_free(host);
}

static struct sandbox *create_and_pause(struct fake_host *host, struct id *ret_id)
{
	struct outcome outcome = {0};
	struct sandbox_spec spec = {.timeout_seconds = 50, .idle_timeout_seconds = 60};
	struct error error;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    0);
	CHECK(fake_until(host, &outcome.done));
	CHECK_INT(run(host, sandbox_pause, outcome.sandbox), ERROR_NONE);
	*ret_id = outcome.sandbox->row.id;
	return outcome.sandbox;
}

static void expect_alive(struct fake_host *host, const struct id *id, enum sandbox_state state)
{
	struct sandbox *sandbox = sandbox_by_id(&host->core, id);
	if (!sandbox) {
		test_fail(__FILE__, __LINE__, "it was deleted");
		return;
	}
	CHECK_INT(sandbox->row.state, state);
	CHECK(sandbox_expires_in(&sandbox->row) >= 1);
	bool paused = state == SANDBOX_PAUSED;
	CHECK_INT(sandbox->row.paused_wall != 0, paused);
}

/* Longer than its time-out, and then by every way that leads out. */
TEST(no_time_passes_while_paused)
{
	struct fake_host *host = fake_host_new();
	struct outcome resumed = {0};
	struct error error;
	struct id stopped, touched, rebooted, frozen, thawed, killed;
	fake_start(host);
	struct sandbox *to_touch, *to_stop;
	to_stop = create_and_pause(host, &stopped);
	to_touch = create_and_pause(host, &touched);
	create_and_pause(host, &rebooted);
	create_and_pause(host, &frozen);
	create_and_pause(host, &thawed);
	create_and_pause(host, &killed);
	fake_pass(host, 63 * 1000);
	CHECK_INT(host->core.sandbox_count, 6);
	CHECK_INT(run(host, sandbox_stop, to_stop), ERROR_NONE);
	fake_init_dies(fake_init_of(host, &killed), END_DEADLINE);
	/* Something ends inside between the thaw and the spawner's word of it. */
	host->hold_type = SPAWN_THAW;
	CHECK_INT(sandbox_resume(to_touch, NULL, outcome_done, &resumed, &error), 0);
	fake_turn(host, 5);
	sandbox_touch(to_touch);
	fake_release(host);
	CHECK(fake_until(host, &resumed.done));
	fake_turn(host, 20);
	expect_alive(host, &stopped, SANDBOX_STOPPED);
	expect_alive(host, &killed, SANDBOX_STOPPED);
	expect_alive(host, &touched, SANDBOX_RUNNING);
	/* Two in `resuming` when the daemon dies, before and after the thaw; one whose host
	 * reboots. */
	host->hold_type = SPAWN_THAW;
	CHECK_INT(sandbox_resume(sandbox_by_id(&host->core, &frozen), NULL, NULL, NULL, &error), 0);
	CHECK_INT(sandbox_resume(sandbox_by_id(&host->core, &thawed), NULL, NULL, NULL, &error), 0);
	fake_turn(host, 5);
	fake_stop(host);
	host->hold_type = 0;
	host->held_count = 0;
	fake_init_of(host, &thawed)->frozen = false;
	fake_init_dies(fake_init_of(host, &rebooted), END_KILLED);
	fake_start(host);
	fake_turn(host, 100);
	expect_alive(host, &rebooted, SANDBOX_STOPPED);
	expect_alive(host, &frozen, SANDBOX_PAUSED);
	expect_alive(host, &thawed, SANDBOX_RUNNING);
	CHECK(fake_init_of(host, &thawed)->deadline > clock_boot());
	CHECK_INT(fake_init_of(host, &frozen)->deadline, 0);
	/* Counted from where it stands. */
	struct sandbox *paused = sandbox_by_id(&host->core, &frozen);
	CHECK_INT(sandbox_set_timeout(paused, 100, &error), 0);
	CHECK_INT(sandbox_expires_in(&paused->row), 100);
	CHECK_INT(run(host, sandbox_resume, paused), ERROR_NONE);
	CHECK_INT(sandbox_expires_in(&paused->row), 100);
	/* A stopped one's time goes on. */
	fake_pass(host, 50 * 1000);
	CHECK(fake_until_count(host, 1));
	expect_tombstone(host, &stopped, END_REASON_TIMEOUT, "time-out");
	fake_host_free(host);
}

/* Killed from outside while frozen: it neither listens nor ends. */
TEST(init_dies_while_paused)
{
	struct fake_host *host = fake_host_new();
	struct id id;
	fake_start(host);
	for (int again = 0; again < 2; again++) {
		struct sandbox *sandbox = fake_create(host, NULL);
		struct fake_init *init = fake_init_of(host, &sandbox->row.id);
		id = sandbox->row.id;
		CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
		if (again)
			fake_stop(host);
		fake_init_stop(init);
		init->running = init->frozen = true;
		if (again)
			fake_start(host);
		/* It is looked for several times before. */
		for (int i = 0; i < 100; i++) {
			fake_pass(host, 200);
			sandbox = sandbox_by_id(&host->core, &id);
			if (sandbox->row.state == SANDBOX_STOPPED)
				break;
		}
		CHECK_INT(sandbox->row.state, SANDBOX_STOPPED);
		CHECK(!init->running);
		CHECK_INT(run(host, sandbox_start, sandbox), ERROR_NONE);
	}
	CHECK_INT(host->requests[SPAWN_KILL], 2);
	/* One that cannot be reached for another reason is left alone. */
	struct sandbox *sandbox = sandbox_by_id(&host->core, &id);
	fake_init_of(host, &id)->deaf = true;
	CHECK_INT(run(host, sandbox_pause, sandbox), ERROR_NONE);
	fake_init_disconnect(fake_init_of(host, &id));
	fake_pass(host, 500);
	CHECK_INT(sandbox->row.state, SANDBOX_PAUSED);
	fake_host_free(host);
}

static void count_cancelled(void *data, const struct error *error)
{
	*(unsigned *)data += error && error->kind == ERROR_CANCELLED;
}

TEST(delete_is_never_refused)
{
	struct fake_host *host = fake_host_new();
	struct outcome deleted[2] = {0};
	struct error error;
	unsigned cancelled = 0;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	host->hold_type = SPAWN_FREEZE;
	for (int i = 0; i < WAITERS_MAX; i++)
		CHECK_INT(sandbox_pause(sandbox, NULL, count_cancelled, &cancelled, &error), 0);
	CHECK_INT(sandbox_pause(sandbox, NULL, count_cancelled, &cancelled, &error), -1);
	CHECK_INT(error.kind, ERROR_BUSY);
	for (int i = 0; i < 2; i++)
		CHECK_INT(sandbox_delete(sandbox, NULL, END_REASON_USER, NULL, outcome_done,
					 &deleted[i], &error),
			  0);
	CHECK_INT(cancelled, WAITERS_MAX);
	for (int i = 0; i < 2; i++) {
		CHECK(fake_until(host, &deleted[i].done));
		CHECK_INT(deleted[i].error.kind, ERROR_NONE);
	}
	CHECK_INT(fake_existing(host), 0);
	fake_host_free(host);
}

struct delete_at_once {
	bool created;
	struct outcome deleted;
};

static void created_and_deleted(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct delete_at_once *both = data;
	struct error own;
	CHECK(error == NULL);
	both->created = true;
	CHECK_INT(sandbox_delete(sandbox, NULL, END_REASON_USER, NULL, outcome_done, &both->deleted,
				 &own),
		  0);
}

TEST(deleted_by_who_made_it)
{
	struct fake_host *host = fake_host_new();
	struct delete_at_once both = {0};
	struct error error;
	fake_start(host);
	host->hold_type = SPAWN_DESTROY;
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){0},
				 created_and_deleted, &both, &error),
		  0);
	CHECK(fake_until(host, &both.created));
	fake_turn(host, 20);
	CHECK(!both.deleted.done);
	CHECK_INT(fake_existing(host), 1);
	fake_release(host);
	CHECK(fake_until(host, &both.deleted.done));
	CHECK_INT(both.deleted.error.kind, ERROR_NONE);
	CHECK_INT(fake_existing(host), 0);
	fake_host_free(host);
}

/* Everything that a daemon can be in the middle of when it dies. */
TEST(restart_settles_every_state)
{
	static const struct {
		enum sandbox_state before;
		bool exists, running, frozen;
		enum sandbox_state after; /* SANDBOX_ENDED: gone */
		enum end_reason reason;
	} cases[] = {
	    {SANDBOX_CREATING, true, true, false, SANDBOX_ENDED, END_REASON_ERROR},
	    {SANDBOX_CREATING, false, false, false, SANDBOX_ENDED, END_REASON_ERROR},
	    {SANDBOX_DELETING, true, true, false, SANDBOX_ENDED, END_REASON_USER},
	    {SANDBOX_DELETING, false, false, false, SANDBOX_ENDED, END_REASON_USER},
	    {SANDBOX_RUNNING, true, true, false, SANDBOX_RUNNING, END_REASON_NONE},
	    {SANDBOX_RUNNING, true, false, false, SANDBOX_STOPPED, END_REASON_NONE},
	    {SANDBOX_RUNNING, false, false, false, SANDBOX_ENDED, END_REASON_HOST},
	    {SANDBOX_PAUSING, true, true, false, SANDBOX_RUNNING, END_REASON_NONE},
	    {SANDBOX_PAUSING, true, true, true, SANDBOX_PAUSED, END_REASON_NONE},
	    {SANDBOX_PAUSED, true, true, true, SANDBOX_PAUSED, END_REASON_NONE},
	    {SANDBOX_PAUSED, true, false, false, SANDBOX_STOPPED, END_REASON_NONE},
	    {SANDBOX_RESUMING, true, true, true, SANDBOX_PAUSED, END_REASON_NONE},
	    {SANDBOX_RESUMING, true, true, false, SANDBOX_RUNNING, END_REASON_NONE},
	    {SANDBOX_STOPPING, true, true, false, SANDBOX_STOPPED, END_REASON_NONE},
	    {SANDBOX_STOPPING, true, false, false, SANDBOX_STOPPED, END_REASON_NONE},
	    {SANDBOX_STOPPED, true, false, false, SANDBOX_STOPPED, END_REASON_NONE},
	    {SANDBOX_STOPPED, true, true, false, SANDBOX_STOPPED, END_REASON_NONE},
	    {SANDBOX_STARTING, true, true, false, SANDBOX_RUNNING, END_REASON_NONE},
	    {SANDBOX_STARTING, true, false, false, SANDBOX_STOPPED, END_REASON_NONE},
	};
	struct fake_host *host = fake_host_new();
	struct id ids[ARRAY_SIZE(cases)];
	struct error error;
	fake_start(host);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sandbox *sandbox = fake_create(host, NULL);
		ids[i] = sandbox->row.id;
		sandbox->row.state = cases[i].before;
		if (cases[i].before == SANDBOX_DELETING)
			sandbox->row.end_reason = END_REASON_USER;
		CHECK_INT(store_sandbox_update(host->core.store, &sandbox->row, &error), 0);
	}
	struct id stray = fake_create(host, NULL)->row.id;
	fake_stop(host);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fake_init *init = fake_init_of(host, &ids[i]);
		init->frozen = cases[i].frozen;
		if (!cases[i].running)
			fake_init_dies(init, END_KILLED);
		if (!cases[i].exists)
			init->used = false;
		if (cases[i].before == SANDBOX_STARTING)
			init->configured = false;
	}
	/* One that no row speaks of. */
	struct fake_init *nameless = fake_init_of(host, &stray);
	memcpy(nameless->id.text, "zzzzzzzzzzzzzzzz", 16);
	fake_start(host);
	CHECK(host->ready);
	fake_turn(host, 100);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sandbox *sandbox = sandbox_by_id(&host->core, &ids[i]);
		enum sandbox_state state = sandbox ? sandbox->row.state : SANDBOX_ENDED;
		if (state != cases[i].after)
			test_fail(__FILE__, __LINE__, "case %zu: %s became %s, not %s", i,
				  sandbox_state_name(cases[i].before), sandbox_state_name(state),
				  sandbox_state_name(cases[i].after));
		if (state == SANDBOX_RUNNING)
			CHECK(sandbox->guest_ready);
		CHECK_INT(fake_init_of(host, &ids[i]) != NULL, state != SANDBOX_ENDED);
		struct sandbox_row row = {0};
		CHECK_INT(store_sandbox_get(host->core.store, &ids[i], &row, &error), 1);
		CHECK_INT(row.state, cases[i].after);
		CHECK_INT(row.end_reason, cases[i].reason);
		sandbox_row_done(&row);
	}
	CHECK(fake_init_of(host, &nameless->id) == NULL);
	/* The row whose sandbox was not there any more. */
	expect_tombstone(host, &stray, END_REASON_HOST, "gone");
	fake_host_free(host);
}

TEST(spawner_is_lost)
{
	struct fake_host *host = fake_host_new();
	struct outcome created = {0};
	struct error error;
	fake_start(host);
	host->hold_type = SPAWN_CREATE;
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){0},
				 outcome_created, &created, &error),
		  0);
	fake_turn(host, 5);
	struct id id = list_entry(host->core.sandboxes.next, struct sandbox, link)->row.id;
	shutdown(host->spawner_fd, SHUT_RDWR);
	CHECK(fake_until(host, &host->lost));
	CHECK(created.done);
	CHECK_INT(created.error.kind, ERROR_SPAWNER_GONE);
	host->hold_type = 0;
	host->held_count = 0;
	fake_stop(host);
	fake_start(host);
	fake_turn(host, 20);
	expect_tombstone(host, &id, END_REASON_ERROR, "restarted while it was being made");
	fake_host_free(host);
}

TEST(stop_owes_nothing)
{
	struct fake_host *host = fake_host_new();
	struct outcome created = {0}, ready = {0}, paused = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	host->hold_type = SPAWN_CREATE;
	CHECK_INT(sandbox_create(&host->core, &fake_principal, &(struct sandbox_spec){0},
				 outcome_created, &created, &error),
		  0);
	CHECK_INT(sandbox_ready(sandbox, NULL, false, outcome_done, &ready, &error), 0);
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &paused, &error), 0);
	fake_stop(host);
	CHECK(created.done && ready.done && paused.done);
	fake_host_free(host);
}

TEST(no_tier)
{
	struct fake_host *host = fake_host_new();
	host->namespace_available = false;
	fake_start(host);
	CHECK(host->ready);
	expect_refused(host, &(struct sandbox_spec){0}, ERROR_TIER_UNAVAILABLE, "flux capacitor");
	fake_host_free(host);
}

struct endless {
	struct core *core;
	int runs;
};

static void endless_run(void *data)
{
	struct endless *endless = data;
	if (++endless->runs < 1000)
		core_later(endless->core, endless_run, endless);
}

/* Or the sockets would not be looked at while something goes on and on. */
TEST(later_is_another_turn_of_the_loop)
{
	struct fake_host *host = fake_host_new();
	struct endless endless = {.core = &host->core};
	fake_start(host);
	core_later(&host->core, endless_run, &endless);
	uv_run(host->loop, UV_RUN_NOWAIT);
	CHECK(endless.runs <= 1);
	for (int i = 0; i < 2000 && endless.runs < 1000; i++)
		uv_run(host->loop, UV_RUN_NOWAIT);
	CHECK_INT(endless.runs, 1000);
	fake_host_free(host);
}

TEST(environment_of_a_template_is_packed)
{
	struct bytes packed = template_find(TEMPLATE_HOST)->environment;
	size_t at = 0;
	bool path = false;
	while (at < packed.size) {
		const char *entry = (const char *)packed.data + at;
		CHECK(strchr(entry, '=') != NULL);
		path = path || strncmp(entry, "PATH=/opt/venv/bin:/opt/npm/bin:", 32) == 0;
		at += strlen(entry) + 1;
	}
	CHECK_INT(at, packed.size);
	CHECK(path);
}
