/* What of the tiers needs no root: names, paths, the removal of trees, the record of a guest. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/tiers.h"
#include "test.h"
#include "tier/driver.h"
#include "tier/jail/ids.h"
#include "tier/jail/record.h"
#include "tier/remove_tree.h"

TEST_MAIN

TEST(tier_names)
{
	for (unsigned tier = 0; tier < TIER_COUNT; tier++)
		CHECK_INT(tier_parse(tier_name((enum tier)tier)), tier);
	CHECK_INT(tier_parse("chroot"), TIER_COUNT);
	CHECK_INT(tier_parse(""), TIER_COUNT);
	CHECK_TEXT(tier_name(TIER_COUNT), "unknown");
	CHECK(driver_of(TIER_NAMESPACE) == &namespace_driver);
	CHECK(driver_of(TIER_AUTO) == NULL);
	CHECK(driver_of(TIER_COUNT) == NULL);
}

TEST(ids_of_sandboxes)
{
	struct sandbox_ids ids;
	struct host host = {.rights = RIGHTS_ROOT, .uid_base = 0x70000000};
	ids_for_slot(&host, 3, false, &ids);
	CHECK_INT(ids.owner, 0x70030000);
	CHECK_INT(ids.count, 65536);
	CHECK_INT(ids.charged, ids.owner);
	/* The last of 65536 is the daemon's, and nobody's inside. */
	host = (struct host){.rights = RIGHTS_SUBUIDS, .uid_base = 1, .shared_ids = 65536};
	ids_for_slot(&host, 3, false, &ids);
	CHECK(ids.owner == 1 && ids.others == 2 && ids.count == 65535 && ids.groups);
	CHECK(ids.others + ids.count - 2 == 65535);
	CHECK(ids.charged > 0 && ids.charged < 65536);
	ids_for_slot(&host, 3, true, &ids);
	CHECK(ids.owner == 0 && ids.others == 2 && ids.count == 65535);
	host = (struct host){.rights = RIGHTS_ONE_ID};
	ids_for_slot(&host, 3, false, &ids);
	CHECK(ids.owner == 0 && ids.count == 1 && ids.charged == 0 && !ids.groups);
}

TEST(limit_texts)
{
	for (unsigned kind = 0; kind < LIMIT_COUNT; kind++)
		CHECK(limit_name((enum limit_kind)kind)[0] != '\0');
	CHECK_TEXT(limit_reason_text(LIMIT_ENFORCED), "");
	for (unsigned reason = LIMIT_ENFORCED + 1; reason <= LIMIT_CGROUP_SHARED; reason++)
		CHECK(limit_reason_text((enum limit_reason)reason)[0] != '\0');
}

TEST(socket_path)
{
	char path[GUEST_SOCKET_PATH_MAX], runtime[200];
	struct id id = {"abcdefghijklmnop"};
	CHECK_INT(guest_socket_path("/run/caisson", &id, path), 0);
	CHECK_TEXT(path, "/run/caisson/guests/abcdefghijklmnop/init.sock");
	memset(runtime, 'x', sizeof(runtime) - 1);
	runtime[sizeof(runtime) - 1] = '\0';
	CHECK(guest_socket_path(runtime, &id, path) < 0);
}

