/* Connects our standard descriptors to an exec: for `run`, `exec` and `shell`. Speaks
 * proto/exec_stream.h after an upgrade. One poll() loop sends standard input as far as there is
 * credit, writes output and forwards signals. If our standard output is closed (`| head`), we end
 * the command the way a broken pipe would. */
#include <errno.h>
#include <fcntl.h>
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
#include "base/text.h"
#include "cli/cli.h"
#include "cli/client/terminal.h"
#include "proto/codec.h"
#include "proto/exec_stream.h"
#include "proto/init_messages.h"

struct stream {
	struct exchange *exchange;
	struct exec_session *session;
	int signals;
	bool stdin_open;
	uint64_t stdin_credit;
	bool ended;
	bool leaving; /* we told the daemon that we leave; it closes the connection */
	char exec[64];
	int interrupts;
	json_t *record; /* the exec's record, once it has ended */
	uint8_t frame[EXEC_STREAM_HEADER + EXEC_STREAM_MAX];
	size_t frame_size;
};

bool exec_session_wants_tty(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static int stream_send_frame(struct stream *stream, enum exec_stream_type type, const void *data,
			     size_t size, struct error *error)
{
	uint8_t header[EXEC_STREAM_HEADER];
	struct writer writer = writer_on(header, sizeof(header));
	write_u8(&writer, (uint8_t)type);
	write_u32(&writer, (uint32_t)size);
	if (exchange_write(stream->exchange, false, header, sizeof(header), error) < 0)
		return -1;
	return exchange_write(stream->exchange, false, data, size, error);
}

static int stream_send_signal(struct stream *stream, int number, enum signal_scope scope,
			      struct error *error)
{
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, (uint32_t)number);
	write_u32(&writer, scope);
	return stream_send_frame(stream, EXEC_STREAM_SIGNAL, payload, sizeof(payload), error);
}

static int stream_send_size(struct stream *stream, struct error *error)
{
	struct winsize size;
	uint8_t payload[4];
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
		return 0;
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u16(&writer, size.ws_row);
	write_u16(&writer, size.ws_col);
	return stream_send_frame(stream, EXEC_STREAM_RESIZE, payload, sizeof(payload), error);
}

static int output_write(int fd, const uint8_t *data, size_t size, struct error *error)
{
	while (size > 0) {
		ssize_t put = write(fd, data, size);
		if (put < 0 && errno == EAGAIN) {
			/* Another process has made our standard output non-blocking: wait until it
			 * is writable. */
			struct pollfd wait = {.fd = fd, .events = POLLOUT};
			poll(&wait, 1, -1);
			continue;
		}
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return error_set_errno(error, ERROR_CANCELLED, errno,
					       "writing the command's output");
		data += put;
		size -= (size_t)put;
	}
	return 0;
}

/* Not to be called while the terminal is raw. The command may have left the cursor anywhere. */
static void status_line_print(const struct exec_session *session, const char *text)
{
	if (session->tty)
		fputc('\n', stderr);
	error_print("caisson: %s", text);
}

/* Explains why the exec was lost: the sandbox has ended, or its helper processes were killed from
 * inside. */
static int lost_exec_exit_code(struct client *client, const struct exec_session *session)
{
	struct error error;
	json_t *record = NULL;
	const char *reason = "";
	if (client_sandbox_call(client, "GET", session->sandbox, "", NULL, &record, &error) == 0)
		reason = member_text(json_object_get(record, "end"), "reason");
	bool timed_out = strcmp(reason, "timeout") == 0;
	char text[256];
	snprintf(text, sizeof(text), "the sandbox ended while the command ran (%s)", reason);
	status_line_print(
	    session, timed_out
			 ? "the sandbox's time-out ended the command; --timeout gives it more time"
		     : *reason ? text
			       : "it is unknown how the command ended: the sandbox was stopped, or "
				 "its helpers were killed from inside");
	json_decref(record);
	return error_info(timed_out ? ERROR_TIMED_OUT : ERROR_INTERNAL)->exit_code;
}

static void limit_notice_print(const struct exec_session *session, const char *why,
			       const char *more)
{
	char text[512];
	if (session->fresh)
		snprintf(text, sizeof(text),
			 "the command was ended because %s; `caisson %s %s` gives it more", why,
			 session->fresh, more);
	else
		snprintf(text, sizeof(text),
			 "the command was ended because %s; `caisson set %s %s` gives it more", why,
			 session->sandbox, more);
	status_line_print(session, text);
}

/* The exit code, as a shell reports it, from the exec's record. */
static int exec_exit_code(struct client *client, const struct exec_session *session,
			  const json_t *record)
{
	const json_t *number = json_object_get(record, "signal");
	if (json_is_true(json_object_get(record, "timed_out"))) {
		status_line_print(session, "the command was ended by its time-out");
		return error_info(ERROR_TIMED_OUT)->exit_code;
	}
	if (json_is_true(json_object_get(record, "oom_killed")))
		limit_notice_print(session, "the sandbox's memory limit was reached",
				   "--memory 2G");
	if (json_is_true(json_object_get(record, "too_many_processes")))
		limit_notice_print(session,
				   "it kept asking for processes beyond the sandbox's limit",
				   "--pids 2000");
	if (json_is_true(json_object_get(record, "lost")))
		return lost_exec_exit_code(client, session);
	if (json_is_integer(number))
		return 128 + (int)json_integer_value(number);
	const json_t *code = json_object_get(record, "exit_code");
	return json_is_integer(code) ? (int)json_integer_value(code) : 125;
}

