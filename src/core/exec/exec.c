/* Execs: their records and watchers, how they are found, and their description in words and numbers
 * that every edge shares. Called by the edges; blocks for the store only. start.c begins them;
 * input.c sends data to them, frames.c handles the init's frames about them, log.c has their
 * output. */
#include "core/exec/exec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/account/budget.h"
#include "core/code/code.h"
#include "core/core_private.h"

#define SIGNAL_MAX 64
#define TIMED_OUT_CODE 124 /* as timeout(1) */

struct exec *exec_new(struct sandbox *sandbox, struct exec_row *row)
{
	struct exec *exec = calloc(1, sizeof(*exec));
	if (!exec)
		abort();
	exec->sandbox = sandbox;
	exec->row = *row;
	*row = (struct exec_row){0};
	exec->logs[0].fd = exec->logs[1].fd = -1;
	exec->oom_kills_before = OOM_KILLS_UNKNOWN;
	exec->stage = exec_ended(exec)                  ? EXEC_STAGE_ENDED
		      : exec->row.state == EXEC_RUNNING ? EXEC_STAGE_RUNNING
							: EXEC_STAGE_STARTING;
	exec->written = exec_ended(exec) ? EXEC_WRITTEN : EXEC_NOT_WRITTEN;
	exec->log_counted = exec_settled(exec) ? exec_logs_size(&exec->row) : 0;
	list_init(&exec->watchers);
	list_init(&exec->left_queries);
	list_init(&exec->ending);
	list_append(&sandbox->execs, &exec->link);
	return exec;
}

void exec_free(struct exec *exec)
{
	list_remove(&exec->link);
	list_remove(&exec->ending);
	exec_logs_close(exec);
	exec_row_done(&exec->row);
	free(exec);
}

void exec_row_copy(const struct exec_row *from, struct exec_row *ret_row)
{
	*ret_row = *from;
	ret_row->command = from->command ? text_duplicate(from->command) : NULL;
	ret_row->error_message = from->error_message ? text_duplicate(from->error_message) : NULL;
}

struct exec *exec_by_key(struct sandbox *sandbox, uint64_t key)
{
	/* Newest last: recent execs are the ones that are usually asked for. */
	for (struct list *node = sandbox->execs.previous; node != &sandbox->execs;
	     node = node->previous) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (exec->row.key == key)
			return exec;
	}
	return NULL;
}

bool exec_ended(const struct exec *exec)
{
	return exec->row.state >= EXEC_ENDED;
}

bool exec_settled(const struct exec *exec)
{
	return exec->written == EXEC_WRITTEN && exec->row.left_running == 0;
}

bool exec_internal(const struct exec_row *row)
{
	/* An interpreter gets its code on standard input, and its output need not be lossless. */
	return id_is_set(&row->context) &&
	       (row->flags & (EXEC_STDIN | EXEC_LOSSLESS)) != EXEC_STDIN;
}

bool sandbox_has_running_exec(const struct sandbox *sandbox)
{
	list_each (&sandbox->execs, node) {
		const struct exec *exec = list_entry(node, struct exec, link);
		if (!exec_ended(exec) && !exec->idle)
			return true;
	}
	return false;
}

uint64_t exec_total(const struct exec *exec, enum exec_stream stream)
{
	return stream == EXEC_STDOUT ? exec->row.out_total : exec->row.err_total;
}

void exec_watch(struct exec *exec, struct exec_watcher *watcher)
{
	watcher->exec = exec;
	watcher->consumed = (struct output_totals){0};
	watcher->notified = exec->notified;
	list_append(&exec->watchers, &watcher->link);
}

static bool exec_is_consumed(const struct exec *exec)
{
	list_each (&exec->watchers, node)
		if (list_entry(node, struct exec_watcher, link)->consumes)
			return true;
	return false;
}