static int temporary(char *path)
{
	CHECK(mkdtemp(path) != NULL);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* What cannot be deleted does not keep the rest. */
TEST(remove_tree_goes_on)
{
	char path[] = "/tmp/caisson-test-XXXXXX";
	CLOSE_FD int top = temporary(path);
	CHECK_INT(mkdirat(top, "tree", 0755), 0);
	CHECK_INT(mkdirat(top, "tree/held", 0755), 0);
	CHECK_INT(mkdirat(top, "tree/held/inner", 0755), 0);
	for (int i = 0; i < 20; i++) {
		char name[32];
		snprintf(name, sizeof(name), "tree/%d", i);
		CHECK_INT(mkdirat(top, name, 0755), 0);
	}
	char held[64];
	snprintf(held, sizeof(held), "%s/tree/held", path);
	/* Another file system in the middle: it is not entered. */
	bool mounted = unshare(CLONE_NEWNS) == 0 &&
		       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		       mount("none", held, "tmpfs", 0, NULL) == 0;
	if (mounted) {
		/* The old descriptor leads into the namespace that was left. */
		close(top);
		top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		CHECK_INT(mkdirat(top, "tree/held/kept", 0755), 0);
		CHECK(remove_tree(top, "tree") < 0);
		CHECK_INT(faccessat(top, "tree/held/kept", F_OK, 0), 0);
		CHECK(faccessat(top, "tree/19", F_OK, 0) < 0);
		CHECK_INT(umount(held), 0);
	}
	CHECK_INT(remove_tree(top, "tree"), 0);
	CHECK_INT(rmdir(path), 0);
}

TEST(remove_tree_deep)
{
	char path[] = "/tmp/caisson-test-XXXXXX";
	CLOSE_FD int top = temporary(path);
	CLOSE_FD int at = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(mkdirat(top, "tree", 0755), 0);
	CHECK_INT(mkdirat(top, "kept", 0755), 0);
	CHECK_INT(symlinkat("../kept", top, "tree/link"), 0);
	CHECK_INT(symlinkat("/", top, "tree/root"), 0);
	/* As deep as no path can be written; names that the removal itself would use. */
	for (int depth = 0; depth < 2000; depth++) {
		const char *name = depth == 0 ? "tree" : depth % 2 ? "moved-0" : "moved-1";
		if (depth > 0)
			CHECK_INT(mkdirat(at, name, 0755), 0);
		int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		CHECK(next >= 0);
		close(at);
		at = next;
		CHECK_INT(mkdirat(at, "moved-2", 0755), 0);
	}
	CHECK_INT(remove_tree(top, "tree"), 0);
	CHECK(faccessat(top, "tree", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
	CHECK(faccessat(top, "kept", F_OK, 0) == 0);
	CHECK_INT(remove_tree(top, "tree"), 0);
	CHECK_INT(remove_tree(top, "kept"), 0);
	CHECK_INT(rmdir(path), 0);
}

static void write_record(int guest, const char *text)
{
	CLOSE_FD int fd = openat(guest, "boot", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && fd_write_full(fd, text, strlen(text)) == 0);
}

TEST(records)
{
	char path[] = "/tmp/caisson-test-XXXXXX";
	CLOSE_FD int top = temporary(path);
	struct host host = {0};
	struct error error;
	struct guest guest = {
	    .id = {"abcdefghijklmnop"},
	    .tier = TIER_NAMESPACE,
	    .slot = 3,
	    .limits = {.memory = 1, .disk = 2, .inodes = 3, .cpu_millis = 4, .pids = 5, .files = 6},
	    .init = {.pid = 42, .pidfd = -1, .start_time = 77}};
	struct guest again = {.id = guest.id, .slot = 3, .init = PROCESS_NONE};
	snprintf(host.runtime, sizeof(host.runtime), "%s", path);
	CHECK_INT(record_read(&host, &again, &error), 0);
	CHECK_INT(mkdirat(top, "guests", 0755), 0);
	CHECK_INT(mkdirat(top, "guests/abcdefghijklmnop", 0755), 0);
	CLOSE_FD int directory =
	    openat(top, "guests/abcdefghijklmnop", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(record_write(&host, &guest, &error), 0);
	CHECK_INT(record_read(&host, &again, &error), 1);
	CHECK_INT(again.init.pid, 42);
	CHECK_INT(again.init.start_time, 77);
	CHECK(memcmp(&again.limits, &guest.limits, sizeof(guest.limits)) == 0);
	/* Of another uid range: not the guest that is asked for. */
	again.slot = 4;
	CHECK_INT(record_read(&host, &again, &error), 0);
	again.slot = 3;
	static const char *const bad[] = {"", "caisson-boot 1\n", "caisson-boot 1\npid -1\n",
					  "caisson", "pid 42\nstart_time 77\n"};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		write_record(directory, bad[i]);
		CHECK_INT(record_read(&host, &again, &error), 0);
	}
	/* Another version's: it cannot be adopted, and the log says why. */
	static const char *const others[] = {"caisson-boot 2\npid 42\n", "caisson-boot 10\n",
					     "caisson-boot \npid 42\n"};
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		write_record(directory, others[i]);
		error = (struct error){.kind = ERROR_NONE};
		CHECK_INT(record_read(&host, &again, &error), -1);
		CHECK_INT(error.kind, ERROR_UNSUPPORTED);
		CHECK(strstr(error.message, "another version of Caisson") != NULL);
	}
	CHECK_INT(record_remove(&host, &guest.id, &error), 0);
	CHECK_INT(record_remove(&host, &guest.id, &error), 0);
	CHECK_INT(remove_tree(top, "guests"), 0);
	CHECK_INT(rmdir(path), 0);
}
