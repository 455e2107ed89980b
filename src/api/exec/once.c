/* See once.h. Called by the handlers of exec and jobs, on the loop; everything waits through
 * watchers. */
#include "api/exec/once.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/sandbox/record.h"
#include "edge/idempotency.h"

/* The same request again, while the command runs. */
struct again {
	struct exec_watcher watcher;
	struct call *call; /* held */
	struct exec *exec; /* NULL: it was forgotten */
	uint64_t answer_max;
	bool finishing;
};

static void again_free(struct again *again)
{
	struct call *call = again->call;
	exec_unwatch(&again->watcher);
	free(again);
	call_release(call);
}

static void finished(void *data, const struct left_process *left, size_t count)
{
	struct again *again = data;
	struct exec *exec = again->exec;
	if (exec && again->call->exchange) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_object(&writer, NULL);
		put_exec_members(&writer, &exec->row);
		put_exec_output(&writer, exec, again->answer_max);
		put_left_running(&writer, left, count);
		put_expiry_warning(&writer, &exec->sandbox->row);
		put_object_end(&writer);
		reply_replayed(again->call, 200, &writer);
	}
	again_free(again);
}

static void changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct again *again = container_of(watcher, struct again, watcher);
	struct error error;
	if (again->finishing || !exec_ended(exec))
		return;
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		reply_error(again->call, &error);
		again_free(again);
		return;
	}
	again->finishing = true;
	exec_finish(exec, finished, again);
}

static void forgotten(struct exec_watcher *watcher)
{
	struct again *again = container_of(watcher, struct again, watcher);
	struct error error;
	again->exec = NULL;
	core_forgotten_error(again->call->core, &again->call->sandbox, &error);
	reply_error(again->call, &error);
	if (!again->finishing)
		again_free(again);
}

static void replay(struct call *call, struct exec_run *run, struct exec *exec)
{
	if (run->ask.background) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_exec(&writer, NULL, exec);
		reply_replayed(call, 202, &writer);
		return;
	}
	struct again *again = calloc(1, sizeof(*again));
	if (!again)
		abort();
	again->call = call_hold(call);
	again->exec = exec;
	again->answer_max = run->ask.answer_max;
	again->watcher.changed = changed;
	again->watcher.forgotten = forgotten;
	exec_watch(exec, &again->watcher);
	changed(&again->watcher, exec);
}

int exec_once(struct call *call, struct exec_run *run, struct error *error)
{
	struct request_row row = {0};
	struct exec *exec;
	char path[ID_LENGTH + 64];
	for (int tries = 0; tries < 2; tries++) {
		snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec?background=%d",
			 call->sandbox.text, run->ask.background);
		int found = idempotent_begin(call, "exec", path, &run->request, &row, error);
		if (found <= 0)
			return found;
		free(row.answer);
		struct sandbox *sandbox = sandbox_by_id(call->core, &call->sandbox);
		if (!sandbox)
			return error_set(error, ERROR_SANDBOX_ENDED,
					 "sandbox %s ended during the request", call->sandbox.text);
		int known = exec_find(sandbox, row.exec.text, &exec, error);
		if (known == 0 && exec->row.state != EXEC_FAILED) {
			replay(call, run, exec);
			return 1;
		}
		if (known < 0 && error->kind != ERROR_EXEC_NOT_FOUND)
			return -1;
		/* It could not be started, or a crash came before that, or it was removed: it is as
		 * if it had not been asked for. */
		idempotent_forget(call);
	}
	return error_set(error, ERROR_INTERNAL, "an Idempotency-Key cannot be forgotten");
}

int exec_once_record(struct exec_run *run, struct sandbox *sandbox, struct error *error)
{
	if (!run->request)
		return 0;
	run->ask.spec.id = id_new();
	return idempotency_record(run->request, &sandbox->row.id, &run->ask.spec.id, NULL, 0,
				  error);
}

void exec_once_end(struct exec_run *run, bool begun)
{
	run->kept = begun && run->request;
	idempotency_end(TAKE_PTR(run->request), begun);
}
