/* Whole file operations with one callback at the end, for callers without a stream: MCP, dialects,
 * the parts of REST with small answers. They use files.h; nothing here touches a host path. A task
 * belongs to its caller until `done` was called or file_task_cancel(). */
#pragma once

#include "base/buffer.h"
#include "core/file/records.h"
#include "core/file/files.h"

/* The maximum that is read or written at once. */
#define FILE_WHOLE_MAX (16 * MIB)

struct file_task;

/* done is not called any more. */
void file_task_cancel(struct file_task *task);

/* The common arguments. user: NULL is the sandbox's own. Borrowed for the length of the call. */
struct file_place {
	const struct principal *principal; /* who asks */
	const char *path;                  /* inside */
	const char *user;
};

/* --- reading: [offset, offset + max) of a file --- */
struct file_content {
	const char *data; /* borrowed */
	size_t size;
	uint64_t file_size; /* when it was opened; offset + size if that is unknown */
	bool more;          /* the file goes on after it */
};
/* FILE_WRONG_TYPE for a directory, FILE_TOO_LARGE for a max above FILE_WHOLE_MAX. */
NODISCARD int file_read_whole(struct sandbox *sandbox, const struct file_place *place,
			      uint64_t offset, uint64_t max,
			      void (*done)(void *data, const struct file_content *content,
					   const struct error *error),
			      void *data, struct file_task **ret_task, struct error *error);

/* --- writing: atomic, makes parents. mode 0: 0644 for a new file, unchanged for an old --- */
NODISCARD int file_write_whole(struct sandbox *sandbox, const struct file_place *place,
			       const void *bytes, size_t size, uint32_t mode, bool append,
			       void (*done)(void *data, uint64_t written, bool created,
					    const struct error *error),
			       void *data, struct file_task **ret_task, struct error *error);

/* --- what has records; struct file_match is in records.h --- */
struct file_records {
	/* The member for the operation is called; false stops, and `done` comes with cut = true. */
	bool (*entry)(void *data, const struct file_entry *entry);
	bool (*match)(void *data, const struct file_match *match);
	/* Once, last. total: how many were reported; cut: there are more. */
	void (*done)(void *data, uint64_t total, bool cut, const struct error *error);
};
/* Includes names that begin with a dot. depth 1: the entries of the directory; more: a walk, which
 * follows no links, where an entry's name is its path below the place ("src/a.c"). cut is also set
 * if a directory below could not be read. */
NODISCARD int file_list(struct sandbox *sandbox, const struct file_place *place, uint32_t depth,
			uint32_t max, const struct file_records *records, void *data,
			struct file_task **ret_task, struct error *error);
NODISCARD int file_stat(struct sandbox *sandbox, const struct file_place *place, bool follow,
			const struct file_records *records, void *data, struct file_task **ret_task,
			struct error *error);
/* Searches names below the place by a glob. max 0, here and elsewhere: the largest possible
 * maximum. */
struct glob_query {
	const char *pattern;
	bool sorted;         /* by name, if the init supports it */
	bool skip_generated; /* skips .git and node_modules, if the init supports it */
	uint32_t max;
};
NODISCARD int file_glob(struct sandbox *sandbox, const struct file_place *place,
			const struct glob_query *query, const struct file_records *records,
			void *data, struct file_task **ret_task, struct error *error);
/* Searches lines by a regular expression (or as plain text) in the files below the place whose
 * names match the glob (NULL: all). */
struct grep_query {
	const char *pattern, *glob;
	bool plain, ignore_case;
	bool sorted, skip_generated; /* as in glob_query */
	uint32_t max;
};
NODISCARD int file_grep(struct sandbox *sandbox, const struct file_place *place,
			const struct grep_query *query, const struct file_records *records,
			void *data, struct file_task **ret_task, struct error *error);
/* Replaces plain text by plain text; count: the number of replacements. expected > 0: exactly so
 * many, else nothing is changed and INVALID has the number (this reads the whole file). */
NODISCARD int file_replace(struct sandbox *sandbox, const struct file_place *place,
			   const char *old_text, const char *new_text, uint32_t expected,
			   void (*done)(void *data, uint64_t count, const struct error *error),
			   void *data, struct file_task **ret_task, struct error *error);
/* mkdir -p, rm (-r), mv, chmod, chown: operations without a result. */
NODISCARD int file_change(struct sandbox *sandbox, const struct principal *principal,
			  const struct file_request *request,
			  void (*done)(void *data, const struct error *error), void *data,
			  struct file_task **ret_task, struct error *error);
