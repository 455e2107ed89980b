/* The output lines of a sandbox's commands, as one log: filtered, from a position on, in pages or
 * as they come. The output of code is included, the control channel of a code context is not.
 *
 * Order. Commands are sorted by their start; for each, standard output comes before standard error
 * (their relative order is not recorded), and every stream is in its exact order. While a reader
 * follows, lines come in the order of their arrival. A line has no time of its own: it was written
 * between the start and the end of its command.
 *
 * A reader is a position: the commands that may still print, how far each was read, and the newest
 * command. log_reader_cursor() writes the position as text, from which a reader can be made later,
 * by any client, also after a restart of the daemon.
 *
 * The caller bounds the work: each call scans a part of the logs and says if there is more. */
#pragma once

#include "base/buffer.h"
#include "core/exec/exec.h"

#define LOG_LINE_MAX (16 * 1024) /* longer ones come in parts */
#define LOG_GREP_MAX 256
#define LOG_CURSOR_MAX 12000

enum log_source { LOG_STDOUT = 1, LOG_STDERR = 2, LOG_EXEC = 4 };

struct log_filter {
	uint32_t sources;            /* enum log_source */
	int64_t since, until;        /* wall clock: commands that ran in this time; 0: any */
	char grep[LOG_GREP_MAX + 1]; /* lines that contain these bytes; "": all */
	struct id exec;              /* only this command, or unset */
};

/* Borrowed: valid until the next call. */
struct log_line {
	const struct exec_row *row; /* of its command */
	enum log_source source;
	const char *text; /* without its line end */
	size_t size;
	uint64_t offset; /* of its first byte in the stream */
	uint64_t gap;    /* bytes before it that are not kept */
	bool partial;    /* its line end has not come yet, or it is a part of a long line */
};

struct log_reader;

/* Begins at the start. whole_only: returns an unfinished line only after its end has come. */
struct log_reader *log_reader_new(struct sandbox *sandbox, const struct log_filter *filter,
				  bool whole_only);
void log_reader_free(struct log_reader *reader);

enum log_result {
	LOG_LINE,   /* there is a line */
	LOG_NONE,   /* there are no more lines now */
	LOG_AGAIN,  /* the work is used up: call again in another turn of the loop */
	LOG_FAILED, /* *error */
};
/* Moves to the last `count` lines. LOG_NONE: done; LOG_AGAIN as above, and `count` has the
 * remaining number. `work` is decreased by about one per scanned byte. */
NODISCARD enum log_result log_reader_tail(struct log_reader *reader, uint64_t *count, int64_t *work,
					  struct error *error);
NODISCARD enum log_result log_reader_next(struct log_reader *reader, struct log_line *ret_line,
					  int64_t *work, struct error *error);
/* Nothing will be read for a while: frees memory that only reading needs. */
void log_reader_rest(struct log_reader *reader);

/* -1 if it does not fit into LOG_CURSOR_MAX. */
NODISCARD int log_reader_cursor(const struct log_reader *reader, struct buffer *text);
/* Begins at a cursor. INVALID if it is none. */
NODISCARD int log_reader_seek(struct log_reader *reader, const char *cursor, struct error *error);