void exec_unwatch(struct exec_watcher *watcher)
{
	struct exec *exec = watcher->exec;
	list_remove(&watcher->link);
	watcher->exec = NULL;
	if (!exec)
		return;
	/* It may have been the slowest consumer, or the last. */
	if (watcher->consumes && exec->row.flags & EXEC_LOSSLESS && exec_ended(exec) &&
	    exec->row.left_running > 0 && !exec_is_consumed(exec))
		exec_reader_leaves(exec);
	else if (watcher->consumes)
		exec_acknowledge(exec);
	if (exec_ended(exec) && list_empty(&exec->watchers))
		exec_logs_close(exec);
}

void exec_notify(struct exec *exec)
{
	/* A callback may remove any watcher and add new ones, and all must stay in the list, which
	 * is searched for the slowest consumer. So each is moved to the end before its call, with
	 * the number of this round; new ones come after those. */
	uint64_t round = ++exec->notified;
	exec->telling++;
	if (exec_ended(exec))
		sandbox_notify(exec->sandbox);
	/* Listeners of the whole sandbox. In its call each may remove itself, but no other. */
	list_each (&exec->sandbox->life->exec_listeners, node) {
		struct exec_listener *listener = list_entry(node, struct exec_listener, link);
		listener->changed(listener, exec);
	}
	while (!list_empty(&exec->watchers)) {
		struct exec_watcher *watcher =
		    list_entry(exec->watchers.next, struct exec_watcher, link);
		if (watcher->notified >= round)
			break;
		watcher->notified = round;
		list_remove(&watcher->link);
		list_append(&exec->watchers, &watcher->link);
		watcher->changed(watcher, exec);
	}
	exec->telling--;
}

void exec_listen(struct sandbox *sandbox, struct exec_listener *listener)
{
	list_append(&sandbox->life->exec_listeners, &listener->link);
}

void exec_unlisten(struct exec_listener *listener)
{
	list_remove(&listener->link);
}

void exec_trim(struct sandbox *sandbox)
{
	uint32_t kept = 0;
	struct list *before;
	for (struct list *node = sandbox->execs.previous; node != &sandbox->execs; node = before) {
		struct exec *exec = list_entry(node, struct exec, link);
		before = node->previous;
		bool pinned = !exec_settled(exec) || exec->telling ||
			      !list_empty(&exec->watchers) || !list_empty(&exec->left_queries);
		if (!pinned && ++kept > EXECS_KEPT)
			exec_free(exec);
	}
}

int exec_find(struct sandbox *sandbox, const char *id, struct exec **ret_exec, struct error *error)
{
	struct id parsed;
	if (id_parse(id, &parsed) < 0)
		return error_set(error, ERROR_ID_MALFORMED, EXEC_ID_MALFORMED);
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (id_equal(&exec->row.id, &parsed)) {
			*ret_exec = exec;
			return 0;
		}
	}
	struct exec_row row = {0};
	int found = store_exec_get(sandbox->core->store, &sandbox->row.id, &parsed, &row, error);
	if (found < 0)
		return -1;
	if (found == 0)
		return error_set(error, ERROR_EXEC_NOT_FOUND, "sandbox `%s` has no exec `%s`",
				 sandbox->row.id.text, id);
	struct exec *exec = exec_new(sandbox, &row);
	/* An old exec is put before the others, and is freed first. */
	list_remove(&exec->link);
	list_append(sandbox->execs.next, &exec->link);
	exec->stdin_closed = true;
	sandbox_later(sandbox, exec_trim);
	*ret_exec = exec;
	return 0;
}

struct live_rows {
	struct sandbox *sandbox;
	struct list *rows;
	uint32_t count;
	uint64_t log_bytes;
	uint32_t live;
};

struct live_row {
	struct list link;
	struct exec_row row;
};

