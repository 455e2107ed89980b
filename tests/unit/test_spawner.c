/* The spawner's message loop with a fake driver and a hostile daemon: whatever is sent is answered
 * with a kind of error or ends the connection, and nothing is left open. Also its files: the uid
 * blocks that instances share, and removing trees. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "tier/remove_tree.h"
#include "spawner_fixture.h"
#include "test.h"

TEST_MAIN

/* For what never happens. What does happen has to within it, also where the machine stalls. */
#define PATIENCE (40 * NSEC_PER_SEC)

TEST(hello)
{
	begin();
	struct spawn_message message = {.type = SPAWN_HELLO,
					.hello.version = SPAWNER_PROTOCOL_VERSION};
	CHECK_INT(ask(&message), ERROR_NONE);
	message.hello.version++;
	CHECK_INT(ask(&message), ERROR_UNSUPPORTED);
	end();
}

TEST(wrong_sizes_end_the_connection)
{
	static const size_t sizes[] = {1, 4, sizeof(struct spawn_message) - 1,
				       sizeof(struct spawn_message) + 1, 60000};
	static char bytes[60000];
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct spawn_message message;
		begin();
		CHECK_INT(send(link_fd, bytes, sizes[i], 0), sizes[i]);
		CHECK_INT(receive(&message), 0);
		end();
	}
}

TEST(unknown_types_are_answered)
{
	static const uint32_t types[] = {
	    0, SPAWN_OWN + 1, 63, SPAWN_REPLY, SPAWN_LISTED, SPAWN_QUIT, UINT32_MAX, 0x80000001};
	begin();
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		CHECK_INT(simple(types[i], NULL), ERROR_INVALID);
	end();
}

TEST(bad_ids_are_answered)
{
	static const char *const bad[] = {"",
					  "../../etc/passwd",
					  "ABCDEFGHIJKLMNOP",
					  "abc",
					  "1bcdefghijklmnop",
					  "abcdefghijklmno/",
					  "abcdefghijklmno\n"};
	static const uint32_t types[] = {SPAWN_CREATE,  SPAWN_START, SPAWN_KILL,   SPAWN_DESTROY,
					 SPAWN_FREEZE,  SPAWN_THAW,  SPAWN_LIMITS, SPAWN_COUNTERS,
					 SPAWN_RECLAIM, SPAWN_OWN};
	begin();
	for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
		struct id unknown = id_new();
		/* No id at all asks for the counters of all. */
		for (size_t i = types[t] == SPAWN_COUNTERS; i < ARRAY_SIZE(bad); i++) {
			struct spawn_message message = {.type = types[t]};
			memcpy(message.sandbox.text, bad[i],
			       MIN(strlen(bad[i]), sizeof(message.sandbox.text)));
			CHECK_INT(ask(&message), ERROR_ID_MALFORMED);
		}
		struct spawn_message unterminated = {.type = types[t]};
		memset(&unterminated.sandbox, '/', sizeof(unterminated.sandbox));
		CHECK_INT(ask(&unterminated), ERROR_ID_MALFORMED);
		if (types[t] != SPAWN_CREATE)
			CHECK_INT(simple(types[t], &unknown), ERROR_SANDBOX_NOT_FOUND);
	}
	CHECK_INT(count_files("%s/state/sandboxes", root), 0);
	end();
}

static void check_create(void (*spoil)(struct spawn_create *create), uint32_t kind)
{
	struct id id = id_new();
	struct spawn_message message = creation(&id);
	spoil(&message.create);
	CHECK_INT(ask(&message), kind);
}

static void tier_auto(struct spawn_create *create)
{
	create->tier = TIER_AUTO;
}
static void tier_beyond(struct spawn_create *create)
{
	create->tier = 0x10001;
}
static void tier_absent(struct spawn_create *create)
{
	create->tier = TIER_VM;
}
static void template_beyond(struct spawn_create *create)
{
	create->rootfs.kind = 99;
}
static void flags_unknown(struct spawn_create *create)
{
	create->flags = 0x80000000;
}
static void memory_none(struct spawn_create *create)
{
	create->limits.memory = 0;
}
static void memory_above_configured(struct spawn_create *create)
{
	create->limits.memory = 1 * GIB + 1;
}
static void memory_all(struct spawn_create *create)
{
	create->limits.memory = UINT64_MAX;
}
static void disk_small(struct spawn_create *create)
{
	create->limits.disk = 1;
}
static void cpu_none(struct spawn_create *create)
{
	create->limits.cpu_millis = 0;
}
static void pids_many(struct spawn_create *create)
{
	create->limits.pids = UINT32_MAX;
}
static void files_few(struct spawn_create *create)
{
	create->limits.files = 3;
}
static void mounts_without_descriptors(struct spawn_create *create)
{
	create->mount_count = 1;
}
static void mounts_many(struct spawn_create *create)
{
	create->mount_count = UINT32_MAX;
}

