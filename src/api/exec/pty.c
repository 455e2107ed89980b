/* Terminals over WebSocket: .../exec/pty (and its alias .../ssh) opens one, .../execs/{exec}/tty
 * attaches to a running one. Any number of clients share a terminal: each reads its log by offset,
 * at its own pace, after a replay of the recent output; all may type, except read-only ones; the
 * window has the size that was set last. Nothing blocks.
 *
 * Frames: binary is the terminal's bytes, both ways. Text is JSON, from the client
 *     {"resize":{"rows":R,"cols":C}}   {"stdin":"text"}   {"signal":"INT"}
 * and from here {"exit":N,...} before the end, {"error":"...",...}, {"gap":bytes}. */
#include "edge/web_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/exec/record.h"
#include "api/exec/execs.h"
#include "base/log.h"
#include "base/text.h"
#include "edge/exec_follower.h"

#define REPLAY_DEFAULT (64 * KIB)
#define REPLAY_MAX (8 * MIB)
#define ROWS_DEFAULT 24
#define COLUMNS_DEFAULT 80
#define COMMAND_MAX 8191
#define PIECE (16 * KIB)
/* One piece from the connection and one whole message, and more. */
#define INPUT_MAX (WEB_SOCKET_MESSAGE_MAX + 1 * MIB)

struct pty {
	struct web_socket socket; /* first: see web_socket.h */
	struct call *call;
	struct exec_follower follower;
	struct buffer left; /* typed and not yet taken by the exec */
	bool detach;        /* the command continues when this client leaves */
	bool read_only;
	bool detach_given;
	uint16_t rows, columns;
	uint64_t replay;
	const char *command, *cwd, *user, *job; /* of the query */
};

#define ROWS "rows", FIELD_UINT_AT(struct pty, rows), .min = 1, .max = TERMINAL_SIZE_MAX
#define COLUMNS "cols", FIELD_UINT_AT(struct pty, columns), .min = 1, .max = TERMINAL_SIZE_MAX
#define REPLAY                                                                                     \
	"replay", FIELD_UINT_AT(struct pty, replay), .max = REPLAY_MAX, .fallback = REPLAY_DEFAULT
#define DETACH                                                                                     \
	"detach", FIELD_BOOL_AT(struct pty, detach), .given = FIELD_GIVEN(struct pty, detach_given)
#define READ_ONLY "readonly", FIELD_BOOL_AT(struct pty, read_only)

const struct field exec_tty_query[] = {{ROWS}, {COLUMNS}, {REPLAY}, {DETACH}, {READ_ONLY}, {0}};

const struct field exec_pty_query[] = {
    {ROWS},
    {COLUMNS},
    {REPLAY},
    {DETACH},
    {READ_ONLY},
    {"cmd", FIELD_TEXT_AT(struct pty, command), .max = COMMAND_MAX},
    {"cwd", FIELD_TEXT_AT(struct pty, cwd), .max = GUEST_PATH_MAX - 1},
    {"user", FIELD_TEXT_AT(struct pty, user), .max = 63},
    {"job", FIELD_TEXT_AT(struct pty, job), .max = CALL_PARAMETER_MAX - 1},
    {0},
};

static void pty_free(void *state)
{
	struct pty *pty = state;
	buffer_done(&pty->left);
	free(pty);
}

/* This client leaves. The last one to leave hangs up, unless it said otherwise. */
static void pty_leave(struct pty *pty, const struct principal *principal)
{
	struct exec *exec = pty->follower.exec;
	if (!exec)
		return;
	bool hang_up = !pty->detach && !exec_ended(exec) && !exec_follower_others(&pty->follower);
	exec_follower_leave(&pty->follower);
	if (hang_up)
		exec_hang_up(exec, principal);
}

/* --- to the client --- */

static bool pty_send_json(struct pty *pty, const struct json_writer *writer)
{
	return !writer->full && web_socket_send(&pty->socket, WEBSOCKET_TEXT, writer->buffer->data,
						writer->buffer->size);
}

static void pty_send_error(struct pty *pty, const struct error *error)
{
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	/* A client that does not read gets no further error messages. */
	if (pty->socket.blocked)
		return;
	put_error(&writer, error, pty->call->request_id);
	pty_send_json(pty, &writer);
}

static void pty_ended(struct exec_follower *follower)
{
	struct pty *pty = container_of(follower, struct pty, follower);
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_int(&writer, "exit", exec_exit_code(&follower->exec->row));
	put_exec_members(&writer, &follower->exec->row);
	put_object_end(&writer);
	pty_send_json(pty, &writer);
	pty_leave(pty, NULL);
	web_socket_close(&pty->socket, WEBSOCKET_NORMAL, "the command has ended");
}

static void pty_piece(struct exec_follower *follower, enum exec_stream stream UNUSED,
		      const char *data, size_t size)
{
	web_socket_send(&container_of(follower, struct pty, follower)->socket, WEBSOCKET_BINARY,
			data, size);
}

