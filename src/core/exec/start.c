/* Begins an exec: checks it, packs it for the init, takes its logs, makes its row, sends it. Called
 * by the edges and by code contexts; blocks for the store, and if no logs are ready for two small
 * files. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/account/budget.h"
#include "core/core_private.h"

#define COMMAND_MAX 1024

/* May the sandbox run one more exec? */
static int sandbox_check_exec(const struct sandbox *sandbox, struct error *error)
{
	uint32_t count =
	    0; /* execs known to the init: running ones, and ended ones with processes left */
	list_each (&sandbox->execs, node) {
		const struct exec *exec = list_entry(node, struct exec, link);
		count += !exec_ended(exec) || exec->row.left_running > 0;
	}
	if (!sandbox_may_exec(sandbox))
		return sandbox_refuse_exec(sandbox, error);
	if (sandbox->row.drain_wall != 0)
		return error_set(error, ERROR_SANDBOX_DRAINING,
				 "sandbox `%s` is being drained and takes no new commands",
				 sandbox->row.id.text);
	if (count >= EXEC_PER_SANDBOX_MAX)
		return error_set(error, ERROR_BUSY,
				 "sandbox `%s` runs %d commands already, the most it may",
				 sandbox->row.id.text, EXEC_PER_SANDBOX_MAX);
	return 0;
}

/* argv, and NAME=value after the sandbox's own environment: texts with their NULs. */
static int spec_pack(const struct exec_spec *spec, struct buffer *argv, struct buffer *environment,
		     struct error *error)
{
	if (spec->argc == 0 || !spec->argv[0][0])
		return error_set(error, ERROR_INVALID, "there is no command to run");
	if (spec->argc > EXEC_ARGV_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "the command has %zu arguments; at most %d are allowed",
				 spec->argc, EXEC_ARGV_MAX);
	for (size_t i = 0; i < spec->argc; i++)
		if (buffer_append(argv, spec->argv[i], strlen(spec->argv[i]) + 1) < 0)
			return error_set(
			    error, ERROR_TOO_LARGE,
			    "arguments and environment of a command are at most %d bytes",
			    EXEC_REQUEST_BYTES_MAX);
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
		if (buffer_append_text(environment, pair->key) < 0 ||
		    buffer_append_text(environment, "=") < 0 ||
		    buffer_append(environment, pair->value, strlen(pair->value) + 1) < 0)
			return error_set(error, ERROR_TOO_LARGE, "env is longer than %d bytes",
					 EXEC_REQUEST_BYTES_MAX);
	}
	return 0;
}

/* The whole EXEC payload. */
static int exec_encode(const struct sandbox *sandbox, const struct exec_spec *spec,
		       struct buffer *payload, struct error *error)
{
	struct bytes own = {NULL, 0};
	if (create_origin_facts(sandbox->row.create_origin)->environment_with_exec)
		own = (struct bytes){(const uint8_t *)sandbox->row.environment,
				     sandbox->row.environment_size};
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
	if (spec_pack(spec, &argv, &environment, error) < 0)
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
static char *spec_command_text(const struct exec_spec *spec)
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

void sandbox_make_ready_logs(struct sandbox *sandbox)
{
	if (sandbox_may_exec(sandbox))
		ready_logs_make(sandbox->core, &sandbox->row.id, &sandbox->life->ready_logs);
}

int exec_start(struct sandbox *sandbox, const struct exec_spec *spec, struct exec **ret_exec,
	       struct error *error)
{
	DONE_BUFFER struct buffer payload = BUFFER(FRAME_PAYLOAD_MAX);
	struct store *store = sandbox->core->store;
	struct error ignored;
	struct exec_row row = {
	    .id = spec->id, /* unset: exec_logs_create() chooses one */
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
	if (sandbox_check_exec(sandbox, error) < 0 ||
	    exec_logs_fit(sandbox, spec, &row, error) < 0 ||
	    exec_encode(sandbox, spec, &payload, error) < 0 ||
	    /* For code each piece counts (core/code/cells.c), and for a context its start
	     * (core/code/code.c). */
	    (!spec->context && budget_check_exec(sandbox, spec->principal, error) < 0))
		return -1;
	row.key = ++sandbox->row.last_exec_key;
	row.command = spec_command_text(spec);
	struct exec *exec = exec_new(sandbox, &row);
	exec->stdin_credit = spec->flags & EXEC_STDIN ? FILE_WINDOW : 0;
	exec->stdin_closed = !(spec->flags & EXEC_STDIN);
	if (spec->timeout_ms > 0)
		exec_watch_time(exec);
	if (sandbox->life->counters_known)
		exec->oom_kills_before = sandbox->counters.oom_kills;
	/* Logs, row, frame, in this order; if one fails, the earlier ones are removed again. */
	if (exec_logs_create(exec, error) < 0) {
		exec_free(exec);
		return -1;
	}
	const int fds[2] = {exec->logs[0].fd, exec->logs[1].fd};
	int stored = store_exec_insert(store, &exec->row, error);
	if (stored < 0 ||
	    sandbox_send(sandbox, FRAME_EXEC, exec->row.key, payload.data, payload.size, fds,
			 exec->row.flags & EXEC_TTY ? 1 : 2, error) < 0) {
		exec_logs_unlink(sandbox, &exec->row.id);
		if (stored == 0 &&
		    store_exec_delete(store, &sandbox->row.id, &exec->row.id, &ignored) < 0)
			log_warning("exec %s: %s", exec->row.id.text, ignored.message);
		exec_free(exec);
		return -1;
	}
	sandbox->life->exec_rows++;
	if (!spec->context)
		budget_count_exec(sandbox);
	activity_exec_started(exec, spec->principal, spec);
	sandbox_touch(sandbox);
	sandbox_later(sandbox, sandbox_make_ready_logs);
	*ret_exec = exec;
	return 0;
}
