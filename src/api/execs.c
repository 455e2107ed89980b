/* /v1/sandboxes/{sandbox}/exec and .../execs: runs a command and waits, or not; lists, signals,
 * cancels. Everything waits through watchers; reading output for an answer is bounded. */
#include "api/exec_run.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/sandbox_record.h"
#include "base/text.h"

/* --- run and wait --- */

static void run_free(void *state)
{
	struct exec_run *run = state;
	exec_ask_done(&run->ask);
	buffer_done(&run->stdin_left);
	buffer_done(&run->input);
	free(run);
}

static void finished(void *data, const struct left_process *processes, size_t count)
{
	struct exec_run *run = data;
	struct call *call = run->call;
	if (call->exchange && run->exec) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_object(&writer, NULL);
		put_exec_members(&writer, &run->exec->row);
		put_exec_output(&writer, run->exec, run->ask.answer_max);
		put_left_running(&writer, processes, count);
		put_expiry_warning(&writer, &run->exec->sandbox->row);
		put_object_end(&writer);
		exec_unwatch(&run->watcher);
		run->exec = NULL;
		reply_json(call, 200, &writer);
	}
	call_release(call);
}

static void changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct exec_run *run = container_of(watcher, struct exec_run, watcher);
	struct error error;
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		exec_unwatch(&run->watcher);
		run->exec = NULL;
		reply_error(run->call, &error);
	} else if (exec_ended(exec) && !run->finishing) {
		run->finishing = true;
		call_hold(run->call);
		exec_finish(exec, finished, run);
	} else if (run->ask.stdin_kind == STDIN_GIVEN && stdin_lost(exec, &error)) {
		/* The feed cancels it; here is who asked for it. */
		exec_unwatch(&run->watcher);
		run->exec = NULL;
		reply_error(run->call, &error);
	}
}

static void forgotten(struct exec_watcher *watcher)
{
	struct exec_run *run = container_of(watcher, struct exec_run, watcher);
	struct error error;
	run->exec = NULL;
	error_set(&error, ERROR_SANDBOX_ENDED, "sandbox %s ended while the command ran",
		  run->call->sandbox.text);
	reply_error(run->call, &error);
}

static void gone(struct call *call)
{
	struct exec_run *run = call->state;
	if (!run->exec)
		return;
	exec_unwatch(&run->watcher);
	exec_cancel(run->exec);
	run->exec = NULL;
}

static void reply_background(struct call *call, struct exec *exec)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_exec(&writer, NULL, exec);
	reply_json(call, 202, &writer);
}