static void stream_handle_started(struct stream *stream, const json_t *record)
{
	struct exec_session *session = stream->session;
	snprintf(stream->exec, sizeof(stream->exec), "%s", member_text(record, "exec_id"));
	if (!session->sandbox) {
		snprintf(session->made, sizeof(session->made), "%s",
			 member_text(record, "sandbox_id"));
		session->sandbox = session->made;
		unenforced_limits_warn(session->fresh, json_object_get(record, "sandbox"));
	}
	if (session->tty)
		terminal_set_raw();
}

static int stream_handle_frame(struct stream *stream, uint8_t type, const uint8_t *data,
			       size_t size, struct error *error)
{
	struct reader reader = reader_on(data, size);
	json_t *json = NULL;
	switch (type) {
	case EXEC_STREAM_STARTED:
		json = json_loadb((const char *)data, size, 0, NULL);
		stream_handle_started(stream, json);
		json_decref(json);
		return 0;
	case EXEC_STREAM_STDOUT:
		return output_write(STDOUT_FILENO, data, size, error);
	case EXEC_STREAM_STDERR:
		return output_write(STDERR_FILENO, data, size, error);
	case EXEC_STREAM_GAP:
		fprintf(stderr, "caisson: some output was lost%s\n", terminal_is_raw() ? "\r" : "");
		return 0;
	case EXEC_STREAM_STDIN_CREDIT:
		stream->stdin_credit += read_u32(&reader);
		return 0;
	case EXEC_STREAM_EXIT:
		stream->record = json_loadb((const char *)data, size, 0, NULL);
		stream->ended = true;
		return 0;
	case EXEC_STREAM_ERROR:
		json = json_loadb((const char *)data, size, 0, NULL);
		error_from_json(json, 0, error);
		json_decref(json);
		return -1;
	default:
		return error_set(error, ERROR_INTERNAL, "the daemon sent an unknown frame");
	}
}

/* Handles complete frames and keeps the rest of the input. */
static int stream_handle_input(struct stream *stream, struct error *error)
{
	struct exchange *exchange = stream->exchange;
	for (;;) {
		size_t have = exchange->end - exchange->start;
		size_t room = sizeof(stream->frame) - stream->frame_size;
		size_t take = MIN(have, room);
		memcpy(stream->frame + stream->frame_size, exchange->buffer + exchange->start,
		       take);
		exchange->start += take;
		stream->frame_size += take;
		size_t at = 0;
		while (!stream->ended && stream->frame_size - at >= EXEC_STREAM_HEADER) {
			struct reader reader = reader_on(stream->frame + at, EXEC_STREAM_HEADER);
			uint8_t type = read_u8(&reader);
			uint32_t size = read_u32(&reader);
			if (size > EXEC_STREAM_MAX)
				return error_set(error, ERROR_INTERNAL,
						 "the daemon sent a frame "
						 "that is too long");
			if (stream->frame_size - at < EXEC_STREAM_HEADER + size)
				break;
			if (stream_handle_frame(stream, type,
						stream->frame + at + EXEC_STREAM_HEADER, size,
						error) < 0)
				return -1;
			at += EXEC_STREAM_HEADER + size;
		}
		memmove(stream->frame, stream->frame + at, stream->frame_size - at);
		stream->frame_size -= at;
		if (stream->ended || exchange->start == exchange->end)
			return 0;
	}
}

static int stream_receive(struct stream *stream, struct error *error)
{
	struct exchange *exchange = stream->exchange;
	exchange->start = exchange->end = 0;
	ssize_t got = exchange_receive(exchange, exchange->buffer, sizeof(exchange->buffer));
	if (got < 0 && errno == EINTR)
		return 0;
	if (got == 0 && stream->leaving) {
		stream->ended = true;
		return 0;
	}
	if (got <= 0)
		return error_set(error, ERROR_DAEMON_RESTARTING,
				 "the connection to the daemon was lost; the command may still "
				 "run, see `caisson logs`");
	exchange->end = (size_t)got;
	return stream_handle_input(stream, error);
}

static int stream_forward_stdin(struct stream *stream, struct error *error)
{
	char data[16384];
	ssize_t got = read(STDIN_FILENO, data, MIN(sizeof(data), stream->stdin_credit));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got <= 0) {
		stream->stdin_open = false;
		return stream_send_frame(stream, EXEC_STREAM_STDIN_CLOSE, NULL, 0, error);
	}
	/* Before the command has started there is nothing to detach from: the key is ordinary
	 * input. */
	const char *key = stream->exec[0] ? terminal_find_leave_key(data, (size_t)got) : NULL;
	size_t size = key ? (size_t)(key - data) : (size_t)got;
	stream->stdin_credit -= size;
	if (size > 0 && stream_send_frame(stream, EXEC_STREAM_STDIN, data, size, error) < 0)
		return -1;
	if (!key)
		return 0;
	stream->leaving = true;
	stream->stdin_open = false;
	return stream_send_frame(stream, EXEC_STREAM_LEAVE, NULL, 0, error);
}

