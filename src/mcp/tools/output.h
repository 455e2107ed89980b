/* Output as a model reads it: bounded, cut at line ends and never inside a character, with counts
 * and the call that reads the rest.
 *
 * Bytes that are not text are never misrepresented: a few of them in a text are shown as \xNN, and
 * the answer says so; if there are many, the output is described as binary, with its size. */
#pragma once

#include "core/exec/exec.h"
#include "edge/fields/exec_fields.h"
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
/* Appends stdout, then stderr under a heading if there is any. true if something was omitted. The
 * appended text ends with a line end, or is empty. */
bool output_append(struct buffer *to, struct exec *exec, const struct output_view *view);
/* The next page of one stream: at most `max` bytes from `from` on, to a line's end if possible.
 * `from` is moved past bytes that are not kept, which is reported. Returns where the next page
 * begins. */
uint64_t output_page(struct buffer *to, struct exec *exec, enum exec_stream stream, uint64_t from,
		     uint64_t max);
/* The end of a stream's showable part: in a growing stream before an incomplete character. */
uint64_t output_end(struct exec *exec, enum exec_stream stream);
/* The beginning of the last lines, of at most `max` bytes; for one long line, of its last part. */
uint64_t output_tail(struct exec *exec, enum exec_stream stream, uint64_t max);
/* Counts bytes and lines of [begin, end); true if all lines were counted, else there are more. */
bool output_count(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
		  uint64_t *ret_bytes, uint64_t *ret_lines);
/* Text with every byte that is not text as \xNN; `binary` counts these. */
void output_visible(struct buffer *to, const char *data, size_t size, uint64_t *binary);
/* A name or a command within our text: always one line. Control characters, including line ends,
 * are escaped (\n, \t, \r, else \xNN), and so are bytes that are not text; at most four bytes for
 * each. An ordinary name stays as other tools accept it. */
void output_name(struct buffer *to, const char *data, size_t size);
/* Are too many of the bytes not text? */
bool output_is_binary(const char *data, size_t size);
/* Adds a line end if the last line has none. */
void output_end_line(struct buffer *to);

/* The output of a command as progress of the request that waits for it: at once, or a little later
 * if it may not be sent yet. */
struct exec_progress {
	uint64_t sent[2];        /* of the two streams: what comes from there on is told */
	struct id sandbox, exec; /* the source of the output */
	struct mcp_request *request;
	struct alarm *alarm;
};

/* There is new output. */
void exec_progress_changed(struct exec_progress *progress, struct mcp_request *request,
			   struct exec *exec);
/* Call it before the follow's memory is freed; calling it again is harmless. */
void exec_progress_stop(struct exec_progress *progress);
