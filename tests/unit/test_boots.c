/* Sandboxes that are being made: in workers that nobody waits for. With the fake driver of the
 * fixture. */
#include "spawner/internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spawner_fixture.h"
#include "test.h"

TEST_MAIN

/* Nothing else can become the name of a directory. */
TEST(layers_are_named_by_a_digest)
{
	char digit[ROOTFS_DIGEST_TEXT], unterminated[ROOTFS_DIGEST_TEXT + 1], upper[sizeof(digit)];
	snprintf(digit, sizeof(digit), "%064d", 7);
	snprintf(upper, sizeof(upper), "%064X", 10);
	memset(unterminated, 'a', sizeof(unterminated));
	const char *const bad[] = {"a", "../../../../etc", unterminated, upper, digit + 1};
	begin();
	struct id id = id_new();
	struct spawn_message create = creation(&id);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memset(create.create.rootfs.digest, 0, ROOTFS_DIGEST_TEXT);
		memcpy(create.create.rootfs.digest, bad[i],
		       bad[i] == unterminated ? ROOTFS_DIGEST_TEXT : strlen(bad[i]));
		CHECK_INT(ask(&create), ERROR_INVALID);
	}
	CHECK_INT(count_files("%s/state/sandboxes", root), 0);
	memcpy(create.create.rootfs.digest, digit, sizeof(digit));
	CHECK_INT(ask(&create), ERROR_NONE);
	end();
}

/* ---- Boots in workers. */

TEST(nobody_waits_for_a_boot)
{
	struct spawn_message reply;
	begin();
	struct id slow = id_new(), quick = id_new();
	struct spawn_message create = creation(&slow);
	create.create.limits.pids = BOOT_SLOW;
	create.request = 1000;
	post(&create, NULL, 0);
	struct spawn_message other = creation(&quick);
	CHECK_INT(ask(&other), ERROR_NONE);
	CHECK_INT(simple(SPAWN_FREEZE, &slow), ERROR_CONFLICT);
	/* A list is true, so that it waits; who wants the slow one's end does not. */
	struct spawn_message list = {.type = SPAWN_LIST, .request = 1001};
	struct spawn_message destroy = {.type = SPAWN_DESTROY, .sandbox = slow, .request = 1002};
	post(&list, NULL, 0);
	post(&destroy, NULL, 0);
	bool created = false, listed = false, destroyed = false;
	for (int i = 0; i < 4; i++) {
		CHECK_INT(receive(&reply), 1);
		if (reply.type == SPAWN_LISTED) {
			CHECK(id_equal(&reply.sandbox, &quick) || !reply.listed.running ||
			      !destroyed);
			i -= id_equal(&reply.sandbox, &slow);
		} else if (reply.request == 1000) {
			created = true;
			CHECK_INT(reply.result, ERROR_CONFLICT);
		} else if (reply.request == 1001) {
			listed = true;
		} else if (reply.request == 1002) {
			destroyed = true;
			CHECK_INT(reply.result, ERROR_NONE);
		}
	}
	CHECK(created && listed && destroyed);
	wait_for_files(1, "state/sandboxes");
	wait_for_files(0, "state/trash");
	end();
}

TEST(a_worker_that_dies)
{
	struct spawn_message reply;
	begin();
	int before = count_descriptors();
	for (int i = 0; i < 5; i++) {
		struct id id = id_new();
		struct spawn_message create = creation(&id);
		create.create.limits.pids = BOOT_CRASH;
		CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_INTERNAL);
	}
	wait_for_files(0, "state/sandboxes");
	wait_for_files(0, "state/trash");
	CHECK_INT(count_descriptors(), before);
	end();
}

TEST(a_start_that_fails_leaves_it_stopped)
{
	begin();
	struct id id = id_new();
	struct spawn_message create = creation(&id);
	CHECK_INT(ask(&create), ERROR_NONE);
	CHECK_INT(simple(SPAWN_KILL, &id), ERROR_NONE);
	create.type = SPAWN_START;
	create.create.limits.pids = FAIL_BOOT;
	CHECK_INT(ask(&create), ERROR_NO_SPACE);
	create.create.limits.pids = 64;
	uint32_t result = ERROR_CONFLICT;
	for (int i = 0; i < 100 && result == ERROR_CONFLICT; i++) {
		struct spawn_message reply;
		create.request = 2000 + (uint32_t)i;
		post(&create, NULL, 0);
		do
			CHECK_INT(receive(&reply), 1);
		while (reply.type == SPAWN_ENDED);
		result = reply.result;
	}
	CHECK_INT(result, ERROR_NONE);
	end();
}

