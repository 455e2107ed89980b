/* The records that a language driver (src/code) writes to its control channel, and the requests to
 * the driver.
 *
 * The channel is the standard output of an exec of its own, so that output of the user's code can
 * never be mistaken for a record; each record is
 *     KIND CELL INDEX KEY SIZE "\n" SIZE bytes "\n"
 *     ready 0 0 - SIZE          its version; once, first
 *     begin CELL 0 - 0
 *     data CELL RESULT TYPE SIZE    one form of a result; results are numbered from 0
 *     whole CELL RESULT - 0     all forms of it have come
 *     left CELL RESULT TYPE SIZE    a form that was too large: its size in digits. TYPE `results`:
 *                                   so many results were too many
 *     error CELL 0 name|value|traceback SIZE
 *     end CELL CODE drained|- 0     `drained`: the cell's output has left the pipes
 * A request is one line on standard input; code is percent-encoded, so that a line that was cut off
 * when a daemon died never swallows the next:
 *     open PID [BYTES]          the process whose standard output is the control channel; BYTES
 *                               where the results of a cell may be less than CODE_RESULT_BYTES_MAX
 *     cell NUMBER BYTES CODE    a number that is not above the last one is ignored
 *
 * The user's code runs in the same process and can write anything to this channel. Nothing in this
 * file trusts it: every field has a maximum, and an invalid record is -EBADMSG. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define CODE_KEY_MAX 100
#define CODE_HEADER_MAX 192
#define CODE_RESULTS_MAX 64
#define CODE_RESULT_BYTES_MAX (8 * 1024 * 1024) /* of one cell, all forms together */
#define CODE_ERROR_BYTES_MAX (512 * 1024)       /* of one part of an error */
#define CODE_ERROR_PARTS 4                      /* its name, value, traceback, and one to spare */

enum code_record_kind {
	CODE_RECORD_READY = 1,
	CODE_RECORD_BEGIN,
	CODE_RECORD_DATA,
	CODE_RECORD_LEFT,
	CODE_RECORD_ERROR,
	CODE_RECORD_WHOLE,
	CODE_RECORD_END,
};

struct code_record {
	enum code_record_kind kind;
	uint64_t cell;
	uint32_t index;
	char key[CODE_KEY_MAX + 1]; /* of [A-Za-z0-9/+.;=_-] */
	uint32_t size;              /* of the payload, which ends with another "\n" */
};

/* The header at the start of `data`: its length, 0 when more bytes are needed, or -EBADMSG. */
NODISCARD int code_record_parse(const char *data, size_t size, struct code_record *ret_record);
/* One line that runs a cell. -EMSGSIZE when the buffer's maximum is too small. */
NODISCARD int code_request_write(struct buffer *buffer, const char *verb, uint64_t number,
				 const char *code, size_t size);
