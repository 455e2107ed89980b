/* What an init tells of files, decoded in one place: the records of list, glob and grep, the
 * events of a watch, and the result of every operation. What does not parse is a stranger's. Pure;
 * nothing blocks. */
#pragma once

#include "core/file/files.h"

struct file_match {
	const char *path; /* borrowed, as everything here; joined to the path that was searched as
			     that was written ("src" gives "src/a.c") */
	size_t path_size;
	/* Of grep: */
	uint64_t line;    /* from 1 */
	uint64_t offset;  /* of the match, in the file */
	const char *text; /* the line, bounded by the init; never cut inside a character */
	size_t text_size;
};

/* One of them, by the operation; false: enough. */
struct file_sink {
	bool (*entry)(void *data, const struct file_entry *entry);
	bool (*match)(void *data, const struct file_match *match);
};

/* One DATA frame of FILE_LIST (entries), FILE_GLOB or FILE_GREP (matches). 0; 1: the sink had
 * enough; -1: it makes no sense. */
NODISCARD int file_records_read(uint8_t operation, const void *bytes, size_t size,
				const struct file_sink *sink, void *data);

/* One DATA frame of FILE_WATCH. */
struct file_event {
	enum watch_kind kind;
	struct bytes path; /* points into the frame */
	const char *base;  /* the path's last part */
	size_t base_size;
};
/* -1: it makes no sense. */
NODISCARD int file_event_read(const void *bytes, size_t size, struct file_event *ret_event);
/* "created"; NULL: there is no such kind. */
const char *file_event_name(uint8_t kind);

/* What a RESULT says. */
struct file_outcome {
	uint64_t count; /* LIST, GLOB, GREP: records; READ: the file's size; WRITE, APPEND, COPY:
			   bytes; REMOVE, REPLACE: how many */
	uint64_t files; /* GREP: that have a match */
	bool truncated; /* LIST, GLOB, GREP */
	const struct file_entry *entry; /* STAT; true until the next call */
	struct bytes target;            /* READLINK; points into the payload */
};
/* GUEST_PROTOCOL where it makes no sense. Not of watches and archives. */
NODISCARD int file_outcome_read(uint8_t operation, const void *result, size_t size,
				struct file_outcome *ret_outcome, struct error *error);
