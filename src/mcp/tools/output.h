/* Output as a model reads it: bounded, cut at line ends and never inside a character, with counts
 * and the call that reads the rest.
 *
 * Bytes that are no text are never shown as something else: a few of them in a text stand there as
 * \xNN, and the answer says so; where there are many the output is told as binary, with its size.
 */
#pragma once

#include "core/exec/exec.h"
#include "edge/exec_fields.h"
#include "mcp/request.h"

#define OUTPUT_HEAD (6 * KIB)
#define OUTPUT_TAIL (10 * KIB)
#define OUTPUT_DEFAULT EXEC_ANSWER_MCP_DEFAULT
#define OUTPUT_MOST EXEC_ANSWER_MCP_MAX
_Static_assert(OUTPUT_HEAD + OUTPUT_TAIL == OUTPUT_DEFAULT, "");

struct output_view {
	uint64_t out_begin, out_end, err_begin, err_end; /* of the two streams */
	uint64_t max;                                    /* of both together; 0 = 16 KiB */
	const char *read_more; /* the name of the tool that reads the rest, "read_job"; NULL: it
				  cannot be read */
};
/* Appends stdout, then stderr under a line that says so where there is any. true when something was
 * left out. What was appended ends with a line end, or is nothing. */
bool output_append(struct buffer *to, struct exec *exec, const struct output_view *view);
/* The next page of one stream: from `from` (moved behind what is not kept any more, which is told)
 * at most `max` bytes, to a line's end where there is one. Returns where the next page begins. */
uint64_t output_page(struct buffer *to, struct exec *exec, enum exec_stream stream, uint64_t from,
		     uint64_t max);
/* Where a stream ends as far as it can be shown: of one that still grows before a character whose
 * end has not come yet. */
uint64_t output_end(struct exec *exec, enum exec_stream stream);
/* Where the last lines begin, of at most `max` bytes; of one long line its last part. */
uint64_t output_tail(struct exec *exec, enum exec_stream stream, uint64_t max);
/* Bytes and lines of [begin, end); true when all lines were counted, else there are more. */
bool output_count(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
		  uint64_t *ret_bytes, uint64_t *ret_lines);
/* Text with every byte that is none as \xNN; `binary` of them are counted. */
void output_visible(struct buffer *to, const char *data, size_t size, uint64_t *binary);
/* A name or a command among what we say: one line, whatever is in it. Control characters, line ends
 * among them, are escaped (\n, \t, \r, else \xNN), and so is what is no text; at most four bytes
 * for each. A name that is not strange stays as other tools take it. */
void output_name(struct buffer *to, const char *data, size_t size);
/* Too many of the bytes are no text for it to be read. */
bool output_is_binary(const char *data, size_t size);
/* A line end where the last line has none. */
void output_end_line(struct buffer *to);

/* What a command prints, as progress of the request that waits for it: as it comes, and what may
 * not be sent yet a little later. */
struct follow {
	uint64_t sent[2];        /* of the two streams: what comes from there on is told */
	struct id sandbox, exec; /* whose output it is */
	struct mcp_request *request;
	struct alarm *alarm;
};

/* Something was printed. */
void follow_changed(struct follow *follow, struct mcp_request *request, struct exec *exec);
/* Before the follow's memory is gone; again does no harm. */
void follow_stop(struct follow *follow);
