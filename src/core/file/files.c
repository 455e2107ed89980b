/* File operations: sends them to the init and receives their data, with credit both ways. Called by
 * the edges and by core/sandbox/link.c; never blocks, touches no host path. A handle stays in its
 * sandbox's list until the init has answered, even if it was cancelled, since until then its id is
 * in use. */
#include "core/file/files.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/core_private.h"

/* Credit is returned in steps of this size, so that the sender need not pause. */
#define CREDIT_STEP (FILE_WINDOW / 4)
/* How long an init may make no visible progress with an operation when it is its turn. An init that
 * walks a tree or flushes a file to the disk sends nothing until that is done. */
#define QUIET_MAX (30 * NSEC_PER_SEC)
#define QUIET_LONG_MAX (600 * NSEC_PER_SEC)

struct file_operation_handle {
	struct list link; /* in sandbox->operations */
	struct sandbox *sandbox;
	uint64_t id;
	uint8_t operation; /* enum file_operation */
	int64_t heard;     /* CLOCK_BOOTTIME: since when the daemon waits for the init */
	struct file_callbacks callbacks;
	void *data;
	uint64_t send_credit;   /* DATA bytes that we may send */
	uint64_t window;        /* DATA bytes that the init may send */
	uint64_t unconfirmed;   /* passed to on_data; file_credit() has not come yet */
	uint64_t unreturned;    /* confirmed, but not yet reported to the init */
	struct file_note *note; /* NULL, or the entry for the activity */
	bool write_ended, data_ended;
	bool cancelled; /* the caller is not called any more */
	bool answering; /* on_done is being called */
	bool wanted;    /* file_write() was refused because the link's queue was full */
	bool looks_on;  /* it is a watch: no activity */
};

static int error_set_protocol(struct error *error, const char *what)
{
	return error_set(error, ERROR_GUEST_PROTOCOL, "the sandbox's init broke the protocol: %s",
			 what);
}

static void handle_free(struct file_operation_handle *handle)
{
	list_remove(&handle->link);
	free(handle);
}

static int file_check_request(const struct file_request *request, struct error *error)
{
	const struct bytes *paths[] = {&request->path, &request->path2};
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		if (paths[i]->size >= GUEST_PATH_MAX)
			return error_set(error, ERROR_FILE_INVALID,
					 "a path is longer than %d bytes", GUEST_PATH_MAX - 1);
		if (paths[i]->size > 0 && memchr(paths[i]->data, '\0', paths[i]->size))
			return error_set(error, ERROR_FILE_INVALID, "a path holds a NUL byte");
	}
	return 0;
}

int file_start(struct sandbox *sandbox, const struct principal *principal,
	       const struct file_request *request, const struct file_callbacks *callbacks,
	       void *data, struct file_operation_handle **ret_handle, struct error *error)
{
	uint32_t count = 0;
	if (!sandbox_may_exec(sandbox))
		return sandbox_refuse_exec(sandbox, error);
	if (guest_link_version(sandbox->guest) < FILE_OPERATION_SINCE(request->operation))
		return error_set(error, ERROR_GUEST_PROTOCOL,
				 "sandbox `%s` was started by an older caisson, whose init does "
				 "not know this operation",
				 sandbox->row.id.text);
	list_each (&sandbox->operations, node)
		count++;
	if (count >= OPERATIONS_MAX)
		return error_set(error, ERROR_BUSY,
				 "sandbox `%s` does %d file operations already, the most it may",
				 sandbox->row.id.text, OPERATIONS_MAX);
	if (file_check_request(request, error) < 0)
		return -1;
	DONE_BUFFER struct buffer payload = BUFFER(FRAME_PAYLOAD_MAX);
	if (buffer_reserve(&payload, FRAME_PAYLOAD_MAX) < 0)
		abort();
	struct writer writer = writer_on(payload.data, FRAME_PAYLOAD_MAX);
	file_request_write(&writer, request);
	int64_t size = writer_finish(&writer);
	if (size < 0)
		return error_set(error, ERROR_TOO_LARGE,
				 "path, pattern and replacement are longer than %d bytes",
				 FRAME_PAYLOAD_MAX);
	uint64_t id = OPERATION_ID_BIT | sandbox->next_operation++;
	if (sandbox_send(sandbox, FRAME_FILE, id, payload.data, (size_t)size, NULL, 0, error) < 0)
		return -1;
	struct file_operation_handle *handle = calloc(1, sizeof(*handle));
	if (!handle)
		abort();
	*handle = (struct file_operation_handle){
	    .sandbox = sandbox,
	    .id = id,
	    .operation = request->operation,
	    .note = file_note_new(sandbox, principal, request),
	    .heard = clock_boot(),
	    .callbacks = *callbacks,
	    .data = data,
	    .send_credit = FILE_WINDOW,
	    .window = FILE_WINDOW,
	};
	list_append(&sandbox->operations, &handle->link);
	timers_wake_at(sandbox->core, handle->heard + QUIET_MAX);
	sandbox_touch(sandbox);
	*ret_handle = handle;
	return 0;
}