TEST(bad_creates_are_answered)
{
	begin();
	check_create(tier_auto, ERROR_INVALID);
	check_create(tier_beyond, ERROR_INVALID);
	check_create(tier_absent, ERROR_TIER_UNAVAILABLE);
	check_create(template_beyond, ERROR_TEMPLATE_UNAVAILABLE);
	check_create(flags_unknown, ERROR_INVALID);
	check_create(memory_none, ERROR_LIMIT_EXCEEDED);
	check_create(memory_above_configured, ERROR_LIMIT_EXCEEDED);
	check_create(memory_all, ERROR_LIMIT_EXCEEDED);
	check_create(disk_small, ERROR_LIMIT_EXCEEDED);
	check_create(cpu_none, ERROR_LIMIT_EXCEEDED);
	check_create(pids_many, ERROR_LIMIT_EXCEEDED);
	check_create(files_few, ERROR_LIMIT_EXCEEDED);
	check_create(mounts_without_descriptors, ERROR_INVALID);
	check_create(mounts_many, ERROR_INVALID);
	CHECK_INT(count_files("%s/state/sandboxes", root), 0);
	end();
}

static int open_below(const char *name, int flags)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	return open(path, flags | O_CLOEXEC);
}

/* A create with these directories mounted. */
static uint32_t create_with(const int *fds, size_t count, uint32_t mode)
{
	struct id id = id_new();
	struct spawn_message message = creation(&id), reply;
	message.create.mount_count = (uint32_t)count;
	for (size_t i = 0; i < MIN(count, (size_t)SANDBOX_MOUNTS_MAX); i++)
		message.create.mounts[i] = (struct spawn_mount){MOUNT_FOLDER, mode};
	int grants[SANDBOX_MOUNTS_MAX];
	for (size_t i = 0; i < count; i++)
		grants[i] = folder_grant_make(fds[i], (enum mount_mode)mode);
	uint32_t result = ask_with(&message, grants, count, &reply);
	for (size_t i = 0; i < count; i++)
		close(grants[i]);
	return result;
}

/* What a daemon that was taken over might send in the place of a grant. */
TEST(grants_cannot_be_made_up)
{
	begin();
	struct id id = id_new();
	struct spawn_message message = creation(&id), reply;
	message.create.mount_count = 1;
	message.create.mounts[0] = (struct spawn_mount){MOUNT_FOLDER, MOUNT_READ_WRITE};
	int shared = open_below("shared", O_RDONLY | O_DIRECTORY);
	CHECK_INT(ask_with(&message, &shared, 1, &reply), ERROR_INVALID);
	/* Given for reading, asked for writing. */
	int grant = folder_grant_make(shared, MOUNT_READ_ONLY);
	CHECK_INT(ask_with(&message, &grant, 1, &reply), ERROR_FORBIDDEN);
	close(grant);
	/* True grants: in the daemon's own name, and in another user's. */
	CHECK_INT(seteuid(DAEMON_UID), 0);
	CHECK_INT(create_with(&shared, 1, MOUNT_READ_ONLY), ERROR_FORBIDDEN);
	CHECK_INT(seteuid(0), 0);
	CHECK_INT(seteuid(DAEMON_UID + 1), 0);
	CHECK_INT(create_with(&shared, 1, MOUNT_READ_ONLY), ERROR_NONE);
	CHECK_INT(seteuid(0), 0);
	close(shared);
	end();
}

static int give(const char *name)
{
	int fd = open_below(name, O_RDONLY | O_DIRECTORY);
	int kind = create_with(&fd, 1, MOUNT_READ_ONLY);
	close(fd);
	return kind;
}

TEST(mounts_below_the_allowed_path)
{
	(void)!snprintf(allow, sizeof(allow), "/nowhere:/tmp/caisson-test-spawner-%d-", getpid());
	begin();
	/* A prefix that ends inside a name allows nothing. */
	CHECK_INT(give("shared"), ERROR_FORBIDDEN);
	snprintf(allow, sizeof(allow), "/nowhere:%s/shared", root);
	restart();
	int shared = open_below("shared", O_RDONLY | O_DIRECTORY);
	int inside = open_below("shared/inside", O_PATH);
	int beside = open_below("sharedx", O_RDONLY | O_DIRECTORY);
	int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	int two[] = {shared, beside};
	CHECK_INT(create_with(&shared, 1, MOUNT_READ_WRITE), ERROR_NONE);
	CHECK_INT(create_with(&inside, 1, MOUNT_COPY_ON_WRITE), ERROR_NONE);
	CHECK_INT(create_with(&inside, 1, 3), ERROR_INVALID);
	CHECK_INT(give("sharedx"), ERROR_FORBIDDEN);
	CHECK_INT(create_with(two, 2, MOUNT_READ_ONLY), ERROR_FORBIDDEN);
	CHECK_INT(give("state/sandboxes"), ERROR_FORBIDDEN);
	CHECK_INT(create_with(&file, 1, MOUNT_READ_ONLY), ERROR_INVALID);
	char path[128];
	snprintf(path, sizeof(path), "%s/shared/inside", root);
	CHECK_INT(rmdir(path), 0);
	CHECK_INT(create_with(&inside, 1, MOUNT_READ_ONLY), ERROR_INVALID);
	CHECK_INT(count_files("%s/state/sandboxes", root), 2);
	close(shared);
	close(inside);
	close(beside);
	close(file);
	end();
}

