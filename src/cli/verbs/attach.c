/* `caisson attach`: connects our terminal to a terminal that runs in a sandbox, over a WebSocket
 * (.../execs/{exec}/tty). Several clients may attach to one; it continues when we leave. One poll()
 * loop; the form of the daemon's frames is checked. */
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/random.h"
#include "cli/cli.h"
#include "cli/client/terminal.h"

#define FRAME_MAX (256 * 1024)

/* RFC 6455, as much as a client of our own daemon needs. */
enum opcode { OPCODE_TEXT = 1, OPCODE_BINARY = 2, OPCODE_CLOSE = 8, OPCODE_PING = 9, OPCODE_PONG };

static struct {
	bool read_only;
} options;

struct attached {
	struct exchange *exchange;
	struct buffer input; /* incomplete frames from the daemon */
	int signals;
	bool stdin_open, over;
	int exit_code;
};

/* Sends a frame, masked as a client must. */
static int attached_send_frame(struct attached *attached, enum opcode opcode, const char *data,
			       size_t size, struct error *error)
{
	uint8_t header[8] = {(uint8_t)(0x80 | opcode)}, mask[4];
	size_t header_size = 2;
	DONE_BUFFER struct buffer frame = BUFFER(FRAME_MAX);
	if (size > UINT16_MAX)
		return error_set(error, ERROR_INTERNAL, "a frame is too long");
	header[1] = (uint8_t)(0x80 | (size < 126 ? size : 126));
	if (size >= 126) {
		header[2] = (uint8_t)(size >> 8);
		header[3] = (uint8_t)size;
		header_size = 4;
	}
	random_bytes(mask, sizeof(mask));
	memcpy(header + header_size, mask, sizeof(mask));
	if (buffer_append(&frame, header, header_size + sizeof(mask)) < 0 ||
	    buffer_append(&frame, data, size) < 0)
		abort(); /* impossible: the buffer's maximum is larger than any of our frames */
	for (size_t i = 0; i < size; i++)
		frame.data[header_size + 4 + i] ^= (char)mask[i & 3];
	return exchange_write(attached->exchange, false, frame.data, frame.size, error);
}

static int attached_send_size(struct attached *attached, struct error *error)
{
	struct winsize size;
	char text[96];
	if (options.read_only || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row ||
	    !size.ws_col)
		return 0;
	int length = snprintf(text, sizeof(text), "{\"resize\":{\"rows\":%u,\"cols\":%u}}",
			      size.ws_row, size.ws_col);
	return attached_send_frame(attached, OPCODE_TEXT, text, (size_t)length, error);
}

static int attached_take_text(struct attached *attached, const char *data, size_t size,
			      struct error *error)
{
	json_t *json = json_loadb(data, size, 0, NULL);
	json_t *code = json_object_get(json, "exit");
	int result = 0;
	if (json_is_integer(code)) {
		attached->exit_code = (int)json_integer_value(code);
		attached->over = true;
	} else if (json_object_get(json, "gap")) {
		fprintf(stderr, "caisson: some output is no longer kept\r\n");
	} else if (json_object_get(json, "error") && !options.read_only) {
		error_from_json(json, 0, error);
		result = -1;
	}
	json_decref(json);
	return result;
}

static int attached_take_frame(struct attached *attached, uint8_t opcode, const char *data,
			       size_t size, struct error *error)
{
	if (opcode == OPCODE_TEXT)
		return attached_take_text(attached, data, size, error);
	if (opcode == OPCODE_PING)
		return attached_send_frame(attached, OPCODE_PONG, data, size, error);
	if (opcode == OPCODE_CLOSE) {
		if (!attached->over)
			return error_set(error, ERROR_SANDBOX_ENDED,
					 "the daemon has closed the terminal");
		return 0;
	}
	if (opcode != OPCODE_BINARY)
		return 0;
	int result = fd_write_full(STDOUT_FILENO, data, size);
	if (result < 0)
		return error_set_errno(error, ERROR_CANCELLED, result, "standard output");
	return 0;
}