void *file_data(const struct file_operation_handle *handle)
{
	return handle->data;
}

ssize_t file_write(struct file_operation_handle *handle, const void *data, size_t size,
		   struct error *error)
{
	struct sandbox *sandbox = handle->sandbox;
	const char *from = data;
	size_t taken = 0;
	if (handle->write_ended)
		return error_set(error, ERROR_INTERNAL, "data after the end of the data");
	while (taken < size && handle->send_credit > 0) {
		if (sandbox->guest && guest_link_room(sandbox->guest) == 0) {
			handle->wanted = true;
			break;
		}
		size_t part = MIN(MIN(size - taken, handle->send_credit), FILE_CHUNK_MAX);
		if (sandbox_send(sandbox, FRAME_DATA, handle->id, from + taken, part, NULL, 0,
				 error) < 0)
			return -1;
		handle->send_credit -= part;
		taken += part;
		handle->heard = clock_boot();
	}
	return (ssize_t)taken;
}

int file_write_end(struct file_operation_handle *handle, struct error *error)
{
	if (handle->write_ended)
		return 0;
	handle->write_ended = true;
	handle->heard = clock_boot();
	return sandbox_send(handle->sandbox, FRAME_DATA_END, handle->id, NULL, 0, NULL, 0, error);
}

void file_credit(struct file_operation_handle *handle, uint32_t bytes)
{
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	struct error error;
	/* At most what was passed on, whatever the caller counts. */
	bytes = (uint32_t)MIN(bytes, handle->unconfirmed);
	handle->unconfirmed -= bytes;
	handle->unreturned += bytes;
	handle->heard = clock_boot();
	if (handle->unreturned < CREDIT_STEP || handle->data_ended || handle->answering)
		return;
	write_u32(&writer, (uint32_t)handle->unreturned);
	if (sandbox_send(handle->sandbox, FRAME_CREDIT, handle->id, room, sizeof(room), NULL, 0,
			 &error) < 0)
		return; /* the link has failed: `on_done` will report it */
	handle->window += handle->unreturned;
	handle->unreturned = 0;
}

void file_cancel(struct file_operation_handle *handle)
{
	struct error error;
	if (handle->cancelled || handle->answering)
		return;
	handle->cancelled = true;
	if (sandbox_send(handle->sandbox, FRAME_CANCEL, handle->id, NULL, 0, NULL, 0, &error) < 0)
		log_debug("sandbox %s: %s", handle->sandbox->row.id.text, error.message);
}

void file_look_on(struct file_operation_handle *handle)
{
	handle->looks_on = true;
}

bool file_any_active(const struct sandbox *sandbox)
{
	list_each (&sandbox->operations, node)
		if (!list_entry(node, struct file_operation_handle, link)->looks_on)
			return true;
	return false;
}

static int operation_handle_data(struct file_operation_handle *handle, const struct frame *frame,
				 struct error *error)
{
	if (frame->size > FILE_CHUNK_MAX || frame->size > handle->window || handle->data_ended)
		return error_set_protocol(error, "DATA without credit");
	handle->window -= frame->size;
	if (handle->cancelled)
		return 0;
	handle->unconfirmed += frame->size;
	if (handle->callbacks.on_data)
		handle->callbacks.on_data(handle, frame->payload, frame->size);
	else
		file_credit(handle, frame->size);
	return 0;
}

static int operation_handle_credit(struct file_operation_handle *handle, const struct frame *frame,
				   struct error *error)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	uint32_t bytes = read_u32(&reader);
	if (reader_finish(&reader) < 0 || bytes > FILE_WINDOW - handle->send_credit)
		return error_set_protocol(error, "more CREDIT than was used");
	handle->send_credit += bytes;
	if (!handle->cancelled && handle->callbacks.on_credit)
		handle->callbacks.on_credit(handle);
	return 0;
}

static void operation_finish(struct file_operation_handle *handle, const void *result, size_t size,
			     const struct error *error)
{
	handle->answering = true;
	/* Removed from the list first: the callback may begin other operations. */
	list_remove(&handle->link);
	file_note_done(handle->sandbox, TAKE_PTR(handle->note), handle->operation, result, size,
		       error);
	if (!handle->cancelled)
		handle->callbacks.on_done(handle, result, size, error);
	handle_free(handle);
}

int file_handle_frame(struct sandbox *sandbox, const struct frame *frame, struct error *error)
{
	struct file_operation_handle *handle = NULL;
	struct failure failure;
	struct error why;
	list_each (&sandbox->operations, node) {
		struct file_operation_handle *other =
		    list_entry(node, struct file_operation_handle, link);
		if (other->id == frame->id)
			handle = other;
	}
	if (!handle)
		return error_set_protocol(error, "an answer to an operation that nobody asked for");
	handle->heard = clock_boot();
	switch (frame->type) {
	case FRAME_DATA:
		return operation_handle_data(handle, frame, error);
	case FRAME_DATA_END:
		if (frame->size != 0 || handle->data_ended)
			return error_set_protocol(error, "DATA_END");
		handle->data_ended = true;
		return 0;
	case FRAME_CREDIT:
		return operation_handle_credit(handle, frame, error);
	case FRAME_RESULT:
		operation_finish(handle, frame->payload, frame->size, NULL);
		return 0;
	case FRAME_FAILED:
		if (failure_read(frame, &failure) < 0)
			return error_set_protocol(error, "FAILED");
		error_from_failure(&why, &failure);
		operation_finish(handle, NULL, 0, &why);
		return 0;
	default:
		return error_set_protocol(error, "a frame that is not about an operation");
	}
}