static bool live_row_load(void *data, const struct exec_row *row)
{
	struct live_rows *live = data;
	uint64_t *last_key = &live->sandbox->row.last_exec_key;
	live->count++;
	*last_key = MAX(*last_key, row->key);
	if (row->state >= EXEC_ENDED && row->left_running == 0)
		live->log_bytes += exec_logs_size(row);
	bool wanted = row->state == EXEC_STARTING || row->state == EXEC_RUNNING ||
		      (row->state == EXEC_ENDED && row->left_running > 0);
	if (!wanted || live->live >= 2 * EXEC_PER_SANDBOX_MAX)
		return true;
	struct live_row *loaded = calloc(1, sizeof(*loaded));
	if (!loaded)
		abort();
	exec_row_copy(row, &loaded->row);
	list_append(live->rows->next, &loaded->link);
	live->live++;
	return true;
}

int exec_load_live(struct sandbox *sandbox, struct error *error)
{
	struct list rows;
	list_init(&rows);
	struct live_rows live = {.sandbox = sandbox, .rows = &rows};
	int result =
	    store_exec_each(sandbox->core->store, &sandbox->row.id, live_row_load, &live, error);
	while (!list_empty(&rows)) {
		struct live_row *loaded = list_entry(rows.next, struct live_row, link);
		list_remove(&loaded->link);
		struct exec *exec = exec_new(sandbox, &loaded->row);
		/* It is unknown how much of its input the old daemon had sent; the driver of a code
		 * context can handle that. */
		exec->stdin_broken = !id_is_set(&exec->row.context);
		/* The init knows the rest of its time-out; the daemon uses the whole time-out
		 * again, which is long enough however long the exec was paused. */
		if (!exec_ended(exec) && exec->row.timeout_ms > 0)
			exec_watch_time(exec);
		activity_exec_loaded(exec);
		free(loaded);
	}
	sandbox->life->exec_rows = live.count;
	sandbox->life->log_bytes = live.log_bytes;
	return result;
}

/* How much of a stream every consumer has read. Without a consumer: what was acknowledged before,
 * or all if the reader has left. */
static uint64_t consumed_by_all(const struct exec *exec, enum exec_stream stream)
{
	uint64_t before = stream == EXEC_STDOUT ? exec->consumed.out : exec->consumed.err;
	uint64_t least = UINT64_MAX;
	list_each (&exec->watchers, node) {
		const struct exec_watcher *watcher = list_entry(node, struct exec_watcher, link);
		if (!watcher->consumes || (watcher->only && watcher->only != stream))
			continue;
		least = MIN(least,
			    stream == EXEC_STDOUT ? watcher->consumed.out : watcher->consumed.err);
	}
	if (least == UINT64_MAX)
		return exec->row.flags & EXEC_READER_LEFT ? exec_total(exec, stream) : before;
	/* A later consumer has not seen what was acknowledged before. A reader of the log may be
	 * ahead of the init's reports: that part is acknowledged after the report. */
	return MAX(before, MIN(least, exec_total(exec, stream)));
}

bool exec_has_consumer(const struct exec *exec)
{
	list_each (&exec->watchers, node) {
		const struct exec_watcher *watcher = list_entry(node, struct exec_watcher, link);
		if (watcher->consumes && !watcher->only)
			return true;
	}
	return false;
}

void exec_acknowledge(struct exec *exec)
{
	if (!(exec->row.flags & EXEC_LOSSLESS))
		return;
	/* A reader is done when it has read everything after the end: processes that were left
	 * running wait meanwhile, or it would never be. */
	if (exec_ended(exec) && !(exec->row.flags & EXEC_READER_LEFT))
		return;
	exec->consumed.out = consumed_by_all(exec, EXEC_STDOUT);
	exec->consumed.err = consumed_by_all(exec, EXEC_STDERR);
	/* In steps of a quarter of the ring; if the ring is full, the whole ring exceeds a step. */
	uint64_t step = exec->row.tail / 4;
	if (exec->consumed.out - exec->consumed_sent.out < step &&
	    exec->consumed.err - exec->consumed_sent.err < step)
		return;
	uint8_t room[16];
	struct writer writer = writer_on(room, sizeof(room));
	struct error error;
	output_totals_write(&writer, &exec->consumed);
	if (sandbox_send(exec->sandbox, FRAME_CONSUMED, exec->row.key, room, sizeof(room), NULL, 0,
			 &error) == 0)
		exec->consumed_sent = exec->consumed;
}

