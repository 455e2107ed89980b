/* The process of a runner: waits for a request and serves it. After a command that has left no
 * process, and after a small file operation (for others as the same user), it stays for the next
 * request; else it exits. Forked ahead of time by the launcher; may
 * block, and may be killed at any moment. It is connected to nothing but PID 1, by one socket. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "init/exec/command.h"
#include "init/runner/launcher_process.h"
#include "init/file/operation.h"
#include "init/tunnel.h"
#include "init/exec/user.h"
#include "proto/init_messages.h"

#define FDS_MAX 4
/* The longest command line that is reported; the rest is cut off. */
#define COMMAND_SIZE 128
#define NAMING_PAUSE_US 5000

/* The size of a usual request. */
#define ROOM_USED (8 * 1024)

static uint8_t request_room[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];

static void frame_send(int socket, enum frame_type type, const void *payload, size_t size)
{
	uint8_t frame[FRAME_HEADER_SIZE + sizeof(struct failure) + 64];
	frame_header_write(frame, type, 0, (uint32_t)size);
	memcpy(frame + FRAME_HEADER_SIZE, payload, size);
	if (fd_send(socket, frame, FRAME_HEADER_SIZE + size, NULL, 0) < 0)
		_exit(1);
}

static void failure_send(int socket, enum frame_type type, const struct failure *failure)
{
	uint8_t payload[sizeof(*failure) + 16];
	struct writer writer = writer_on(payload, sizeof(payload));
	failure_write(&writer, failure);
	frame_send(socket, type, payload, writer.size);
}

/* Reports how the leader ended. `left_running` only says whether a process is left; PID 1 counts
 * them. */
static void exited_send(int socket, int status, const struct rusage *usage, int64_t began,
			bool left)
{
	bool exited = WIFEXITED(status);
	struct exec_result result = {
	    .end = exited ? EXEC_END_EXITED : EXEC_END_SIGNALED,
	    .code = (uint32_t)(exited ? WEXITSTATUS(status) : WTERMSIG(status)),
	    .wall_ns = (uint64_t)(clock_boot() - began),
	    .cpu_ns = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * NSEC_PER_SEC +
		      (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * NSEC_PER_USEC,
	    .peak_memory = (uint64_t)usage->ru_maxrss * 1024,
	    .left_running = left,
	};
	uint8_t payload[128];
	struct writer writer = writer_on(payload, sizeof(payload));
	exec_result_write(&writer, &result);
	frame_send(socket, FRAME_EXITED, payload, writer.size);
}

/* Reaps the leader and every orphan of its tree: the kernel makes them children of this process.
 * Returns if the leader has left none; PID 1 then gives this process another request or closes the
 * socket. */
static void exec_supervise(int socket, pid_t leader, int64_t began)
{
	for (;;) {
		int status;
		struct rusage usage;
		pid_t pid = wait4(-1, &status, 0, &usage);
		if (pid < 0 && errno != EINTR)
			_exit(0);
		if (pid != leader)
			continue;
		/* 0: a child is left; -1: none. */
		do
			pid = waitpid(-1, NULL, WNOHANG);
		while (pid > 0);
		exited_send(socket, status, &usage, began, pid == 0);
		if (pid < 0)
			return;
		prctl(PR_SET_NAME, "left-running");
	}
}

static void exec_request_run(int socket, const struct frame *frame, int *fds, size_t fd_count)
{
	static struct exec_request request;
	struct failure failure;
	if (exec_request_read(frame, &request) < 0)
		_exit(1);
	int64_t began = clock_boot();
	pid_t leader = command_start(&request, fds, fd_count, &failure);
	/* Otherwise the pipes would never end. */
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	if (leader < 0) {
		failure_send(socket, FRAME_START_FAILED, &failure);
		_exit(0);
	}
	uint8_t payload[4];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, (uint32_t)leader);
	frame_send(socket, FRAME_STARTED, payload, sizeof(payload));
	exec_supervise(socket, leader, began);
}

/* --- file operations --- */

/* Requests that one process serves before it is replaced. */
#define SERVED_MAX 1000u

/* The requests that this process has served, and the state of the user files when it became the
 * user. */
static struct {
	uint32_t served;
	uint64_t marks[USER_MARKS];
} standing;

/* If the files have changed, the user's name may mean other ids now. */
static bool user_files_unchanged(void)
{
	uint64_t marks[USER_MARKS];
	return user_files_read_marks(marks) && memcmp(marks, standing.marks, sizeof(marks)) == 0;
}

/* Operations that are quick and leave no state in the process. */
static bool operation_is_small(uint8_t operation)
{
	return operation <= FILE_CHOWN;
}