static void pty_gap(struct exec_follower *follower, enum exec_stream stream UNUSED, uint64_t gap)
{
	DONE_BUFFER struct buffer buffer = BUFFER(256);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_uint(&writer, "gap", gap);
	put_object_end(&writer);
	pty_send_json(container_of(follower, struct pty, follower), &writer);
}

/* --- from the client --- */

static void pty_pump_input(struct pty *pty)
{
	struct error error;
	if (!pty->follower.exec || pty->left.size == 0)
		return;
	ssize_t taken = exec_stdin(pty->follower.exec, pty->left.data, pty->left.size, &error);
	/* A disconnected terminal takes no input: it is dropped. */
	if (taken < 0) {
		pty_send_error(pty, &error);
		taken = (ssize_t)pty->left.size;
	}
	buffer_consume(&pty->left, (size_t)taken);
	if (pty->left.size > 0)
		web_socket_pause(&pty->socket);
	else
		web_socket_resume(&pty->socket);
}

static void pty_take_input(struct pty *pty, const char *data, size_t size)
{
	if (buffer_append(&pty->left, data, size) == 0) {
		pty_pump_input(pty);
		return;
	}
	pty_leave(pty, &pty->call->principal);
	web_socket_close(&pty->socket, WEBSOCKET_TOO_BIG, "more was typed than is taken");
}

struct pty_message_fields {
	struct terminal_size size;
	bool resize;
	json_t *signal;
	const char *input;
};
static const struct field pty_message_fields[] = {
    {"resize", FIELD_STRUCT_AT(struct pty_message_fields, size, struct terminal_size),
     .given = FIELD_GIVEN(struct pty_message_fields, resize), .inner = exec_resize_fields},
    {"stdin", FIELD_TEXT_AT(struct pty_message_fields, input)},
    {"signal", FIELD_ANY_AT(struct pty_message_fields, signal)},
    {0},
};

static int pty_take_text(struct pty *pty, const char *data, size_t size, struct error *error)
{
	json_t *json = NULL;
	struct pty_message_fields fields = {0};
	int number = 0;
	if (json_parse_message(data, size, &json, error) < 0)
		return -1;
	int result = fields_parse(json, pty_message_fields, FIELDS_REST, NULL, &fields, error);
	if (result == 0 && fields.resize)
		result =
		    exec_resize(pty->follower.exec, fields.size.rows, fields.size.columns, error);
	if (result == 0 && fields.signal)
		result = exec_signal_parse(fields.signal, &number, error);
	if (result == 0 && fields.signal)
		result = exec_signal(pty->follower.exec, &pty->call->principal, number,
				     SIGNAL_LEADER, error);
	if (result == 0 && fields.input)
		pty_take_input(pty, fields.input, strlen(fields.input));
	json_decref(json);
	return result;
}

/* The client typed: wakes a sleeping sandbox, and the input waits in the terminal. */
static void sandbox_keep_awake(struct sandbox *sandbox, const struct principal *principal)
{
	struct error error;
	if (state_facts(sandbox->row.state)->may_exec)
		sandbox_touch(sandbox);
	else if (sandbox_ready(sandbox, principal, true, NULL, NULL, &error) < 0)
		log_debug("a terminal does not wake sandbox %s: %s", sandbox->row.id.text,
			  error.message);
}

static void pty_message(struct web_socket *socket, bool text, const char *data, size_t size)
{
	struct pty *pty = (struct pty *)socket;
	struct error error;
	if (!pty->follower.exec)
		return;
	if (pty->read_only) {
		error_set(&error, ERROR_FORBIDDEN, "this client only looks on (`readonly=1`)");
		pty_send_error(pty, &error);
		return;
	}
	sandbox_keep_awake(pty->follower.exec->sandbox, &pty->call->principal);
	if (!text) {
		pty_take_input(pty, data, size);
	} else if (pty_take_text(pty, data, size, &error) < 0) {
		pty_send_error(pty, &error);
	}
}

static void pty_drained(struct web_socket *socket)
{
	exec_follower_pump(&((struct pty *)socket)->follower);
}

static void pty_closed(struct web_socket *socket, const struct principal *principal)
{
	pty_leave((struct pty *)socket, principal);
}

static const struct web_socket_handlers pty_handlers = {pty_message, pty_drained, pty_closed};

/* --- the exec --- */

static void pty_open_socket(struct pty *pty)
{
	const struct http_header header = {"X-Exec-Id", pty->follower.exec->row.id.text};
	web_socket_begin(&pty->socket, pty->call, &pty_handlers, &header, 1);
}

static void pty_running(struct exec_follower *follower)
{
	struct pty *pty = container_of(follower, struct pty, follower);
	if (!pty->socket.begun)
		pty_open_socket(pty);
	pty_pump_input(pty);
}

static void pty_failed(struct exec_follower *follower, const struct error *error)
{
	struct pty *pty = container_of(follower, struct pty, follower);
	if (!pty->socket.begun) {
		reply_error(pty->call, error);
		return;
	}
	pty_send_error(pty, error);
	web_socket_close(&pty->socket, WEBSOCKET_GOING_AWAY, error->message);
}

