/* See oneshot.h. Called by the edges, on the loop; everything waits through callbacks. A command
 * and a piece of code differ only in what is started in the sandbox and in the code that reports
 * its end. */
#include "core/exec/oneshot.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/code/code_private.h"
#include "core/sandbox/create_queue.h"

#define LIFE_MARGIN_SECONDS 30

struct oneshot {
	struct core *core;
	struct id id;
	struct principal principal;
	const struct exec_spec *exec; /* or: */
	const struct code_spec *code;
	char *stdin_data;
	size_t stdin_size;
	struct oneshot_callbacks callbacks;
	struct oneshot_code_callbacks code_callbacks;
	struct oneshot_sandbox_callbacks sandbox_callbacks; /* the caller runs something itself */
	void (*done)(void *data, const struct error *error);
	void *data;
	struct foreground *foreground; /* what runs, or: */
	struct foreground_cell *foreground_cell;
	bool lent;          /* the caller has the sandbox */
	struct error error; /* why there is no result; NONE if there is one */
	int64_t began, step;
	uint64_t created_us;
	bool cancelled;
	bool stays; /* it outlives the daemon */
};

uint32_t oneshot_life(const struct core *core, uint32_t *timeout_ms)
{
	uint32_t maximum = core->config.timeout_seconds_max;
	maximum = maximum == 0 ? SANDBOX_TIMEOUT_MAX : maximum;
	uint32_t most = maximum > LIFE_MARGIN_SECONDS ? maximum - LIFE_MARGIN_SECONDS : maximum;
	if (*timeout_ms == 0)
		*timeout_ms = MIN(SANDBOX_TIMEOUT_DEFAULT, most) * 1000;
	uint32_t seconds = (*timeout_ms + 999) / 1000;
	return MIN(seconds + LIFE_MARGIN_SECONDS, maximum);
}

static void oneshot_finish(struct oneshot *oneshot)
{
	if (!oneshot->cancelled)
		oneshot->done(oneshot->data,
			      oneshot->error.kind == ERROR_NONE ? NULL : &oneshot->error);
	free(oneshot->stdin_data);
	free(oneshot);
}

const struct sandbox *oneshot_kept(const struct oneshot *oneshot)
{
	const struct sandbox *sandbox = NULL;
	if (oneshot->stays)
		sandbox = sandbox_by_id(oneshot->core, &oneshot->id);
	return sandbox && !(sandbox->row.options & OPTION_DETACHED) ? sandbox : NULL;
}

/* Calls back, then removes the sandbox, unless a client has taken it over: the caller's answer does
 * not wait for that. The core repeats a removal that fails. */
static void oneshot_end(struct oneshot *oneshot, const struct principal *principal)
{
	struct core *core = oneshot->core;
	struct core_private *private = core->private;
	struct id id = oneshot->id;
	struct principal asked = principal ? *principal : (struct principal){0};
	struct error error;
	/* A daemon that ends changes nothing; the next one removes the sandbox. */
	bool ends = !private || private->let_go || private->stopping;
	bool stays = ends || oneshot_kept(oneshot);
	oneshot_finish(oneshot);
	struct sandbox *sandbox = stays ? NULL : sandbox_by_id(core, &id);
	if (sandbox && sandbox_delete(sandbox, principal ? &asked : NULL, END_REASON_USER,
				      "its one-shot run is over", NULL, NULL, &error) < 0)
		log_warning("sandbox %s of a one-shot run: %s", id.text, error.message);
}

/* The run failed. */
static void oneshot_set_error(struct oneshot *oneshot, const struct error *error)
{
	oneshot->error = *error;
	if (error->kind == ERROR_DAEMON_RESTARTING && !oneshot->stays)
		error_set(&oneshot->error, ERROR_DAEMON_RESTARTING,
			  "the daemon is being restarted; the run is given up and its "
			  "sandbox %s removed",
			  oneshot->id.text);
}

static void oneshot_command_changed(struct foreground *foreground, struct exec *exec)
{
	struct oneshot *oneshot = foreground_data(foreground);
	if (oneshot->callbacks.changed)
		oneshot->callbacks.changed(oneshot->data, exec->sandbox, exec);
}

static void oneshot_command_ran(void *data, struct exec *exec, const struct left_process *left,
				size_t count, const struct error *error)
{
	struct oneshot *oneshot = data;
	oneshot->foreground = NULL;
	if (error) {
		oneshot_set_error(oneshot, error);
	} else {
		struct oneshot_result result = {
		    .sandbox = exec->sandbox,
		    .exec = exec,
		    .left = left,
		    .left_count = count,
		    .created_us = oneshot->created_us,
		    .ran_us = (uint64_t)((clock_monotonic() - oneshot->step) / NSEC_PER_USEC),
		};
		oneshot->callbacks.ran(oneshot->data, &result);
	}
	oneshot_end(oneshot, &oneshot->principal);
}

