/* What tasks.c and search.c share: a task is one or several operations, one after the other, with
 * callbacks to its owner in the name of the original caller. */
#pragma once

#include "core/file/tasks.h"

struct file_task {
	struct core *core;
	struct id sandbox;
	struct kept_principal caller;
	struct file_request request; /* of the current operation; the task owns its texts */
	char *path;
	struct file_operation_handle *handle; /* NULL: no operation is under way */
	bool busy;                            /* in a step: it is freed after the step */
	bool over;                            /* the owner was told, or has cancelled it */

	/* The steps. Each may begin the next operation, or call file_task_over(). */
	bool (*on_data)(struct file_task *task, const void *bytes, size_t size); /* false: bad */
	void (*on_credit)(struct file_task *task);
	void (*on_done)(struct file_task *task, const struct file_outcome *outcome,
			const struct error *error);
	/* Calls the owner's `done` with an error; NULL: with the result. */
	void (*tell)(struct file_task *task, const struct error *error);
	void (*release)(struct file_task *task); /* NULL, or frees additional data */

	void *data;
	union {
		void *any; /* by enum file_operation */
		void (*content)(void *data, const struct file_content *content,
				const struct error *error);
		void (*written)(void *data, uint64_t written, bool created,
				const struct error *error);
		void (*count)(void *data, uint64_t count, const struct error *error);
		void (*plain)(void *data, const struct error *error);
	} done;

	/* file_read_whole, file_write_whole, file_replace */
	struct buffer bytes;
	size_t at;
	uint64_t offset, max, result;
	uint32_t mode;
	bool append, created;
	char *old_text, *new_text;
	uint32_t expected;

	/* search.c */
	struct file_records records;
	struct list directories; /* struct directory: still to be listed */
	uint32_t directory_count;
	uint32_t depth, limit;
	uint64_t told;
	bool cut;
};

/* Makes a task for that place; it does not begin anything. NULL with INVALID. */
struct file_task *file_task_new(struct sandbox *sandbox, const struct file_place *place, void *data,
				struct error *error);
void file_task_free(struct file_task *task);
/* Begins request.operation. */
NODISCARD int file_task_begin(struct file_task *task, struct error *error);
/* The same for the first operation of a task: frees the task on failure. */
NODISCARD int file_task_first(struct file_task *task, struct file_task **ret_task,
			      struct error *error);
/* Calls the owner's `done`, once; cancels the current operation. Only in a step. */
void file_task_over(struct file_task *task, const struct error *error);
struct bytes text_bytes(const char *text);
