/* See exec_follower.h. Called by all forms of streamed output, on the loop; nothing blocks but
 * reads from the page cache. */
#include "edge/exec_follower.h"

#include "base/text.h"

bool exec_follower_pull(struct exec_follower *follower, enum exec_stream stream, uint64_t end,
			bool last)
{
	static char data[FILE_CHUNK_MAX]; /* one loop, one piece at a time */
	const struct exec_emitter *emitter = follower->emitter;
	uint64_t *sent = &follower->sent[stream - 1], gap = 0;
	if (*sent >= end)
		return false;
	size_t room = (size_t)MIN(emitter->piece_max, end - *sent);
	ssize_t size = exec_read(follower->exec, stream, *sent, data, room, &gap);
	if (gap > 0) {
		gap = MIN(gap, end - *sent);
		if (emitter->gap)
			emitter->gap(follower, stream, gap);
		*sent += gap;
		size = MIN(size, (ssize_t)MIN(end - *sent, room));
	}
	if (size < 0 && emitter->unreadable) {
		emitter->unreadable(follower);
		return false;
	}
	size_t whole = size > 0 ? (size_t)size : 0;
	if (emitter->characters && whole > 0) {
		whole = text_utf8_prefix(data, (size_t)size);
		/* The rest of the last character never came. */
		if (whole == 0 && last)
			whole = (size_t)size;
	}
	if (whole > 0) {
		emitter->piece(follower, stream, data, whole);
		*sent += whole;
	}
	exec_watcher_consumed(&follower->watcher, stream, *sent);
	return whole > 0 || gap > 0;
}

/* For a running exec only the output that the init has reported; after its end the whole log. */
static bool follower_pull_known(struct exec_follower *follower, enum exec_stream stream)
{
	struct exec *exec = follower->exec;
	if (follower->watcher.only && follower->watcher.only != stream)
		return false;
	return (exec_ended(exec) || follower->sent[stream - 1] < exec_total(exec, stream)) &&
	       exec_follower_pull(follower, stream, follower->end ? *follower->end : UINT64_MAX,
				  exec_ended(exec));
}

static bool follower_at_end(const struct exec_follower *follower)
{
	return exec_ended(follower->exec) ||
	       (follower->end && follower->sent[follower->watcher.only - 1] >= *follower->end);
}

static bool follower_can_send(const struct exec_follower *follower)
{
	return follower->exec && !*follower->blocked;
}

void exec_follower_pump(struct exec_follower *follower)
{
	struct call *call = call_hold(follower->call);
	bool more = true;
	while (more && follower_can_send(follower)) {
		more = follower_pull_known(follower, EXEC_STDOUT);
		if (follower_can_send(follower))
			more |= follower_pull_known(follower, EXEC_STDERR);
	}
	if (follower_can_send(follower) && follower_at_end(follower) && !follower->ended) {
		follower->ended = true;
		follower->emitter->ended(follower);
	}
	call_release(call);
}

void exec_follower_changed(struct exec_follower *follower)
{
	const struct exec *exec = follower->exec;
	struct error error;
	if (exec->row.state == EXEC_STARTING)
		return;
	struct call *call = call_hold(follower->call);
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		exec_follower_leave(follower);
		follower->emitter->failed(follower, &error);
	} else {
		if (follower->emitter->running)
			follower->emitter->running(follower);
		exec_follower_pump(follower);
	}
	call_release(call);
}

static void follower_on_change(struct exec_watcher *watcher, struct exec *exec)
{
	(void)exec;
	exec_follower_changed(container_of(watcher, struct exec_follower, watcher));
}

static void follower_forgotten(struct exec_watcher *watcher)
{
	struct exec_follower *follower = container_of(watcher, struct exec_follower, watcher);
	struct call *call = call_hold(follower->call);
	struct error error;
	core_forgotten_error(call->core, &call->sandbox, &error);
	follower->exec = NULL;
	follower->emitter->failed(follower, &error);
	call_release(call);
}

void exec_follower_begin(struct exec_follower *follower, struct exec *exec)
{
	follower->exec = exec;
	follower->watcher.changed = follower_on_change;
	follower->watcher.forgotten = follower_forgotten;
	exec_watch(exec, &follower->watcher);
}

void exec_follower_leave(struct exec_follower *follower)
{
	if (follower->exec)
		exec_unwatch(&follower->watcher);
	follower->exec = NULL;
}

bool exec_follower_others(const struct exec_follower *follower)
{
	list_each (&follower->exec->watchers, node) {
		const struct exec_watcher *watcher = list_entry(node, struct exec_watcher, link);
		if (watcher != &follower->watcher && watcher->changed == follower_on_change &&
		    container_of(watcher, struct exec_follower, watcher)->emitter ==
			follower->emitter)
			return true;
	}
	return false;
}