static void oneshot_code_changed(void *data, struct code_context *context,
				 const struct code_cell *cell)
{
	struct oneshot *oneshot = data;
	oneshot->code_callbacks.changed(oneshot->data, context, cell);
}

static void oneshot_code_ran(void *data, struct code_context *context, const struct code_cell *cell,
			     const struct error *error)
{
	struct oneshot *oneshot = data;
	oneshot->foreground_cell = NULL;
	if (error)
		oneshot_set_error(oneshot, error);
	else
		oneshot->code_callbacks.ran(oneshot->data, context, cell);
	oneshot_end(oneshot, &oneshot->principal);
}

static int oneshot_start_command(struct oneshot *oneshot, struct sandbox *sandbox)
{
	static const struct foreground_callbacks callbacks = {.changed = oneshot_command_changed,
							      .done = oneshot_command_ran};
	struct exec_spec spec = *oneshot->exec;
	spec.principal = &oneshot->principal;
	return foreground_start(sandbox, &spec, TAKE_PTR(oneshot->stdin_data), oneshot->stdin_size,
				&callbacks, oneshot, &oneshot->foreground, &oneshot->error);
}

static int oneshot_start_code(struct oneshot *oneshot, struct sandbox *sandbox)
{
	const struct code_callbacks callbacks = {
	    .changed = oneshot->code_callbacks.changed ? oneshot_code_changed : NULL,
	    .done = oneshot_code_ran,
	    .data = oneshot,
	};
	struct code_spec spec = *oneshot->code;
	spec.principal = &oneshot->principal;
	return foreground_cell_start(sandbox, NULL, &spec, &callbacks, &oneshot->foreground_cell,
				     &oneshot->error);
}

static void oneshot_sandbox_created(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct oneshot *oneshot = data;
	if (error) {
		oneshot->error = *error;
		oneshot_finish(oneshot);
		return;
	}
	if (oneshot->cancelled) {
		oneshot_end(oneshot, &oneshot->principal);
		return;
	}
	oneshot->step = clock_monotonic();
	oneshot->created_us = (uint64_t)((oneshot->step - oneshot->began) / NSEC_PER_USEC);
	if (oneshot->sandbox_callbacks.ready) {
		oneshot->lent = true;
		oneshot->sandbox_callbacks.ready(oneshot->data, sandbox);
		return;
	}
	int result = oneshot->code ? oneshot_start_code(oneshot, sandbox)
				   : oneshot_start_command(oneshot, sandbox);
	if (result < 0)
		oneshot_end(oneshot, &oneshot->principal);
}

static int oneshot_sandbox_named(void *data, const struct id *id, struct error *error UNUSED)
{
	struct oneshot *oneshot = data;
	oneshot->id = *id;
	return 0;
}

/* Takes the oneshot, also on failure. */
static int oneshot_begin(struct oneshot *oneshot, const struct sandbox_spec *sandbox,
			 struct oneshot **ret_oneshot, struct error *error)
{
	struct sandbox_spec spec = *sandbox;
	spec.named = oneshot_sandbox_named;
	oneshot->stays = spec.options & OPTION_DETACHED;
	if (!oneshot->stays)
		spec.options |= OPTION_ONESHOT;
	if (sandbox_create(oneshot->core, &oneshot->principal, &spec, oneshot_sandbox_created,
			   oneshot, error) < 0) {
		free(oneshot->stdin_data);
		free(oneshot);
		return -1;
	}
	*ret_oneshot = oneshot;
	return 0;
}

static struct oneshot *oneshot_new(struct core *core, const struct principal *principal, void *data)
{
	struct oneshot *oneshot = calloc(1, sizeof(*oneshot));
	if (!oneshot)
		abort();
	oneshot->core = core;
	oneshot->principal = *principal;
	oneshot->data = data;
	oneshot->began = clock_monotonic();
	return oneshot;
}

int oneshot_start(struct core *core, const struct principal *principal,
		  const struct sandbox_spec *sandbox, const struct exec_spec *exec,
		  char *stdin_data, size_t stdin_size, const struct oneshot_callbacks *callbacks,
		  void *data, struct oneshot **ret_oneshot, struct error *error)
{
	struct oneshot *oneshot = oneshot_new(core, principal, data);
	oneshot->exec = exec;
	oneshot->stdin_data = stdin_data;
	oneshot->stdin_size = stdin_size;
	oneshot->callbacks = *callbacks;
	oneshot->done = callbacks->done;
	return oneshot_begin(oneshot, sandbox, ret_oneshot, error);
}

