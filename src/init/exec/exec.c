/* The table of execs and their life: EXEC makes a record and gives it a runner, the runner sends
 * STARTED and EXITED, FORGET removes the record. Called by connection.c with requests and by
 * runners.c with frames of runners, which are checked: a runner is a process of the sandbox.
 * Never blocks. */
#include "init/exec/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/setup/configuration.h"
#include "init/connection.h"
#include "init/exec/killing.h"
#include "init/runner/runners.h"
#include "init/loop.h"
#include "init/exec/proc_scan.h"
#include "init/exec/terminal.h"

/* The most leftover processes in one answer. */
#define LEFT_RUNNING_MAX 512

static struct exec execs[EXEC_PER_SANDBOX_MAX];
static uint32_t used_up_to; /* no record at or above this index is in use */

struct exec *exec_at(uint32_t index)
{
	return &execs[index];
}

uint32_t exec_index(const struct exec *exec)
{
	return (uint32_t)(exec - execs);
}

uint32_t exec_table_size(void)
{
	return used_up_to;
}

struct exec *exec_find(uint64_t key)
{
	for (uint32_t i = 0; i < used_up_to; i++)
		if (execs[i].key == key)
			return &execs[i];
	return NULL;
}

uint32_t exec_alive(void)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < used_up_to; i++)
		count += execs[i].key && execs[i].runner >= 0;
	return count;
}

static struct exec *exec_find_free(void)
{
	for (uint32_t i = 0; i < EXEC_PER_SANDBOX_MAX; i++) {
		if (execs[i].key)
			continue;
		used_up_to = MAX(used_up_to, i + 1);
		return &execs[i];
	}
	return NULL;
}

static void exec_release(struct exec *exec)
{
	for (int stream = 0; stream < 2; stream++)
		output_close(exec, stream);
	input_close(exec);
	exec->key = 0;
	while (used_up_to > 0 && !execs[used_up_to - 1].key)
		used_up_to--;
}

static void exec_fail(struct exec *exec, enum error_kind kind, int errnum, const char *message)
{
	connection_send_failure(FRAME_START_FAILED, exec->key, kind, errnum, message);
	exec_release(exec);
}

/* Takes over the descriptors of the logs, also on failure. */
static int exec_open_logs(struct exec *exec, const int *log_fds)
{
	int result = 0;
	if (!(exec->flags & EXEC_LOG))
		return 0;
	for (int stream = 0; stream < (exec->flags & EXEC_TTY ? 1 : 2); stream++) {
		struct exec_output *output = &exec->outputs[stream];
		int opened = output_log_open(log_fds[stream], &output->log);
		output->log.fd = log_fds[stream];
		output->logged = true;
		output->total = opened == 0 ? output->log.total : 0;
		result = result < 0 ? result : opened;
	}
	return result;
}

void exec_begin(const struct request *request, const int *log_fds)
{
	struct exec *exec = exec_find_free();
	if (!exec || loop_shutting_down()) {
		for (int i = 0; i < 2; i++)
			if (request->exec.flags & EXEC_LOG && log_fds[i] >= 0)
				close(log_fds[i]);
		connection_send_failure(FRAME_START_FAILED, request->id,
					exec ? ERROR_SANDBOX_ENDED : ERROR_RESOURCE_LIMIT, 0,
					exec ? "the sandbox is shutting down"
					     : "too many execs whose results were not fetched yet");
		return;
	}
	*exec = (struct exec){
	    .key = request->id,
	    .generation = exec->generation + 1,
	    .flags = request->exec.flags,
	    .phase = EXEC_PHASE_STARTING,
	    .runner = -1,
	    .rows = request->exec.rows,
	    .columns = request->exec.columns,
	    .outputs = {{.fd = -1}, {.fd = -1}},
	    .output_credit = FILE_WINDOW,
	    .input = -1,
	    .input_window = WINDOW_EMPTY,
	    .input_credit = request->exec.flags & EXEC_STDIN ? FILE_WINDOW : 0,
	    .timeout_ms = request->exec.timeout_ms,
	    .deadline = NEVER,
	    .kill_at = NEVER,
	};
	int result = exec_open_logs(exec, log_fds);
	if (result < 0) {
		exec_fail(exec, ERROR_INTERNAL, -result, "the output log cannot be opened");
		return;
	}
	struct runner_request wanted = {.kind = OWNER_EXEC,
					.owner = exec_index(exec),
					.size = FRAME_HEADER_SIZE + request->frame.size};
	runner_request_submit(&wanted, request->frame.payload - FRAME_HEADER_SIZE);
}