TEST(own_directories_are_never_given)
{
	begin();
	CHECK_INT(give("state"), ERROR_FORBIDDEN);
	CHECK_INT(give("run/guests"), ERROR_FORBIDDEN);
	CHECK_INT(give("."), ERROR_FORBIDDEN);
	CHECK_INT(give("sharedx"), ERROR_NONE);
	/* Also where one is reached by a link: its own name is another then. */
	char name[128], real[128];
	snprintf(name, sizeof(name), "%s/run", root);
	snprintf(real, sizeof(real), "%s/elsewhere", root);
	CHECK_INT(rename(name, real), 0);
	CHECK_INT(symlink("elsewhere", name), 0);
	CHECK_INT(give("elsewhere/guests"), ERROR_FORBIDDEN);
	CHECK_INT(unlink(name), 0);
	CHECK_INT(rename(real, name), 0);
	/* A part of one that is mounted elsewhere, and one that is mounted from below the given. */
	static const char *const binds[][3] = {{"run/guests", "sharedx", "sharedx"},
					       {"shared/inside", "state", "shared"}};
	for (size_t i = 0; i < ARRAY_SIZE(binds); i++) {
		snprintf(real, sizeof(real), "%s/%s", root, binds[i][0]);
		snprintf(name, sizeof(name), "%s/%s", root, binds[i][1]);
		CHECK_INT(mount(real, name, NULL, MS_BIND, NULL), 0);
		CHECK_INT(give(binds[i][2]), ERROR_FORBIDDEN);
		CHECK_INT(umount2(name, MNT_DETACH), 0);
	}
	end();
}

TEST(descriptors_where_none_belong)
{
	struct spawn_message reply;
	int fds[SANDBOX_MOUNTS_MAX + 1];
	begin();
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = open_below("shared", O_RDONLY | O_DIRECTORY);
	struct id id = id_new();
	int before = count_descriptors();
	for (int i = 0; i < 50; i++) {
		struct spawn_message list = {.type = SPAWN_LIST}, kill_it = {.type = SPAWN_KILL},
				     unknown = {.type = 99}, create = creation(&id);
		kill_it.sandbox = id;
		CHECK_INT(ask_with(&list, fds, 3, &reply), ERROR_INVALID);
		CHECK_INT(ask_with(&kill_it, fds, 1, &reply), ERROR_INVALID);
		CHECK_INT(ask_with(&unknown, fds, 16, &reply), ERROR_INVALID);
		/* Fewer and more than it says. */
		create.create.mount_count = 3;
		CHECK_INT(ask_with(&create, fds, 2, &reply), ERROR_INVALID);
		CHECK_INT(ask_with(&create, fds, 4, &reply), ERROR_INVALID);
	}
	CHECK_INT(count_descriptors(), before);
	/* More than any message may carry. */
	struct spawn_message create = creation(&id);
	create.create.mount_count = SANDBOX_MOUNTS_MAX;
	post(&create, fds, ARRAY_SIZE(fds));
	CHECK_INT(receive(&reply), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	end();
}

TEST(life_of_a_sandbox)
{
	struct spawn_message reply;
	begin();
	struct id id = id_new();
	struct spawn_message create = creation(&id);
	CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NONE);
	CHECK(id_equal(&reply.sandbox, &id) && reply.created.pid > 0);
	CHECK_INT(reply.created.phase_count, 1);
	CHECK_TEXT(reply.created.phases[0].name, "fake");
	CHECK_INT(reply.created.limit_reasons[LIMIT_CPU], LIMIT_NO_CGROUP_CONTROLLER);
	char slot[128], text[64];
	snprintf(slot, sizeof(slot), "%s/state/sandboxes/%s/slot", root, id.text);
	CHECK(fd_read_small(AT_FDCWD, slot, text, sizeof(text)) > 0);
	CHECK_TEXT(text, "0 namespace\n");
	CHECK_INT(ask(&create), ERROR_CONFLICT);
	create.type = SPAWN_START;
	CHECK_INT(ask(&create), ERROR_SANDBOX_STATE);
	CHECK_INT(simple(SPAWN_FREEZE, &id), ERROR_NONE);

	struct spawn_message list = {.type = SPAWN_LIST, .request = 77};
	post(&list, NULL, 0);
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_LISTED);
	CHECK(reply.request == 77 && id_equal(&reply.sandbox, &id));
	CHECK(reply.listed.running && reply.listed.frozen && reply.listed.pid > 0);
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_REPLY);

	CHECK_INT(simple(SPAWN_THAW, &id), ERROR_NONE);
	struct spawn_message counters = {.type = SPAWN_COUNTERS, .sandbox = id};
	CHECK_INT(ask_with(&counters, NULL, 0, &reply), ERROR_NONE);
	CHECK_INT(reply.counters.memory, 4711);
	struct spawn_message limits = {
	    .type = SPAWN_LIMITS, .sandbox = id, .limits = create.create.limits};
	CHECK_INT(ask(&limits), ERROR_NONE);
	limits.limits.memory = UINT64_MAX;
	CHECK_INT(ask(&limits), ERROR_LIMIT_EXCEEDED);

	CHECK_INT(simple(SPAWN_KILL, &id), ERROR_NONE);
	CHECK_INT(simple(SPAWN_KILL, &id), ERROR_NONE);
	CHECK_INT(simple(SPAWN_COUNTERS, &id), ERROR_SANDBOX_STATE);
	CHECK_INT(simple(SPAWN_FREEZE, &id), ERROR_SANDBOX_STATE);
	CHECK_INT(ask(&create), ERROR_NONE); /* START */
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_NONE);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_SANDBOX_NOT_FOUND);
	wait_for_files(0, "state/sandboxes");
	wait_for_files(0, "state/trash");
	end();
}

