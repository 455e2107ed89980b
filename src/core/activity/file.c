/* The file operations that get an entry of the activity: changes, and with `[activity] reads` also
 * reads. Noted when an operation begins and recorded when it has succeeded. Called by
 * core/file/files.c; does not block. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core_private.h"

struct file_note {
	char actor[ACTIVITY_ACTOR_MAX];
	char path[ACTIVITY_VALUE_MAX + 8], other[ACTIVITY_VALUE_MAX + 8];
};

static const struct {
	uint8_t operation;
	enum activity_kind kind;
	const char *what, *other; /* other: the meaning of the second path */
	const char *count;        /* the meaning of the result's count */
} changes[] = {
    {FILE_WRITE, ACTIVITY_FILE_WRITTEN, "write", NULL, "bytes"},
    {FILE_APPEND, ACTIVITY_FILE_WRITTEN, "append", NULL, "bytes"},
    {FILE_UNPACK, ACTIVITY_FILE_WRITTEN, "unpack", NULL, NULL},
    {FILE_MKDIR, ACTIVITY_FILE_CHANGED, "mkdir", NULL, NULL},
    {FILE_RENAME, ACTIVITY_FILE_CHANGED, "rename", "to", NULL},
    {FILE_COPY, ACTIVITY_FILE_CHANGED, "copy", "to", "bytes"},
    {FILE_SYMLINK, ACTIVITY_FILE_CHANGED, "symlink", "target", NULL},
    {FILE_CHMOD, ACTIVITY_FILE_CHANGED, "chmod", NULL, NULL},
    {FILE_CHOWN, ACTIVITY_FILE_CHANGED, "chown", "owner", NULL},
    {FILE_REPLACE, ACTIVITY_FILE_CHANGED, "replace", NULL, "replaced"},
    {FILE_REMOVE, ACTIVITY_FILE_REMOVED, "remove", NULL, "entries"},
    {FILE_READ, ACTIVITY_FILE_READ, "read", NULL, "file_bytes"},
    {FILE_PACK, ACTIVITY_FILE_READ, "pack", NULL, NULL},
};

static int change_find(uint8_t operation)
{
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
		if (changes[i].operation == operation)
			return (int)i;
	return -1;
}

static void path_copy(char *to, size_t room, const struct bytes *path)
{
	size_t size = MIN(path->size, room - 1);
	if (size > 0)
		memcpy(to, path->data, size);
	to[size] = '\0';
}

struct file_note *file_note_new(struct sandbox *sandbox, const struct principal *principal,
				const struct file_request *request)
{
	int at = change_find(request->operation);
	if (at < 0 ||
	    (changes[at].kind == ACTIVITY_FILE_READ && !sandbox->core->config.activity_reads))
		return NULL;
	struct file_note *note = calloc(1, sizeof(*note));
	if (!note)
		abort();
	activity_actor(principal, note->actor);
	path_copy(note->path, sizeof(note->path), &request->path);
	path_copy(note->other, sizeof(note->other), &request->path2);
	return note;
}

void file_note_done(struct sandbox *sandbox, struct file_note *note, uint8_t operation,
		    const void *result, size_t size, const struct error *error)
{
	int at = note ? change_find(operation) : -1;
	if (at >= 0 && !error) {
		struct reader reader = reader_on(result, size);
		char count[24];
		snprintf(count, sizeof(count), "%" PRIu64,
			 changes[at].count ? read_u64(&reader) : 0);
		const struct detail details[] = {
		    {"operation", changes[at].what},
		    {"path", note->path},
		    {changes[at].other ? changes[at].other : "",
		     changes[at].other ? note->other : NULL},
		    {changes[at].count ? changes[at].count : "",
		     changes[at].count && !reader.bad ? count : NULL},
		};
		activity_record_by(sandbox, changes[at].kind, note->actor, NULL, details,
				   ARRAY_SIZE(details));
	}
	free(note);
}