/* True if the process stays for another request. */
static bool file_request_run(int socket, const struct frame *frame)
{
	static struct operation operation;
	static struct user user;
	struct failure failure;
	bool first = standing.served++ == 0;
	operation = (struct operation){.socket = socket, .send_credit = FILE_WINDOW};
	if (file_request_read(frame, &operation.request) < 0)
		_exit(1);
	operation.stays = operation_is_small(operation.request.operation) &&
			  standing.served < SERVED_MAX &&
			  (!first || user_files_read_marks(standing.marks));
	if (first && user_find(operation.request.user, &user, &failure) < 0) {
		failure_send(socket, FRAME_FAILED, &failure);
		_exit(0);
	}
	int result = first ? user_become(&user) : 0;
	if (result < 0) {
		operation.stays = false;
		operation_failed(&operation, ERROR_BAD_USER, -result,
				 "changing to the user's ids failed");
		_exit(0);
	}
	/* PID 1 holds the data back until it knows that this process has taken the request. */
	if (!first && operation_takes_data(&operation))
		frame_send(socket, FRAME_CREDIT, "\0\0\0", 4);
	operation_run(&operation);
	return operation.stays;
}

/* The command line of a process, with spaces between the arguments, or the kernel's name of it. */
static void command_line_read(uint32_t pid, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);
	fd_close(&fd);
	if (got <= 0) {
		snprintf(path, sizeof(path), "/proc/%u/comm", pid);
		got = fd_read_small(AT_FDCWD, path, text, size);
		got -= got > 0 && text[got - 1] == '\n';
	}
	size_t length = got > 0 ? (size_t)got : 0;
	while (length > 0 && text[length - 1] == '\0')
		length--;
	length = text_utf8_prefix(text, length);
	bool utf8 = text_is_utf8(text, length);
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c < 0x20 || c == 0x7f || (!utf8 && c >= 0x80))
			text[i] = c == '\0' ? ' ' : '?';
	}
	text[length] = '\0';
}

_Noreturn static void left_running_run(int socket, const struct frame *frame)
{
	static uint8_t answer[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	struct reader reader = reader_on(frame->payload, frame->size);
	struct writer writer =
	    writer_on(answer + FRAME_HEADER_SIZE, sizeof(answer) - FRAME_HEADER_SIZE);
	uint32_t count = read_u32(&reader);
	write_u32(&writer, count);
	/* A process that was forked just now still shows the command line of its parent. */
	usleep(NAMING_PAUSE_US);
	for (uint32_t i = 0; i < count; i++) {
		char command[COMMAND_SIZE];
		uint32_t pid = read_u32(&reader);
		command_line_read(pid, command, sizeof(command));
		write_u32(&writer, pid);
		write_text(&writer, command);
	}
	if (reader_finish(&reader) < 0 || writer_finish(&writer) < 0)
		_exit(1);
	frame_header_write(answer, FRAME_LEFT_RUNNING, 0, (uint32_t)writer.size);
	_exit(fd_send(socket, answer, FRAME_HEADER_SIZE + writer.size, NULL, 0) < 0);
}

/* Receives the next request. Drops frames that still arrive for an answered one. */
static void runner_receive_request(int socket, struct frame *ret_frame, int *fds, size_t *fd_count)
{
	ssize_t got;
	do {
		/* A recvmsg() that SIGKILL wakes still takes a message, and the request would be
		 * lost. poll() takes nothing: PID 1 gives a request that was not received to
		 * another runner. */
		struct pollfd wait = {.fd = socket, .events = POLLIN};
		while (poll(&wait, 1, -1) < 0 && errno == EINTR)
			;
		if (standing.served > 0 && !user_files_unchanged())
			_exit(0);
		*fd_count = FDS_MAX;
		got = fd_receive(socket, request_room, sizeof(request_room), fds, fd_count);
		if (got <= 0 || frame_parse(request_room, (size_t)got, ret_frame) != got)
			_exit(got == 0 ? 0 : 1);
	} while (standing.served > 0 && ret_frame->type != FRAME_FILE);
}

void runner_process_main(int socket)
{
	int fds[FDS_MAX];
	size_t fd_count;
	struct frame frame;
	prctl(PR_SET_NAME, "runner");
	command_prepare();
	memset(request_room, 0, ROOM_USED);
	for (uint32_t execs = 0; execs < SERVED_MAX; execs++) {
		do
			runner_receive_request(socket, &frame, fds, &fd_count);
		while (frame.type == FRAME_FILE && file_request_run(socket, &frame));
		if (frame.type != FRAME_EXEC)
			break;
		exec_request_run(socket, &frame, fds, fd_count);
	}
	if (frame.type == FRAME_FILE || frame.type == FRAME_EXEC)
		_exit(0);
	if (frame.type == FRAME_CONNECT)
		tunnel_run(socket, &frame);
	if (frame.type == FRAME_LEFT_RUNNING)
		left_running_run(socket, &frame);
	_exit(1);
}