/* Handles complete frames and keeps the rest of the input. */
static int attached_take_frames(struct attached *attached, struct error *error)
{
	struct buffer *input = &attached->input;
	while (!attached->over && input->size >= 2) {
		const uint8_t *data = (const uint8_t *)input->data;
		uint64_t size = data[1] & 0x7f;
		size_t extra = size == 126 ? 2 : size == 127 ? 8 : 0;
		if (input->size < 2 + extra)
			return 0;
		if (extra)
			size = 0;
		for (size_t i = 0; i < extra; i++)
			size = size << 8 | data[2 + i];
		if (data[1] & 0x80 || size > FRAME_MAX)
			return error_set(error, ERROR_INTERNAL, "the daemon sent an invalid frame");
		if (input->size < 2 + extra + size)
			return 0;
		if (attached_take_frame(attached, data[0] & 0xf, input->data + 2 + extra,
					(size_t)size, error) < 0)
			return -1;
		buffer_consume(input, 2 + extra + (size_t)size);
	}
	return 0;
}

static int attached_receive(struct attached *attached, struct error *error)
{
	char data[65536];
	ssize_t got = exchange_receive(attached->exchange, data, sizeof(data));
	if (got < 0 && errno == EINTR)
		return 0;
	if (got <= 0)
		return error_set(
		    error, ERROR_DAEMON_RESTARTING,
		    "the connection to the daemon was lost; the command keeps running");
	if (buffer_append(&attached->input, data, (size_t)got) < 0)
		return error_set(error, ERROR_INTERNAL, "the daemon sent an invalid frame");
	return attached_take_frames(attached, error);
}

/* 1: the leave key was pressed. */
static int attached_forward_stdin(struct attached *attached, struct error *error)
{
	char data[16384];
	ssize_t got = read(STDIN_FILENO, data, sizeof(data));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got <= 0) {
		attached->stdin_open = false;
		return 0;
	}
	const char *key = terminal_find_leave_key(data, (size_t)got);
	size_t size = key ? (size_t)(key - data) : (size_t)got;
	if (size > 0 && !options.read_only &&
	    attached_send_frame(attached, OPCODE_BINARY, data, size, error) < 0)
		return -1;
	return key ? 1 : 0;
}

static int attached_loop(struct attached *attached, struct error *error)
{
	if (attached_take_frames(attached, error) < 0)
		return -1;
	while (!attached->over) {
		struct pollfd fds[] = {
		    {.fd = attached->exchange->fd, .events = POLLIN},
		    {.fd = attached->signals, .events = POLLIN},
		    {.fd = attached->stdin_open ? STDIN_FILENO : -1, .events = POLLIN},
		};
		struct signalfd_siginfo info;
		bool pending = exchange_has_input(attached->exchange);
		if (poll(fds, ARRAY_SIZE(fds), pending ? 0 : -1) < 0 && errno != EINTR)
			return error_set_errno(error, ERROR_INTERNAL, errno, "poll");
		if (fds[1].revents && read(attached->signals, &info, sizeof(info)) > 0 &&
		    attached_send_size(attached, error) < 0)
			return -1;
		if ((pending || fds[0].revents) && attached_receive(attached, error) < 0)
			return -1;
		if (attached->over || !fds[2].revents)
			continue;
		int result = attached_forward_stdin(attached, error);
		if (result < 0)
			return -1;
		if (result > 0) {
			terminal_restore();
			fprintf(stderr, "\n"
					"caisson: detached; the command keeps running\n");
			return 0;
		}
	}
	return 0;
}

