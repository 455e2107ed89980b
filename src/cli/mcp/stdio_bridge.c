/* `caisson mcp` on standard input and output: one poll() loop that carries lines between the client
 * and the daemon over one upgraded connection. Only whole lines are passed on: a daemon that dies
 * in the middle of a line leaves no partial line on standard output.
 *
 * When the daemon is lost, the bridge reconnects (and starts a daemon if none runs). Pending
 * requests are answered with an error that says how to find their result. The settings of the
 * session are sent to the new daemon (pending_requests.c), and the client continues. Back-pressure:
 * the client is not read while the daemon accepts nothing; the daemon is not read while
 * MCP_HELD_MAX bytes wait for the client.
 *
 * Blocks in poll(), and while it connects. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/mcp/mcp.h"

#define READ_SIZE (64 * KIB)
/* The longest line from the daemon: its answers have at most 16 MiB, already escaped. */
#define ANSWER_LINE_MAX (24 * MIB)
#define MCP_HELD_MAX (32 * MIB)
#define SENT_MAX (4 * MCP_LINE_MAX)
/* How long a daemon may be unreachable before the client gets errors. */
#define RECONNECT_NS (20 * NSEC_PER_SEC)
#define RETRY_NS (100 * NSEC_PER_MSEC)
/* After the client has closed its input: how long to wait while no data moves. */
#define LEAVE_NS (5 * NSEC_PER_SEC)

enum link { LINK_DOWN, LINK_ASKED, LINK_UP };

/* Bytes that wait to be written. */
struct outgoing_bytes {
	struct buffer bytes;
	size_t sent;
};

struct bridge {
	struct client *client;
	const char *path;
	struct exchange *exchange;
	enum link link;
	bool ever_up, given_up;
	bool wanted;             /* LINK_DOWN: the client has sent a line */
	int64_t lost_at, try_at; /* LINK_DOWN */
	struct error why;        /* why the last connect failed */
	struct buffer input;     /* from the client: less than a line */
	bool skipping;           /* skipping the rest of a line that is too long */
	struct message_id id;    /* the id in that line */
	bool input_end;
	bool half_closed;
	int64_t leave_at;
	struct buffer answers; /* from the daemon: less than a line */
	struct outgoing_bytes to_daemon, to_client;
	struct mcp_messages messages;
};

static size_t outgoing_size(const struct outgoing_bytes *outgoing)
{
	return outgoing->bytes.size - outgoing->sent;
}

/* Removes sent bytes from the buffer when that is cheap: when all or most of them are sent. */
static void outgoing_consume(struct outgoing_bytes *outgoing, size_t size)
{
	outgoing->sent += size;
	if (outgoing->sent == outgoing->bytes.size) {
		buffer_done(&outgoing->bytes);
		outgoing->sent = 0;
	} else if (outgoing->sent > outgoing->bytes.size / 2) {
		buffer_consume(&outgoing->bytes, outgoing->sent);
		outgoing->sent = 0;
	}
}

/* Cannot happen: both sides check the bounds first. */
static int line_too_long_error(struct error *error)
{
	return error_set(error, ERROR_TOO_LARGE, "too many bytes wait to be sent");
}

/* --- the daemon --- */

#define LOST_TEXT                                                                                  \
	"the connection to the Caisson daemon was lost while this request was under way, so it "   \
	"is not known whether it was carried out. Sandboxes and their commands go on: "            \
	"list_sandboxes shows them, read_job their jobs and output. The connection comes back by " \
	"itself; call again if doing it twice is no harm."

static int bridge_lose_link(struct bridge *bridge, struct error *error)
{
	struct buffer *out = &bridge->to_client.bytes;
	exchange_done(bridge->exchange);
	bridge->link = LINK_DOWN;
	bridge->lost_at = bridge->try_at = clock_monotonic();
	bridge->wanted = false;
	buffer_clear(&bridge->answers);
	buffer_done(&bridge->to_daemon.bytes);
	bridge->to_daemon.sent = 0;
	if (mcp_pending_fail(&bridge->messages, NULL, LOST_TEXT, out) < 0)
		return line_too_long_error(error);
	/* An unanswered initialize had no effect: send it again. */
	mcp_initialize_append(&bridge->messages, &bridge->to_daemon.bytes);
	return 0;
}