/* A queue that is longer than the workers are many; a daemon that goes before its turn comes. */
TEST(more_boots_than_workers)
{
	sandboxes_max = 40;
	begin();
	struct id ids[40];
	for (uint32_t i = 0; i < 40; i++) {
		ids[i] = id_new();
		struct spawn_message create = creation(&ids[i]);
		create.request = 3000 + i;
		post(&create, NULL, 0);
	}
	struct spawn_message reply;
	for (int i = 0; i < 40; i++) {
		CHECK_INT(receive(&reply), 1);
		CHECK(reply.request >= 3000 && reply.result == ERROR_NONE);
	}
	CHECK_INT(simple(SPAWN_LIST, NULL), ERROR_NONE);
	for (uint32_t i = 0; i < 40; i++)
		CHECK_INT(simple(SPAWN_DESTROY, &ids[i]), ERROR_NONE);
	wait_for_files(0, "state/trash");
	end();
}

/* A probe that is cut off would leave what it has made. */
TEST(the_end_waits_for_a_probe)
{
	struct spawn_message probe = {.type = SPAWN_PROBE, .request = 9, .tier = TIER_NAMESPACE};
	char path[128], text[8];
	int status = -1;
	probe_slow = true;
	begin();
	snprintf(path, sizeof(path), "%s/state/probed", root);
	CHECK_INT(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	post(&probe, NULL, 0);
	/* It is heard of, and nobody waits for it. */
	CHECK_INT(simple(SPAWN_LIST, NULL), ERROR_NONE);
	fd_close(&link_fd);
	waitpid(child, &status, 0);
	CHECK_INT(status, 0);
	CHECK(fd_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	restart_again();
	end();
}

/* ---- Those of the daemon's pool. */

static void check_slot(const struct id *id, bool pooled)
{
	char path[128], text[64];
	snprintf(path, sizeof(path), "%s/state/sandboxes/%s/slot", root, id->text);
	CHECK(fd_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	CHECK_INT(strstr(text, " pooled\n") != NULL, pooled);
}

static void check_listed(bool pooled)
{
	struct spawn_message message = {.type = SPAWN_LIST, .request = 77};
	post(&message, NULL, 0);
	CHECK_INT(receive(&message), 1);
	CHECK_INT(message.type, SPAWN_LISTED);
	CHECK_INT(message.listed.pooled, pooled);
	CHECK_INT(receive(&message), 1);
	CHECK_INT(message.type, SPAWN_REPLY);
}

/* Whose it is stands in its files, for the next spawner and for who looks at them. */
TEST(one_of_the_pool_becomes_somebodys)
{
	begin();
	struct id id = id_new(), other = id_new();
	struct spawn_message create = creation(&id);
	create.create.flags = CREATE_POOLED;
	CHECK_INT(ask(&create), ERROR_NONE);
	check_slot(&id, true);
	check_listed(true);
	restart();
	check_listed(true);
	CHECK_INT(simple(SPAWN_OWN, &id), ERROR_NONE);
	CHECK_INT(simple(SPAWN_OWN, &id), ERROR_NONE);
	check_slot(&id, false);
	check_listed(false);
	restart();
	check_listed(false);
	CHECK_INT(simple(SPAWN_OWN, &other), ERROR_SANDBOX_NOT_FOUND);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_NONE);
	wait_for_files(0, "state/trash");
	end();
}

/* What a daemon that was taken over can make is bounded. */
TEST(as_many_as_sandboxes_and_pool_together)
{
	sandboxes_max = pool_max = 2;
	begin();
	for (int i = 0; i < 5; i++) {
		struct id id = id_new();
		struct spawn_message create = creation(&id);
		create.create.flags = i < 3 ? CREATE_POOLED : 0;
		CHECK_INT(ask(&create), i < 4 ? ERROR_NONE : ERROR_BUSY);
	}
	end();
}

/* A third word that is none of ours is not a sandbox's. */
TEST(a_slot_that_says_something_else)
{
	begin();
	struct id id = id_new();
	struct spawn_message create = creation(&id);
	CHECK_INT(ask(&create), ERROR_NONE);
	CHECK_INT(simple(SPAWN_KILL, &id), ERROR_NONE);
	char path[128];
	snprintf(path, sizeof(path), "%s/state/sandboxes/%s/slot", root, id.text);
	CHECK_INT(fd_write_small(AT_FDCWD, path, "0 namespace prepared\n"), 0);
	restart();
	wait_for_files(0, "state/sandboxes");
	wait_for_files(0, "state/trash");
	end();
}