int oneshot_code_start(struct core *core, const struct principal *principal,
		       const struct sandbox_spec *sandbox, const struct code_spec *code,
		       const struct oneshot_code_callbacks *callbacks, void *data,
		       struct oneshot **ret_oneshot, struct error *error)
{
	if (code->size > CODE_SOURCE_MAX)
		return error_set(error, ERROR_TOO_LARGE, "the code is longer than %d bytes",
				 CODE_SOURCE_MAX);
	struct oneshot *oneshot = oneshot_new(core, principal, data);
	oneshot->code = code;
	oneshot->code_callbacks = *callbacks;
	oneshot->done = callbacks->done;
	return oneshot_begin(oneshot, sandbox, ret_oneshot, error);
}

int oneshot_sandbox_start(struct core *core, const struct principal *principal,
			  const struct sandbox_spec *sandbox,
			  const struct oneshot_sandbox_callbacks *callbacks, void *data,
			  struct oneshot **ret_oneshot, struct error *error)
{
	struct oneshot *oneshot = oneshot_new(core, principal, data);
	struct sandbox_spec spec = *sandbox;
	oneshot->sandbox_callbacks = *callbacks;
	oneshot->done = callbacks->failed;
	if (!spec.timeout_set) {
		spec.timeout_seconds = timeout_longest(&core->config);
		spec.timeout_set = true;
	}
	return oneshot_begin(oneshot, &spec, ret_oneshot, error);
}

void oneshot_cancel(struct oneshot *oneshot, const struct principal *principal)
{
	oneshot->cancelled = true;
	/* During the creation `created` comes later, and finds it cancelled; during the wait for
	 * room it does not come. */
	if (create_queue_leave(oneshot->core, oneshot)) {
		oneshot_finish(oneshot);
	} else if (oneshot->foreground) {
		foreground_abandon(TAKE_PTR(oneshot->foreground), true);
		oneshot_end(oneshot, principal);
	} else if (oneshot->foreground_cell) {
		foreground_cell_abandon(TAKE_PTR(oneshot->foreground_cell));
		oneshot_end(oneshot, principal);
	} else if (oneshot->lent) {
		oneshot_end(oneshot, principal);
	}
}

/* --- it stays --- */

/* One transaction removes the mark and adds the row that the running code needs: if the daemon is
 * killed later, the sandbox stays for the next one; if it is killed earlier, the next one removes
 * it. The idle time leaves time to read the output; nothing else ends the sandbox before its own
 * time-out. */
static int oneshot_mark_detached(struct oneshot *oneshot, struct sandbox *sandbox,
				 struct error *error)
{
	struct store *store = oneshot->core->store;
	struct sandbox_row *row = &sandbox->row;
	uint32_t options = row->options, idle = row->idle_timeout_seconds;
	if (store_transaction_begin(store, error) < 0)
		return -1;
	row->options = (options & ~(uint32_t)OPTION_ONESHOT) | OPTION_DETACHED;
	if (idle == 0 || idle > ONESHOT_LEFT_IDLE_SECONDS)
		row->idle_timeout_seconds = ONESHOT_LEFT_IDLE_SECONDS;
	int result = store_sandbox_update(store, &sandbox->row, error);
	if (result == 0 && oneshot->foreground_cell)
		result = foreground_cell_record(oneshot->foreground_cell, error);
	result = store_transaction_end(store, result, error);
	if (result < 0) {
		row->options = options;
		row->idle_timeout_seconds = idle;
		return result;
	}
	sandbox_touch(sandbox);
	timers_wake_at(oneshot->core, clock_boot());
	return 0;
}

int oneshot_leave(struct oneshot *oneshot, struct error *error)
{
	struct sandbox *sandbox = sandbox_by_id(oneshot->core, &oneshot->id);
	if (!sandbox || sandbox->row.state == SANDBOX_DELETING)
		return error_set(error, ERROR_CONFLICT, "the sandbox is being removed already");
	if (oneshot_mark_detached(oneshot, sandbox, error) < 0)
		return -1;
	free(oneshot);
	return 0;
}

int oneshot_detach(struct oneshot *oneshot, struct sandbox **ret_sandbox, struct exec **ret_exec,
		   struct error *error)
{
	struct sandbox *sandbox = sandbox_by_id(oneshot->core, &oneshot->id);
	struct exec *exec = NULL;
	if (oneshot->foreground)
		exec = foreground_exec(oneshot->foreground);
	else if (oneshot->foreground_cell && foreground_cell_sent(oneshot->foreground_cell))
		exec = code_context_exec(oneshot->foreground_cell->context);
	if (oneshot->cancelled || !sandbox || sandbox->row.state == SANDBOX_DELETING || !exec ||
	    exec_ended(exec))
		return error_set(error, ERROR_CONFLICT,
				 "the one-shot run has not begun, or is over already");
	if (oneshot_mark_detached(oneshot, sandbox, error) < 0)
		return -1;
	if (oneshot->foreground)
		foreground_abandon(oneshot->foreground, false);
	else
		foreground_cell_recorded(oneshot->foreground_cell);
	*ret_sandbox = sandbox;
	*ret_exec = exec;
	free(oneshot->stdin_data);
	free(oneshot);
	return 0;
}