void exec_reader_leaves(struct exec *exec)
{
	struct error error;
	exec->row.flags |= EXEC_READER_LEFT;
	/* Only the next daemon needs the row. An end that is still to be written brings it. */
	if ((!exec_ended(exec) || exec->written == EXEC_WRITTEN) &&
	    store_exec_update(exec->sandbox->core->store, &exec->row, &error) < 0)
		log_error("exec %s cannot be stored: %s", exec->row.id.text, error.message);
	exec_acknowledge(exec);
}

void exec_watcher_consumed(struct exec_watcher *watcher, enum exec_stream stream, uint64_t offset)
{
	struct exec *exec = watcher->exec;
	if (!exec || !watcher->consumes)
		return;
	uint64_t *place = stream == EXEC_STDOUT ? &watcher->consumed.out : &watcher->consumed.err;
	*place = MAX(*place, offset);
	exec_acknowledge(exec);
}

void exec_link_lost(struct sandbox *sandbox)
{
	struct error error;
	error_set(&error, ERROR_GUEST_GONE, "the connection to sandbox `%s` was lost",
		  sandbox->row.id.text);
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		exec->stdin_broken |= exec->stdin_credit < FILE_WINDOW;
		/* It is unknown whether CONSUMED arrived, so it is sent again. */
		exec->consumed_sent = (struct output_totals){0};
		exec->left_running_requested = false;
		left_queries_finish(exec, NULL, 0, &error);
	}
	code_link_lost(sandbox);
}

void exec_forget(struct exec *exec)
{
	struct error error;
	error_set(&error, ERROR_EXEC_NOT_FOUND, "exec `%s` was removed", exec->row.id.text);
	left_queries_finish(exec, NULL, 0, &error);
	while (!list_empty(&exec->watchers)) {
		struct exec_watcher *watcher =
		    list_entry(exec->watchers.next, struct exec_watcher, link);
		list_remove(&watcher->link);
		watcher->exec = NULL;
		if (watcher->forgotten)
			watcher->forgotten(watcher);
	}
	exec_free(exec);
}

void exec_forget_all(struct sandbox *sandbox)
{
	while (!list_empty(&sandbox->life->exec_listeners)) {
		struct exec_listener *listener =
		    list_entry(sandbox->life->exec_listeners.next, struct exec_listener, link);
		exec_unlisten(listener);
		listener->forgotten(listener);
	}
	code_forget_all(sandbox);
	while (!list_empty(&sandbox->execs))
		exec_forget(list_entry(sandbox->execs.next, struct exec, link));
}

/* --- words and numbers --- */

void exec_start_error(const struct exec *exec, struct error *ret_error)
{
	error_set(ret_error, (enum error_kind)exec->row.error_kind, "%s",
		  exec->row.error_message ? exec->row.error_message
					  : "the command could not be started");
}

const struct exec_end_facts *exec_end_facts(uint32_t end)
{
	static const struct exec_end_facts facts[] = {
	    [EXEC_END_EXITED] = {"exited", "exited", NULL, 0, true},
	    [EXEC_END_SIGNALED] = {"signaled", "killed", "killed", 128, true},
	    [EXEC_END_TIMED_OUT] = {"timed_out", "timed_out", "time-out", TIMED_OUT_CODE},
	    [EXEC_END_CANCELLED] = {"cancelled", "cancelled", "cancelled", 128, true},
	    [EXEC_END_LOST] = {"lost", "lost", "lost", -1},
	    [EXEC_END_TOO_MANY_PROCESSES] = {"too_many_processes", "killed",
					     "killed: too many processes", 128, true},
	};
	_Static_assert(ARRAY_SIZE(facts) == EXEC_ENDS, "each end has its facts");
	return &facts[end < EXEC_ENDS ? end : EXEC_END_LOST];
}

