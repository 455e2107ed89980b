/* Runs file operations as PID 1 would: in a process of its own at the other end of a socketpair,
 * with credit; for the tests of src/init/file_*.c. Every test has a directory of its own. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init/file/operation.h"
#include "test.h"

#define OUTPUT_MAX (48u * 1024 * 1024)

struct answer {
	uint16_t type; /* RESULT or FAILED */
	struct failure failure;
	uint8_t result[FRAME_PAYLOAD_MAX];
	size_t result_size;
	uint8_t *data; /* all DATA, one after the other */
	size_t data_size;
	uint32_t frames; /* DATA frames */
	double seconds;
};

struct tool_exec {
	pid_t pid;
	int socket;
	uint64_t credit;   /* for data to the operation */
	uint64_t returned; /* credit we owe it */
};

static char root[64];

static inline double now_seconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline struct bytes text_bytes(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

static inline const char *in_root(const char *name)
{
	static char paths[8][GUEST_PATH_MAX];
	static int turn;
	char *path = paths[turn++ % 8];
	snprintf(path, GUEST_PATH_MAX, "%s/%s", root, name);
	return path;
}

static inline void make_root(void)
{
	snprintf(root, sizeof(root), "/tmp/caisson-files-XXXXXX");
	if (!mkdtemp(root))
		abort();
}

static inline void put_file(const char *name, const void *data, size_t size)
{
	int fd = open(in_root(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		test_fail(__FILE__, __LINE__, "cannot write %s", name);
	close(fd);
}

static inline void put_text(const char *name, const char *text)
{
	put_file(name, text, strlen(text));
}

static inline const char *get_text(const char *name)
{
	static char text[65536];
	int fd = open(in_root(name), O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	close(fd);
	text[size < 0 ? 0 : size] = '\0';
	return size < 0 ? NULL : text;
}

/* Where `unheard`, the operation waits with its first message until that of others was taken. */
static inline struct tool_exec start_as(const struct file_request *request, bool unheard)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	while (unheard && send(pair[1], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(pair[0]);
		struct operation operation = {
		    .socket = pair[1], .send_credit = FILE_WINDOW, .request = *request};
		operation_run(&operation);
		_exit(0);
	}
	close(pair[1]);
	return (struct tool_exec){.pid = pid, .socket = pair[0], .credit = FILE_WINDOW};
}

static inline struct tool_exec start(const struct file_request *request)
{
	return start_as(request, false);
}

static inline void send_frame_to(struct tool_exec *running, uint16_t type, const void *data,
				 size_t size)
{
	static uint8_t message[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	frame_header_write(message, type, 0, (uint32_t)size);
	if (size > 0)
		memcpy(message + FRAME_HEADER_SIZE, data, size);
	(void)!send(running->socket, message, FRAME_HEADER_SIZE + size, MSG_NOSIGNAL);
}

static inline void give_credit(struct tool_exec *running, uint32_t bytes)
{
	uint8_t payload[4];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, bytes);
	send_frame_to(running, FRAME_CREDIT, payload, sizeof(payload));
}

/* One frame; its type, 0 when nothing comes within the time or the socket was closed. */
static inline int next_frame(struct tool_exec *running, struct frame *frame, int wait_ms)
{
	static uint8_t message[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	struct pollfd poll_fd = {.fd = running->socket, .events = POLLIN};
	if (poll(&poll_fd, 1, wait_ms) <= 0)
		return 0;
	ssize_t got = recv(running->socket, message, sizeof(message), 0);
	if (got <= 0 || frame_parse(message, (size_t)got, frame) != got)
		return 0;
	if (frame->type == FRAME_CREDIT) {
		struct reader reader = reader_on(frame->payload, frame->size);
		running->credit += read_u32(&reader);
	}
	return frame->type;
}

static inline void end(struct tool_exec *running)
{
	int status;
	close(running->socket);
	waitpid(running->pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		test_fail(__FILE__, __LINE__, "the operation's process ended with %d", status);
}

static inline void free_answer(struct answer *answer)
{
	free(answer->data);
	answer->data = NULL;
}

/* Takes everything up to the answer, giving credit as it goes. */
static inline void finish(struct tool_exec *running, struct answer *answer)
{
	struct frame frame;
	double began = now_seconds();
	int type;
	memset(answer, 0, sizeof(*answer));
	while ((type = next_frame(running, &frame, 120000)) != 0) {
		if (type == FRAME_DATA) {
			uint8_t *data = realloc(answer->data, answer->data_size + frame.size + 1);
			if (!data || answer->data_size + frame.size > OUTPUT_MAX ||
			    frame.size > FILE_CHUNK_MAX)
				abort();
			memcpy(data + answer->data_size, frame.payload, frame.size);
			answer->data = data;
			answer->data_size += frame.size;
			answer->frames++;
			give_credit(running, frame.size);
		} else if (type == FRAME_RESULT || type == FRAME_FAILED) {
			answer->type = (uint16_t)type;
			memcpy(answer->result, frame.payload, frame.size);
			answer->result_size = frame.size;
			if (type == FRAME_FAILED && failure_read(&frame, &answer->failure) < 0)
				test_fail(__FILE__, __LINE__, "a failure that cannot be read");
			break;
		}
	}
	answer->seconds = now_seconds() - began;
	end(running);
}

static inline void run(const struct file_request *request, struct answer *answer)
{
	struct tool_exec running = start(request);
	finish(&running, answer);
}

static inline void send_data(struct tool_exec *running, const void *data, size_t size)
{
	const uint8_t *place = data;
	while (size > 0) {
		struct frame frame;
		while (running->credit == 0 && next_frame(running, &frame, 10000) == FRAME_CREDIT)
			;
		size_t part = MIN(MIN(size, (size_t)FILE_CHUNK_MAX), running->credit);
		if (part == 0)
			return;
		send_frame_to(running, FRAME_DATA, place, part);
		running->credit -= part;
		place += part;
		size -= part;
	}
}

static inline void run_with_data(const struct file_request *request, const void *data, size_t size,
				 struct answer *answer)
{
	struct tool_exec running = start(request);
	send_data(&running, data, size);
	send_frame_to(&running, FRAME_DATA_END, NULL, 0);
	finish(&running, answer);
}

static inline uint64_t result_number(const struct answer *answer)
{
	struct reader reader = reader_on(answer->result, answer->result_size);
	return answer->result_size >= 8 ? read_u64(&reader) : read_u32(&reader);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *position)
{
	(void)stat, (void)type, (void)position;
	return remove(path);
}

static inline void remove_root(void)
{
	nftw(root, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

static inline int count_entries(const char *name)
{
	DIR *directory = opendir(in_root(name));
	int count = 0;
	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count - 2;
}

#define CHECK_OK(answer)                                                                           \
	do {                                                                                       \
		if ((answer).type != FRAME_RESULT)                                                 \
			test_fail(__FILE__, __LINE__, "failed: %s", (answer).failure.message);     \
	} while (0)
#define CHECK_FAILS(answer, expected)                                                              \
	do {                                                                                       \
		if ((answer).type != FRAME_FAILED || (answer).failure.kind != (expected))          \
			test_fail(__FILE__, __LINE__, "not " #expected ": type %d kind %d %s",     \
				  (answer).type, (int)(answer).failure.kind,                       \
				  (answer).failure.message);                                       \
	} while (0)
