/* Handles the init's frames about execs: started, output, ended, left-over processes; settles every
 * exec after a reconnect or after the end of the processes. Called by core/sandbox/link.c with
 * frames that an attacker may control; blocks for the store only. A frame with an unknown key, or
 * one that is invalid in the exec's state, ends the link. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "core/core_private.h"

#define COUNTERS_TIMEOUT_MS 2000

int frame_broken(struct error *error, const char *what)
{
	return error_set(error, ERROR_GUEST_PROTOCOL, "the sandbox's init broke the protocol: %s",
			 what);
}

void exec_send_forget(struct sandbox *sandbox, uint64_t key)
{
	struct error error;
	if (sandbox->guest &&
	    sandbox_send(sandbox, FRAME_FORGET, key, NULL, 0, NULL, 0, &error) < 0)
		log_debug("sandbox %s: %s", sandbox->row.id.text, error.message);
}

static void exec_take_totals(struct exec *exec, const struct output_totals *totals)
{
	/* At most a number that JSON can represent, whatever the guest reports. */
	exec->row.out_total = MIN(totals->out, (uint64_t)INT64_MAX);
	exec->row.err_total = MIN(totals->err, (uint64_t)INT64_MAX);
	exec_logs_refresh(exec);
	if (exec->row.flags & EXEC_READER_LEFT)
		exec_acknowledge(exec);
}

/* So many of the processes of an ended exec are left. Without one its output is final. */
static void exec_take_left_running(struct exec *exec, uint32_t left_running)
{
	exec->row.left_running = left_running;
	/* The log is on the host: it says how much was written even if no frame did. */
	if (exec_logs_open(exec) == 0)
		exec_logs_refresh(exec);
	exec_save_left_running(exec);
	exec_notify(exec);
	if (list_empty(&exec->watchers))
		exec_logs_close(exec);
}

/* The end is known: notifies everybody, and has it written afterwards. */
static void exec_tell_end(struct exec *exec)
{
	struct sandbox *sandbox = exec->sandbox;
	exec->stdin_closed = true;
	exec->pid = 0;
	exec->row.ended_wall = clock_wall();
	sandbox_touch(sandbox);
	exec->telling++;
	exec_notify(exec);
	exec->telling--;
	exec_write_end_soon(exec);
}

static void exec_end(struct exec *exec, const struct exec_result *result)
{
	const uint64_t most = INT64_MAX;
	struct exec_row *row = &exec->row;
	row->state = EXEC_ENDED;
	row->end = result->end;
	row->code = result->code;
	row->wall_ns = MIN(result->wall_ns, most);
	row->cpu_ns = MIN(result->cpu_ns, most);
	row->peak_memory = MIN(result->peak_memory, most);
	row->left_running = result->left_running;
	if (result->end == EXEC_END_LOST && !row->error_message)
		row->error_message =
		    text_duplicate("what watched over it was killed inside the sandbox");
	exec_take_totals(exec, &result->totals);
	histogram_add(&statistics.execs, (int64_t)row->wall_ns);
	statistics.exec_ends[MIN(result->end, STATISTICS_EXEC_ENDS - 1u)]++;
	exec_tell_end(exec);
}

static void exec_fail(struct exec *exec, const struct error *error)
{
	exec->row.state = EXEC_FAILED;
	statistics.execs_failed++;
	exec->row.error_kind = error->kind;
	free(exec->row.error_message);
	exec->row.error_message = text_duplicate(error->message);
	/* Nothing ran, so there is no output. */
	exec_logs_close(exec);
	exec_logs_unlink(exec->sandbox, &exec->row.id);
	exec->logs_removed = true;
	exec->row.head = exec->row.tail = 0;
	exec->row.out_total = exec->row.err_total = 0;
	exec_tell_end(exec);
}