TEST(ends_are_told_with_their_cause)
{
	static const struct {
		uint32_t order, cause;
	} cases[] = {{EXIT_AT_ONCE, END_EXITED}, {EXIT_DEADLINE, END_DEADLINE}, {64, END_KILLED}};
	begin();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct id id = id_new();
		struct spawn_message create = creation(&id), message;
		create.create.limits.pids = cases[i].order;
		CHECK_INT(ask_with(&create, NULL, 0, &message), ERROR_NONE);
		if (cases[i].cause == END_KILLED)
			kill((pid_t)message.created.pid, SIGKILL);
		CHECK_INT(receive(&message), 1);
		CHECK_INT(message.type, SPAWN_ENDED);
		CHECK_INT(message.ended.cause, cases[i].cause);
		CHECK(id_equal(&message.sandbox, &id));
		/* Its files are there, and it can be started again. */
		create.type = SPAWN_START;
		create.create.limits.pids = 64;
		CHECK_INT(ask(&create), ERROR_NONE);
		CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_NONE);
	}
	wait_for_files(0, "state/trash");
	end();
}

/* ---- What takes longer than anybody should wait. */

/* Creates one of a kind; its process. */
static pid_t create_kind(const struct id *id, uint32_t kind)
{
	struct spawn_message create = creation(id), reply;
	create.create.limits.pids = kind;
	CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NONE);
	if (reply.created.pid == 0)
		exit(2); /* a signal to nobody would be one to ourselves */
	return (pid_t)reply.created.pid;
}

/* Asks and does not wait for the answer. */
static void post_simple(uint32_t type, const struct id *id, uint32_t request)
{
	struct spawn_message message = {.type = type, .request = request, .sandbox = *id};
	post(&message, NULL, 0);
}

static void expect(uint32_t request, uint32_t result)
{
	struct spawn_message reply;
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_REPLY);
	CHECK_INT(reply.request, request);
	CHECK_INT(reply.result, result);
	CHECK(result == ERROR_NONE || reply.message[0]);
}

static struct spawn_listed listed_alone(void)
{
	struct spawn_message list = {.type = SPAWN_LIST, .request = 78}, reply = {0};
	post(&list, NULL, 0);
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_LISTED);
	expect(78, ERROR_NONE);
	return reply.listed;
}

/* It is begun, nothing comes of it, and its time passes. */
static void expect_timed_out(uint32_t type, const struct id *id)
{
	post_simple(type, id, 4001);
	CHECK_INT(listed_alone().running, 1);
	pass_time(PATIENCE);
	expect(4001, ERROR_TIMED_OUT);
}

static void expect_end(const struct id *id, uint32_t cause)
{
	struct spawn_message message;
	CHECK_INT(receive(&message), 1);
	CHECK_INT(message.type, SPAWN_ENDED);
	CHECK_INT(message.ended.cause, cause);
	CHECK(id_equal(&message.sandbox, id));
}