static void bridge_connect_failed(struct bridge *bridge, const struct error *why)
{
	int64_t now = clock_monotonic();
	exchange_done(bridge->exchange);
	bridge->link = LINK_DOWN;
	bridge->why = *why;
	bridge->try_at = now + RETRY_NS;
	if (now - bridge->lost_at > RECONNECT_NS)
		bridge->given_up = true;
}

static void bridge_connect(struct bridge *bridge)
{
	struct error why;
	/* The daemon may have been stopped on purpose: start one only for a request of the client.
	 */
	bridge->client->no_start = bridge->ever_up && !bridge->wanted;
	if (mcp_lines_open(bridge->client, bridge->path, bridge->exchange, &why) < 0)
		bridge_connect_failed(bridge, &why);
	else
		bridge->link = LINK_ASKED;
}

/* Puts the session's settings before the lines that wait: a new daemon needs them first. */
static int bridge_replay_session(struct bridge *bridge)
{
	struct buffer waiting = bridge->to_daemon.bytes;
	bridge->to_daemon = (struct outgoing_bytes){.bytes = BUFFER(SENT_MAX)};
	int result = mcp_replay_append(&bridge->messages, &bridge->to_daemon.bytes);
	if (result == 0 && waiting.size > 0)
		result = buffer_append(&bridge->to_daemon.bytes, waiting.data, waiting.size);
	buffer_done(&waiting);
	return result;
}

static int bridge_take_answers(struct bridge *bridge, const char *data, size_t size,
			       struct error *error);

static int bridge_link_open(struct bridge *bridge, struct error *error)
{
	struct exchange *exchange = bridge->exchange;
	bridge->link = LINK_UP;
	if (bridge->ever_up && bridge_replay_session(bridge) < 0)
		return line_too_long_error(error);
	bridge->ever_up = true;
	bridge->given_up = bridge->wanted = false;
	if (exchange->tls && fd_set_nonblocking(exchange->fd) < 0)
		return error_set(error, ERROR_INTERNAL, "the daemon's socket");
	size_t start = exchange->start, size = exchange->end - exchange->start;
	exchange->start = exchange->end = 0;
	return bridge_take_answers(bridge, exchange->buffer + start, size, error);
}

static int bridge_read_head(struct bridge *bridge, struct error *error)
{
	struct error why;
	if (mcp_lines_read_head(bridge->exchange, &why) == 0)
		return bridge_link_open(bridge, error);
	if (!bridge->ever_up) {
		*error = why;
		return -1;
	}
	/* Waiting does not help against this refusal (for example, the token has expired): answer
	 * the client now. */
	if (!error_info(why.kind)->retryable)
		bridge->lost_at = 0;
	bridge_connect_failed(bridge, &why);
	return 0;
}

static int bridge_take_answers(struct bridge *bridge, const char *data, size_t size,
			       struct error *error)
{
	struct buffer *answers = &bridge->answers;
	while (size > 0) {
		const char *end = memchr(data, '\n', size);
		size_t piece = end ? (size_t)(end - data) : size;
		if (buffer_append(answers, data, piece) < 0)
			return error_set(error, ERROR_INTERNAL, "the daemon sent too long a line");
		data += piece;
		size -= piece;
		if (!end)
			break;
		data++;
		size--;
		if (answers->size == 0)
			continue;
		if (mcp_message_received(&bridge->messages, answers->data, answers->size)) {
			struct buffer *out = &bridge->to_client.bytes;
			if (buffer_append(out, answers->data, answers->size) < 0 ||
			    buffer_append(out, "\n", 1) < 0)
				return line_too_long_error(error);
		}
		buffer_clear(answers);
	}
	return 0;
}

static int bridge_receive(struct bridge *bridge, struct error *error)
{
	static char data[READ_SIZE];
	ssize_t got = exchange_receive(bridge->exchange, data, sizeof(data));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got <= 0)
		return bridge_lose_link(bridge, error);
	return bridge_take_answers(bridge, data, (size_t)got, error);
}

