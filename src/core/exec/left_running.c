/* The left-over processes of an exec: asks the init for its live descendants. Called by frames.c,
 * timers.c and all code that reports the end of an exec; waits through callbacks. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"

#define LEFT_PROCESSES_MAX 1024

void left_queries_finish(struct exec *exec, const struct left_process *processes, size_t count,
			 const struct error *error)
{
	struct list due;
	list_init(&due);
	exec->telling++; /* the next query uses it too */
	while (!list_empty(&exec->left_queries)) {
		struct list *node = exec->left_queries.next;
		list_remove(node);
		list_append(&due, node);
	}
	while (!list_empty(&due)) {
		struct left_query *query = list_entry(due.next, struct left_query, link);
		list_remove(&query->link);
		query->done(query->data, processes, count, error);
		free(query);
	}
	exec->telling--;
}

/* Reads a command line from the guest: cut, and made printable. */
static void left_command_read(struct reader *reader, char *command, size_t room)
{
	struct bytes text = read_bytes(reader, FRAME_PAYLOAD_MAX);
	size_t size = MIN(text.size, room - 1);
	if (size > 0)
		memcpy(command, text.data, size);
	size = text_utf8_prefix(command, size);
	command[size] = '\0';
	bool utf8 = text_is_utf8(command, size);
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)command[i];
		if (c < 0x20 || c == 0x7f || (!utf8 && c >= 0x80))
			command[i] = '?';
	}
}

int left_queries_answer(struct exec *exec, const struct frame *frame, struct error *error)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	uint32_t count = read_u32(&reader);
	if (!exec->left_running_requested)
		return frame_broken(error, "LEFT_RUNNING that was not asked for");
	exec->left_running_requested = false;
	/* Each takes at least eight bytes: a larger number cannot fit the frame. */
	if (count > frame->size / 8)
		return frame_broken(error, "LEFT_RUNNING");
	uint32_t kept = MIN(count, LEFT_PROCESSES_MAX);
	struct left_process *processes = calloc(kept + 1, sizeof(*processes));
	struct left_process skipped;
	if (!processes)
		abort();
	for (uint32_t i = 0; i < count; i++) {
		struct left_process *process = i < kept ? &processes[i] : &skipped;
		process->pid = read_u32(&reader);
		left_command_read(&reader, process->command, sizeof(process->command));
	}
	if (reader_finish(&reader) < 0) {
		free(processes);
		return frame_broken(error, "LEFT_RUNNING");
	}
	left_queries_finish(exec, processes, kept, NULL);
	free(processes);
	return 0;
}

static void left_query_answer_none(void *data)
{
	struct left_query *query = data;
	query->done(query->data, NULL, 0, NULL);
	free(query);
}

int exec_left_running(struct exec *exec,
		      void (*done)(void *data, const struct left_process *processes, size_t count,
				   const struct error *error),
		      void *data, struct error *error)
{
	struct left_query *query = calloc(1, sizeof(*query));
	if (!query)
		abort();
	*query = (struct left_query){
	    .exec = exec,
	    .done = done,
	    .data = data,
	    .until = clock_boot() + LEFT_RUNNING_TIMEOUT_MS * NSEC_PER_MSEC,
	};
	if (exec_ended(exec) && exec->row.left_running == 0) {
		core_later(exec->sandbox->core, left_query_answer_none, query);
		return 0;
	}
	/* One request at a time; further queries get the same answer. */
	if (!exec->left_running_requested &&
	    sandbox_send(exec->sandbox, FRAME_LEFT_RUNNING, exec->row.key, NULL, 0, NULL, 0,
			 error) < 0) {
		free(query);
		return -1;
	}
	exec->left_running_requested = true;
	list_append(&exec->left_queries, &query->link);
	timers_wake_at(exec->sandbox->core, query->until);
	return 0;
}

/* Moves the expired queries of one exec to `due`; returns when the next expires. */
static int64_t left_queries_take_due(struct exec *exec, int64_t now, struct list *due)
{
	int64_t next = INT64_MAX;
	list_each (&exec->left_queries, node) {
		struct left_query *query = list_entry(node, struct left_query, link);
		if (query->until > now) {
			next = MIN(next, query->until);
			continue;
		}
		list_remove(node);
		list_append(due, node);
		query->exec->telling++; /* until it is answered */
	}
	return next;
}

int64_t left_queries_check(struct sandbox *sandbox, int64_t now)
{
	int64_t next = INT64_MAX;
	struct list due;
	list_init(&due);
	list_each (&sandbox->execs, node)
		next = MIN(next,
			   left_queries_take_due(list_entry(node, struct exec, link), now, &due));
	while (!list_empty(&due)) {
		struct left_query *query = list_entry(due.next, struct left_query, link);
		list_remove(&query->link);
		log_warning("sandbox %s: its init did not say in time what is left running",
			    sandbox->row.id.text);
		query->done(query->data, NULL, 0, NULL);
		query->exec->telling--;
		free(query);
	}
	return next;
}

struct finish_call {
	void (*done)(void *data, const struct left_process *processes, size_t count);
	void *data;
};

static void finish_call_answered(void *data, const struct left_process *processes, size_t count,
				 const struct error *error)
{
	struct finish_call *finish = data;
	finish->done(finish->data, processes, error ? 0 : count);
	free(finish);
}

void exec_finish(struct exec *exec,
		 void (*done)(void *data, const struct left_process *processes, size_t count),
		 void *data)
{
	struct error error;
	if (exec->row.left_running == 0) {
		done(data, NULL, 0);
		return;
	}
	struct finish_call *finish = malloc(sizeof(*finish));
	if (!finish)
		abort();
	*finish = (struct finish_call){done, data};
	if (exec_left_running(exec, finish_call_answered, finish, &error) < 0) {
		free(finish);
		done(data, NULL, 0);
	}
}
