/* Execs: begun, followed, fed, signalled, found again. Called by the edges; blocks for the store
 * and for two small files only. What the init says of them is in frames.c, their logs in
 * log.c. */
#include "core/exec/exec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/account/budget.h"
#include "core/code/code.h"
#include "core/core_private.h"

#define COMMAND_MAX 1024
#define SIGNAL_BIT(signal) (1ULL << ((signal)-1))
/* A lossless exec needs a ring to go round in. */
#define LOSSLESS_TAIL_MIN (64 * KIB)

struct exec *exec_new(struct sandbox *sandbox, struct exec_row *row)
{
	struct exec *exec = calloc(1, sizeof(*exec));
	if (!exec)
		abort();
	exec->sandbox = sandbox;
	exec->row = *row;
	exec->stage = exec_stage_of(row->state);
	*row = (struct exec_row){0};
	exec->logs[0].fd = exec->logs[1].fd = -1;
	exec->oom_kills_before = OOM_KILLS_UNKNOWN;
	list_init(&exec->watchers);
	list_init(&exec->left_queries);
	list_append(&sandbox->execs, &exec->link);
	return exec;
}

void exec_free(struct exec *exec)
{
	list_remove(&exec->link);
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
	/* Newest last, and those are the ones that are talked about. */
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
	return exec->row.state == EXEC_ENDED || exec->row.state == EXEC_FAILED;
}

