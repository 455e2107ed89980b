/* Interrupts cells that take too long, or on request: first the interpreter, then its tree, then
 * SIGKILL. Called by the edges, by cells.c and by the timer; nothing blocks. */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/code/code_private.h"
#include "core/exec/exec.h"

static void context_send_interrupt(struct code_context *context, bool tree)
{
	struct error error;
	struct exec *exec = context->life->main.exec;
	if (exec && exec_signal(exec, NULL, SIGINT, tree ? SIGNAL_TREE : SIGNAL_LEADER, &error) < 0)
		log_debug("code context %s: %s", context->row.id.text, error.message);
}

/* The interpreter alone first, since processes that earlier cells left running must not be hit.
 * Bash waits for its command, which must get the signal too; its background processes ignore it. */
void code_interrupt(struct code_context *context)
{
	struct code_life *life = context->life;
	struct foreground_cell *waited = context->running_cell;
	if (!waited || life->interrupts > 0)
		return;
	code_cell_of(context, waited->number)->interrupted = true;
	life->interrupts = 1;
	life->interrupt_at = clock_boot() + CODE_GRACE_LEADER;
	timers_wake_at(context->sandbox->core, life->interrupt_at);
	context_send_interrupt(context, context->row.language == CODE_BASH);
}

bool code_context_interrupt(struct code_context *context)
{
	if (!context->running_cell || !code_context_alive(context))
		return false;
	code_interrupt(context);
	return true;
}

static void context_interrupt_more(struct code_context *context, int64_t now)
{
	struct code_life *life = context->life;
	if (life->interrupts < CODE_INTERRUPTS) {
		life->interrupts++;
		life->interrupt_at = now + CODE_GRACE_TREE;
		context_send_interrupt(context, true);
		return;
	}
	/* The interpreter does not react: the watcher sees its end. */
	life->interrupt_at = 0;
	if (life->main.exec)
		exec_cancel(life->main.exec, NULL);
}

static int64_t code_check_context(struct code_context *context, int64_t now)
{
	struct code_life *life = context->life;
	struct foreground_cell *waited = context->running_cell;
	int64_t next = INT64_MAX;
	if (life->created)
		return life->ready_until;
	if (!waited || waited->number == 0)
		return next;
	/* While the sandbox is paused, the cell's time stands still. */
	if (!state_facts(context->sandbox->row.state)->runs) {
		if (life->held_at == 0)
			life->held_at = now;
		return next;
	}
	if (life->held_at != 0) {
		int64_t held = now - life->held_at;
		waited->deadline += waited->deadline ? held : 0;
		life->interrupt_at += life->interrupt_at ? held : 0;
		life->held_at = 0;
	}
	if (waited->deadline != 0 && waited->deadline <= now) {
		waited->deadline = 0;
		code_cell_of(context, waited->number)->timed_out = true;
		code_interrupt(context);
	}
	if (life->interrupt_at != 0 && life->interrupt_at <= now)
		context_interrupt_more(context, now);
	if (waited->deadline != 0)
		next = waited->deadline;
	if (life->interrupt_at != 0)
		next = MIN(next, life->interrupt_at);
	return next;
}

static struct code_context *context_find_overdue(const struct sandbox *sandbox, int64_t now)
{
	list_each (&sandbox->core->private->contexts, node) {
		struct code_context *context = list_entry(node, struct code_context, link);
		if (context->sandbox == sandbox && code_context_alive(context) &&
		    context->life->created && context->life->ready_until <= now)
			return context;
	}
	return NULL;
}

/* One end may cause others: so nothing is ended while the list is walked. */
static void contexts_end_overdue(struct sandbox *sandbox, int64_t now)
{
	struct code_context *context;
	while ((context = context_find_overdue(sandbox, now))) {
		error_set(&context->life->start_error, ERROR_TIMED_OUT,
			  "its interpreter was not ready in time");
		code_context_ended(context, "its interpreter was not ready in time");
	}
}

int64_t code_check(struct sandbox *sandbox, int64_t now)
{
	int64_t next = INT64_MAX;
	contexts_end_overdue(sandbox, now);
	list_each (&sandbox->core->private->contexts, node) {
		struct code_context *context = list_entry(node, struct code_context, link);
		if (context->sandbox == sandbox && code_context_alive(context))
			next = MIN(next, code_check_context(context, now));
	}
	return next;
}
