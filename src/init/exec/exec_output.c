/* Output of execs: reads their pipes and terminals, appends to their logs or sends OUTPUT. The
 * loop calls this for each readable stream in turn, one read each, so that a flood does not
 * starve the others. A stream without credit, or with a full lossless log, is not read: the pipe
 * fills and the process waits. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/connection.h"
#include "init/exec/exec.h"
#include "init/loop.h"

#define READ_MAX FILE_CHUNK_MAX
/* The buffers of a terminal hold at most this. */
#define TERMINAL_DRAIN (64 * 1024)
#define DISK_RETRY (100 * NSEC_PER_MSEC)

static void output_watch(struct exec *exec, int stream, bool wanted)
{
	struct exec_output *output = &exec->outputs[stream];
	if (output->fd < 0 || output->watched == wanted)
		return;
	/* epoll reports a hang-up even if no events are requested, so the descriptor is
	 * removed. */
	if (!wanted)
		loop_remove(output->fd);
	else if (loop_add(output->fd, EPOLLIN, stream == 0 ? EVENT_STDOUT : EVENT_STDERR,
			  exec_index(exec), exec->generation) < 0)
		return;
	output->watched = wanted;
}

bool output_open(struct exec *exec, int stream, int fd)
{
	struct exec_output *output = &exec->outputs[stream];
	output->fd = fd;
	output_watch(exec, stream, true);
	return output->watched;
}

void output_close(struct exec *exec, int stream)
{
	struct exec_output *output = &exec->outputs[stream];
	fd_close(&output->fd);
	output->watched = false;
	output->drain = 0;
	if (output->logged)
		fd_close(&output->log.fd);
	output->logged = false;
}

/* How many bytes may be read now. */
static uint64_t output_allowance(const struct exec *exec, struct exec_output *output)
{
	if (!(exec->flags & EXEC_LOG)) {
		/* The byte before the data names the stream and counts as payload. */
		if (!connection_has_room() || exec->output_credit < 2)
			return 0;
		return MIN(exec->output_credit - 1, (uint64_t)READ_MAX - 1);
	}
	if (!(exec->flags & EXEC_LOSSLESS))
		return READ_MAX;
	uint64_t most = MIN(output_log_room(&output->log, output->consumed), (uint64_t)READ_MAX);
	if (most == 0 || output->retry_at > clock_boot())
		return 0;
	output->retry_at = 0;
	if (output_log_prepare(&output->log, most) == 0)
		return most;
	output->retry_at = clock_boot() + DISK_RETRY;
	return 0;
}

/* After the disk was full: writes into the log how many bytes were lost, as soon as that
 * succeeds. */
static void output_append_loss_note(struct exec_output *output)
{
	char note[96];
	if (output->dropped == 0)
		return;
	int length = snprintf(note, sizeof(note),
			      "\n[%llu bytes of output were lost: the host's disk was full]\n",
			      (unsigned long long)output->dropped);
	if (output_log_append(&output->log, note, (size_t)length) == 0)
		output->dropped = 0;
}

static void output_append(struct exec *exec, struct exec_output *output, const void *data,
			  size_t size)
{
	output_append_loss_note(output);
	if (output->dropped > 0 || output_log_append(&output->log, data, size) < 0)
		output->dropped += size;
	output->total = output->log.total;
	exec->progress = true;
}

static void output_send(struct exec *exec, int stream, size_t size)
{
	uint8_t *place = connection_reserve();
	place[FRAME_HEADER_SIZE] = (uint8_t)(stream + 1);
	frame_header_write(place, FRAME_OUTPUT, exec->key, (uint32_t)size + 1);
	connection_commit(FRAME_HEADER_SIZE + 1 + size);
	exec->output_credit -= size + 1;
	exec->outputs[stream].total += size;
}

bool output_read(struct exec *exec, int stream)
{
	static uint8_t room[READ_MAX];
	struct exec_output *output = &exec->outputs[stream];
	if (output->fd < 0)
		return false;
	uint64_t most = output_allowance(exec, output);
	if (most == 0) {
		output_watch(exec, stream, false);
		return false;
	}
	bool logged = exec->flags & EXEC_LOG;
	void *place = logged ? room : connection_reserve() + FRAME_HEADER_SIZE + 1;
	ssize_t got = read(output->fd, place, most);
	if (got <= 0) {
		/* The end of a pipe, the end of a terminal (EIO), or an error. */
		bool at_end = got == 0 || (errno != EAGAIN && errno != EINTR);
		output->drain = 0;
		/* Before the command is started, a dead runner may have closed the pipe.
		 * output_resume() checks again. */
		if (at_end && exec->phase == EXEC_PHASE_STARTING)
			output_watch(exec, stream, false);
		else if (at_end)
			output_close(exec, stream);
		return false;
	}
	if (logged)
		output_append(exec, output, room, (size_t)got);
	else
		output_send(exec, stream, (size_t)got);
	output->drain -= MIN(output->drain, (uint64_t)got);
	return true;
}

void output_resume(struct exec *exec)
{
	if (exec->phase == EXEC_PHASE_STARTING)
		return;
	for (int stream = 0; stream < 2; stream++) {
		struct exec_output *output = &exec->outputs[stream];
		if (output->fd >= 0 && !output->watched && output_allowance(exec, output) > 0)
			output_watch(exec, stream, true);
	}
}

void output_begin_drain(struct exec *exec)
{
	for (int stream = 0; stream < 2; stream++) {
		struct exec_output *output = &exec->outputs[stream];
		int waiting = 0;
		if (output->fd < 0)
			continue;
		if (exec->flags & EXEC_TTY)
			output->drain = TERMINAL_DRAIN;
		else if (ioctl(output->fd, FIONREAD, &waiting) == 0)
			output->drain = (uint64_t)waiting;
		while (output->drain > 0 && output_read(exec, stream))
			;
	}
}

bool output_drained(const struct exec *exec)
{
	return exec->outputs[0].drain == 0 && exec->outputs[1].drain == 0;
}

void exec_output_event(uint32_t index, uint32_t generation, int stream)
{
	struct exec *exec = exec_at(index);
	if (!exec->key || exec->generation != generation)
		return;
	output_read(exec, stream);
	exec_try_end(exec);
}

void exec_consumed(const struct request *request)
{
	struct exec *exec = exec_find(request->id);
	if (!exec)
		return;
	/* A larger number would allow overwriting bytes of the log that were not read. */
	exec->outputs[0].consumed = MIN(request->consumed.out, exec->outputs[0].total);
	exec->outputs[1].consumed = MIN(request->consumed.err, exec->outputs[1].total);
	output_resume(exec);
}