/* `kept`: its result, which had come before; or NULL. */
static void exec_end_lost(struct exec *exec, const struct exec_result *kept)
{
	if (!kept) {
		free(exec->row.error_message);
		exec->row.error_message =
		    text_duplicate(state_facts(exec->sandbox->row.state)->lost);
	}
	struct exec_result result = {
	    .end = EXEC_END_LOST,
	    .totals = {.out = exec->row.out_total, .err = exec->row.err_total},
	    .wall_ns = (uint64_t)MAX(clock_wall() - exec->row.started_wall, 0),
	};
	/* The log is on the host: it says how much was written even if no frame did. */
	if (exec_logs_open(exec) < 0)
		log_debug("exec %s has no logs", exec->row.id.text);
	exec_end(exec, kept ? kept : &result);
}

static void exec_on_counters(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox)
		return;
	if (!answer->error) {
		sandbox->counters = answer->reply->counters;
		sandbox->life->counters_known = true;
	}
	struct exec *exec = exec_by_key(sandbox, answer->number);
	if (!exec || exec_stage_step(&exec->stage, EXEC_EVENT_COUNTED) != EXEC_ACTION_END)
		return;
	exec->row.oom_killed = !answer->error && exec->oom_kills_before != OOM_KILLS_UNKNOWN &&
			       sandbox->counters.oom_kills > exec->oom_kills_before;
	exec_end(exec, &exec->result);
	exec_trim(sandbox);
}

static void exec_exited(struct exec *exec, const struct exec_result *result)
{
	struct spawn_message message = {.type = SPAWN_COUNTERS};
	struct error error;
	/* Could the kernel's OOM killer have ended it? Checks its own end, a shell's exit code for
	 * such an end of its last command, and the end of its runner. */
	bool looks_killed = (result->end == EXEC_END_SIGNALED && result->code == SIGKILL) ||
			    (result->end == EXEC_END_EXITED && result->code == 128 + SIGKILL) ||
			    result->end == EXEC_END_LOST;
	enum exec_action action =
	    exec_stage_step(&exec->stage, looks_killed ? EXEC_EVENT_KILLED : EXEC_EVENT_EXITED);
	if (action == EXEC_ACTION_ASK) {
		exec->result = *result;
		if (sandbox_ask_spawner(exec->sandbox, &message, NULL, 0, COUNTERS_TIMEOUT_MS,
					exec_on_counters, NULL, exec->row.key, &error) == 0)
			return;
		action = exec_stage_step(&exec->stage, EXEC_EVENT_COUNTED);
	}
	if (action == EXEC_ACTION_END) {
		exec_end(exec, result);
	} else if (action == EXEC_ACTION_LEAVE) {
		exec_take_totals(exec, &result->totals);
		exec_take_left_running(exec, result->left_running);
	}
}

void exec_watch_time(struct exec *exec)
{
	exec->overdue_at =
	    clock_boot() + (exec->row.timeout_ms + (int64_t)OVERDUE_GRACE_MS) * NSEC_PER_MSEC;
	timers_wake_at(exec->sandbox->core, exec->overdue_at);
}

/* Does it wait for a reader of its output? The init reports its end only after all output was
 * read. */
static bool exec_waits_for_reader(const struct exec *exec)
{
	return exec->row.flags & EXEC_LOSSLESS && (exec->consumed.out < exec->row.out_total ||
						   exec->consumed.err < exec->row.err_total);
}

/* Its time-out has passed and its end was not reported: answers its clients, and checks whether the
 * init still responds. The fate of the processes is unknown. */
static void exec_give_up(struct exec *exec)
{
	struct sandbox *sandbox = exec->sandbox;
	if (exec_stage_step(&exec->stage, EXEC_EVENT_OVERDUE) != EXEC_ACTION_GIVE_UP)
		return;
	log_warning("sandbox %s: its init did not end exec %s, whose time-out has passed",
		    sandbox->row.id.text, exec->row.id.text);
	struct exec_result result = {
	    .end = EXEC_END_TIMED_OUT,
	    .code = SIGKILL,
	    .totals = {.out = exec->row.out_total, .err = exec->row.err_total},
	    .wall_ns = (uint64_t)MAX(clock_wall() - exec->row.started_wall, 0),
	};
	if (exec_logs_open(exec) < 0)
		log_debug("exec %s has no logs", exec->row.id.text);
	exec_end(exec, &result);
	if (sandbox->guest)
		guest_link_doubt(sandbox->guest);
}

