/* What a boot of a sandbox is made of: its mounts, its layers, its origin. */
#include "core/sandbox/sandbox.h"

#include "base/text.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

static void change(struct fake_host *host,
		   int (*function)(struct sandbox *sandbox, const struct principal *principal,
				   SANDBOX_DONE, struct error *error),
		   struct sandbox *sandbox)
{
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(function(sandbox, &fake_principal, outcome_done, &outcome, &error), 0);
	CHECK(fake_until(host, &outcome.done));
	CHECK_INT(outcome.error.kind, ERROR_NONE);
}

TEST(mounts_of_a_row)
{
	static const char packed[] = "cow\0/data\0/home/user\0ro\0/srv\0";
	static const char damaged[] = "read\0/data\0/home/user";
	struct sandbox_row row = {.mounts = (char *)packed, .mounts_size = sizeof(packed)};
	struct sandbox_mount mount;
	size_t at = 0;
	CHECK(sandbox_mount_next(&row, &at, &mount));
	CHECK(mount.source == MOUNT_FOLDER && mount.mode == MOUNT_COPY_ON_WRITE);
	CHECK_TEXT(mount.path, "/data");
	CHECK_TEXT(mount.host_path, "/home/user");
	CHECK(sandbox_mount_next(&row, &at, &mount));
	CHECK(mount.source == MOUNT_FOLDER && mount.mode == MOUNT_READ_ONLY);
	CHECK_TEXT(mount.path, "/srv");
	CHECK_TEXT(mount.host_path, "");
	CHECK(!sandbox_mount_next(&row, &at, &mount));
	row = (struct sandbox_row){.mounts = (char *)damaged, .mounts_size = sizeof(damaged)};
	at = 0;
	CHECK(!sandbox_mount_next(&row, &at, &mount));
}

TEST(facts_of_each_origin)
{
	for (uint32_t origin = 0; origin < ORIGIN_COUNT; origin++) {
		const struct create_origin_facts *facts = create_origin_facts(origin);
		CHECK(facts->name != NULL);
		CHECK_INT(facts->environment_with_exec, origin == ORIGIN_POOL);
		CHECK_INT(facts->counters_from_zero, origin == ORIGIN_COLD);
	}
	CHECK_TEXT(create_origin_facts(ORIGIN_COLD)->name, "cold");
	CHECK_TEXT(create_origin_facts(ORIGIN_POOL)->name, "pool");
	CHECK(create_origin_facts(ORIGIN_COUNT) == create_origin_facts(ORIGIN_COLD));
}

/* The layers below its files are named by what the row says; those of `host` are always today's. */
TEST(layers_of_a_start)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	CHECK_INT(host->booted.rootfs.kind, ROOTFS_HOST);
	CHECK_TEXT(host->booted.rootfs.digest, "");
	change(host, sandbox_stop, sandbox);
	(void)!text_copy(host->rootfs_digest, sizeof(host->rootfs_digest), "another digest");
	change(host, sandbox_start, sandbox);
	CHECK_INT(host->booted.rootfs.kind, ROOTFS_HOST);
	CHECK_TEXT(host->booted.rootfs.digest, "");
	CHECK_TEXT(sandbox->row.rootfs_digest, "another digest");
	change(host, sandbox_stop, sandbox);
	sandbox->row.rootfs_kind = ROOTFS_HOST + 1;
	change(host, sandbox_start, sandbox);
	CHECK_INT(host->booted.rootfs.kind, ROOTFS_HOST + 1);
	CHECK_TEXT(host->booted.rootfs.digest, "another digest");
	fake_host_free(host);
}