/* What LIST says of the only sandbox. */
static void check_slot(const struct id *id, const char *wanted)
{
	char path[160], text[64];
	snprintf(path, sizeof(path), "%s/state/sandboxes/%s/slot", root, id->text);
	CHECK(fd_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	CHECK_TEXT(text, wanted);
}

TEST(nobody_waits_for_a_kill_that_does_not_end)
{
	begin();
	struct id stuck = id_new(), other = id_new();
	pid_t pid = create_kind(&stuck, KILL_STUCK);
	post_simple(SPAWN_KILL, &stuck, 5001);
	create_kind(&other, 64);
	check_slot(&other, "1 namespace\n");
	CHECK_INT(simple(SPAWN_FREEZE, &other), ERROR_NONE);
	CHECK_INT(simple(SPAWN_DESTROY, &other), ERROR_NONE);
	struct spawn_message start = creation(&stuck);
	CHECK_INT(ask(&start), ERROR_CONFLICT);
	start.type = SPAWN_START;
	CHECK_INT(ask(&start), ERROR_CONFLICT);
	CHECK_INT(simple(SPAWN_FREEZE, &stuck), ERROR_CONFLICT);
	CHECK_INT(simple(SPAWN_COUNTERS, &stuck), ERROR_CONFLICT);
	CHECK_INT(listed_alone().running, 1);
	/* More who ask for the same are answered with the first, as many as there is room for. */
	for (uint32_t i = 0; i < ENTRY_WAITING_MAX - 1; i++)
		post_simple(i == 1 ? SPAWN_DESTROY : SPAWN_KILL, &stuck, 5002 + i);
	CHECK_INT(simple(SPAWN_KILL, &stuck), ERROR_BUSY);
	kill(pid, SIGKILL);
	for (uint32_t i = 0; i < ENTRY_WAITING_MAX; i++)
		expect(5001 + i, ERROR_NONE);
	CHECK_INT(simple(SPAWN_KILL, &stuck), ERROR_SANDBOX_NOT_FOUND);
	wait_for_files(0, "state/sandboxes");
	wait_for_files(0, "state/trash");
	end();
}

TEST(a_kill_that_takes_too_long_is_said_and_goes_on)
{
	patience = PATIENCE;
	begin();
	struct id id = id_new(), other = id_new();
	int before = count_descriptors();
	pid_t pid = create_kind(&id, KILL_STUCK);
	expect_timed_out(SPAWN_KILL, &id);
	CHECK_INT(simple(SPAWN_KILL, &id), ERROR_CONFLICT);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_CONFLICT);
	CHECK_INT(listed_alone().running, 1);
	create_kind(&other, 64);
	check_slot(&other, "1 namespace\n");
	CHECK_INT(simple(SPAWN_DESTROY, &other), ERROR_NONE);
	kill(pid, SIGKILL);
	expect_end(&id, END_KILLED);
	CHECK_INT(listed_alone().running, 0);
	struct spawn_message start = creation(&id), reply;
	start.type = SPAWN_START;
	start.create.limits.pids = KILL_STUCK;
	CHECK_INT(ask_with(&start, NULL, 0, &reply), ERROR_NONE);
	/* One that is to be destroyed is, late as it may be. */
	expect_timed_out(SPAWN_DESTROY, &id);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_CONFLICT);
	kill((pid_t)reply.created.pid, SIGKILL);
	expect_end(&id, END_KILLED);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_SANDBOX_NOT_FOUND);
	wait_for_files(0, "state/sandboxes");
	CHECK_INT(count_descriptors(), before);
	end();
}

TEST(a_release_is_tried_until_it_works)
{
	begin();
	struct id id = id_new();
	pid_t pid = create_kind(&id, RELEASE_SLOW);
	CHECK_INT(simple(SPAWN_KILL, &id), ERROR_NONE);
	CHECK_INT(listed_alone().running, 0);
	struct spawn_message start = creation(&id), reply;
	start.type = SPAWN_START;
	start.create.limits.pids = RELEASE_SLOW;
	CHECK_INT(ask_with(&start, NULL, 0, &reply), ERROR_NONE);
	pid = (pid_t)reply.created.pid;
	kill(pid, SIGKILL);
	expect_end(&id, END_KILLED);
	CHECK_INT(ask(&start), ERROR_NONE);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_NONE);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_SANDBOX_NOT_FOUND);
	end();
}

TEST(a_pause_may_take_its_time)
{
	begin();
	struct id id = id_new();
	create_kind(&id, FREEZE_SLOW);
	post_simple(SPAWN_FREEZE, &id, 6001);
	post_simple(SPAWN_FREEZE, &id, 6002);
	expect(6001, ERROR_NONE);
	expect(6002, ERROR_NONE);
	CHECK_INT(listed_alone().frozen, 1);
	CHECK_INT(simple(SPAWN_THAW, &id), ERROR_NONE);
	CHECK_INT(listed_alone().frozen, 0);
	end();
}