int64_t exec_check_overdue(struct sandbox *sandbox, int64_t now)
{
	int64_t next = INT64_MAX;
	const int64_t grace = OVERDUE_GRACE_MS * NSEC_PER_MSEC;
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (exec->overdue_at == 0 || exec->stage > EXEC_STAGE_RUNNING)
			continue;
		/* A paused init reports nothing, and gets its time after the resume. */
		if (exec->overdue_at <= now &&
		    (!state_facts(sandbox->row.state)->runs || exec_waits_for_reader(exec)))
			exec->overdue_at = now + 2 * grace;
		if (exec->overdue_at <= now)
			exec_give_up(exec);
		else
			next = MIN(next, exec->overdue_at);
	}
	return next;
}

bool exec_any_given_up(const struct sandbox *sandbox)
{
	list_each (&sandbox->execs, node)
		if (list_entry(node, struct exec, link)->stage == EXEC_STAGE_GIVEN_UP)
			return true;
	return false;
}

static int exec_handle_started(struct exec *exec, const struct frame *frame, struct error *error)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	uint32_t pid = read_u32(&reader);
	if (exec->stage == EXEC_STAGE_GIVEN_UP)
		return 0;
	if (reader_finish(&reader) < 0 ||
	    exec_stage_step(&exec->stage, EXEC_EVENT_STARTED) != EXEC_ACTION_RUN)
		return frame_broken(error, "STARTED");
	exec->pid = pid;
	/* Not stored: at a restart `starting` and `running` are the same, since the init is
	 * asked. */
	exec->row.state = EXEC_RUNNING;
	exec->row.started_wall = clock_wall();
	if (exec->row.timeout_ms > 0)
		exec_watch_time(exec);
	/* Send held signals before notifying watchers: a watcher may send further ones, which must
	 * come later. */
	if (exec->held_signals[SIGNAL_LEADER] | exec->held_signals[SIGNAL_TREE])
		exec_send_held(exec);
	exec_notify(exec);
	return 0;
}

static int exec_handle_start_failed(struct exec *exec, const struct frame *frame,
				    struct error *error)
{
	struct failure failure;
	struct error why;
	enum exec_action action = EXEC_ACTION_BREAK;
	if (failure_read(frame, &failure) == 0)
		action = exec_stage_step(&exec->stage, EXEC_EVENT_START_FAILED);
	if (action == EXEC_ACTION_BREAK)
		return frame_broken(error, "START_FAILED");
	error_from_failure(&why, &failure);
	if (action == EXEC_ACTION_FAIL)
		exec_fail(exec, &why);
	return 0;
}

static int exec_handle_progress(struct exec *exec, const struct frame *frame, struct error *error)
{
	struct output_totals totals;
	if (output_totals_read(frame, &totals) < 0)
		return frame_broken(error, "PROGRESS");
	/* Processes that continued after its end still write; that is stored when they have
	 * ended. */
	exec_take_totals(exec, &totals);
	exec_logs_grown(exec->sandbox);
	exec_notify(exec);
	exec_acknowledge(exec);
	return 0;
}

static int exec_handle_credit(struct exec *exec, const struct frame *frame, struct error *error)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	uint32_t bytes = read_u32(&reader);
	if (reader_finish(&reader) < 0 || !(exec->row.flags & EXEC_STDIN))
		return frame_broken(error, "CREDIT");
	if (exec->stdin_broken)
		return 0;
	if (bytes > FILE_WINDOW - exec->stdin_credit)
		return frame_broken(error, "more CREDIT than was used");
	exec->stdin_credit += bytes;
	exec->stdin_wanted = false;
	exec_notify(exec);
	return 0;
}