int exec_exit_code(const struct exec_row *row)
{
	const struct exec_end_facts *facts = exec_end_facts(row->end);
	return facts->exit_code + (facts->with_code ? (int)row->code : 0);
}

const char *exec_state_text(const struct exec_row *row)
{
	return row->state == EXEC_STARTING  ? "starting"
	       : row->state == EXEC_RUNNING ? "running"
	       : row->state == EXEC_ENDED   ? exec_end_facts(row->end)->state
					    : "failed";
}

int signal_by_name(const char *name)
{
	uint64_t number;
	if (text_to_u64(name, 1, SIGNAL_MAX, &number) == 0)
		return (int)number;
	if (strncasecmp(name, "SIG", 3) == 0)
		name += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *known = sigabbrev_np(i);
		if (known && strcasecmp(known, name) == 0)
			return i;
	}
	return -1;
}

void shell_argv(const char *command, const char *argv[4])
{
	argv[0] = "/bin/sh";
	argv[1] = "-c";
	argv[2] = command;
	argv[3] = NULL;
}

/* --- its life as a table --- */

#define TRANSITION(from, event, to, action)                                                        \
	{                                                                                          \
		EXEC_STAGE_##from, EXEC_EVENT_##event, EXEC_STAGE_##to, EXEC_ACTION_##action       \
	}

static const struct {
	enum exec_stage from;
	enum exec_event event;
	enum exec_stage to;
	enum exec_action action;
} transitions[] = {
    TRANSITION(STARTING, STARTED, RUNNING, RUN),
    TRANSITION(STARTING, START_FAILED, ENDED, FAIL),
    TRANSITION(STARTING, LISTED, RUNNING, RUN),
    TRANSITION(STARTING, UNLISTED, ENDED, FAIL),
    TRANSITION(STARTING, EXITED, ENDED, END), /* an earlier connection reported its start */
    TRANSITION(STARTING, KILLED, ASKING, ASK),
    TRANSITION(STARTING, GONE, STARTING, BREAK),
    TRANSITION(STARTING, OVERDUE, GIVEN_UP, GIVE_UP),
    TRANSITION(STARTING, LOST, ENDED, LOSE),

    TRANSITION(RUNNING, STARTED, RUNNING, BREAK),
    TRANSITION(RUNNING, START_FAILED, RUNNING, BREAK),
    TRANSITION(RUNNING, UNLISTED, ENDED, LOSE),
    TRANSITION(RUNNING, EXITED, ENDED, END),
    TRANSITION(RUNNING, KILLED, ASKING, ASK),
    TRANSITION(RUNNING, GONE, RUNNING, BREAK),
    TRANSITION(RUNNING, OVERDUE, GIVEN_UP, GIVE_UP),
    TRANSITION(RUNNING, LOST, ENDED, LOSE),

    TRANSITION(ASKING, STARTED, ASKING, BREAK),
    TRANSITION(ASKING, START_FAILED, ASKING, BREAK),
    TRANSITION(ASKING, COUNTED, ENDED, END),
    TRANSITION(ASKING, LOST, ENDED, END),

    TRANSITION(GIVEN_UP, START_FAILED, ENDED, NONE),
    TRANSITION(GIVEN_UP, UNLISTED, ENDED, NONE),
    TRANSITION(GIVEN_UP, EXITED, ENDED, LEAVE),
    TRANSITION(GIVEN_UP, KILLED, ENDED, LEAVE),
    TRANSITION(GIVEN_UP, LOST, ENDED, NONE),

    TRANSITION(ENDED, STARTED, ENDED, BREAK),
    TRANSITION(ENDED, START_FAILED, ENDED, BREAK),
};

enum exec_action exec_stage_step(enum exec_stage *stage, enum exec_event event)
{
	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
		if (transitions[i].from != *stage || transitions[i].event != event)
			continue;
		*stage = transitions[i].to;
		return transitions[i].action;
	}
	return EXEC_ACTION_NONE;
}
