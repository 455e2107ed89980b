/* A repeated request with the Idempotency-Key of a command that was begun (exec_call.h). Called by
 * the handlers of exec and jobs, on the loop; everything waits through watchers. */
#include "api/exec/exec_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "edge/idempotency.h"

/* A repeated request, while the command runs. */
struct repeat {
	struct exec_watcher watcher;
	struct call *call; /* held */
	struct exec *exec; /* NULL: it was forgotten */
	uint64_t answer_max;
	bool finishing;
};

static void repeat_free(struct repeat *repeat)
{
	struct call *call = repeat->call;
	exec_unwatch(&repeat->watcher);
	free(repeat);
	call_release(call);
}

static void repeat_finished(void *data, const struct left_process *left, size_t count)
{
	struct repeat *repeat = data;
	struct exec *exec = repeat->exec;
	if (exec && repeat->call->exchange) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_exec_result(&writer, exec, repeat->answer_max, left, count);
		reply_replayed(repeat->call, 200, &writer);
	}
	repeat_free(repeat);
}

static void repeat_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct repeat *repeat = container_of(watcher, struct repeat, watcher);
	struct error error;
	if (repeat->finishing || !exec_ended(exec))
		return;
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		reply_error(repeat->call, &error);
		repeat_free(repeat);
		return;
	}
	repeat->finishing = true;
	exec_finish(exec, repeat_finished, repeat);
}

static void repeat_forgotten(struct exec_watcher *watcher)
{
	struct repeat *repeat = container_of(watcher, struct repeat, watcher);
	struct error error;
	repeat->exec = NULL;
	core_forgotten_error(repeat->call->core, &repeat->call->sandbox, &error);
	reply_error(repeat->call, &error);
	if (!repeat->finishing)
		repeat_free(repeat);
}

static void exec_reply_again(struct call *call, struct exec_call *exec_call, struct exec *exec)
{
	if (exec_call->ask.background) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_exec(&writer, NULL, exec);
		reply_replayed(call, 202, &writer);
		return;
	}
	struct repeat *repeat = calloc(1, sizeof(*repeat));
	if (!repeat)
		abort();
	repeat->call = call_hold(call);
	repeat->exec = exec;
	repeat->answer_max = exec_call->ask.answer_max;
	repeat->watcher.changed = repeat_changed;
	repeat->watcher.forgotten = repeat_forgotten;
	exec_watch(exec, &repeat->watcher);
	repeat_changed(&repeat->watcher, exec);
}

int exec_repeat(struct call *call, struct exec_call *exec_call, struct error *error)
{
	struct request_row row = {0};
	struct exec *exec;
	char path[ID_LENGTH + 64];
	for (int tries = 0; tries < 2; tries++) {
		snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec?background=%d",
			 call->sandbox.text, exec_call->ask.background);
		int found = idempotent_begin(call, "exec", path, &exec_call->request, &row, error);
		if (found <= 0)
			return found;
		free(row.answer);
		struct sandbox *sandbox = sandbox_by_id(call->core, &call->sandbox);
		if (!sandbox)
			return error_set(error, ERROR_SANDBOX_ENDED,
					 "sandbox %s ended during the request", call->sandbox.text);
		int known = exec_find(sandbox, row.exec.text, &exec, error);
		if (known == 0 && exec->row.state != EXEC_FAILED) {
			exec_reply_again(call, exec_call, exec);
			return 1;
		}
		if (known < 0 && error->kind != ERROR_EXEC_NOT_FOUND)
			return -1;
		/* It could not be started, or a crash came before that, or it was removed: the key
		 * is forgotten, as if the request had never come. */
		idempotent_forget(call);
	}
	return error_set(error, ERROR_INTERNAL, "an Idempotency-Key cannot be forgotten");
}
