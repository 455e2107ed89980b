/* A repeated request with the Idempotency-Key of a command that was begun (exec_call.h). Called by
 * the handlers of exec and jobs, on the loop; everything waits through watchers. */
#include "api/exec/exec_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "edge/idempotency.h"

/* A repeated request, while the command runs. */
struct exec_replay {
	struct exec_watcher watcher;
	struct call *call; /* held */
	struct exec *exec; /* NULL: it was forgotten */
	uint64_t answer_max;
	bool finishing;
};

static void exec_replay_free(struct exec_replay *replay)
{
	struct call *call = replay->call;
	exec_unwatch(&replay->watcher);
	free(replay);
	call_release(call);
}

static void exec_replay_finished(void *data, const struct left_process *left, size_t count)
{
	struct exec_replay *replay = data;
	struct exec *exec = replay->exec;
	if (exec && replay->call->exchange) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_object(&writer, NULL);
		put_exec_result(&writer, exec, replay->answer_max, left, count);
		put_expiry_warning(&writer, &exec->sandbox->row);
		put_object_end(&writer);
		reply_replayed(replay->call, 200, &writer);
	}
	exec_replay_free(replay);
}

static void exec_replay_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct exec_replay *replay = container_of(watcher, struct exec_replay, watcher);
	struct error error;
	if (replay->finishing || !exec_ended(exec))
		return;
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		reply_error(replay->call, &error);
		exec_replay_free(replay);
		return;
	}
	replay->finishing = true;
	exec_finish(exec, exec_replay_finished, replay);
}

static void exec_replay_forgotten(struct exec_watcher *watcher)
{
	struct exec_replay *replay = container_of(watcher, struct exec_replay, watcher);
	struct error error;
	replay->exec = NULL;
	core_forgotten_error(replay->call->core, &replay->call->sandbox, &error);
	reply_error(replay->call, &error);
	if (!replay->finishing)
		exec_replay_free(replay);
}

static void exec_reply_again(struct call *call, struct exec_call *exec_call, struct exec *exec)
{
	if (exec_call->fields.background) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_exec(&writer, NULL, exec);
		reply_replayed(call, 202, &writer);
		return;
	}
	struct exec_replay *replay = calloc(1, sizeof(*replay));
	if (!replay)
		abort();
	replay->call = call_hold(call);
	replay->exec = exec;
	replay->answer_max = exec_call->fields.answer_max;
	replay->watcher.changed = exec_replay_changed;
	replay->watcher.forgotten = exec_replay_forgotten;
	exec_watch(exec, &replay->watcher);
	exec_replay_changed(&replay->watcher, exec);
}

int exec_replay(struct call *call, struct exec_call *exec_call, struct error *error)
{
	struct request_row row = {0};
	struct exec *exec;
	char path[ID_LENGTH + 64];
	for (int tries = 0; tries < 2; tries++) {
		snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec?background=%d",
			 call->sandbox.text, exec_call->fields.background);
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
