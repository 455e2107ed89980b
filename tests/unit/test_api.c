/* The API's parts that need no HTTP: standard input and cancels across a lost connection to a
 * sandbox, the table of routes, the names of mount modes. */
#include "api/call.h"

#include <stdlib.h>

#include "api/exec_ask.h"
#include "fake_host.h"
#include "proto/folder_grant.h"
#include "test.h"

TEST_MAIN

struct end_watcher {
	struct exec_watcher watcher;
	bool ended;
};

static void on_changed(struct exec_watcher *watcher, struct exec *exec)
{
	container_of(watcher, struct end_watcher, watcher)->ended |= exec_ended(exec);
}

static void on_forgotten(struct exec_watcher *watcher)
{
	exec_unwatch(watcher);
}

struct setting {
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct exec *exec;
	struct end_watcher end;
};

/* A command with standard input that runs until it is told otherwise. */
static void begin(struct setting *setting)
{
	const char *argv[] = {"cat"};
	struct exec_spec spec = {.argv = argv, .argc = 1, .flags = EXEC_STDIN};
	struct error error;
	*setting = (struct setting){.host = fake_host_new()};
	fake_start(setting->host);
	setting->sandbox = fake_create(setting->host, NULL);
	setting->init = fake_init_of(setting->host, &setting->sandbox->row.id);
	CHECK_INT(exec_start(setting->sandbox, &spec, &setting->exec, &error), 0);
	setting->end.watcher.changed = on_changed;
	setting->end.watcher.forgotten = on_forgotten;
	exec_watch(setting->exec, &setting->end.watcher);
	fake_turn(setting->host, 20);
	CHECK_INT(setting->exec->row.state, EXEC_RUNNING);
}

/* The connection is lost, and cannot be made again until link_back(). */
static void lose_link(struct setting *setting)
{
	setting->init->deaf = true;
	fake_init_disconnect(setting->init);
	fake_turn(setting->host, 20);
	CHECK(!setting->sandbox->guest_ready);
}

static void link_back(struct setting *setting)
{
	setting->init->deaf = false;
	for (int i = 0; i < 300 && !setting->sandbox->guest_ready; i++)
		fake_turn(setting->host, 10);
	CHECK(setting->sandbox->guest_ready);
	fake_turn(setting->host, 20);
}

static char *letters(size_t size)
{
	char *data = malloc(size);
	if (!data)
		abort();
	memset(data, 'x', size);
	return data;
}

TEST(input_is_fed_and_closed)
{
	struct setting setting;
	begin(&setting);
	stdin_feed(setting.exec, letters(1000), 1000);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.init->written.size, 1000);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 1);
	fake_host_free(setting.host);
}

TEST(input_waits_for_a_lost_connection)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	stdin_feed(setting.exec, letters(1000), 1000);
	fake_turn(setting.host, 20);
	CHECK(!setting.exec->stdin_closed);
	link_back(&setting);
	CHECK_INT(setting.init->written.size, 1000);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 1);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 0);
	CHECK(!setting.end.ended);
	fake_host_free(setting.host);
}

/* What hangs otherwise: a reader of an empty input whose end never comes. */
TEST(the_end_of_an_empty_input_waits_too)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	stdin_feed(setting.exec, NULL, 0);
	CHECK(!setting.exec->stdin_closed);
	link_back(&setting);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 1);
	fake_host_free(setting.host);
}

TEST(half_an_input_cancels)
{
	struct setting setting;
	struct error error;
	begin(&setting);
	/* More than there is credit for: a part is on the way when the connection breaks. */
	stdin_feed(setting.exec, letters(2 * FILE_WINDOW), 2 * FILE_WINDOW);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.init->written.size, FILE_WINDOW);
	CHECK(!stdin_lost(setting.exec, &error));
	lose_link(&setting);
	CHECK(stdin_lost(setting.exec, &error));
	CHECK_INT(error.kind, ERROR_GUEST_GONE);
	link_back(&setting);
	CHECK(fake_until(setting.host, &setting.end.ended));
	CHECK_INT(setting.exec->row.end, EXEC_END_CANCELLED);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 0);
	CHECK_INT(setting.init->written.size, FILE_WINDOW);
	fake_host_free(setting.host);
}

TEST(cancel_waits_for_a_lost_connection)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	exec_cancel(setting.exec);
	fake_turn(setting.host, 20);
	CHECK(!setting.end.ended);
	link_back(&setting);
	CHECK(fake_until(setting.host, &setting.end.ended));
	CHECK_INT(setting.exec->row.end, EXEC_END_CANCELLED);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 1);
	fake_host_free(setting.host);
}

/* Under ASan: nothing that waits is left behind when the sandbox is forgotten first. */
TEST(whatever_waits_ends_with_the_daemon)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	exec_cancel(setting.exec);
	stdin_feed(setting.exec, letters(10), 10);
	fake_host_free(setting.host);
}

static void handler(struct call *call)
{
	(void)call;
}

static void expect_bad(const struct route *routes, const char *word)
{
	struct error error = {0};
	CHECK_INT(routes_check(routes, &error), -1);
	if (!strstr(error.message, word))
		test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.message, word);
}

TEST(routes)
{
	struct error error;
	CHECK_INT(routes_check(api_routes, &error), 0);
	const struct route three[] = {
	    {"GET", "/fine/{a}/{b}", SCOPE_READ, 0, handler},
	    {"GET", "/v1/{a}/{b}/{c}", SCOPE_READ, 0, handler},
	    {0},
	};
	expect_bad(three, "more parameters");
	const char *const malformed[] = {"v1",    "",    "/{a",    "/{a}b",
					 "/x{a}", "/a}", "/{{a}}", "/{a/b}"};
	for (size_t i = 0; i < ARRAY_SIZE(malformed); i++) {
		const struct route routes[] = {{"GET", malformed[i], SCOPE_READ, 0, handler}, {0}};
		expect_bad(routes, "malformed");
	}
	const struct route twice[] = {
	    {"GET", "/a", SCOPE_READ, 0, handler},
	    {"GET", "/a", SCOPE_READ, 0, handler},
	    {0},
	};
	expect_bad(twice, "twice");
	const struct route nameless[] = {
	    {"GET", "/{exec}/{sandbox}", SCOPE_READ, ROUTE_SANDBOX, handler}, {0}};
	expect_bad(nameless, "sandbox");
	const struct route idle[] = {{"GET", "/a", SCOPE_READ, 0, NULL}, {0}};
	expect_bad(idle, "handler");
	/* They meet in one path, whose Allow would name them all. */
	const struct route many[] = {
	    {"METHOD-OF-TWENTY-ONE", "/a/{x}", SCOPE_READ, 0, handler},
	    {"METHOD-OF-TWENTY-TWO", "/{x}/b", SCOPE_READ, 0, handler},
	    {"METHOD-OF-TWENTY-TEN", "/a/b", SCOPE_READ, 0, handler},
	    {0},
	};
	expect_bad(many, "Allow");
}

TEST(mount_modes)
{
	enum mount_mode mode = MOUNT_READ_ONLY;
	for (uint32_t i = 0; i <= MOUNT_COPY_ON_WRITE; i++) {
		CHECK_INT(mount_mode_parse(mount_mode_name(i), &mode), 0);
		CHECK_INT(mode, i);
	}
	CHECK_TEXT(mount_mode_name(MOUNT_COPY_ON_WRITE), "cow");
	CHECK(mount_mode_name(MOUNT_COPY_ON_WRITE + 1) == NULL);
	CHECK(mount_mode_parse("r", &mode) < 0);
	CHECK(mount_mode_parse("", &mode) < 0);
}