static int exec_handle_gone(struct exec *exec, const struct frame *frame, struct error *error)
{
	/* Before the list has come, the frame may concern an exec whose end an earlier link
	 * reported. */
	if (frame->size == 0 && exec->sandbox->life->resyncing && exec->stage <= EXEC_STAGE_RUNNING)
		return 0;
	if (frame->size != 0 || exec_stage_step(&exec->stage, EXEC_EVENT_GONE) == EXEC_ACTION_BREAK)
		return frame_broken(error, "GONE");
	if (exec->stage == EXEC_STAGE_ASKING) {
		exec->result.left_running = 0;
		return 0;
	}
	if (exec->row.left_running == 0)
		return 0;
	exec_take_left_running(exec, 0);
	return 0;
}

/* Its end was told: processes that it left running may have written or ended since. */
static void exec_listed_ended(struct exec *exec, const struct exec_status *status)
{
	enum exec_action action = EXEC_ACTION_NONE;
	if (status->phase == EXEC_PHASE_ENDED)
		action = exec_stage_step(&exec->stage, EXEC_EVENT_EXITED);
	if (exec->row.left_running > 0 || action == EXEC_ACTION_LEAVE) {
		exec_take_totals(exec, &status->result.totals);
		exec_take_left_running(exec, status->result.left_running);
	}
	/* An end that is still to be written is forgotten after that. */
	if (exec->written == EXEC_WRITTEN)
		exec_send_forget(exec->sandbox, exec->row.key);
}

static int exec_handle_listed(struct sandbox *sandbox, const struct frame *frame,
			      struct error *error)
{
	struct exec_status status;
	if (!sandbox->life->resyncing || exec_status_read(frame, &status) < 0)
		return frame_broken(error, "LISTED");
	struct exec *exec = exec_by_key(sandbox, frame->id);
	if (!exec) {
		if (frame->id == 0 || frame->id > sandbox->row.last_exec_key)
			return frame_broken(error, "LISTED with a key that was never given out");
		/* Its end is in the store; the FORGET was lost. */
		exec_send_forget(sandbox, frame->id);
		return 0;
	}
	if (exec->listed)
		return frame_broken(error, "LISTED twice");
	exec->listed = true;
	if (exec_ended(exec)) {
		exec_listed_ended(exec, &status);
		return 0;
	}
	exec->pid = status.pid;
	if (status.phase == EXEC_PHASE_ENDED) {
		exec_exited(exec, &status.result);
		return 0;
	}
	if (status.phase == EXEC_PHASE_RUNNING &&
	    exec_stage_step(&exec->stage, EXEC_EVENT_LISTED) == EXEC_ACTION_RUN)
		exec->row.state = EXEC_RUNNING;
	if (exec_logs_open(exec) < 0)
		log_warning("exec %s has no logs", exec->row.id.text);
	exec_take_totals(exec, &status.result.totals);
	exec_notify(exec);
	return 0;
}

/* Settles an exec that the init does not know. */
static void exec_settle_unlisted(struct exec *exec)
{
	struct error error;
	if (exec->listed || exec->row.key > exec->sandbox->life->resync_key)
		return;
	enum exec_action action = exec_stage_step(&exec->stage, EXEC_EVENT_UNLISTED);
	if (action == EXEC_ACTION_FAIL) {
		error_set(&error, ERROR_GUEST_GONE,
			  "the connection to the sandbox was lost before the command was started");
		exec_fail(exec, &error);
	} else if (action == EXEC_ACTION_LOSE) {
		exec_end_lost(exec, NULL);
	} else if (exec->row.left_running > 0) {
		exec_take_left_running(exec, 0);
	}
}

static void execs_on_baseline(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || answer->error)
		return;
	sandbox->counters = answer->reply->counters;
	sandbox->life->counters_known = true;
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (!exec_ended(exec) && exec->oom_kills_before == OOM_KILLS_UNKNOWN)
			exec->oom_kills_before = sandbox->counters.oom_kills;
	}
}

