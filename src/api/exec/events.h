/* A command's output as events: see events.c. */
#pragma once

#include "edge/exec_follower.h"

/* The maximum of a command's output in one JSON event. */
#define EVENT_PIECE_MAX (16 * KIB)
#define EVENT_MAX (8 * EVENT_PIECE_MAX) /* as text and as base64 */

const char *stream_name(enum exec_stream stream);
/* As `key`, with U+FFFD for bytes that are not UTF-8; then also unchanged, as `data_base64`. */
void put_chunk(struct json_writer *writer, const char *key, const char *data, size_t size);
/* The members `error` and `code` of a timed-out command. */
void put_timed_out(struct json_writer *writer, const struct exec_row *row);
/* The complete events for a piece and for a gap. */
void put_piece_event(struct json_writer *writer, const char *data, size_t size, uint64_t offset);
void put_gap_event(struct json_writer *writer, enum exec_stream stream, uint64_t offset,
		   uint64_t bytes);

/* The query of POST .../exec and .../exec/stream. */
struct exec_stream_query {
	bool detach;
	const char *format;
};
extern const struct field exec_stream_query[];
#define EXEC_FORMATS "events,orkestr"

/* Runs the command of the body. */
void exec_stream_post(struct call *call);
/* Follows one that is there, from these offsets, until it ends. format: one of EXEC_FORMATS, or
 * NULL. */
void exec_events_follow(struct call *call, struct exec *exec, const char *format, bool out,
			bool err, uint64_t from_out, uint64_t from_err);
