/* Signals for a command that has not started yet: they wait for it in the daemon, and none is lost
 * (core/exec/exec.c). */
#include <signal.h>

#include "core/core_private.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

struct setting {
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct exec *exec;
};

/* A command that the init knows and has not started. */
static void begin(struct setting *setting)
{
	const char *argv[] = {"late"};
	struct exec_spec spec = {.argv = argv, .argc = 1};
	struct error error;
	*setting = (struct setting){.host = fake_host_new()};
	fake_start(setting->host);
	setting->sandbox = fake_create(setting->host, NULL);
	setting->init = fake_init_of(setting->host, &setting->sandbox->row.id);
	CHECK_INT(exec_start(setting->sandbox, &spec, &setting->exec, &error), 0);
	fake_turn(setting->host, 20);
	CHECK_INT(setting->init->frames[FRAME_EXEC], 1);
	CHECK_INT(setting->exec->row.state, EXEC_STARTING);
}

static void give(struct setting *setting, int signal, enum signal_scope scope)
{
	struct error error;
	if (exec_signal(setting->exec, NULL, signal, scope, &error) < 0)
		test_fail(__FILE__, __LINE__, "exec_signal: %s", error.message);
	fake_turn(setting->host, 5);
}

static void run(struct setting *setting)
{
	fake_started(setting->init, setting->exec->row.key);
	fake_turn(setting->host, 20);
	CHECK_INT(setting->exec->row.state, EXEC_RUNNING);
}

static void expect(const struct setting *setting, unsigned index, int signal,
		   enum signal_scope scope)
{
	CHECK(index < setting->init->frames[FRAME_SIGNAL]);
	CHECK_INT(setting->init->signals[index].signal, signal);
	CHECK_INT(setting->init->signals[index].scope, scope);
}

TEST(signals_wait_for_the_start)
{
	struct setting setting;
	begin(&setting);
	give(&setting, 64, SIGNAL_LEADER);
	give(&setting, SIGTERM, SIGNAL_TREE);
	give(&setting, SIGKILL, SIGNAL_LEADER);
	give(&setting, SIGTERM, SIGNAL_LEADER);
	give(&setting, SIGHUP, SIGNAL_LEADER);
	give(&setting, SIGHUP, SIGNAL_LEADER);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 0);
	run(&setting);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 5);
	expect(&setting, 0, SIGHUP, SIGNAL_LEADER);
	expect(&setting, 1, SIGKILL, SIGNAL_LEADER);
	expect(&setting, 2, SIGTERM, SIGNAL_LEADER);
	expect(&setting, 3, SIGTERM, SIGNAL_TREE);
	expect(&setting, 4, 64, SIGNAL_LEADER);
	give(&setting, SIGUSR1, SIGNAL_LEADER);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 6);
	expect(&setting, 5, SIGUSR1, SIGNAL_LEADER);
	fake_host_free(setting.host);
}

TEST(to_kill_the_tree_waits_for_nothing)
{
	struct setting setting;
	begin(&setting);
	give(&setting, SIGKILL, SIGNAL_TREE);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 1);
	expect(&setting, 0, SIGKILL, SIGNAL_TREE);
	run(&setting);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 1);
	fake_host_free(setting.host);
}

TEST(to_stop_and_to_continue_undo_each_other)
{
	struct setting setting;
	begin(&setting);
	give(&setting, SIGSTOP, SIGNAL_TREE);
	give(&setting, SIGTSTP, SIGNAL_LEADER);
	give(&setting, SIGCONT, SIGNAL_LEADER);
	run(&setting);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 1);
	expect(&setting, 0, SIGCONT, SIGNAL_LEADER);
	fake_host_free(setting.host);
	begin(&setting);
	give(&setting, SIGCONT, SIGNAL_TREE);
	give(&setting, SIGSTOP, SIGNAL_LEADER);
	run(&setting);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 1);
	expect(&setting, 0, SIGSTOP, SIGNAL_LEADER);
	fake_host_free(setting.host);
}

/* The word that it started is lost with the link; the list that the next one asks for has it. */
TEST(signals_wait_for_the_link_too)
{
	struct setting setting;
	begin(&setting);
	give(&setting, SIGTERM, SIGNAL_LEADER);
	setting.init->deaf = true;
	fake_init_disconnect(setting.init);
	fake_turn(setting.host, 20);
	CHECK(!setting.sandbox->guest_ready);
	give(&setting, SIGINT, SIGNAL_TREE);
	fake_started(setting.init, setting.exec->row.key);
	setting.init->deaf = false;
	for (int i = 0; i < 300 && !setting.sandbox->guest_ready; i++)
		fake_turn(setting.host, 10);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.exec->row.state, EXEC_RUNNING);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 2);
	expect(&setting, 0, SIGINT, SIGNAL_TREE);
	expect(&setting, 1, SIGTERM, SIGNAL_LEADER);
	fake_host_free(setting.host);
}

/* It fails to start: there is nobody to send them to. */
TEST(signals_for_what_never_runs_are_dropped)
{
	struct setting setting;
	uint8_t room[64];
	struct writer writer = writer_on(room, sizeof(room));
	struct failure failure = {.kind = ERROR_PROGRAM_NOT_FOUND, .message = "no"};
	struct error error;
	begin(&setting);
	give(&setting, SIGTERM, SIGNAL_LEADER);
	failure_write(&writer, &failure);
	fake_init_send(setting.init, FRAME_START_FAILED, setting.exec->row.key, room, writer.size);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.exec->row.state, EXEC_FAILED);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 0);
	CHECK_INT(exec_signal(setting.exec, NULL, SIGTERM, SIGNAL_LEADER, &error), -1);
	CHECK_INT(error.kind, ERROR_SANDBOX_STATE);
	fake_host_free(setting.host);
}
