/* Sandboxes that are being made: in workers that nobody waits for, and by the pool. With the fake
 * driver of the fixture. */
#include "spawner/internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spawner_fixture.h"
#include "test.h"

TEST_MAIN

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

/* ---- The pool. */

TEST(the_pool_is_filled_used_and_drained)
{
	struct spawn_message reply;
	pool_size = 2;
	begin();
	struct id first = id_new(), second;
	struct spawn_message create = creation(&first);
	CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NONE);
	CHECK_INT(reply.created.origin, ORIGIN_COLD);
	/* Two like it are made, and nobody hears of them. */
	wait_for_files(3, "state/sandboxes");
	/* They are ready some time after their files are there. */
	for (int i = 0; i < 100; i++) {
		usleep(50 * 1000);
		second = id_new();
		create = creation(&second);
		CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NONE);
		if (reply.created.origin == ORIGIN_POOL)
			break;
		CHECK_INT(simple(SPAWN_DESTROY, &second), ERROR_NONE);
	}
	CHECK_INT(reply.created.origin, ORIGIN_POOL);
	CHECK(id_equal(&reply.sandbox, &second) && reply.created.pid > 0);
	char slot[128], text[64];
	snprintf(slot, sizeof(slot), "%s/state/sandboxes/%s/slot", root, second.text);
	CHECK(fd_read_small(AT_FDCWD, slot, text, sizeof(text)) > 0);
	CHECK(strstr(text, "prepared") == NULL);
	wait_for_files(4, "state/sandboxes");
	struct spawn_message list = {.type = SPAWN_LIST, .request = 77};
	post(&list, NULL, 0);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(receive(&reply), 1);
		CHECK(reply.type == SPAWN_LISTED &&
		      (id_equal(&reply.sandbox, &first) || id_equal(&reply.sandbox, &second)));
	}
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_REPLY);
	/* Nobody gets the name of one of the pool's. */
	char path[128];
	snprintf(path, sizeof(path), "%s/state/sandboxes", root);
	DIR *entries = opendir(path);
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		struct id taken;
		if (id_parse(entry->d_name, &taken) < 0)
			continue;
		create = creation(&taken);
		CHECK_INT(ask(&create), ERROR_CONFLICT);
	}
	if (entries)
		closedir(entries);
	/* Other sizes, and folders, are made from nothing. */
	struct id other = id_new();
	create = creation(&other);
	create.create.limits.disk += 1 * MIB;
	CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NONE);
	CHECK_INT(reply.created.origin, ORIGIN_COLD);
	CHECK_INT(simple(SPAWN_DESTROY, &second), ERROR_NONE);
	CHECK_INT(simple(SPAWN_KILL, &first), ERROR_NONE);
	fd_close(&link_fd);
	int status;
	waitpid(child, &status, 0);
	CHECK_INT(status, 0);
	/* What is left is what somebody asked for. */
	wait_for_files(2, "state/sandboxes");
	restart_again();
	end();
}

/* One that cannot be assigned is an error like any other, and goes. */
TEST(the_pool_fails_like_a_boot)
{
	struct spawn_message reply;
	pool_size = 1;
	begin();
	struct id first = id_new(), second = id_new();
	struct spawn_message create = creation(&first);
	CHECK_INT(ask(&create), ERROR_NONE);
	wait_for_files(2, "state/sandboxes");
	usleep(50 * 1000);
	create = creation(&second);
	create.create.limits.pids = FAIL_BOOT;
	CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NO_SPACE);
	CHECK_INT(simple(SPAWN_DESTROY, &second), ERROR_SANDBOX_NOT_FOUND);
	char below[64];
	snprintf(below, sizeof(below), "state/sandboxes/%s", second.text);
	wait_for_files(-1, below);
	wait_for_files(0, "state/trash");
	end();
}

/* A spawner that is killed leaves members that end by themselves, and files that the next one
 * removes. */
TEST(a_killed_spawner_s_pool)
{
	struct spawn_message reply;
	pool_size = 2;
	begin();
	wait_for_files(2, "state/sandboxes");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	pool_size = 0;
	restart_again();
	struct spawn_message list = {.type = SPAWN_LIST, .request = 5};
	post(&list, NULL, 0);
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_REPLY);
	wait_for_files(0, "state/sandboxes");
	wait_for_files(0, "state/trash");
	end();
}