/* The command's ends of its pipes or its terminal, which go to the runner: [input,] output,
 * error, or the terminal. */
struct child_fds {
	int fds[3];
	size_t count;
};

static void child_fds_close(struct child_fds *ends)
{
	for (size_t i = 0; i < ends->count; i++)
		close(ends->fds[i]);
	ends->count = 0;
}

static int exec_open_terminal(struct exec *exec, struct child_fds *ends)
{
	int master = -1, slave = -1;
	int result = terminal_open(exec->rows, exec->columns, &master, &slave);
	if (result < 0)
		return result;
	ends->fds[ends->count++] = slave;
	if (!output_open(exec, 0, master))
		return -ENOMEM;
	/* A second descriptor, since epoll registers each descriptor once. Opened also without
	 * EXEC_STDIN, so that the terminal can be resized. */
	int input = fcntl(master, F_DUPFD_CLOEXEC, 3);
	if (input < 0)
		return -errno;
	input_open(exec, input);
	return 0;
}

static int exec_open_pipes(struct exec *exec, struct child_fds *ends)
{
	/* 0: standard input, only with EXEC_STDIN; 1, 2: the outputs. */
	for (int stream = exec->flags & EXEC_STDIN ? 0 : 1; stream <= 2; stream++) {
		int pair[2], ours = stream == 0 ? 1 : 0;
		if (pipe2(pair, O_CLOEXEC) < 0)
			return -errno;
		ends->fds[ends->count++] = pair[1 - ours];
		int result = fd_set_nonblocking(pair[ours]);
		if (result < 0) {
			close(pair[ours]);
			return result;
		}
		if (stream == 0)
			input_open(exec, pair[ours]);
		else if (!output_open(exec, stream - 1, pair[ours]))
			return -ENOMEM;
	}
	return 0;
}

static void exec_close_pipes(struct exec *exec)
{
	for (int stream = 0; stream < 2; stream++) {
		fd_close(&exec->outputs[stream].fd);
		exec->outputs[stream].watched = false;
	}
	fd_close(&exec->input);
	exec->input_watched = false;
}

bool exec_send_to_runner(uint32_t index, uint32_t runner, const uint8_t *frame, size_t size)
{
	struct exec *exec = &execs[index];
	CLEANUP(child_fds_close) struct child_fds ends = {.count = 0};
	if (exec->cause) {
		runner_release(runner, 0);
		exec_fail(exec, ERROR_CANCELLED, 0, "cancelled before it was started");
		return true;
	}
	int result =
	    exec->flags & EXEC_TTY ? exec_open_terminal(exec, &ends) : exec_open_pipes(exec, &ends);
	if (result < 0) {
		runner_release(runner, 0);
		exec_fail(exec, ERROR_RESOURCE_LIMIT, -result,
			  exec->flags & EXEC_TTY ? "the terminal cannot be made"
						 : "the pipes of the command cannot be made");
		return true;
	}
	if (fd_send(runner_at(runner)->socket, frame, size, ends.fds, ends.count) < 0) {
		exec_close_pipes(exec);
		return false;
	}
	exec->runner = (int)runner;
	return true;
}

bool exec_await_runner_again(uint32_t index)
{
	struct exec *exec = &execs[index];
	if (exec->cause || exec->phase != EXEC_PHASE_STARTING)
		return false;
	exec_close_pipes(exec);
	exec->runner = -1;
	return true;
}

