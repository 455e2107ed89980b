/* File operations in a sandbox: each handle is one operation, streaming both ways with credit. enum
 * file_operation in proto/init_messages.h defines the operations and their data; this file only
 * transports them. Nothing here touches a host path. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/sandbox/sandbox.h"
#include "proto/init_messages.h"

struct file_operation_handle;

struct file_callbacks {
	/* A DATA frame. Return its credit with file_credit() when the consumer has taken it. */
	void (*on_data)(struct file_operation_handle *handle, const void *data, size_t size);
	/* file_write() may take more. */
	void (*on_credit)(struct file_operation_handle *handle);
	/* Once, last: the RESULT's payload, or error (TIMED_OUT if the init made no progress for
	 * too long). The handle is freed after the call. */
	void (*on_done)(struct file_operation_handle *handle, const void *result, size_t size,
			const struct error *error);
};

/* The sandbox is ready. The request is copied. */
NODISCARD int file_start(struct sandbox *sandbox, const struct principal *principal,
			 const struct file_request *request, const struct file_callbacks *callbacks,
			 void *data, struct file_operation_handle **ret_handle,
			 struct error *error);
void *file_data(const struct file_operation_handle *handle);
/* Takes bytes up to the credit; returns how many. */
NODISCARD ssize_t file_write(struct file_operation_handle *handle, const void *data, size_t size,
			     struct error *error);
NODISCARD int file_write_end(struct file_operation_handle *handle, struct error *error);
void file_credit(struct file_operation_handle *handle, uint32_t bytes);
/* on_done is not called any more; the caller must not use the handle any more. */
void file_cancel(struct file_operation_handle *handle);
/* The operation is a watch: the sandbox may be idle beside it. */
void file_look_on(struct file_operation_handle *handle);
/* Is there an operation that is not a watch? */
bool file_any_active(const struct sandbox *sandbox);

/* Called by core/sandbox/link.c. */
NODISCARD int file_handle_frame(struct sandbox *sandbox, const struct frame *frame,
				struct error *error);
void file_fail_all(struct sandbox *sandbox, const struct error *why);

/* One entry of FILE_STAT and FILE_LIST. */
struct file_entry {
	char name[1024];
	char type; /* f d l p s c b */
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t mtime_ns;
	uint64_t inode;
	char target[GUEST_PATH_MAX];
};
void file_entry_read(struct reader *reader, struct file_entry *ret_entry);