void file_fail_all(struct sandbox *sandbox, const struct error *why)
{
	struct error error = *why;
	while (!list_empty(&sandbox->operations))
		operation_finish(
		    list_entry(sandbox->operations.next, struct file_operation_handle, link), NULL,
		    0, &error);
}

/* How long the init may stay silent about this operation; no limit while it waits for us. */
static int64_t operation_patience(const struct file_operation_handle *handle)
{
	switch ((enum file_operation)handle->operation) {
	case FILE_WATCH:
		return INT64_MAX;
	case FILE_WRITE:
	case FILE_APPEND:
	case FILE_UNPACK:
		if (handle->write_ended)
			return QUIET_LONG_MAX;
		/* Credit left: the init waits for our data. */
		return handle->send_credit > 0 ? INT64_MAX : QUIET_MAX;
	case FILE_READ:
	case FILE_STAT:
	case FILE_MKDIR:
	case FILE_SYMLINK:
	case FILE_READLINK:
		break;
	case FILE_LIST:
	case FILE_REMOVE:
	case FILE_RENAME:
	case FILE_COPY:
	case FILE_CHMOD:
	case FILE_CHOWN:
	case FILE_GLOB:
	case FILE_GREP:
	case FILE_REPLACE:
	case FILE_PACK:
		/* The consumer has not taken the data: the init has no credit to continue. */
		return handle->unconfirmed > 0 ? INT64_MAX : QUIET_LONG_MAX;
	}
	return handle->unconfirmed > 0 ? INT64_MAX : QUIET_MAX;
}

/* Reports a failure; the handle stays in the list as a cancelled one until the init has
 * answered. */
static void operation_give_up(struct file_operation_handle *handle)
{
	struct error error;
	error_set(&error, ERROR_TIMED_OUT, "the sandbox did nothing about the operation for %lld s",
		  (long long)(operation_patience(handle) / NSEC_PER_SEC));
	log_warning("sandbox %s: %s", handle->sandbox->row.id.text, error.message);
	void (*done)(struct file_operation_handle *, const void *, size_t, const struct error *) =
	    handle->callbacks.on_done;
	file_cancel(handle);
	handle->answering = true;
	done(handle, NULL, 0, &error);
	handle->answering = false;
}

int64_t file_check(struct sandbox *sandbox, int64_t now)
{
	int64_t next = INT64_MAX;
	if (sandbox->row.paused_wall != 0)
		return next;
	bool again = true;
	/* A callback may end or begin other operations. */
	while (again) {
		again = false;
		next = INT64_MAX;
		list_each (&sandbox->operations, node) {
			struct file_operation_handle *handle =
			    list_entry(node, struct file_operation_handle, link);
			if (handle->cancelled || handle->operation == FILE_WATCH)
				continue;
			int64_t quiet = operation_patience(handle);
			/* No event tells when it is the init's turn, so this is checked
			 * periodically. */
			int64_t until = now + QUIET_MAX;
			if (quiet != INT64_MAX)
				until = handle->heard + quiet;
			if (until > now) {
				next = MIN(next, until);
				continue;
			}
			operation_give_up(handle);
			again = true;
			break;
		}
	}
	return next;
}

void file_clock_goes_on(struct sandbox *sandbox)
{
	list_each (&sandbox->operations, node)
		list_entry(node, struct file_operation_handle, link)->heard = clock_boot();
}

void file_drained(struct sandbox *sandbox)
{
	/* A callback cannot free a handle here: only an answer of the init does. */
	list_each (&sandbox->operations, node) {
		struct file_operation_handle *handle =
		    list_entry(node, struct file_operation_handle, link);
		if (!handle->wanted || handle->cancelled)
			continue;
		handle->wanted = false;
		if (handle->callbacks.on_credit)
			handle->callbacks.on_credit(handle);
	}
}

void file_entry_read(struct reader *reader, struct file_entry *ret_entry)
{
	memset(ret_entry, 0, sizeof(*ret_entry));
	read_text(reader, ret_entry->name, sizeof(ret_entry->name));
	ret_entry->type = (char)read_u8(reader);
	ret_entry->mode = read_u32(reader);
	ret_entry->uid = read_u32(reader);
	ret_entry->gid = read_u32(reader);
	ret_entry->size = read_u64(reader);
	ret_entry->mtime_ns = read_i64(reader);
	ret_entry->inode = read_u64(reader);
	read_text(reader, ret_entry->target, sizeof(ret_entry->target));
	if (!ret_entry->type || !strchr("fdlpscb", ret_entry->type))
		reader->bad = true;
}
