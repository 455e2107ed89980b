/* Shared by the file handlers: one operation of the domain for one request, and results that stream
 * to the client no faster than it reads. */
#pragma once

#include "core/file/compress.h"
#include "core/file/records.h"
#include "core/file/files.h"
#include "edge/call.h"

/* Answers up to this size are sent whole, with their length and the correct status; longer ones are
 * streamed once this much has come. */
#define FILE_HOLD_MAX (256 * KIB)
#define FILE_HEADERS_MAX 8

struct file_call {
	struct call *call;
	struct file_request request;
	const struct file_callbacks *callbacks;
	struct file_operation_handle *handle; /* NULL: none is under way */
	/* Of the query; NULL: not given. */
	const char *path, *user, *pattern, *glob, *mode, *format;
	bool append, follow;

	/* The answer. */
	const char *type;
	struct buffer out;
	struct json_writer writer; /* on `out` */
	bool begun;                /* its head is sent */
	bool blocked;              /* the connection's queue is full */
	uint32_t owed; /* credit to return to the init when the connection has drained */
	uint64_t count;

	/* read.c */
	struct http_header headers[FILE_HEADERS_MAX];
	char header_texts[FILE_HEADERS_MAX][64];
	size_t header_count;
	uint64_t first, last; /* the requested range */
	bool partial;         /* 206 */
	int64_t length;       /* of the answer; -1: unknown */
	uint64_t received;
	bool measured;                           /* the size of a long file was requested */
	struct file_operation_handle *measuring; /* while that request is under way */
	struct error refusal; /* why it could not be read, while a listing is tried */
	bool only_file;       /* do not list a directory instead */
	char disposition[900];
	/* write.c */
	struct buffer left; /* received and not yet taken, from left_at on */
	size_t left_at;
	bool whole; /* the body has ended */
	uint64_t body_max;
	/* archive.c */
	struct compression *compression; /* between the client and the init, or NULL */
	size_t uncompressed;             /* bytes of the body in it */
	/* watch.c */
	struct sse *events; /* NULL before the first */
	bool replacing;     /* one of our temporary files is being renamed onto its name */
};

/* Makes the call's state, for one operation; `callbacks` are those for file_start(). */
struct file_call *file_call_new(struct call *call, enum file_operation operation,
				const struct file_callbacks *callbacks);
/* Rows of a route's query, which fills the file_call. */
#define FILE_PATH_MAX (GUEST_PATH_MAX - 1)
#define FILE_TEXT_AT(member) FIELD_TEXT_AT(struct file_call, member)
#define FILE_PATH "path", FILE_TEXT_AT(path), FIELD_REQUIRED, 1, FILE_PATH_MAX
#define FILE_FOLDER "path", FILE_TEXT_AT(path), .max = FILE_PATH_MAX, .fallback_text = "/workspace"
#define FILE_LIST_DEFAULT 10000
/* Reads the query and gives it to the request; both are false after an error reply. */
bool file_query(struct file_call *file);
bool file_query_take(struct file_call *file);
NODISCARD int file_user(struct file_call *file, const char *user, struct error *error);
NODISCARD int file_mode(struct file_call *file, const char *octal, struct error *error);
struct bytes bytes_from_text(const char *text);

/* Makes the sandbox ready and starts the operation. */
void file_begin(struct file_call *file);
/* In an on_done: starts another operation for the same call. */
void file_start_next(struct file_call *file, enum file_operation operation,
		     const struct file_callbacks *callbacks);
/* In an on_data: sends the contents of `out` when it is time; `credit` bytes were consumed. */
void file_emit(struct file_call *file, uint32_t credit);
/* In an on_data: sends bytes unchanged. */
void file_emit_bytes(struct file_call *file, const void *data, size_t size);
/* Sends bytes whose credit another component handles; false: stop sending until it drains. */
bool file_emit_raw(struct file_call *file, const void *data, size_t size);
/* In an on_done: the call, whose operation has ended; NULL if it failed and was answered. */
struct file_call *file_ended(struct file_operation_handle *handle, const struct error *error);
/* The same, with the decoded result. */
struct file_call *file_result(struct file_operation_handle *handle, const void *result, size_t size,
			      const struct error *error, struct file_outcome *ret_outcome);
/* In an on_done: sends the rest and ends the answer. */
void file_finish(struct file_call *file);
/* An error: as a reply, or by aborting an answer that has begun. */
void file_fail(struct file_call *file, const struct error *error);
/* The init's answer is invalid. */
void file_bad_answer(struct file_call *file);
void file_give_credit(struct file_call *file);

/* tree.c: GET of one entry; `follow` unless the query says otherwise. */
void file_stat_begin(struct call *call, bool follow);
/* read.c: GET of a file, in two steps: the query is read and headers are added between them. */
struct file_call *file_get_new(struct call *call);
void file_get_begin(struct file_call *file);

/* write.c: PUT of a file, in two steps as well. */
struct file_call *file_put_new(struct call *call);
void file_put_begin(struct file_call *file);
/* Begins to read the body for the started operation (unchanged, unless the call has its own
 * on_data); the next function continues to send `left` to it: called by on_credit, and by code that
 * added to `left`. */
void file_body_begin(struct file_call *file);
void file_body_data(struct call *call, const char *data, size_t size);
void file_body_end(struct call *call);
void file_body_credit(struct file_operation_handle *handle);
void file_body_pump(struct file_call *file);
/* Ends the running operation, and the call with the error. */
void file_body_failed(struct file_call *file, const struct error *error);

void put_entry(struct json_writer *writer, const char *key, const struct file_entry *entry);
/* on_data of FILE_LIST and the end of its answer, also for GET .../files of a directory. */
extern const struct file_callbacks file_list_callbacks;
void file_list_open(struct file_call *file);
