/* Whole file operations with one callback at the end, for those who want no stream: MCP, dialects,
 * the parts of REST that answer small things. They stand on files.h; nothing here touches a host
 * path. A task belongs to its caller until `done` was called or file_task_cancel(). */
#pragma once

#include "base/buffer.h"
#include "core/file/records.h"
#include "core/file/files.h"

/* The most that is read or written at once. */
#define FILE_WHOLE_MAX (16 * MIB)

struct file_task;

/* done is not called any more. */
void file_task_cancel(struct file_task *task);

/* What is common to them. user: NULL is the sandbox's own. Borrowed for the length of the call. */
struct file_place {
	const struct principal *principal; /* who asks */
	const char *path;                  /* inside */
	const char *user;
};

/* --- reading: [offset, offset + max) of a file --- */
struct file_content {
	const char *data; /* borrowed */
	size_t size;
	uint64_t
	    file_size; /* as it was when it was opened; where that is not known, offset + size */
	bool more;     /* the file goes on after it */
};
/* FILE_WRONG_TYPE for a directory, FILE_TOO_LARGE for a max above FILE_WHOLE_MAX. */
NODISCARD int file_read_whole(struct sandbox *sandbox, const struct file_place *place,
			      uint64_t offset, uint64_t max,
			      void (*done)(void *data, const struct file_content *content,
					   const struct error *error),
			      void *data, struct file_task **ret_task, struct error *error);

/* --- writing: atomic, its parents are made. mode 0: 0644 for a new one, as it is for an old. ---
 */
NODISCARD int file_write_whole(struct sandbox *sandbox, const struct file_place *place,
			       const void *bytes, size_t size, uint32_t mode, bool append,
			       void (*done)(void *data, uint64_t written, bool created,
					    const struct error *error),
			       void *data, struct file_task **ret_task, struct error *error);

/* --- what has records; struct file_match is in records.h --- */
struct file_records {
	/* One of these, by the operation; false: enough, `done` comes with cut = true. */
	bool (*entry)(void *data, const struct file_entry *entry);
	bool (*match)(void *data, const struct file_match *match);
	/* Once, last. total: how many were told of; cut: there are more. */
	void (*done)(void *data, uint64_t total, bool cut, const struct error *error);
};
/* What begins with a dot too. depth 1: what is in the directory, more: a walk, which follows no
 * links; an entry's name is its path below the place then ("src/a.c"). cut: also where a directory
 * below could not be looked into. */
NODISCARD int file_list(struct sandbox *sandbox, const struct file_place *place, uint32_t depth,
			uint32_t max, const struct file_records *records, void *data,
			struct file_task **ret_task, struct error *error);
NODISCARD int file_stat(struct sandbox *sandbox, const struct file_place *place, bool follow,
			const struct file_records *records, void *data, struct file_task **ret_task,
			struct error *error);
/* Names by a glob below the place. max 0, here and elsewhere: as many as may be. */
struct glob_ask {
	const char *pattern;
	bool sorted;         /* by name, as far as its init can */
	bool skip_generated; /* what is in .git and node_modules, as far as its init can */
	uint32_t max;
};
NODISCARD int file_glob(struct sandbox *sandbox, const struct file_place *place,
			const struct glob_ask *ask, const struct file_records *records, void *data,
			struct file_task **ret_task, struct error *error);
/* Lines by a regular expression (or as plain text) in the files below the place whose names match
 * the glob (NULL: all). */
struct grep_ask {
	const char *pattern, *glob;
	bool plain, ignore_case;
	bool sorted, skip_generated; /* as of glob_ask */
	uint32_t max;
};
NODISCARD int file_grep(struct sandbox *sandbox, const struct file_place *place,
			const struct grep_ask *ask, const struct file_records *records, void *data,
			struct file_task **ret_task, struct error *error);
/* Plain text in the place of plain text; count: how many were replaced. expected > 0: exactly so
 * many, or nothing is changed and INVALID says how many there are (the whole file is read for it).
 */
NODISCARD int file_replace(struct sandbox *sandbox, const struct file_place *place,
			   const char *old_text, const char *new_text, uint32_t expected,
			   void (*done)(void *data, uint64_t count, const struct error *error),
			   void *data, struct file_task **ret_task, struct error *error);
/* mkdir -p, rm (-r), mv, chmod, chown: what has no result of its own. */
NODISCARD int file_change(struct sandbox *sandbox, const struct principal *principal,
			  const struct file_request *request,
			  void (*done)(void *data, const struct error *error), void *data,
			  struct file_task **ret_task, struct error *error);
