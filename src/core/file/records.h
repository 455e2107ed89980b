/* Decodes an init's file data: the records of list, glob and grep, the events of a watch, and the
 * result of every operation. The data is not trusted: invalid data is an error. Pure; nothing
 * blocks. */
#pragma once

#include "core/file/files.h"

struct file_match {
	const char *path; /* borrowed, like all data here; joined to the searched path as that was
			     written ("src" gives "src/a.c") */
	size_t path_size;
	/* Of grep: */
	uint64_t line;    /* from 1 */
	uint64_t offset;  /* of the match, in the file */
	const char *text; /* the line, cut by the init; never inside a character */
	size_t text_size;
};

/* The member for the operation is called; false stops. */
struct file_sink {
	bool (*entry)(void *data, const struct file_entry *entry);
	bool (*match)(void *data, const struct file_match *match);
};

/* One DATA frame of FILE_LIST (entries), FILE_GLOB or FILE_GREP (matches). 0; 1: the sink has
 * stopped; -1: the frame is invalid. */
NODISCARD int file_records_read(uint8_t operation, const void *bytes, size_t size,
				const struct file_sink *sink, void *data);

/* One DATA frame of FILE_WATCH. */
struct file_event {
	enum watch_kind kind;
	struct bytes path; /* points into the frame */
	const char *base;  /* the path's last part */
	size_t base_size;
};
/* -1: the frame is invalid. */
NODISCARD int file_event_read(const void *bytes, size_t size, struct file_event *ret_event);
/* "created"; NULL: unknown kind. */
const char *file_event_name(uint8_t kind);

/* The content of a RESULT. */
struct file_outcome {
	uint64_t count; /* LIST, GLOB, GREP: records; READ: the file's size; WRITE, APPEND, COPY:
			   bytes; REMOVE, REPLACE: how many */
	uint64_t files; /* GREP: files that have a match */
	bool truncated; /* LIST, GLOB, GREP */
	const struct file_entry *entry; /* STAT; valid until the next call */
	struct bytes target;            /* READLINK; points into the payload */
};
/* GUEST_PROTOCOL if it is invalid. Not for watches and archives. */
NODISCARD int file_outcome_read(uint8_t operation, const void *result, size_t size,
				struct file_outcome *ret_outcome, struct error *error);