TEST(a_pause_that_never_comes_is_taken_back)
{
	patience = PATIENCE;
	begin();
	struct id id = id_new(), other = id_new();
	create_kind(&id, FREEZE_NEVER);
	expect_timed_out(SPAWN_FREEZE, &id);
	struct spawn_listed listed = listed_alone();
	CHECK(listed.running && !listed.frozen);
	post_simple(SPAWN_FREEZE, &id, 6001);
	/* Whoever needs it now has it. */
	post_simple(SPAWN_THAW, &id, 6004);
	expect(6001, ERROR_CONFLICT);
	expect(6004, ERROR_NONE);
	CHECK(!listed_alone().frozen);
	post_simple(SPAWN_FREEZE, &id, 6001);
	CHECK_INT(simple(SPAWN_COUNTERS, &id), ERROR_NONE);
	create_kind(&other, 64);
	CHECK_INT(simple(SPAWN_DESTROY, &other), ERROR_NONE);
	/* An id is nobody's twice. */
	other = id_new();
	/* Its end comes first. */
	post_simple(SPAWN_DESTROY, &id, 6002);
	expect(6001, ERROR_CONFLICT);
	expect(6002, ERROR_NONE);
	pid_t pid = create_kind(&other, FREEZE_NEVER);
	post_simple(SPAWN_FREEZE, &other, 6003);
	kill(pid, SIGKILL);
	expect(6003, ERROR_CONFLICT);
	expect_end(&other, END_KILLED);
	end();
}

TEST(memory_is_taken_back_of_what_is_paused)
{
	begin();
	struct id id = id_new(), slow = id_new(), none = id_new();
	struct spawn_message message = {.type = SPAWN_RECLAIM, .sandbox = id}, reply;
	create_kind(&id, 64);
	CHECK_INT(simple(SPAWN_RECLAIM, &id), ERROR_CONFLICT);
	CHECK_INT(simple(SPAWN_FREEZE, &id), ERROR_NONE);
	CHECK_INT(ask_with(&message, NULL, 0, &reply), ERROR_NONE);
	CHECK_INT(reply.reclaimed.before, 4711);
	CHECK_INT(reply.reclaimed.after, 11);
	CHECK_INT(reply.reclaimed.done, 1);
	create_kind(&none, RECLAIM_FAILS);
	CHECK_INT(simple(SPAWN_FREEZE, &none), ERROR_NONE);
	CHECK_INT(simple(SPAWN_RECLAIM, &none), ERROR_UNSUPPORTED);
	/* Nobody waits for it: neither who needs it, nor who ends it. */
	create_kind(&slow, RECLAIM_SLOW);
	CHECK_INT(simple(SPAWN_FREEZE, &slow), ERROR_NONE);
	post_simple(SPAWN_RECLAIM, &slow, 6001);
	CHECK_INT(simple(SPAWN_RECLAIM, &slow), ERROR_BUSY);
	post_simple(SPAWN_THAW, &slow, 6002);
	expect(6002, ERROR_NONE);
	expect(6001, ERROR_NONE);
	CHECK_INT(simple(SPAWN_FREEZE, &slow), ERROR_NONE);
	post_simple(SPAWN_RECLAIM, &slow, 6003);
	post_simple(SPAWN_DESTROY, &slow, 6004);
	expect(6003, ERROR_CONFLICT);
	expect(6004, ERROR_NONE);
	end();
}

static void touch_over(uint32_t kind)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/state/over-%u", root, kind);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	close(fd);
}

TEST(memory_above_the_limit_is_ended)
{
	begin();
	struct id id = id_new(), slow = id_new(), other = id_new();
	char path[128];
	touch_over(OVER);
	create_kind(&id, OVER);
	struct limits before = listed_alone().limits;
	snprintf(path, sizeof(path), "%s/state/over-%u", root, OVER);
	for (int i = 0; i < 500 && access(path, F_OK) == 0; i++)
		usleep(10000);
	CHECK(access(path, F_OK) < 0);
	/* Nothing else of it has changed, and its worker is soon gone. */
	CHECK_INT(listed_alone().limits.memory, before.memory);
	CHECK_INT(listed_alone().limits.pids, OVER);
	struct spawn_message message = {.type = SPAWN_LIMITS, .sandbox = id, .limits = before};
	message.limits.memory = 32 * MIB;
	CHECK_INT(ask(&message), ERROR_LIMIT_EXCEEDED);
	CHECK_INT(listed_alone().limits.memory, before.memory);
	CHECK_INT(simple(SPAWN_DESTROY, &id), ERROR_NONE);
	/* It never ends: nobody waits for it, neither another sandbox nor its own pause, new limits
	 * and end. */
	touch_over(OVER_SLOW);
	create_kind(&slow, OVER_SLOW);
	create_kind(&other, 64);
	CHECK_INT(simple(SPAWN_DESTROY, &other), ERROR_NONE);
	message.sandbox = slow;
	message.limits = before;
	message.limits.pids = OVER_SLOW;
	message.limits.cpu_millis = 500;
	CHECK_INT(ask(&message), ERROR_NONE);
	CHECK_INT(listed_alone().limits.cpu_millis, 500);
	int64_t began = clock_monotonic();
	CHECK_INT(simple(SPAWN_FREEZE, &slow), ERROR_NONE);
	CHECK_INT(simple(SPAWN_RECLAIM, &slow), ERROR_NONE);
	CHECK_INT(simple(SPAWN_THAW, &slow), ERROR_NONE);
	CHECK_INT(simple(SPAWN_DESTROY, &slow), ERROR_NONE);
	/* What it does not wait for takes a minute. */
	CHECK(clock_monotonic() - began < 30 * NSEC_PER_SEC);
	end();
}