void exec_runner_failed(uint32_t index, const struct failure *failure)
{
	exec_fail(&execs[index], failure->kind, (int)failure->errnum, failure->message);
}

static void exec_started(struct exec *exec, uint32_t pid)
{
	exec->phase = EXEC_PHASE_RUNNING;
	exec->pid = (pid_t)pid;
	exec->started = clock_boot();
	if (exec->timeout_ms)
		exec->deadline = exec->started + exec->timeout_ms * NSEC_PER_MSEC;
	connection_send_number(FRAME_STARTED, exec->key, pid);
	/* Input and output had to wait until now: the pipes could have belonged to a runner that
	 * never read its request. */
	input_flush(exec);
	output_resume(exec);
}

static void exec_leader_ended(struct exec *exec, const struct exec_result *result)
{
	exec->leader_ended = true;
	exec->deadline = NEVER;
	exec->result = *result;
	if (exec->cause) {
		if (result->end == EXEC_END_EXITED)
			exec->result.code = 0;
		exec->result.end = exec->cause;
	}
	output_begin_drain(exec);
	exec_try_end(exec);
}

void exec_runner_frame(uint32_t index, const struct frame *frame)
{
	struct exec *exec = &execs[index];
	struct reader reader = reader_on(frame->payload, frame->size);
	struct exec_result result;
	struct failure failure;
	if (frame->type == FRAME_STARTED && exec->phase == EXEC_PHASE_STARTING) {
		uint32_t pid = read_u32(&reader);
		if (reader_finish(&reader) == 0 && pid > 1)
			exec_started(exec, pid);
	} else if (frame->type == FRAME_START_FAILED && exec->phase == EXEC_PHASE_STARTING) {
		if (failure_read(frame, &failure) < 0)
			return;
		runner_release((uint32_t)exec->runner, 1000);
		exec_fail(exec, failure.kind, (int)failure.errnum, failure.message);
	} else if (frame->type == FRAME_EXITED && exec->phase == EXEC_PHASE_RUNNING &&
		   !exec->leader_ended) {
		if (exec_result_read(frame, &result) < 0)
			return;
		/* Before the end is reported, so that the next exec finds its runner. */
		if (!result.left_running && !exec->killing) {
			runner_return((uint32_t)exec->runner);
			exec->runner = -1;
		}
		exec_leader_ended(exec, &result);
	}
}

/* Sends EXITED once everything that the leader wrote has been read. */
void exec_try_end(struct exec *exec)
{
	if (!exec->leader_ended || exec->phase == EXEC_PHASE_ENDED || !output_drained(exec))
		return;
	/* A time-out is over when all processes are dead, or when killing them seems hopeless. */
	if (exec->killing && !exec->kill_hopeless)
		return;
	exec->phase = EXEC_PHASE_ENDED;
	if (exec->runner < 0) {
		exec->result.left_running = 0;
	} else if (exec->result.left_running) {
		scan_processes();
		exec->result.left_running = scan_count_live(runner_at((uint32_t)exec->runner)->pid);
	}
	input_close(exec);
	exec->progress = false;
	exec->result.totals.out = exec->outputs[0].total;
	exec->result.totals.err = exec->outputs[1].total;
	uint8_t room[128];
	struct writer writer = writer_on(room, sizeof(room));
	exec_result_write(&writer, &exec->result);
	connection_send(FRAME_EXITED, exec->key, room, writer.size);
	if (exec->forgotten && exec->runner < 0)
		exec_release(exec);
}

static void exec_send_progress(struct exec *exec)
{
	struct output_totals totals = {exec->outputs[0].total, exec->outputs[1].total};
	uint8_t room[16];
	if (!exec->progress || !connection_ready())
		return;
	struct writer writer = writer_on(room, sizeof(room));
	output_totals_write(&writer, &totals);
	connection_send(FRAME_PROGRESS, exec->key, room, writer.size);
	exec->progress = false;
}