static void act(struct call *call, struct sandbox *sandbox)
{
	struct exec_run *run = call->state;
	struct exec *exec;
	struct error error;
	if (exec_start(sandbox, &run->ask.spec, &exec, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (run->ask.stdin_kind == STDIN_GIVEN)
		stdin_feed(exec, TAKE_PTR(run->ask.stdin_data), run->ask.stdin_size);
	if (run->ask.background) {
		reply_background(call, exec);
		return;
	}
	run->exec = exec;
	run->watcher.changed = changed;
	run->watcher.forgotten = forgotten;
	call->on_gone = gone;
	exec_watch(exec, &run->watcher);
}

static int check(struct call *call, const struct exec_run *run, bool stream, struct error *error)
{
	const struct exec_ask *ask = &run->ask;
	if (stream && (ask->background || ask->stdin_kind == STDIN_GIVEN))
		return error_set(error, ERROR_INVALID,
				 "over a stream standard input comes in frames, and `background` "
				 "is `?detach=1`");
	if (!stream && run->detach)
		return error_set(error, ERROR_INVALID,
				 "`detach` is for a stream (Upgrade: %s); use `background`",
				 EXEC_STREAM_PROTOCOL);
	if (!stream && !ask->background && ask->spec.flags & EXEC_LOSSLESS)
		return error_set(error, ERROR_INVALID,
				 "`lossless` needs a reader while the command runs: use "
				 "`background` and read its output, or a stream");
	if (!stream && !ask->background && ask->stdin_kind == STDIN_OPEN)
		return error_set(error, ERROR_INVALID,
				 "`stdin: true` needs `background`, or a stream");
	if (http_request(call->exchange)->fd_count > 0)
		return error_set(error, ERROR_INVALID, "descriptors are for `mounts` of a create");
	return 0;
}

void exec_post(struct call *call)
{
	struct exec_run *run = calloc(1, sizeof(*run));
	struct error error;
	if (!run)
		abort();
	run->call = call;
	list_init(&run->watcher.link);
	call->state = run;
	call->state_free = run_free;
	bool stream = exec_stream_wanted(call);
	if (exec_ask_parse(call->body, &run->ask, &error) < 0 ||
	    query_flag(call, "detach", &run->detach, &error) < 0 ||
	    check(call, run, stream, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_ready(call, stream ? exec_stream_begin : act);
}

/* --- look --- */

#define EXEC_LIST_DEFAULT 100
#define EXEC_LIST_MAX 1000

struct listing {
	struct json_writer writer;
	struct sandbox *sandbox;
	uint64_t limit, count;
};

static struct exec *in_memory(struct sandbox *sandbox, const struct id *id)
{
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (id_equal(&exec->row.id, id))
			return exec;
	}
	return NULL;
}

static bool list_one(void *data, const struct exec_row *row)
{
	struct listing *listing = data;
	if (listing->count++ == listing->limit)
		return false;
	struct exec *exec = in_memory(listing->sandbox, &row->id);
	if (exec) {
		put_exec(&listing->writer, NULL, exec);
		return true;
	}
	put_object(&listing->writer, NULL);
	put_exec_members(&listing->writer, row);
	put_uint(&listing->writer, "stdout_bytes", row->out_total);
	put_uint(&listing->writer, "stderr_bytes", row->err_total);
	put_object_end(&listing->writer);
	return true;
}

void execs_get(struct call *call)
{
	struct listing listing = {.limit = EXEC_LIST_DEFAULT};
	struct error error;
	if (query_uint(call, "limit", 1, EXEC_LIST_MAX, &listing.limit, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	listing.sandbox = call_sandbox(call);
	if (!listing.sandbox)
		return;
	struct buffer buffer = BUFFER(REPLY_MAX);
	listing.writer = json_writer_on(&buffer);
	put_object(&listing.writer, NULL);
	put_array(&listing.writer, "execs");
	if (store_exec_each(call->api->core->store, &call->sandbox, list_one, &listing, &error) <
	    0) {
		buffer_done(&buffer);
		reply_error(call, &error);
		return;
	}
	put_array_end(&listing.writer);
	put_bool(&listing.writer, "truncated", listing.count > listing.limit);
	put_object_end(&listing.writer);
	reply_json(call, 200, &listing.writer);
}

/* The exec of this call, or NULL after an error reply. */
static struct exec *find(struct call *call)
{
	struct exec *exec;
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return NULL;
	if (exec_find(sandbox, call->parameters[1], &exec, &error) == 0)
		return exec;
	reply_error(call, &error);
	return NULL;
}

static void reply_exec(struct call *call, int status, const struct exec *exec)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_exec(&writer, NULL, exec);
	reply_json(call, status, &writer);
}

void exec_get(struct call *call)
{
	struct exec *exec = find(call);
	if (exec)
		reply_exec(call, 200, exec);
}

/* --- signal, cancel --- */

/* "TERM", "SIGTERM", "15" or 15. */
static int signal_parse(const json_t *json, int *ret_signal, struct error *error)
{
	json_int_t number = json_integer_value(json);
	const char *text = json_string_value(json);
	uint64_t value;
	if (json_is_integer(json) && number >= 1 && number <= 64) {
		*ret_signal = (int)number;
		return 0;
	}
	if (text && text_to_u64(text, 1, 64, &value) == 0) {
		*ret_signal = (int)value;
		return 0;
	}
	if (text && strncasecmp(text, "SIG", 3) == 0)
		text += 3;
	for (int i = 1; text && i < NSIG; i++) {
		const char *name = sigabbrev_np(i);
		if (name && strcasecmp(name, text) == 0) {
			*ret_signal = i;
			return 0;
		}
	}
	return error_set(error, ERROR_INVALID,
			 "field `signal` must be a name like TERM or a number from 1 to 64");
}

static void act_signal(struct call *call, struct sandbox *sandbox)
{
	struct error error;
	bool tree = false;
	json_t *json = NULL;
	int number = 0;
	(void)sandbox;
	struct field fields[] = {
	    {"signal", FIELD_ANY, &json, true},
	    {"tree", FIELD_BOOL, &tree},
	};
	if (json_fields(call->body, fields, ARRAY_SIZE(fields), &error) < 0 ||
	    signal_parse(json, &number, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct exec *exec = find(call);
	if (!exec)
		return;
	if (exec_signal(exec, number, tree ? SIGNAL_TREE : SIGNAL_LEADER, &error) < 0)
		reply_error(call, &error);
	else
		reply_exec(call, 200, exec);
}

void exec_signal_post(struct call *call)
{
	call_ready(call, act_signal);
}

static void act_cancel(struct call *call, struct sandbox *sandbox)
{
	struct error error;
	(void)sandbox;
	struct exec *exec = find(call);
	if (!exec)
		return;
	/* Also one that has ended: what it left running goes. */
	if ((!exec_ended(exec) || exec->row.left_running > 0) &&
	    exec_signal(exec, SIGKILL, SIGNAL_TREE, &error) < 0)
		reply_error(call, &error);
	else
		reply_empty(call, 204);
}

void exec_delete(struct call *call)
{
	call_ready(call, act_cancel);
}