static const struct exec_emitter pty_emitter = {.piece_max = PIECE,
						.running = pty_running,
						.piece = pty_piece,
						.gap = pty_gap,
						.ended = pty_ended,
						.failed = pty_failed};

static void pty_gone_early(struct call *call)
{
	pty_leave(call->state, NULL);
}

static void pty_watch(struct pty *pty, struct exec *exec)
{
	pty->call->on_gone = pty_gone_early;
	exec_follower_begin(&pty->follower, exec);
}

static void pty_begin_act(struct call *call, struct sandbox *sandbox)
{
	struct pty *pty = call->state;
	struct exec *exec;
	struct error error;
	const char *argv[] = {"/bin/sh", "-c", pty->command};
	if (!pty->command)
		argv[2] = "[ -x /bin/bash ] && exec /bin/bash -l; exec /bin/sh -l";
	struct exec_spec spec = {
	    .argv = argv,
	    .argc = ARRAY_SIZE(argv),
	    .cwd = pty->cwd,
	    .user = pty->user,
	    .flags = EXEC_TTY | EXEC_STDIN,
	    .rows = pty->rows,
	    .columns = pty->columns,
	    .principal = &call->principal,
	};
	if (exec_start(sandbox, &spec, &exec, &error) < 0)
		reply_error(call, &error);
	else
		pty_watch(pty, exec);
}

/* Where a replay begins: after a line end, so that no escape sequence and no character is cut, else
 * after the rest of a character. */
static uint64_t pty_replay_start(struct exec *exec, uint64_t wanted)
{
	char data[4096];
	uint64_t total = exec_total(exec, EXEC_STDOUT), gap = 0;
	uint64_t start = total - MIN(total, wanted);
	if (start == 0 || start == total)
		return start;
	ssize_t size = exec_read(exec, EXEC_STDOUT, start, data, sizeof(data), &gap);
	if (size <= 0)
		return start + gap;
	const char *line = memchr(data, '\n', (size_t)size);
	return start + gap + (line ? (uint64_t)(line - data) + 1 : utf8_rest(data, (size_t)size));
}

static void pty_attach(struct pty *pty, struct sandbox *sandbox, const char *id)
{
	struct call *call = pty->call;
	struct exec *exec;
	struct error error;
	if (exec_find(sandbox, id, &exec, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (!(exec->row.flags & EXEC_TTY)) {
		error_set(&error, ERROR_INVALID, "exec `%s` has no terminal", exec->row.id.text);
		reply_error(call, &error);
		return;
	}
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		reply_error(call, &error);
		return;
	}
	pty_watch(pty, exec);
	pty->follower.sent[0] = pty_replay_start(exec, pty->replay);
	if (pty->rows && pty->columns && !pty->read_only && !exec_ended(exec) &&
	    exec_resize(exec, pty->rows, pty->columns, &error) < 0) {
		pty_leave(pty, &call->principal);
		reply_error(call, &error);
		return;
	}
	exec_follower_changed(&pty->follower);
}

static void pty_attach_act(struct call *call, struct sandbox *sandbox)
{
	struct pty *pty = call->state;
	pty_attach(pty, sandbox, pty->job ? pty->job : call->parameters[1]);
}

static int pty_parse(struct call *call, struct pty *pty, struct error *error)
{
	if (web_socket_check(call, error) < 0 || call_query(call, pty, error) < 0)
		return -1;
	/* The route also admits read-only tokens, but only to watch. */
	if (!pty->read_only && token_admit(&call->principal, SCOPE_WRITE, false, error) < 0)
		return -1;
	return 0;
}

static struct pty *pty_new(struct call *call)
{
	struct pty *pty = calloc(1, sizeof(*pty));
	if (!pty)
		abort();
	pty->call = call;
	pty->follower = (struct exec_follower){
	    .call = call, .emitter = &pty_emitter, .blocked = &pty->socket.blocked};
	pty->left = BUFFER(INPUT_MAX);
	call->state = pty;
	call->state_free = pty_free;
	return pty;
}

void exec_pty_get(struct call *call)
{
	struct pty *pty = pty_new(call);
	struct error error;
	if (pty_parse(call, pty, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	/* A client that attaches to a job leaves it running; one that begins a terminal ends it. */
	if (!pty->detach_given)
		pty->detach = pty->job != NULL;
	if (!pty->job && !pty->rows)
		pty->rows = ROWS_DEFAULT;
	if (!pty->job && !pty->columns)
		pty->columns = COLUMNS_DEFAULT;
	call_ready(call, pty->job ? pty_attach_act : pty_begin_act);
}

void exec_tty_get(struct call *call)
{
	struct pty *pty = pty_new(call);
	struct error error;
	pty->detach = true;
	if (pty_parse(call, pty, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	/* Watching wakes nothing. */
	if (!pty->read_only) {
		call_ready(call, pty_attach_act);
		return;
	}
	struct sandbox *sandbox = call_sandbox(call);
	if (sandbox)
		pty_attach_act(call, sandbox);
}