TEST(limits_are_all_changed_or_none)
{
	begin();
	struct id id = id_new();
	struct spawn_message message = {.type = SPAWN_LIMITS, .sandbox = id};
	create_kind(&id, 64);
	struct limits before = listed_alone().limits;
	message.limits = before;
	message.limits.cpu_millis = 500;
	CHECK_INT(ask(&message), ERROR_NONE);
	CHECK_INT(listed_alone().limits.cpu_millis, 500);
	message.limits.memory = 32 * MIB;
	CHECK_INT(ask(&message), ERROR_LIMIT_EXCEEDED);
	CHECK_INT(listed_alone().limits.memory, before.memory);
	message.limits = before;
	message.limits.pids = LIMITS_SLOW;
	message.request = 6001;
	post(&message, NULL, 0);
	post_simple(SPAWN_KILL, &id, 6002);
	expect(6001, ERROR_CONFLICT);
	expect(6002, ERROR_NONE);
	end();
}

TEST(what_was_counted_comes_with_the_end)
{
	begin();
	struct id ids[3] = {id_new(), id_new(), id_new()};
	struct spawn_message message = {.type = SPAWN_COUNTERS, .request = 6001}, reply;
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		create_kind(&ids[i], 64);
	post(&message, NULL, 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		CHECK_INT(receive(&reply), 1);
		CHECK_INT(reply.type, SPAWN_COUNTED);
		CHECK_INT(reply.counters.memory, 4711);
	}
	expect(6001, ERROR_NONE);
	message = (struct spawn_message){.type = SPAWN_KILL, .sandbox = ids[0]};
	CHECK_INT(ask_with(&message, NULL, 0, &reply), ERROR_NONE);
	CHECK(reply.counters.known[KNOWN_CPU] && reply.counters.memory == 4711);
	/* It did not run since. */
	CHECK_INT(ask_with(&message, NULL, 0, &reply), ERROR_NONE);
	CHECK(!reply.counters.known[KNOWN_CPU]);
	message = (struct spawn_message){.type = SPAWN_DESTROY, .sandbox = ids[1]};
	CHECK_INT(ask_with(&message, NULL, 0, &reply), ERROR_NONE);
	CHECK(reply.counters.known[KNOWN_CPU] && reply.counters.memory == 4711);
	end();
}

TEST(failed_boots_leave_nothing)
{
	struct spawn_message reply;
	begin();
	int before = count_descriptors();
	for (int i = 0; i < 20; i++) {
		struct id id = id_new();
		struct spawn_message create = creation(&id);
		create.create.limits.pids = FAIL_BOOT;
		CHECK_INT(ask_with(&create, NULL, 0, &reply), ERROR_NO_SPACE);
		CHECK_TEXT(reply.message, "the fake disk is full");
	}
	CHECK_INT(count_files("%s/state/sandboxes", root), 0);
	wait_for_files(0, "state/trash");
	CHECK_INT(count_descriptors(), before);
	CHECK_INT(simple(SPAWN_LIST, NULL), ERROR_NONE);
	end();
}

TEST(as_many_as_are_allowed)
{
	begin();
	struct id ids[8], one_more = id_new();
	for (int i = 0; i < 8; i++) {
		ids[i] = id_new();
		struct spawn_message create = creation(&ids[i]);
		CHECK_INT(ask(&create), ERROR_NONE);
	}
	struct spawn_message create = creation(&one_more);
	CHECK_INT(ask(&create), ERROR_BUSY);
	CHECK_INT(simple(SPAWN_DESTROY, &ids[3]), ERROR_NONE);
	CHECK_INT(ask(&create), ERROR_NONE);
	end();
}

/* Requests that nobody reads the answers of: the spawner stops reading, and loses none. */
TEST(a_daemon_that_does_not_read)
{
	enum { MANY = 400 };
	sandboxes_max = 64;
	begin();
	for (int i = 0; i < 40; i++) {
		struct id id = id_new();
		struct spawn_message create = creation(&id);
		CHECK_INT(ask(&create), ERROR_NONE);
	}
	CHECK_INT(fd_set_nonblocking(link_fd), 0);
	int sent = 0, replies = 0, listed = 0;
	struct spawn_message list = {.type = SPAWN_LIST}, reply;
	for (int round = 0; round < 1000000 && replies < MANY; round++) {
		while (sent < MANY && send(link_fd, &list, sizeof(list), 0) > 0)
			sent++;
		/* Nothing is read before the socket takes no more. */
		int got = receive(&reply);
		if (got != 1)
			break;
		listed += reply.type == SPAWN_LISTED;
		replies += reply.type == SPAWN_REPLY;
	}
	CHECK_INT(sent, MANY);
	CHECK_INT(replies, MANY);
	CHECK_INT(listed, MANY * 40);
	end();
}