/* The runner has ended: either every process below it has ended, or it was killed. */
void exec_runner_gone(uint32_t index, bool unread)
{
	struct exec *exec = &execs[index];
	exec->runner = -1;
	/* A process that was forked during the killing may be PID 1's child now. */
	if (exec->killing)
		strays_kill();
	exec->killing = false;
	if (exec->phase == EXEC_PHASE_STARTING && exec->cause) {
		exec_fail(exec, ERROR_CANCELLED, 0, "cancelled before it was started");
		return;
	}
	if (exec->phase == EXEC_PHASE_STARTING && unread) {
		exec_fail(exec, ERROR_RESOURCE_LIMIT, 0,
			  "the process that was to start it was killed inside the sandbox");
		return;
	}
	/* The runner may have started the command, which then killed it before it could report
	 * the start. */
	if (exec->phase == EXEC_PHASE_STARTING)
		exec_started(exec, 0);
	if (!exec->leader_ended) {
		struct exec_result result = {.end = EXEC_END_LOST,
					     .code = exec->cause ? SIGKILL : 0};
		result.wall_ns = (uint64_t)(clock_boot() - exec->started);
		exec_leader_ended(exec, &result);
		return;
	}
	if (exec->phase != EXEC_PHASE_ENDED) {
		exec_try_end(exec);
		return;
	}
	if (exec->result.left_running) {
		/* The last output of these processes is sent before GONE. */
		output_begin_drain(exec);
		exec_send_progress(exec);
		connection_send(FRAME_GONE, exec->key, NULL, 0);
	}
	exec->result.left_running = 0;
	if (exec->forgotten)
		exec_release(exec);
}

void exec_signal(const struct request *request)
{
	struct exec *exec = exec_find(request->id);
	if (!exec)
		return;
	bool tree = request->signal.scope == SIGNAL_TREE;
	int signal = (int)request->signal.signal;
	if (tree && signal == SIGKILL) {
		if (exec->runner < 0 && exec->phase == EXEC_PHASE_STARTING)
			exec->cause = EXEC_END_CANCELLED;
		else
			exec_kill(exec, EXEC_END_CANCELLED);
	} else if (tree && exec->runner >= 0) {
		scan_processes();
		scan_signal(runner_at((uint32_t)exec->runner)->pid, signal);
	} else if (exec->runner >= 0 && exec->pid > 0 && !exec->leader_ended) {
		/* On a terminal, signal the foreground process group as its keys do: a shell
		 * waits for its children. */
		pid_t runner = runner_at((uint32_t)exec->runner)->pid;
		if (!(exec->flags & EXEC_TTY) || !scan_signal_foreground(exec->pid, runner, signal))
			scan_signal_child(exec->pid, runner, signal);
	}
}

void exec_resize(const struct request *request)
{
	struct exec *exec = exec_find(request->id);
	if (!exec || !(exec->flags & EXEC_TTY))
		return;
	exec->rows = request->size.rows;
	exec->columns = request->size.columns;
	if (exec->outputs[0].fd >= 0)
		terminal_resize(exec->outputs[0].fd, exec->rows, exec->columns);
}

void exec_credit(uint64_t key, uint32_t credit)
{
	struct exec *exec = exec_find(key);
	if (!exec)
		return;
	exec->output_credit = MIN(exec->output_credit + credit, (uint64_t)FILE_WINDOW);
	output_resume(exec);
}

void exec_forget(uint64_t key)
{
	struct exec *exec = exec_find(key);
	if (!exec)
		return;
	exec->forgotten = true;
	if (exec->phase == EXEC_PHASE_ENDED && exec->runner < 0)
		exec_release(exec);
}

void exec_send_list(void)
{
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct exec *exec = &execs[i];
		if (!exec->key)
			continue;
		struct exec_status status = {
		    .phase = exec->phase, .pid = (uint32_t)exec->pid, .result = exec->result};
		status.result.totals.out = exec->outputs[0].total;
		status.result.totals.err = exec->outputs[1].total;
		uint8_t room[128];
		struct writer writer = writer_on(room, sizeof(room));
		exec_status_write(&writer, &status);
		connection_send(FRAME_LISTED, exec->key, room, writer.size);
		/* Credit counts per connection: this one knows nothing of what earlier ones
		 * sent. */
		if (exec->phase != EXEC_PHASE_ENDED && exec->input_returned > 0)
			connection_send_number(FRAME_CREDIT, exec->key, exec->input_returned);
		exec->input_credit += exec->input_returned;
		exec->input_returned = 0;
	}
	connection_send(FRAME_LIST_END, 0, NULL, 0);
}

