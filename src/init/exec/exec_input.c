/* Standard input of execs: writes STDIN frames into a pipe or terminal without blocking. Bytes
 * that the process does not read wait in a window; credit goes back as it reads them. Called by
 * connection.c, and by the loop when a pipe has room. */
#include <errno.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/connection.h"
#include "init/exec/exec.h"
#include "init/loop.h"

/* Credit is returned in pieces of this size, so that not every pressed key causes a frame. */
#define CREDIT_STEP (FILE_WINDOW / 4)

void input_open(struct exec *exec, int fd)
{
	exec->input = fd;
	exec->input_watched = false;
}

static void input_watch(struct exec *exec, bool wanted)
{
	if (exec->input < 0 || exec->input_watched == wanted)
		return;
	if (!wanted)
		loop_remove(exec->input);
	else if (loop_add(exec->input, EPOLLOUT, EVENT_INPUT, exec_index(exec), exec->generation) <
		 0)
		return;
	exec->input_watched = wanted;
}

void input_close(struct exec *exec)
{
	fd_close(&exec->input);
	exec->input_watched = false;
	window_clear(&exec->input_window);
}

static void input_return_credit(struct exec *exec, size_t size)
{
	exec->input_returned += (uint32_t)size;
	if (exec->input_returned < CREDIT_STEP || !connection_ready())
		return;
	connection_send_number(FRAME_CREDIT, exec->key, exec->input_returned);
	exec->input_credit += exec->input_returned;
	exec->input_returned = 0;
}

/* The process reads no more: the waiting bytes are lost, as with a pipe. */
static void input_abandon(struct exec *exec)
{
	size_t waiting = exec->input_window.used;
	input_close(exec);
	input_return_credit(exec, waiting);
}

/* The bytes written; 0 if the pipe is full, -1 if nobody reads it any more. */
static ssize_t input_write(struct exec *exec, const uint8_t *data, size_t size)
{
	ssize_t put = write(exec->input, data, size);
	if (put >= 0)
		return put;
	return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* A terminal cannot be closed at one end: its end-of-file character tells a program that reads
 * lines. */
static void terminal_send_end_of_file(struct exec *exec)
{
	struct termios settings;
	if (tcgetattr(exec->input, &settings) < 0 || !(settings.c_lflag & ICANON))
		return;
	uint8_t character = settings.c_cc[VEOF];
	if (input_write(exec, &character, 1) < 0)
		input_abandon(exec);
}

static void input_finish(struct exec *exec)
{
	exec->input_closing = false;
	if (exec->flags & EXEC_TTY)
		terminal_send_end_of_file(exec);
	else
		input_close(exec);
}

void input_flush(struct exec *exec)
{
	const uint8_t *data;
	size_t size;
	while (exec->input >= 0 && (size = window_front(&exec->input_window, &data)) > 0) {
		ssize_t put = input_write(exec, data, size);
		if (put < 0) {
			input_abandon(exec);
			return;
		}
		if (put == 0)
			break;
		window_drop(&exec->input_window, (size_t)put);
		input_return_credit(exec, (size_t)put);
	}
	input_watch(exec, exec->input_window.used > 0);
	if (exec->input >= 0 && exec->input_window.used == 0 && exec->input_closing)
		input_finish(exec);
}

void exec_input(const struct request *request)
{
	struct exec *exec = exec_find(request->id);
	if (!exec)
		return;
	const uint8_t *data = request->frame.payload;
	size_t size = request->frame.size;
	if (size > exec->input_credit) {
		connection_refuse("more standard input than there was credit for");
		return;
	}
	exec->input_credit -= size;
	/* Before the process exists, its input waits. */
	bool waits = exec->phase == EXEC_PHASE_STARTING;
	if (waits || exec->input_window.used > 0) {
		if (window_put(&exec->input_window, data, size) < size)
			connection_refuse("more standard input than fits");
		return;
	}
	ssize_t put = exec->input >= 0 ? input_write(exec, data, size) : -1;
	if (put < 0) {
		input_abandon(exec);
		input_return_credit(exec, size);
		return;
	}
	input_return_credit(exec, (size_t)put);
	window_put(&exec->input_window, data + put, size - (size_t)put);
	input_watch(exec, exec->input_window.used > 0);
}

void exec_input_close(uint64_t key)
{
	struct exec *exec = exec_find(key);
	if (!exec)
		return;
	exec->input_closing = true;
	if (exec->input >= 0 && exec->phase != EXEC_PHASE_STARTING)
		input_flush(exec);
}

void exec_input_event(uint32_t index, uint32_t generation)
{
	struct exec *exec = exec_at(index);
	if (exec->key && exec->generation == generation)
		input_flush(exec);
}
