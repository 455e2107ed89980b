/* One entry for every command, file change, state change and decision, in their order. Entries are
 * the only source of a sandbox's activity timeline, the workspace's event stream and every receipt.
 *
 * Within a sandbox entries are numbered from 1, and each has the hash of the one before, so that a
 * change or removal is detected (docs/activity.md has the exact bytes). Across all sandboxes
 * `sequence` orders them: it is the event's id and is never used twice. A client that continues
 * from it misses no entry that is still kept.
 *
 * The details of an entry are a short list of keys and values; values are redacted before they are
 * hashed and stored. An entry never contains output of a command, content of a file or a token. */
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
const char *activity_kind_name(uint32_t kind); /* NULL: unknown kind */

#define ACTIVITY_DETAILS_MAX 12
#define ACTIVITY_VALUE_MAX 1024 /* longer ones are cut, and end with "…" */

struct detail {
	const char *key;
	const char *value; /* NULL: left out */
};

/* Records an entry. Never fails for the caller: entries that cannot be stored wait in memory; if
 * there is no room, they are counted, logged, and recorded as `activity.dropped` when the store
 * works again. `principal` NULL: the daemon itself ("system"). `exec` NULL: none. The entry is
 * numbered and chained at once. It is written with the next write of its sandbox's or exec's row,
 * or separately: exec.started and sandbox.created within 50 ms, all others in the next turn of the
 * loop. */
void activity_record(struct sandbox *sandbox, enum activity_kind kind,
		     const struct principal *principal, const struct id *exec,
		     const struct detail *details, size_t count);
#define ACTIVITY(sandbox, kind, principal, exec, ...)                                              \
	activity_record(sandbox, kind, principal, exec, (const struct detail[]){__VA_ARGS__},      \
			sizeof((const struct detail[]){__VA_ARGS__}) / sizeof(struct detail))

/* Gets every entry after it was written to the store, in the order of the sequence, in a separate
 * turn: it may do anything. The row is borrowed for the length of the call. */
struct activity_listener {
	struct list link;
	void (*recorded)(struct activity_listener *listener, const struct activity_row *row);
};
void activity_listen(struct core *core, struct activity_listener *listener);
void activity_unlisten(struct activity_listener *listener);

/* "token:ID", "local:UID" or "system". */
#define ACTIVITY_ACTOR_MAX 40
void activity_actor(const struct principal *principal, char actor[ACTIVITY_ACTOR_MAX]);
/* As activity_record(), for an action whose caller may no longer be connected. */
void activity_record_by(struct sandbox *sandbox, enum activity_kind kind, const char *actor,
			const struct id *exec, const struct detail *details, size_t count);
/* The action of the sandbox's newest entry failed: removes the entry, as if it had never been
 * recorded. Only in the turn of the loop that recorded it, before anything else is recorded. */
void activity_take_back(struct sandbox *sandbox);
/* Writes something to the store, and all waiting entries in the same transaction. Returns the
 * result of `write`; if only the entries cannot be written, they keep waiting. */
NODISCARD int activity_save(struct core *core, int (*write)(void *data, struct error *error),
			    void *data, struct error *error);

/* Entries, including those that wait to be written. each must not call the store. One piece of work
 * for the loop (base/work.h) has at most ACTIVITY_SCAN as its query's `scan`: a tenth of a
 * millisecond, if few of them match. */
#define ACTIVITY_SCAN 250
NODISCARD int activity_each(struct core *core, const struct activity_query *query,
			    bool (*each)(void *data, const struct activity_row *row), void *data,
			    struct error *error);
/* The same for written entries only. */
NODISCARD int activity_each_written(struct core *core, const struct activity_query *query,
				    bool (*each)(void *data, const struct activity_row *row),
				    void *data, struct error *error);
/* Finds the sandbox in which an exec was started, and the entry of that start: 1, or 0 if no entry
 * is kept. */
NODISCARD int activity_started(struct core *core, const struct id *exec, struct id *ret_sandbox,
			       uint64_t *ret_number, struct error *error);
/* A cursor: the place where a client continues in a workspace's stream of events (a sequence) or in
 * a sandbox's timeline (a number). Clients see it as a text whose form only this file knows. */
#define ACTIVITY_CURSOR_MAX 24
void activity_cursor_print(uint64_t place, char cursor[ACTIVITY_CURSOR_MAX]);
/* INVALID says what `name` must be; a place before `first` is invalid. */
NODISCARD int activity_cursor_parse(const char *name, const char *cursor, uint64_t first,
				    uint64_t *ret_place, struct error *error);
/* Where the stream continues after a cursor; "": at its end, NULL: with the oldest kept entry.
 * CURSOR_GONE if the next entry is no longer kept, or if the cursor's event does not exist yet. */
NODISCARD int activity_seek(struct core *core, const char *workspace, const char *name,
			    const char *cursor, uint64_t *ret_place, struct error *error);
/* The newest written sequence; and the last sequence up to which entries of a workspace were
 * pruned. */
NODISCARD int activity_last(struct core *core, uint64_t *ret_sequence, struct error *error);
NODISCARD int activity_pruned(struct core *core, const char *workspace, uint64_t *ret_sequence,
			      struct error *error);

/* --- the parts --- */

/* "exec.ended,file" to ",21,40,41,...,": the form that store/activity.h takes. INVALID names the
 * word. */
#define ACTIVITY_KIND_LIST_MAX 256
NODISCARD int activity_kinds_parse(const char *text, char *ret_list, size_t room,
				   struct error *error);
/* Appends the text without its secrets; patterns: names with '*', separated by blanks or commas.
 * Text that does not fit the buffer is omitted. */
void activity_redact(const char *patterns, const char *text, struct buffer *ret_text);
/* A command by its arguments, separated by blanks: the value of a secret's name is omitted to the
 * end of its argument; a shell script is parsed as a script. */
void activity_redact_command(const char *patterns, const char *const *argv, size_t argc,
			     struct buffer *ret_text);
/* The same if only the joined text is known: a value is omitted to the end of the text, except for
 * /bin/sh -c. */
void activity_redact_joined(const char *patterns, const char *command, struct buffer *ret_text);

/* core.c, timers.c */
void activity_start(struct core *core);
/* Writes the waiting entries. */
void activity_flush(struct core *core);
/* Writes the waiting entries; after this nothing is recorded. */
void activity_stop(struct core *core);
/* Removes a batch of entries that are too old or too many; true: there are more. */
bool activity_prune(struct core *core);