static int execs_handle_list_end(struct sandbox *sandbox, const struct frame *frame,
				 struct error *error)
{
	struct spawn_message message = {.type = SPAWN_COUNTERS};
	struct error ignored;
	if (!sandbox->life->resyncing || frame->size != 0 || frame->id != 0)
		return frame_broken(error, "LIST_END");
	sandbox->life->resyncing = false;
	sandbox->guest_ready = true;
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		exec_settle_unlisted(exec);
		if (exec->row.state == EXEC_RUNNING)
			exec_send_held(exec);
		if (!exec_ended(exec) || exec->row.left_running > 0)
			exec_acknowledge(exec);
	}
	if (!sandbox->life->counters_known &&
	    sandbox_ask_spawner(sandbox, &message, NULL, 0, COUNTERS_TIMEOUT_MS, execs_on_baseline,
				NULL, 0, &ignored) < 0)
		log_debug("sandbox %s: %s", sandbox->row.id.text, ignored.message);
	link_send_deadline(sandbox);
	exec_drained(sandbox);
	exec_trim(sandbox);
	ready_settle(sandbox);
	return 0;
}

int exec_resync(struct sandbox *sandbox, struct error *error)
{
	list_each (&sandbox->execs, node)
		list_entry(node, struct exec, link)->listed = false;
	sandbox->life->resync_key = sandbox->row.last_exec_key;
	sandbox->life->resyncing = true;
	return sandbox_send(sandbox, FRAME_LIST, 0, NULL, 0, NULL, 0, error);
}

static int exec_handle_exited(struct exec *exec, const struct frame *frame, struct error *error)
{
	struct exec_result result;
	/* Before the list has come, an exec may end whose start an earlier link reported. */
	if (exec_result_read(frame, &result) < 0 ||
	    (exec->row.state == EXEC_STARTING && !exec->sandbox->life->resyncing))
		return frame_broken(error, "EXITED");
	exec_exited(exec, &result);
	exec_trim(exec->sandbox);
	return 0;
}

int exec_handle_frame(struct sandbox *sandbox, const struct frame *frame, struct error *error)
{
	if (frame->type == FRAME_LISTED)
		return exec_handle_listed(sandbox, frame, error);
	if (frame->type == FRAME_LIST_END)
		return execs_handle_list_end(sandbox, frame, error);
	struct exec *exec = exec_by_key(sandbox, frame->id);
	if (!exec) {
		if (frame->id == 0 || frame->id > sandbox->row.last_exec_key)
			return frame_broken(error, "a frame with a key that was never given out");
		return 0; /* ended and no longer in memory: its left-over processes still write */
	}
	switch (frame->type) {
	case FRAME_STARTED:
		return exec_handle_started(exec, frame, error);
	case FRAME_START_FAILED:
		return exec_handle_start_failed(exec, frame, error);
	case FRAME_PROGRESS:
		return exec_handle_progress(exec, frame, error);
	case FRAME_CREDIT:
		return exec_handle_credit(exec, frame, error);
	case FRAME_EXITED:
		return exec_handle_exited(exec, frame, error);
	case FRAME_GONE:
		return exec_handle_gone(exec, frame, error);
	case FRAME_LEFT_RUNNING:
		return left_queries_answer(exec, frame, error);
	default:
		return frame_broken(error, "a frame that is not about an exec");
	}
}

void exec_all_lost(struct sandbox *sandbox)
{
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		exec_write_end_now(exec);
		enum exec_action action = exec_stage_step(&exec->stage, EXEC_EVENT_LOST);
		if (action != EXEC_ACTION_NONE) {
			exec_end_lost(exec, action == EXEC_ACTION_END ? &exec->result : NULL);
			/* The sandbox may be freed before the next turn. */
			exec_write_end_now(exec);
		} else if (exec->row.left_running > 0) {
			exec_take_left_running(exec, 0);
		}
	}
}
