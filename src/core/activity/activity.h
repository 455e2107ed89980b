/* What happened: one entry for every command, file change, lifecycle step and decision, in the
 * order it happened. There is one place for it: an entry is the sandbox's activity timeline, the
 * workspace's event stream and the ground of every receipt.
 *
 * Within a sandbox entries are numbered from 1, and each carries the hash of the one before, so
 * that none can be changed or left out unseen (docs/activity.md has the exact bytes). Across all
 * sandboxes `sequence` orders them: it is the event's id, never used twice, and who comes back with
 * it misses nothing that is still kept.
 *
 * What an entry says is a short list of key and value; values pass the redaction rules before they
 * are hashed and stored. No output of a command, no content of a file, no token is ever in one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "core/core.h"
#include "proto/receipt.h"
#include "store/activity.h"

struct sandbox;

/* The numbers are in the database: append only. The name of each is part of the API. */
#define ACTIVITY_KINDS(X)                                                                          \
	X(SANDBOX_CREATED, 1, "sandbox.created")                                                   \
	X(SANDBOX_RUNNING, 2, "sandbox.running")                                                   \
	X(SANDBOX_PAUSED, 3, "sandbox.paused")                                                     \
	X(SANDBOX_RESUMED, 4, "sandbox.resumed")                                                   \
	X(SANDBOX_STOPPED, 5, "sandbox.stopped")                                                   \
	X(SANDBOX_STARTED, 6, "sandbox.started")                                                   \
	X(SANDBOX_CHANGED, 7, "sandbox.changed")                                                   \
	X(SANDBOX_ENDED, 8, "sandbox.ended")                                                       \
	X(SANDBOX_FAILED, 9, "sandbox.failed")                                                     \
	X(EXEC_STARTED, 20, "exec.started")                                                        \
	X(EXEC_ENDED, 21, "exec.ended")                                                            \
	X(EXEC_FAILED, 22, "exec.failed")                                                          \
	X(EXEC_SIGNALLED, 23, "exec.signalled")                                                    \
	X(EXEC_DELETED, 24, "exec.deleted")                                                        \
	X(FILE_WRITTEN, 40, "file.written")                                                        \
	X(FILE_READ, 41, "file.read")                                                              \
	X(FILE_CHANGED, 42, "file.changed")                                                        \
	X(FILE_REMOVED, 43, "file.removed")                                                        \
	X(FILE_URL_SIGNED, 44, "file.url_signed")                                                  \
	X(CODE_CONTEXT_CREATED, 60, "code.context_created")                                        \
	X(CODE_CONTEXT_ENDED, 61, "code.context_ended")                                            \
	X(CODE_RAN, 62, "code.ran")                                                                \
	X(BUDGET_REFUSED, 80, "budget.refused")                                                    \
	X(ENTRIES_DROPPED, 99, "activity.dropped")

enum activity_kind {
#define X(name, number, text) ACTIVITY_##name = number,
	ACTIVITY_KINDS(X)
#undef X
};
const char *activity_kind_name(uint32_t kind); /* NULL: there is none */

#define ACTIVITY_DETAILS_MAX 12
#define ACTIVITY_VALUE_MAX 1024 /* longer ones are cut, and end with "…" */

struct detail {
	const char *key;
	const char *value; /* NULL: left out */
};

/* Records it. Never fails for the caller: what cannot be stored waits in memory, and what does not
 * find room there is counted, logged, and recorded as `activity.dropped` when the store is well
 * again. `principal` NULL: the daemon itself ("system"). `exec` NULL: none. Numbered and chained at
 * once, written with the next write of its sandbox's or exec's row, or by itself: exec.started and
 * sandbox.created within 50 ms, all others in the next turn of the loop. */
void activity_record(struct sandbox *sandbox, enum activity_kind kind,
		     const struct principal *principal, const struct id *exec,
		     const struct detail *details, size_t count);
#define ACTIVITY(sandbox, kind, principal, exec, ...)                                              \
	activity_record(sandbox, kind, principal, exec, (const struct detail[]){__VA_ARGS__},      \
			sizeof((const struct detail[]){__VA_ARGS__}) / sizeof(struct detail))

/* Told of every entry when it is in the store, in the order of the sequence, in a turn of its own:
 * it may do anything. The row is borrowed for the length of the call. */