/* A list of processes under construction: u32 count, then a pid and, if asked for, a name for
 * each. */
struct process_list {
	struct writer writer;
	uint32_t count;
	bool names;
};

static void process_write_name(void *data, pid_t pid, const char *command)
{
	struct process_list *list = data;
	if (list->count == LEFT_RUNNING_MAX)
		return;
	write_u32(&list->writer, (uint32_t)pid);
	if (list->names)
		write_text(&list->writer, command);
	list->count++;
}

static uint8_t process_list_room[FRAME_HEADER_SIZE + 4 + LEFT_RUNNING_MAX * 32];

/* Writes the list behind room for a header; returns its size. */
static size_t left_running_write(const struct exec *exec, bool names)
{
	struct process_list list = {.names = names};
	list.writer = writer_on(process_list_room + FRAME_HEADER_SIZE,
				sizeof(process_list_room) - FRAME_HEADER_SIZE);
	write_u32(&list.writer, 0);
	if (exec && exec->runner >= 0) {
		scan_processes();
		scan_each(runner_at((uint32_t)exec->runner)->pid, process_write_name, &list);
	}
	struct writer count = writer_on(process_list_room + FRAME_HEADER_SIZE, 4);
	write_u32(&count, list.count);
	return list.writer.size;
}

void exec_send_left_running_names(uint64_t key)
{
	size_t size = left_running_write(exec_find(key), true);
	connection_send(FRAME_LEFT_RUNNING, key, process_list_room + FRAME_HEADER_SIZE, size);
}

/* A command line is in the memory of its process, and reading it can wait for that process. So a
 * runner does it. */
void exec_send_left_running(uint64_t key)
{
	struct exec *exec = exec_find(key);
	size_t size = left_running_write(exec, false);
	frame_header_write(process_list_room, FRAME_LEFT_RUNNING, 0, (uint32_t)size);
	bool nobody = !exec || exec->runner < 0;
	if (nobody || !relay_begin_left_running(key, process_list_room, FRAME_HEADER_SIZE + size))
		exec_send_left_running_names(key);
}

int64_t exec_time(int64_t now)
{
	int64_t next = NEVER;
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct exec *exec = &execs[i];
		if (!exec->key)
			continue;
		if (exec->deadline <= now) {
			exec->deadline = NEVER;
			exec_kill(exec, EXEC_END_TIMED_OUT);
		}
		if ((exec->outputs[0].retry_at && exec->outputs[0].retry_at <= now) ||
		    (exec->outputs[1].retry_at && exec->outputs[1].retry_at <= now))
			output_resume(exec);
		next = MIN(next, exec->deadline);
		for (int stream = 0; stream < 2; stream++)
			if (exec->outputs[stream].retry_at)
				next = MIN(next, exec->outputs[stream].retry_at);
	}
	return next;
}

void exec_send_pending(void)
{
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct exec *exec = &execs[i];
		if (!exec->key || !connection_has_room())
			continue;
		if (!(exec->flags & EXEC_LOG))
			output_resume(exec);
		exec_send_progress(exec);
	}
}

void exec_connection_changed(void)
{
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct exec *exec = &execs[i];
		/* On a permanent channel the shim continues to count the credit for output. */
		if (!connection_is_permanent())
			exec->output_credit = FILE_WINDOW;
		/* The new connection gets its credit with LISTED: the free room of the window. */
		if (exec->key && (exec->flags & EXEC_STDIN) && exec->phase != EXEC_PHASE_ENDED) {
			exec->input_credit = 0;
			exec->input_returned = (uint32_t)(FILE_WINDOW - exec->input_window.used);
		}
	}
}