bool exec_internal(const struct exec_row *row)
{
	/* An interpreter is fed its code, and may lose output. */
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

void exec_watch(struct exec *exec, struct exec_watcher *watcher)
{
	watcher->exec = exec;
	watcher->consumed = (struct output_totals){0};
	watcher->notified = exec->notified;
	list_append(&exec->watchers, &watcher->link);
}

void exec_unwatch(struct exec_watcher *watcher)
{
	struct exec *exec = watcher->exec;
	list_remove(&watcher->link);
	watcher->exec = NULL;
	if (!exec)
		return;
	/* Perhaps it was the slowest. */
	if (watcher->consumes)
		exec_acknowledge(exec);
	if (exec_ended(exec) && list_empty(&exec->watchers))
		exec_logs_close(exec);
}

/* For those who follow the whole sandbox. Each may leave in its call, no other. */
static void tell_listeners(struct exec *exec)
{
	list_each (&exec->sandbox->life->exec_listeners, node) {
		struct exec_listener *listener = list_entry(node, struct exec_listener, link);
		listener->changed(listener, exec);
	}
}

void exec_notify(struct exec *exec)
{
	/* A callback may remove any watcher, and add new ones, and all must stay in the list: the
	 * slowest consumer is looked for in it. So each goes to the end before it is told, with the
	 * number of this round; behind those come new ones. */
	uint64_t round = ++exec->notified;
	exec->telling++;
	if (exec_ended(exec))
		sandbox_notify(exec->sandbox);
	tell_listeners(exec);
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

static bool pinned(const struct exec *exec)
{
	return exec->stage != EXEC_STAGE_OVER || exec->telling || exec->row.left_running > 0 ||
	       !list_empty(&exec->watchers) || !list_empty(&exec->left_queries);
}

void exec_trim(struct sandbox *sandbox)
{
	uint32_t kept = 0;
	struct list *before;
	for (struct list *node = sandbox->execs.previous; node != &sandbox->execs; node = before) {
		struct exec *exec = list_entry(node, struct exec, link);
		before = node->previous;
		if (!pinned(exec) && ++kept > EXECS_KEPT)
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
	/* An old one: it stands before the others, and goes first. */
	list_remove(&exec->link);
	list_append(sandbox->execs.next, &exec->link);
	exec->stdin_closed = true;
	sandbox_later(sandbox, exec_trim);
	*ret_exec = exec;
	return 0;
}

struct live_rows {
	struct list *rows;
	uint32_t count;
	uint64_t log_bytes;
	uint32_t live;
};

struct live_row {
	struct list link;
	struct exec_row row;
};

static bool load_live(void *data, const struct exec_row *row)
{
	struct live_rows *live = data;
	live->count++;
	if (row->state == EXEC_ENDED || row->state == EXEC_FAILED)
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
	struct live_rows live = {.rows = &rows};
	int result =
	    store_exec_each(sandbox->core->store, &sandbox->row.id, load_live, &live, error);
	while (!list_empty(&rows)) {
		struct live_row *loaded = list_entry(rows.next, struct live_row, link);
		list_remove(&loaded->link);
		struct exec *exec = exec_new(sandbox, &loaded->row);
		/* How much of its input the old daemon had sent on nobody knows; the driver of a
		 * code context copes with that. */
		exec->stdin_broken = !id_is_set(&exec->row.context);
		/* Of its time-out the init knows the rest; the whole of it once more is surely
		 * enough, however long it was paused. */
		if (!exec_ended(exec))
			exec_watch_time(exec);
		activity_exec_loaded(exec);
		free(loaded);
	}
	sandbox->life->exec_rows = live.count;
	sandbox->life->log_bytes = live.log_bytes;
	return result;
}

static int append_packed(struct buffer *packed, const char *text, struct error *error)
{
	if (buffer_append(packed, text, strlen(text) + 1) < 0)
		return error_set(error, ERROR_TOO_LARGE,
				 "arguments and environment of a command are at most %d bytes",
				 EXEC_REQUEST_BYTES_MAX);
	return 0;
}

static int pack_argv(const struct exec_spec *spec, struct buffer *packed, struct error *error)
{
	if (spec->argc == 0 || !spec->argv[0][0])
		return error_set(error, ERROR_INVALID, "there is no command to run");
	if (spec->argc > EXEC_ARGV_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "the command has %zu arguments; at most %d are allowed",
				 spec->argc, EXEC_ARGV_MAX);
	for (size_t i = 0; i < spec->argc; i++)
		if (append_packed(packed, spec->argv[i], error) < 0)
			return -1;
	return 0;
}

static int pack_environment(const struct exec_spec *spec, struct buffer *packed,
			    struct error *error)
{
	if (spec->environment_count > EXEC_ENV_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "env has %zu entries; at most %d are allowed",
				 spec->environment_count, EXEC_ENV_MAX);
	for (size_t i = 0; i < spec->environment_count; i++) {
		const struct pair *pair = &spec->environment[i];
		if (!*pair->key || strchr(pair->key, '='))
			return error_set(error, ERROR_INVALID,
					 "env: a name must not be empty or hold `=`: `%.64s`",
					 pair->key);
		if (buffer_append_text(packed, pair->key) < 0 ||
		    buffer_append_text(packed, "=") < 0 ||
		    append_packed(packed, pair->value, error) < 0)
			return error_set(error, ERROR_TOO_LARGE, "env is longer than %d bytes",
					 EXEC_REQUEST_BYTES_MAX);
	}
	return 0;
}

/* What the sandbox's own environment has on the wire: the init of one from the pool was told of
 * none. */
static struct bytes own_environment(const struct sandbox *sandbox)
{
	const struct sandbox_row *row = &sandbox->row;
	if (row->boot_origin != ORIGIN_POOL)
		return (struct bytes){NULL, 0};
	return (struct bytes){(const uint8_t *)row->environment, row->environment_size};
}

/* The whole EXEC payload. */
static int encode(const struct sandbox *sandbox, const struct exec_spec *spec,
		  struct buffer *payload, struct error *error)
{
	struct bytes own = own_environment(sandbox);
	DONE_BUFFER struct buffer argv = BUFFER(EXEC_REQUEST_BYTES_MAX);
	DONE_BUFFER struct buffer environment = BUFFER(own.size + EXEC_REQUEST_BYTES_MAX);
	struct exec_request request = {
	    .flags = spec->flags | EXEC_LOG,
	    .timeout_ms = spec->timeout_ms,
	    .rows = spec->rows,
	    .columns = spec->columns,
	    .argc = (uint32_t)spec->argc,
	    .environment_count = (uint32_t)spec->environment_count,
	    .limit_count = (uint32_t)spec->limit_count,
	};
	if (spec->flags & ~(uint32_t)(EXEC_TTY | EXEC_STDIN | EXEC_LOSSLESS))
		return error_set(error, ERROR_INVALID, "an unknown flag is set");
	if (spec->user && text_copy(request.user, sizeof(request.user), spec->user) < 0)
		return error_set(error, ERROR_BAD_USER, "the user's name is too long");
	size_t cwd = spec->cwd ? strlen(spec->cwd) : 0;
	if (cwd >= GUEST_PATH_MAX)
		return error_set(error, ERROR_BAD_CWD, "the working directory's path is too long");
	if (spec->limit_count > EXEC_RUNLIMITS_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED, "there are more than %d rlimits",
				 EXEC_RUNLIMITS_MAX);
	if (own.size > 0 && buffer_append(&environment, own.data, own.size) < 0)
		abort();
	for (size_t at = 0; packed_next(own, &at);)
		request.environment_count++;
	if (pack_argv(spec, &argv, error) < 0 || pack_environment(spec, &environment, error) < 0)
		return -1;
	for (size_t i = 0; i < spec->limit_count; i++)
		request.limits[i] = spec->limits[i];
	request.cwd = (struct bytes){(const uint8_t *)spec->cwd, cwd};
	request.argv = (struct bytes){(const uint8_t *)argv.data, argv.size};
	request.environment = (struct bytes){(const uint8_t *)environment.data, environment.size};
	if (buffer_reserve(payload, FRAME_PAYLOAD_MAX) < 0)
		abort();
	struct writer writer = writer_on(payload->data, FRAME_PAYLOAD_MAX);
	exec_request_write(&writer, &request);
	int64_t size = writer_finish(&writer);
	if (size < 0 || size > (int64_t)(own.size + EXEC_REQUEST_BYTES_MAX))
		return error_set(error, ERROR_TOO_LARGE,
				 "the command with its environment is longer than %d bytes",
				 EXEC_REQUEST_BYTES_MAX);
	buffer_grow(payload, (size_t)size);
	return 0;
}

/* For people: the arguments with blanks between, cut to 1 KiB. */
static char *command_text(const struct exec_spec *spec)
{
	char text[COMMAND_MAX + 1];
	size_t used = 0;
	if (spec->title)
		return text_duplicate(spec->title);
	for (size_t i = 0; i < spec->argc && used < COMMAND_MAX; i++) {
		if (i > 0)
			text[used++] = ' ';
		size_t length = MIN(strlen(spec->argv[i]), COMMAND_MAX - used);
		memcpy(text + used, spec->argv[i], length);
		used += length;
	}
	text[text_utf8_prefix(text, used)] = '\0';
	return text_duplicate(text);
}

static int check_retention(const struct sandbox *sandbox, const struct exec_spec *spec,
			   struct exec_row *row, struct error *error)
{
	const struct config *config = &sandbox->core->config;
	row->head = spec->head ? spec->head : config->output_head;
	row->tail = spec->tail ? spec->tail : config->output_tail;
	bool asked = spec->head || spec->tail;
	/* Who asks for one of them has said nothing about the other. */
	if (asked && !spec->tail)
		row->tail = MIN(row->tail, config->output_max - MIN(row->head, config->output_max));
	if (asked && !spec->head)
		row->head = MIN(row->head, config->output_max - MIN(row->tail, config->output_max));
	if (row->head > OUTPUT_KEEP_MAX || row->tail > OUTPUT_KEEP_MAX ||
	    (asked && row->head + row->tail > config->output_max))
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "output of %llu + %llu bytes is to be kept; this host allows %llu "
				 "in all (output_max)",
				 (unsigned long long)row->head, (unsigned long long)row->tail,
				 (unsigned long long)config->output_max);
	if (row->head + row->tail == 0)
		row->head = OUTPUT_HEAD_DEFAULT;
	exec_logs_fit(sandbox, row);
	if (spec->flags & EXEC_LOSSLESS)
		row->tail = MAX(row->tail, LOSSLESS_TAIL_MIN);
	return 0;
}

/* How many the init knows: those that run, and ended ones with processes left. */
static uint32_t known_to_init(const struct sandbox *sandbox)
{
	uint32_t count = 0;
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		count += !exec_ended(exec) || exec->row.left_running > 0;
	}
	return count;
}

static int check_sandbox(const struct sandbox *sandbox, struct error *error)
{
	if (sandbox->row.state != SANDBOX_RUNNING)
		return error_set(error, ERROR_SANDBOX_STATE, "sandbox `%s` is %s",
				 sandbox->row.id.text,
				 sandbox_state_name((enum sandbox_state)sandbox->row.state));
	if (!sandbox->guest_ready)
		return error_set(error, ERROR_GUEST_GONE, "sandbox `%s` is not connected",
				 sandbox->row.id.text);
	if (sandbox->row.drain_wall != 0)
		return error_set(error, ERROR_SANDBOX_DRAINING,
				 "sandbox `%s` is being drained and takes no new commands",
				 sandbox->row.id.text);
	if (known_to_init(sandbox) >= EXEC_PER_SANDBOX_MAX)
		return error_set(error, ERROR_BUSY,
				 "sandbox `%s` runs %d commands already, the most it may",
				 sandbox->row.id.text, EXEC_PER_SANDBOX_MAX);
	return 0;
}

/* Logs, row, frame, in this order; what was made is removed again when the next fails. */
static int begin(struct exec *exec, const struct buffer *payload, struct error *error)
{
	struct sandbox *sandbox = exec->sandbox;
	struct store *store = sandbox->core->store;
	if (exec_logs_create(exec, error) < 0)
		return -1;
	if (store_exec_insert(store, &exec->row, error) < 0) {
		exec_logs_unlink(sandbox, &exec->row.id);
		return -1;
	}
	const int fds[2] = {exec->logs[0].fd, exec->logs[1].fd};
	if (sandbox_send(sandbox, FRAME_EXEC, exec->row.key, payload->data, payload->size, fds,
			 exec->row.flags & EXEC_TTY ? 1 : 2, error) < 0) {
		struct error ignored;
		exec_logs_unlink(sandbox, &exec->row.id);
		if (store_exec_delete(store, &sandbox->row.id, &exec->row.id, &ignored) < 0)
			log_warning("exec %s: %s", exec->row.id.text, ignored.message);
		return -1;
	}
	sandbox->life->exec_rows++;
	return 0;
}

int exec_start(struct sandbox *sandbox, const struct exec_spec *spec, struct exec **ret_exec,
	       struct error *error)
{
	struct core *core = sandbox->core;
	DONE_BUFFER struct buffer payload = BUFFER(FRAME_PAYLOAD_MAX);
	struct exec_row row = {
	    .id = id_is_set(&spec->id) ? spec->id : id_new(),
	    .sandbox = sandbox->row.id,
	    .state = EXEC_STARTING,
	    .flags = spec->flags,
	    .started_wall = clock_wall(),
	    .timeout_ms = spec->timeout_ms,
	};
	if (spec->principal)
		row.token = spec->principal->token;
	if (spec->context)
		row.context = *spec->context;
	if (check_sandbox(sandbox, error) < 0 || check_retention(sandbox, spec, &row, error) < 0 ||
	    encode(sandbox, spec, &payload, error) < 0 ||
	    /* Code counts by the piece (core/code/run.c), and a context by its start
	       (core/code/code.c). */
	    (!spec->context && budget_check_exec(sandbox, spec->principal, error) < 0))
		return -1;
	row.key = core->next_exec_key++;
	row.command = command_text(spec);
	struct exec *exec = exec_new(sandbox, &row);
	exec->stdin_credit = spec->flags & EXEC_STDIN ? FILE_WINDOW : 0;
	exec->stdin_closed = !(spec->flags & EXEC_STDIN);
	exec_watch_time(exec);
	if (sandbox->life->counters_known)
		exec->oom_kills_before = sandbox->counters.oom_kills;
	if (begin(exec, &payload, error) < 0) {
		exec_free(exec);
		return -1;
	}
	if (!spec->context)
		budget_count_exec(sandbox);
	activity_exec_started(exec, spec->principal, spec);
	sandbox_touch(sandbox);
	*ret_exec = exec;
	return 0;
}

static int has_ended(const struct exec *exec, struct error *error)
{
	return error_set(error, ERROR_SANDBOX_STATE, "exec `%s` has ended", exec->row.id.text);
}

ssize_t exec_stdin(struct exec *exec, const void *data, size_t size, struct error *error)
{
	struct sandbox *sandbox = exec->sandbox;
	const char *from = data;
	size_t taken = 0;
	if (exec_ended(exec))
		return has_ended(exec, error);
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

static int send_signal(struct exec *exec, int signal, enum signal_scope scope, struct error *error)
{
	uint8_t room[8];
	struct writer writer = writer_on(room, sizeof(room));
	struct signal_request request = {.signal = (uint32_t)signal, .scope = scope};
	signal_request_write(&writer, &request);
	return sandbox_send(exec->sandbox, FRAME_SIGNAL, exec->row.key, room, writer.size, NULL, 0,
			    error);
}

/* Nothing is there yet that could get it: it goes when the command runs, and never when it does
 * not come to that. As with pending signals, one that stops and one that continues undo each
 * other. */
static void hold_signal(struct exec *exec, int signal, enum signal_scope scope)
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
			if (send_signal(exec, signal, (enum signal_scope)scope, &error) < 0) {
				/* What is left goes when the link is back. */
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
	/* What it left running can still be ended. */
	if (exec_ended(exec) && (scope != SIGNAL_TREE || exec->row.left_running == 0))
		return has_ended(exec, error);
	/* The init can cancel one that has not begun, and no more. */
	if (exec->row.state == EXEC_STARTING && !(scope == SIGNAL_TREE && signal == SIGKILL))
		hold_signal(exec, signal, scope);
	else if (send_signal(exec, signal, scope, error) < 0)
		return -1;
	const char *name = sigabbrev_np(signal);
	/* Of code its entries tell: code.ran has `interrupted`. */
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
		return has_ended(exec, error);
	write_u16(&writer, rows);
	write_u16(&writer, columns);
	return sandbox_send(exec->sandbox, FRAME_RESIZE, exec->row.key, room, sizeof(room), NULL, 0,
			    error);
}

/* What every consumer of a stream has. Where there is none: what was acknowledged before, or all
 * where the reader has left. */
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
	/* One that came later has not seen what was given up before. Who reads the log is sometimes
	 * ahead of what the init has told: that is acknowledged when it has. */
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
	if (!(exec->row.flags & EXEC_LOSSLESS) || exec_ended(exec))
		return;
	exec->consumed.out = consumed_by_all(exec, EXEC_STDOUT);
	exec->consumed.err = consumed_by_all(exec, EXEC_STDERR);
	/* A quarter of the ring at a time; when it is full, all of it is more than that. */
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
	/* The row is for the next daemon; for this one it is done. */
	if (!exec_ended(exec) &&
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

/* Room in the link's queue again, or a link again. */
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

void exec_link_lost(struct sandbox *sandbox)
{
	struct error error;
	error_set(&error, ERROR_GUEST_GONE, "the connection to sandbox `%s` was lost",
		  sandbox->row.id.text);
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		exec->stdin_broken |= exec->stdin_credit < FILE_WINDOW;
		/* Whether CONSUMED arrived nobody knows: it is said again. */
		exec->consumed_sent = (struct output_totals){0};
		exec->left_asked = false;
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