struct activity_listener {
	struct list link;
	void (*recorded)(struct activity_listener *listener, const struct activity_row *row);
};
void activity_listen(struct core *core, struct activity_listener *listener);
void activity_unlisten(struct activity_listener *listener);

/* "token:ID", "local:UID" or "system". */
#define ACTIVITY_ACTOR_MAX 40
void activity_actor(const struct principal *principal, char actor[ACTIVITY_ACTOR_MAX]);
/* As activity_record(), for what was begun by somebody who is not there any more. */
void activity_record_by(struct sandbox *sandbox, enum activity_kind kind, const char *actor,
			const struct id *exec, const struct detail *details, size_t count);
/* The newest entry of the sandbox did not come true: it is as if it was never recorded. For the
 * turn of the loop that recorded it, before anything else was. */
void activity_take_back(struct sandbox *sandbox);
/* Writes something to the store, and in the same transaction every entry that waits. As `write`
 * went; where only the entries cannot be written they wait on. */
NODISCARD int activity_save(struct core *core, int (*write)(void *data, struct error *error),
			    void *data, struct error *error);

/* Entries, those that wait to be written among them. each must not call the store. */
NODISCARD int activity_each(struct core *core, const struct activity_query *query,
			    bool (*each)(void *data, const struct activity_row *row), void *data,
			    struct error *error);
/* The same of those that are written. */
NODISCARD int activity_each_written(struct core *core, const struct activity_query *query,
				    bool (*each)(void *data, const struct activity_row *row),
				    void *data, struct error *error);
/* In which sandbox an exec was started, and which of its entries says so: 1, or 0 where nothing of
 * it is kept. */
NODISCARD int activity_started(struct core *core, const struct id *exec, struct id *ret_sandbox,
			       uint64_t *ret_number, struct error *error);
/* A cursor: where a client goes on in a workspace's stream of events (a sequence) or in a sandbox's
 * timeline (a number). It is given out and taken back as a text whose form is known here alone. */
#define ACTIVITY_CURSOR_MAX 24
void activity_cursor_print(uint64_t place, char cursor[ACTIVITY_CURSOR_MAX]);
/* INVALID says what `name` must be; a place before `first` is none. */
NODISCARD int activity_cursor_parse(const char *name, const char *cursor, uint64_t first,
				    uint64_t *ret_place, struct error *error);
/* Where the stream goes on behind a cursor; "": at its end, NULL: with the oldest that is kept.
 * CURSOR_GONE when what comes next is not kept any more, or the cursor is of no event yet. */
NODISCARD int activity_seek(struct core *core, const char *workspace, const char *name,
			    const char *cursor, uint64_t *ret_place, struct error *error);
/* The newest sequence that is written; and up to which something of a workspace's was pruned. */
NODISCARD int activity_last(struct core *core, uint64_t *ret_sequence, struct error *error);
NODISCARD int activity_pruned(struct core *core, const char *workspace, uint64_t *ret_sequence,
			      struct error *error);

/* --- the parts --- */

/* "exec.ended,file" to ",21,40,41,...,": what store/activity.h takes. INVALID names the word. */
#define ACTIVITY_KIND_LIST_MAX 256
NODISCARD int activity_kinds_parse(const char *text, char *ret_list, size_t room,
				   struct error *error);
/* Appends the text without its secrets; patterns: names with '*', blanks or commas between. What
 * does not fit the buffer is left out. */
void activity_redact(const char *patterns, const char *text, struct buffer *ret_text);
/* A command by its arguments, with blanks between: what follows a secret's name is left out to the
 * end of its argument; a script for a shell is read as one. */
void activity_redact_command(const char *patterns, const char *const *argv, size_t argc,
			     struct buffer *ret_text);
/* ... of which only the joined text is known: to the text's end, but for /bin/sh -c. */
void activity_redact_joined(const char *patterns, const char *command, struct buffer *ret_text);

/* core.c, timers.c */
void activity_start(struct core *core);
/* Writes what waits. */
void activity_flush(struct core *core);
/* Writes what waits; nothing is recorded any more. */
void activity_stop(struct core *core);
/* A batch of what is too old or too much; true: there is more. */
bool activity_prune(struct core *core);