/* Never waits: the daemon may not read from us before we have read from it. */
static int bridge_send_some(struct bridge *bridge, struct error *error)
{
	struct outgoing_bytes *out = &bridge->to_daemon;
	struct exchange *exchange = bridge->exchange;
	const char *data = out->bytes.data + out->sent;
	ssize_t put = exchange_send(exchange, data, outgoing_size(out), MSG_DONTWAIT);
	if (put < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (put <= 0)
		return bridge_lose_link(bridge, error);
	outgoing_consume(out, (size_t)put);
	return 0;
}

/* --- the client --- */

static int bridge_refuse_long_line(struct bridge *bridge, struct error *error)
{
	json_t *id = mcp_id_json(&bridge->id);
	FREE_TEXT char *shown = id ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	json_decref(id);
	return buffer_printf(&bridge->to_client.bytes,
			     "{\"jsonrpc\":\"2.0\",%s%s%s\"error\":{\"code\":-32600,\"message\":"
			     "\"" MCP_TOO_LONG "\"}}\n",
			     shown ? "\"id\":" : "", shown ? shown : "", shown ? "," : "",
			     (unsigned long long)MCP_LINE_MAX) < 0
		   ? line_too_long_error(error)
		   : 0;
}

/* No daemon: answers each request of the line with an error. */
static int bridge_refuse_line(struct bridge *bridge, const json_t *ids, struct error *error)
{
	char text[ERROR_MESSAGE_MAX + 128];
	snprintf(text, sizeof(text), "the Caisson daemon cannot be reached: %s",
		 bridge->why.message);
	return mcp_pending_fail(&bridge->messages, ids, text, &bridge->to_client.bytes) < 0
		   ? line_too_long_error(error)
		   : 0;
}

static int bridge_take_line(struct bridge *bridge, const char *line, size_t size,
			    struct error *error)
{
	size_t blank = 0;
	while (blank < size && strchr(" \t\r", line[blank]) && line[blank])
		blank++;
	if (blank == size)
		return 0;
	json_t *ids = json_array();
	int result = 0;
	mcp_message_sent(&bridge->messages, line, size, ids);
	bridge->wanted = true;
	if (bridge->link == LINK_DOWN)
		bridge_connect(bridge);
	if (bridge->link == LINK_DOWN) {
		result = bridge_refuse_line(bridge, ids, error);
	} else if (buffer_append(&bridge->to_daemon.bytes, line, size) < 0 ||
		   buffer_append(&bridge->to_daemon.bytes, "\n", 1) < 0) {
		result = line_too_long_error(error);
	}
	json_decref(ids);
	return result;
}

static int bridge_take_input(struct bridge *bridge, const char *data, size_t size,
			     struct error *error)
{
	struct buffer *input = &bridge->input;
	while (size > 0) {
		const char *end = memchr(data, '\n', size);
		size_t piece = end ? (size_t)(end - data) : size;
		if (!bridge->skipping && buffer_append(input, data, piece) < 0) {
			bridge->skipping = true;
			bridge->id = (struct message_id){0};
			message_id_feed(&bridge->id, input->data, input->size);
			buffer_done(input);
		}
		if (bridge->skipping)
			message_id_feed(&bridge->id, data, piece);
		data += piece;
		size -= piece;
		if (!end)
			break;
		data++;
		size--;
		if ((bridge->skipping
			 ? bridge_refuse_long_line(bridge, error)
			 : bridge_take_line(bridge, buffer_text(input), input->size, error)) < 0)
			return -1;
		bridge->skipping = false;
		buffer_done(input);
	}
	return 0;
}

static int bridge_read_input(struct bridge *bridge, struct error *error)
{
	static char data[READ_SIZE];
	ssize_t got = read(STDIN_FILENO, data, sizeof(data));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got > 0)
		return bridge_take_input(bridge, data, (size_t)got, error);
	/* A last line without a line end counts as a line. */
	bool begun = bridge->input.size > 0 || bridge->skipping;
	int result = bridge_take_input(bridge, "\n", begun ? 1 : 0, error);
	bridge->input_end = true;
	bridge->leave_at = clock_monotonic() + LEAVE_NS;
	return result;
}