/* Finds the newest running terminal. */
static int newest_terminal_find(struct client *client, const char *sandbox, char *id, size_t room,
				struct error *error)
{
	json_t *answer = NULL, *record;
	size_t at;
	if (client_sandbox_call(client, "GET", sandbox, "/jobs?state=running&limit=1000", NULL,
				&answer, error) < 0)
		return -1;
	*id = '\0';
	json_array_foreach(json_object_get(answer, "jobs"), at, record)
	{
		if (!*id && json_is_true(json_object_get(record, "tty")))
			snprintf(id, room, "%s", member_text(record, "exec_id"));
	}
	json_decref(answer);
	if (!*id)
		return error_set(error, ERROR_EXEC_NOT_FOUND,
				 "no command with a terminal runs in %s; start one with `caisson "
				 "exec -d --tty %s -- ...`",
				 sandbox, sandbox);
	return 0;
}

static const struct option_spec attach_specs[] = {
    {"read-only", 0, OPTION_FLAG, &options.read_only, NULL, "only watch; input is ignored",
     "readonly"},
    {0},
};

static int attached_open(struct client *client, const char *sandbox, const char *id,
			 struct exchange *exchange, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	uint8_t bytes[16];
	char key[32], extra[128];
	random_bytes(bytes, sizeof(bytes));
	EVP_EncodeBlock((unsigned char *)key, bytes, sizeof(bytes));
	snprintf(extra, sizeof(extra), "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
		 key);
	if (sandbox_path(&path, sandbox, "/jobs/", error) < 0)
		return -1;
	if (buffer_append_encoded(&path, id) < 0 || buffer_append_text(&path, "/tty") < 0)
		return error_set(error, ERROR_USAGE, "an argument is too long");
	if (options_to_path(attach_specs, &path, error) < 0)
		return -1;
	struct request request = {
	    .method = "GET", .path = path.data, .upgrade = "websocket", .extra = extra};
	if (exchange_begin(client, &request, exchange, error) < 0 ||
	    exchange_read_head(exchange, error) < 0)
		return -1;
	if (exchange->status != 101)
		return error_set(error, ERROR_GUEST_PROTOCOL,
				 "the daemon is another version: it has no terminals");
	return 0;
}

static int attach_run(struct client *client, int argc, char **argv, struct error *error)
{
	char id[64];
	if (argc != 2 && argc != 3)
		return error_set(error, ERROR_USAGE,
				 "attach needs a sandbox: caisson attach mybox");
	if (argc == 3)
		snprintf(id, sizeof(id), "%s", argv[2]);
	else if (newest_terminal_find(client, argv[1], id, sizeof(id), error) < 0)
		return -1;
	struct exchange *exchange = exchange_new();
	struct attached attached = {
	    .exchange = exchange, .input = BUFFER(2 * FRAME_MAX), .stdin_open = true};
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	attached.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	int result = attached_open(client, argv[1], id, exchange, error);
	if (result == 0 && isatty(STDIN_FILENO))
		terminal_set_raw();
	if (result == 0 && buffer_append(&attached.input, exchange->buffer + exchange->start,
					 exchange->end - exchange->start) < 0)
		abort(); /* impossible: the exchange's buffer is smaller */
	if (result == 0 && isatty(STDOUT_FILENO))
		result = attached_send_size(&attached, error);
	if (result == 0)
		result = attached_loop(&attached, error);
	terminal_restore();
	fd_close(&attached.signals);
	buffer_done(&attached.input);
	exchange_free(exchange);
	return result < 0 ? -1 : attached.exit_code & 0xff;
}

const struct verb verb_attach = {
    .name = "attach",
    .json = "errors as JSON; what the terminal shows stays as it is",
    .sandboxes = true,
    .execs = true,
    .arguments = "[options] SANDBOX [JOB]",
    .summary = "Attach to a terminal that runs in a sandbox",
    .help = "Shows the recent output of a job with a terminal (default: the newest that runs) and\n"
	    "follows it; several clients may be attached at once. Exits as the command "
	    "does.\n" TERMINAL_LEAVE_HELP "\n\n"
	    "  caisson exec -d --tty mybox -- bash\n"
	    "  caisson attach mybox",
    .options = attach_specs,
    .run = attach_run,
};
