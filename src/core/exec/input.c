/* Data to an exec: its standard input, signals, the size of its terminal; and those that must also
 * arrive if the connection to the sandbox was lost meanwhile. Called by the edges and by frames.c;
 * nothing blocks. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"

#define SIGNAL_BIT(signal) (1ULL << ((signal)-1))

/* --- standard input --- */

static int exec_refuse_ended(const struct exec *exec, struct error *error)
{
	return error_set(error, ERROR_SANDBOX_STATE, "exec `%s` has ended", exec->row.id.text);
}

ssize_t exec_stdin(struct exec *exec, const void *data, size_t size, struct error *error)
{
	struct sandbox *sandbox = exec->sandbox;
	const char *from = data;
	size_t taken = 0;
	if (exec_ended(exec))
		return exec_refuse_ended(exec, error);
	if (exec->stdin_closed)
		return error_set(error, ERROR_INVALID, "exec `%s` has no open standard input",
				 exec->row.id.text);
	if (exec->stdin_broken)
		return error_set(error, ERROR_GUEST_GONE,
				 "the connection to the sandbox was lost while exec `%s` was being "
				 "fed; its input is not whole",
				 exec->row.id.text);
	while (taken < size && exec->stdin_credit > 0) {
		if (sandbox->guest && guest_link_room(sandbox->guest) == 0)
			break;
		size_t part = MIN(MIN(size - taken, exec->stdin_credit), FILE_CHUNK_MAX);
		if (sandbox_send(sandbox, FRAME_STDIN, exec->row.key, from + taken, part, NULL, 0,
				 error) < 0)
			return -1;
		exec->stdin_credit -= part;
		taken += part;
	}
	exec->stdin_wanted = taken < size;
	return (ssize_t)taken;
}

int exec_stdin_close(struct exec *exec, struct error *error)
{
	if (exec->stdin_closed || exec_ended(exec))
		return 0;
	if (sandbox_send(exec->sandbox, FRAME_STDIN_CLOSE, exec->row.key, NULL, 0, NULL, 0, error) <
	    0)
		return -1;
	exec->stdin_closed = true;
	return 0;
}

/* The link's queue has room again, or there is a new link. */
void exec_drained(struct sandbox *sandbox)
{
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (!exec->stdin_wanted || exec_ended(exec))
			continue;
		exec->stdin_wanted = false;
		exec_notify(exec);
	}
}

bool stdin_lost(const struct exec *exec, struct error *error)
{
	if (exec_ended(exec) || exec->stdin_closed || !exec->stdin_broken)
		return false;
	error_set(error, ERROR_GUEST_GONE,
		  "the connection to the sandbox was lost while exec `%s` was being fed; its input "
		  "is not whole, so it is cancelled",
		  exec->row.id.text);
	return true;
}

struct feed {
	struct exec_watcher watcher;
	char *data;
	size_t size, at;
};

static void feed_end(struct feed *feed)
{
	exec_unwatch(&feed->watcher);
	free(feed->data);
	free(feed);
}

static void feed_forgotten(struct exec_watcher *watcher)
{
	feed_end(container_of(watcher, struct feed, watcher));
}

static void feed_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct feed *feed = container_of(watcher, struct feed, watcher);
	struct error error;
	if (exec_ended(exec) || exec->stdin_closed) {
		feed_end(feed);
		return;
	}
	/* Partial input, or input without an end, would be worse than none. */
	if (stdin_lost(exec, &error)) {
		log_warning("exec %s is cancelled: %s", exec->row.id.text, error.message);
		exec_cancel(exec, NULL);
		feed_end(feed);
		return;
	}
	if (feed->at < feed->size) {
		ssize_t taken =
		    exec_stdin(exec, feed->data + feed->at, feed->size - feed->at, &error);
		if (taken > 0)
			feed->at += (size_t)taken;
	}
	/* A refusal means a lost connection: the rest is sent after the reconnect. */
	if (feed->at == feed->size && exec_stdin_close(exec, &error) == 0)
		feed_end(feed);
}

void stdin_feed(struct exec *exec, char *data, size_t size)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	if (!feed)
		abort();
	feed->data = data;
	feed->size = size;
	feed->watcher.changed = feed_changed;
	feed->watcher.forgotten = feed_forgotten;
	exec_watch(exec, &feed->watcher);
	feed_changed(&feed->watcher, exec);
}

/* --- signals --- */

static int exec_send_signal(struct exec *exec, int signal, enum signal_scope scope,
			    struct error *error)
{
	uint8_t room[8];
	struct writer writer = writer_on(room, sizeof(room));
	struct signal_request request = {.signal = (uint32_t)signal, .scope = scope};
	signal_request_write(&writer, &request);
	return sandbox_send(exec->sandbox, FRAME_SIGNAL, exec->row.key, room, writer.size, NULL, 0,
			    error);
}

/* No process exists yet that could get the signal: it is sent when the command runs, and never if
 * the start fails. As with pending signals, stop and continue cancel each other. */