/* Never waits, whatever our standard output is: a socket is written without waiting, and a pipe
 * that poll() reports writable accepts this much. */
static ssize_t stdout_write_some(const char *data, size_t size)
{
	ssize_t put = send(STDOUT_FILENO, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (put < 0 && errno == ENOTSOCK)
		put = write(STDOUT_FILENO, data, MIN(size, (size_t)PIPE_BUF));
	return put;
}

/* 1: our reader has closed standard output. */
static int bridge_write_output(struct bridge *bridge, struct error *error)
{
	struct outgoing_bytes *out = &bridge->to_client;
	ssize_t put = stdout_write_some(out->bytes.data + out->sent, outgoing_size(out));
	if (put < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (put < 0 && errno == EPIPE)
		return 1;
	if (put < 0)
		return error_set_errno(error, ERROR_CANCELLED, errno, "standard output");
	bridge->leave_at = clock_monotonic() + LEAVE_NS;
	outgoing_consume(out, (size_t)put);
	return 0;
}

/* --- the loop --- */

enum { POLL_INPUT, POLL_OUTPUT, POLL_DAEMON, POLL_COUNT };

static void bridge_fill_poll(const struct bridge *bridge, struct pollfd fds[POLL_COUNT])
{
	bool down = bridge->link != LINK_UP;
	bool room = outgoing_size(&bridge->to_client) < MCP_HELD_MAX;
	/* While we reconnect, the client's lines wait. Its hang-up is still noticed. */
	bool take =
	    (!down || bridge->given_up) && outgoing_size(&bridge->to_daemon) < READ_SIZE && room;
	bool look = !bridge->input_end && (take || (down && bridge->ever_up));
	fds[POLL_INPUT] = (struct pollfd){.fd = look ? STDIN_FILENO : -1,
					  .events = take || !bridge->wanted ? POLLIN : 0};
	fds[POLL_OUTPUT] = (struct pollfd){.fd = STDOUT_FILENO};
	if (outgoing_size(&bridge->to_client) > 0)
		fds[POLL_OUTPUT].events = POLLOUT;
	fds[POLL_DAEMON] = (struct pollfd){
	    .fd = bridge->link == LINK_DOWN || !room ? -1 : bridge->exchange->fd, .events = POLLIN};
	if (bridge->link == LINK_UP && outgoing_size(&bridge->to_daemon) > 0) {
		fds[POLL_DAEMON].fd = bridge->exchange->fd;
		fds[POLL_DAEMON].events = room ? POLLIN | POLLOUT : POLLOUT;
	}
}

static int bridge_timeout(const struct bridge *bridge)
{
	int64_t now = clock_monotonic(), at = INT64_MAX;
	if (bridge->link == LINK_DOWN && !bridge->given_up)
		at = bridge->try_at;
	if (bridge->input_end)
		at = MIN(at, bridge->leave_at);
	if (bridge->link == LINK_UP && exchange_has_input(bridge->exchange))
		at = now;
	if (at == INT64_MAX)
		return -1;
	return (int)((MAX(at - now, 0) + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
}

/* The client has closed its input: closes our sending side to the daemon and passes on what it
 * still sends. True when the bridge may end. */
static bool bridge_leave(struct bridge *bridge)
{
	if (bridge->link == LINK_UP && !bridge->half_closed &&
	    outgoing_size(&bridge->to_daemon) == 0) {
		bridge->half_closed = true;
		exchange_half_close(bridge->exchange);
	}
	bool over = bridge->link != LINK_UP && outgoing_size(&bridge->to_client) == 0;
	return over || clock_monotonic() >= bridge->leave_at;
}

static int bridge_serve_daemon(struct bridge *bridge, short events, struct error *error)
{
	bool pending = bridge->link == LINK_UP && exchange_has_input(bridge->exchange);
	if (bridge->link == LINK_ASKED && events)
		return bridge_read_head(bridge, error);
	if (bridge->link == LINK_UP && (events & ~POLLOUT || pending) &&
	    bridge_receive(bridge, error) < 0)
		return -1;
	if (bridge->link == LINK_UP && events & POLLOUT && outgoing_size(&bridge->to_daemon) > 0)
		return bridge_send_some(bridge, error);
	return 0;
}

/* After our sending side is closed, the end of the connection is expected, not a loss. */
static int bridge_serve_leaving(struct bridge *bridge, short events, struct error *error)
{
	static char data[READ_SIZE];
	if (!events && !exchange_has_input(bridge->exchange))
		return 0;
	ssize_t got = exchange_receive(bridge->exchange, data, sizeof(data));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	bridge->leave_at = clock_monotonic() + LEAVE_NS;
	if (got > 0)
		return bridge_take_answers(bridge, data, (size_t)got, error);
	exchange_done(bridge->exchange);
	bridge->link = LINK_DOWN;
	bridge->given_up = true;
	return 0;
}

static int bridge_loop(struct bridge *bridge, struct error *error)
{
	for (;;) {
		struct pollfd fds[POLL_COUNT];
		if (bridge->input_end && bridge_leave(bridge))
			return 0;
		if (bridge->link == LINK_DOWN && !bridge->given_up &&
		    clock_monotonic() >= bridge->try_at) {
			bridge_connect(bridge);
			if (bridge->link == LINK_DOWN && !bridge->ever_up) {
				*error = bridge->why;
				return -1;
			}
		}
		bridge_fill_poll(bridge, fds);
		if (poll(fds, POLL_COUNT, bridge_timeout(bridge)) < 0 && errno != EINTR)
			return error_set_errno(error, ERROR_INTERNAL, errno, "poll");
		/* The reader of our output has gone, or the client has gone while no daemon was
		 * there. */
		if (fds[POLL_OUTPUT].revents & (POLLERR | POLLNVAL))
			return 128 + SIGPIPE;
		if (bridge->link != LINK_UP && !bridge->given_up) {
			if (fds[POLL_INPUT].revents & (POLLHUP | POLLERR))
				return 0;
			bridge->wanted |= fds[POLL_INPUT].revents & POLLIN;
			fds[POLL_INPUT].revents = 0;
		}
		int result = 0;
		if (fds[POLL_OUTPUT].revents && outgoing_size(&bridge->to_client) > 0)
			result = bridge_write_output(bridge, error);
		if (result == 0)
			result = bridge->half_closed && bridge->link == LINK_UP
				     ? bridge_serve_leaving(bridge, fds[POLL_DAEMON].revents, error)
				     : bridge_serve_daemon(bridge, fds[POLL_DAEMON].revents, error);
		if (result == 0 && fds[POLL_INPUT].revents && !bridge->input_end)
			result = bridge_read_input(bridge, error);
		if (result != 0)
			return result < 0 ? -1 : 128 + SIGPIPE;
	}
}

int mcp_bridge_run(struct client *client, const char *path, struct error *error)
{
	struct bridge bridge = {.client = client,
				.path = path,
				.exchange = calloc(1, sizeof(struct exchange)),
				.input = BUFFER(MCP_LINE_MAX),
				.answers = BUFFER(ANSWER_LINE_MAX),
				.to_daemon = {.bytes = BUFFER(SENT_MAX)},
				.to_client = {.bytes = BUFFER(MCP_HELD_MAX + 2 * ANSWER_LINE_MAX)},
				.lost_at = clock_monotonic()};
	if (!bridge.exchange)
		abort();
	bridge.exchange->fd = -1;
	signal(SIGPIPE, SIG_IGN);
	mcp_messages_init(&bridge.messages);
	int result = bridge_loop(&bridge, error);
	exchange_done(bridge.exchange);
	free(bridge.exchange);
	buffer_done(&bridge.input);
	buffer_done(&bridge.answers);
	buffer_done(&bridge.to_daemon.bytes);
	buffer_done(&bridge.to_client.bytes);
	mcp_messages_done(&bridge.messages);
	return result;
}