TEST(a_start_finds_what_was_left)
{
	char path[160];
	begin();
	struct id whole = id_new(), half = id_new(), rubbish = id_new();
	struct spawn_message create = creation(&whole), reply;
	CHECK_INT(ask(&create), ERROR_NONE);
	snprintf(path, sizeof(path), "%s/state/sandboxes/%s", root, half.text);
	CHECK_INT(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/state/trash/%s", root, rubbish.text);
	CHECK_INT(mkdir(path, 0700), 0);
	restart();
	struct spawn_message list = {.type = SPAWN_LIST};
	post(&list, NULL, 0);
	CHECK_INT(receive(&reply), 1);
	CHECK(reply.type == SPAWN_LISTED && id_equal(&reply.sandbox, &whole));
	CHECK_INT(reply.listed.running, 0);
	CHECK_INT(receive(&reply), 1);
	CHECK_INT(reply.type, SPAWN_REPLY);
	wait_for_files(1, "state/sandboxes");
	wait_for_files(0, "state/trash");
	create.type = SPAWN_START;
	CHECK_INT(ask(&create), ERROR_NONE);
	end();
}

TEST(probe)
{
	struct spawn_message message = {.type = SPAWN_PROBE, .tier = TIER_NAMESPACE}, reply;
	begin();
	CHECK_INT(ask_with(&message, NULL, 0, &reply), ERROR_NONE);
	CHECK(reply.probe.available && reply.probe.tier == TIER_NAMESPACE);
	message.tier = TIER_VM;
	CHECK_INT(ask_with(&message, NULL, 0, &reply), ERROR_NONE);
	CHECK(!reply.probe.available && reply.probe.missing[0]);
	message.tier = TIER_COUNT;
	CHECK_INT(ask(&message), ERROR_INVALID);
	message.tier = TIER_AUTO;
	CHECK_INT(ask(&message), ERROR_INVALID);
	end();
}

TEST(uid_blocks_are_shared_out)
{
	char base[64], meeting[96], state[UID_BLOCKS + 1][96];
	struct error error = {0};
	bool seen[UID_BLOCKS] = {false};
	snprintf(base, sizeof(base), "/tmp/caisson-test-blocks-%d", (int)getpid());
	snprintf(meeting, sizeof(meeting), "%s/meeting", base);
	CHECK_INT(mkdir(base, 0700), 0);
	int first = -1;
	for (int i = 0; i <= UID_BLOCKS; i++) {
		snprintf(state[i], sizeof(state[i]), "%s/state-%d", base, i);
		CHECK_INT(mkdir(state[i], 0700), 0);
		int block = uid_block_claim(meeting, state[i], &error);
		if (i == UID_BLOCKS) {
			CHECK_INT(block, -1);
			CHECK_INT(error.kind, ERROR_BUSY);
			break;
		}
		CHECK(block >= 0 && block < UID_BLOCKS && !seen[block]);
		seen[block] = true;
		first = i == 0 ? block : first;
	}
	/* The same again; another's only when that is gone. */
	CHECK_INT(uid_block_claim(meeting, state[0], &error), first);
	CHECK_INT(remove_tree(AT_FDCWD, state[0]), 0);
	CHECK_INT(uid_block_claim(meeting, state[UID_BLOCKS], &error), first);
	/* After a reboot: the directory remembers. */
	CHECK_INT(remove_tree(AT_FDCWD, meeting), 0);
	CHECK_INT(uid_block_claim(meeting, state[UID_BLOCKS], &error), first);
	uid_block_release(meeting, first);
	CHECK_INT(count_files("%s", meeting), 0);
	CHECK_INT(remove_tree(AT_FDCWD, base), 0);
}

TEST(trees_of_any_depth_are_removed)
{
	char base[64];
	snprintf(base, sizeof(base), "/tmp/caisson-test-tree-%d", (int)getpid());
	CHECK_INT(mkdir(base, 0700), 0);
	int at = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(symlinkat("/etc", at, "link"), 0);
	for (int i = 0; i < 1000; i++) {
		CHECK_INT(mkdirat(at, "d", 0700), 0);
		close(openat(at, "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	CHECK_INT(remove_tree(AT_FDCWD, base), 0);
	CHECK(access(base, F_OK) < 0);
	CHECK(access("/etc/passwd", F_OK) == 0);
	CHECK_INT(remove_tree(AT_FDCWD, base), 0);
}