static void exec_hold_signal(struct exec *exec, int signal, enum signal_scope scope)
{
	const uint64_t stops =
	    SIGNAL_BIT(SIGSTOP) | SIGNAL_BIT(SIGTSTP) | SIGNAL_BIT(SIGTTIN) | SIGNAL_BIT(SIGTTOU);
	uint64_t undone = 0;
	if (signal == SIGCONT)
		undone = stops;
	else if (SIGNAL_BIT(signal) & stops)
		undone = SIGNAL_BIT(SIGCONT);
	exec->held_signals[SIGNAL_LEADER] &= ~undone;
	exec->held_signals[SIGNAL_TREE] &= ~undone;
	exec->held_signals[scope] |= SIGNAL_BIT(signal);
}

void exec_send_held(struct exec *exec)
{
	struct error error;
	for (int signal = 1; signal <= 64; signal++) {
		for (int scope = SIGNAL_LEADER; scope <= SIGNAL_TREE; scope++) {
			if (!(exec->held_signals[scope] & SIGNAL_BIT(signal)))
				continue;
			if (exec_send_signal(exec, signal, (enum signal_scope)scope, &error) < 0) {
				/* The rest is sent when the link is back. */
				log_info("exec %s: signal %d: %s", exec->row.id.text, signal,
					 error.message);
				return;
			}
			exec->held_signals[scope] &= ~SIGNAL_BIT(signal);
		}
	}
}

int exec_signal(struct exec *exec, const struct principal *principal, int signal,
		enum signal_scope scope, struct error *error)
{
	if (signal < 1 || signal > 64)
		return error_set(error, ERROR_INVALID, "there is no signal %d", signal);
	/* Its left-over processes can still be ended. */
	if (exec_ended(exec) && (scope != SIGNAL_TREE || exec->row.left_running == 0))
		return exec_refuse_ended(exec, error);
	/* Before the start the init can only cancel it. */
	if (exec->row.state == EXEC_STARTING && !(scope == SIGNAL_TREE && signal == SIGKILL))
		exec_hold_signal(exec, signal, scope);
	else if (exec_send_signal(exec, signal, scope, error) < 0)
		return -1;
	const char *name = sigabbrev_np(signal);
	/* The entries of code report it: code.ran has `interrupted`. */
	if (id_is_set(&exec->row.context))
		return 0;
	const char *leader = exec->row.flags & EXEC_TTY ? "foreground" : "leader";
	ACTIVITY(exec->sandbox, ACTIVITY_EXEC_SIGNALLED, principal, &exec->row.id,
		 {"signal", name ? name : "?"}, {"scope", scope == SIGNAL_TREE ? "tree" : leader});
	return 0;
}

int exec_resize(struct exec *exec, uint16_t rows, uint16_t columns, struct error *error)
{
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	if (!(exec->row.flags & EXEC_TTY))
		return error_set(error, ERROR_INVALID, "exec `%s` has no terminal",
				 exec->row.id.text);
	if (exec_ended(exec))
		return exec_refuse_ended(exec, error);
	write_u16(&writer, rows);
	write_u16(&writer, columns);
	return sandbox_send(exec->sandbox, FRAME_RESIZE, exec->row.key, room, sizeof(room), NULL, 0,
			    error);
}

/* --- signals that are not lost with the connection --- */

struct owed_signal {
	struct exec_watcher watcher;
	struct kept_principal caller;
	int signal;
};

static void owed_signal_end(struct exec_watcher *watcher)
{
	exec_unwatch(watcher);
	free(container_of(watcher, struct owed_signal, watcher));
}

static void owed_signal_send(struct exec_watcher *watcher, struct exec *exec)
{
	struct owed_signal *owed = container_of(watcher, struct owed_signal, watcher);
	struct error error;
	if (exec_ended(exec) || exec_signal(exec, kept_principal_get(&owed->caller), owed->signal,
					    SIGNAL_TREE, &error) == 0)
		owed_signal_end(watcher);
}

static void exec_signal_when_reachable(struct exec *exec, const struct principal *principal,
				       int signal)
{
	struct error error;
	if (exec_ended(exec) || exec_signal(exec, principal, signal, SIGNAL_TREE, &error) == 0)
		return;
	log_info("exec %s: signal %d as soon as its sandbox can be reached: %s", exec->row.id.text,
		 signal, error.message);
	struct owed_signal *owed = calloc(1, sizeof(*owed));
	if (!owed)
		abort();
	owed->signal = signal;
	owed->caller = principal_keep(principal);
	owed->watcher.changed = owed_signal_send;
	owed->watcher.forgotten = owed_signal_end;
	exec_watch(exec, &owed->watcher);
}

void exec_cancel(struct exec *exec, const struct principal *principal)
{
	exec_signal_when_reachable(exec, principal, SIGKILL);
}

void exec_hang_up(struct exec *exec, const struct principal *principal)
{
	exec_signal_when_reachable(exec, principal, SIGHUP);
}
