/* The lines that the commands of a sandbox have printed, as one log: what is asked for, from a
 * place on, in pages or as they come. What code prints is among them, the control channel of a code
 * context is not.
 *
 * Order. Commands stand in the order of their start; of each, standard output stands before
 * standard error (which was written first between the two nobody recorded), every stream in its
 * exact order. What comes while a reader follows is given as it comes. A line has no time of its
 * own: it was written between the start and the end of its command.
 *
 * A reader is the place: which commands may still say something, how far each was read, and which
 * command was the newest. log_reader_cursor() writes that down, so that a reader can be made of it
 * later, by anybody, also after a restart of the daemon.
 *
 * Work is bounded by the caller: each call scans a part of the logs and says when there is more. */
#pragma once

#include "base/buffer.h"
#include "core/exec/exec.h"

#define LOG_LINE_MAX (16 * 1024) /* longer ones come in parts */
#define LOG_GREP_MAX 256
#define LOG_CURSOR_MAX 12000

enum log_source { LOG_STDOUT = 1, LOG_STDERR = 2, LOG_EXEC = 4 };

struct log_filter {
	uint32_t sources;            /* of enum log_source */
	int64_t since, until;        /* wall clock: commands that ran then; 0: any */
	char grep[LOG_GREP_MAX + 1]; /* lines with these bytes in them; "": all */
	struct id exec;              /* of this command, or unset */
};

/* Borrowed: valid until the next call. */
struct log_line {
	const struct exec_row *row; /* of its command */
	enum log_source source;
	const char *text; /* without its line end */
	size_t size;
	uint64_t offset; /* of its first byte in the stream */
	uint64_t gap;    /* bytes before it that are not kept */
	bool partial;    /* its line end has not come yet, or it is a part of a long one */
};

struct log_reader;

/* From the beginning. whole_only: an unfinished line is given when it is finished. */
struct log_reader *log_reader_new(struct sandbox *sandbox, const struct log_filter *filter,
				  bool whole_only);
void log_reader_free(struct log_reader *reader);

enum log_result {
	LOG_LINE,   /* one came */
	LOG_NONE,   /* that is all there is now */
	LOG_AGAIN,  /* the work is used up: call again, in another turn of the loop */
	LOG_FAILED, /* *error */
};
/* To the last `count` lines. LOG_NONE: it is there; LOG_AGAIN as above, and what is left of `count`
 * is kept. `work` is counted down, about a byte scanned each. */
NODISCARD enum log_result log_reader_tail(struct log_reader *reader, uint64_t *count, int64_t *work,
					  struct error *error);
NODISCARD enum log_result log_reader_next(struct log_reader *reader, struct log_line *ret_line,
					  int64_t *work, struct error *error);
/* Nothing will be read for a while: memory that is only for reading goes. */
void log_reader_rest(struct log_reader *reader);

/* -1 when it does not fit into LOG_CURSOR_MAX. */
NODISCARD int log_reader_cursor(const struct log_reader *reader, struct buffer *text);
/* In place of the beginning. INVALID when it is none. */
NODISCARD int log_reader_seek(struct log_reader *reader, const char *cursor, struct error *error);