/* The first interrupt is forwarded; further ones kill the whole process tree. */
static int stream_forward_signal(struct stream *stream, struct error *error)
{
	struct signalfd_siginfo info;
	if (read(stream->signals, &info, sizeof(info)) != sizeof(info))
		return 0;
	int number = (int)info.ssi_signo;
	if (number == SIGWINCH)
		return stream_send_size(stream, error);
	if (++stream->interrupts >= 3)
		return stream_send_signal(stream, SIGKILL, SIGNAL_TREE, error);
	return stream_send_signal(stream, number, SIGNAL_TREE, error);
}

static int stream_loop(struct stream *stream, struct error *error)
{
	if (stream_handle_input(stream, error) < 0)
		return -1;
	while (!stream->ended) {
		bool want_stdin = stream->stdin_open && stream->stdin_credit > 0;
		struct pollfd fds[] = {
		    {.fd = stream->exchange->fd, .events = POLLIN},
		    {.fd = stream->signals, .events = POLLIN},
		    {.fd = want_stdin ? STDIN_FILENO : -1, .events = POLLIN},
		};
		bool pending = exchange_has_input(stream->exchange);
		if (poll(fds, ARRAY_SIZE(fds), pending ? 0 : -1) < 0) {
			if (errno == EINTR)
				continue;
			return error_set_errno(error, ERROR_INTERNAL, errno, "poll");
		}
		if (fds[1].revents && stream_forward_signal(stream, error) < 0)
			return -1;
		if ((pending || fds[0].revents) && stream_receive(stream, error) < 0)
			return -1;
		if (!stream->ended && fds[2].revents && stream_forward_stdin(stream, error) < 0)
			return -1;
	}
	return 0;
}

static int signals_open(bool tty)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGQUIT);
	if (tty)
		sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int stream_open(struct client *client, const struct exec_session *session,
		       struct exchange *exchange, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	FREE_TEXT char *body = json_dumps(session->body, JSON_COMPACT);
	if (session->sandbox && sandbox_path(&path, session->sandbox, "/exec", error) < 0)
		return -1;
	if (!body)
		return error_set(error, ERROR_USAGE, "the command is not valid UTF-8");
	struct request request = {
	    .method = "POST",
	    .path = session->sandbox ? path.data : "/v1/run",
	    .fds = session->fds,
	    .fd_count = session->fd_count,
	    .type = "application/json",
	    .upgrade = EXEC_STREAM_PROTOCOL,
	    .length = (int64_t)strlen(body),
	};
	if (exchange_begin(client, &request, exchange, error) < 0 ||
	    exchange_write(exchange, false, body, strlen(body), error) < 0 ||
	    exchange_read_head(exchange, error) < 0)
		return -1;
	if (exchange->status != 101)
		return error_set(error, ERROR_GUEST_PROTOCOL,
				 "the daemon is another version: it does not know %s",
				 EXEC_STREAM_PROTOCOL);
	return 0;
}

/* True if the user has left the exec. It may have ended at that moment; its record tells. */
static bool exec_was_left(const struct stream *stream, struct exec_session *session)
{
	if (!stream->leaving || stream->record)
		return false;
	char text[256];
	memcpy(session->left, stream->exec, sizeof(session->left));
	snprintf(text, sizeof(text),
		 "detached; the command keeps running, `caisson attach %s %s` attaches again",
		 session->sandbox, session->left);
	status_line_print(session, text);
	return true;
}

int exec_session_run(struct client *client, struct exec_session *session, int *ret_exit_code,
		     struct error *error)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	if (!stream || !exchange)
		abort();
	exchange->fd = -1;
	stream->exchange = exchange;
	stream->stdin_open = session->stdin_open;
	stream->stdin_credit = FILE_WINDOW;
	stream->session = session;
	/* Until a new sandbox is ready, which may take long, signals end this process, and with it
	 * the request. */
	bool fresh = !session->sandbox;
	stream->signals = fresh ? -1 : signals_open(session->tty);
	int result = stream_open(client, session, exchange, error);
	if (fresh)
		stream->signals = signals_open(session->tty);
	if (result == 0)
		result = stream_loop(stream, error);
	terminal_restore();
	int exit_code = 0;
	if (result == 0 && !exec_was_left(stream, session))
		exit_code = exec_exit_code(client, session, stream->record);
	json_decref(stream->record);
	/* Our output's reader has closed it: end silently, like a command that SIGPIPE kills. */
	if (result < 0 && error->errnum == EPIPE && error->kind == ERROR_CANCELLED) {
		result = 0;
		exit_code = 128 + SIGPIPE;
	}
	*ret_exit_code = exit_code;
	fd_close(&stream->signals);
	exchange_free(exchange);
	free(stream);
	return result;
}
