/* The chunked body: removes the framing from bytes that arrive in pieces of any size. Called by
 * body.c and by the fuzzer; pure, never blocks. Extensions and trailers are checked and dropped;
 * both are bounded here, because no other check bounds them. */
#include "http/parser.h"

#include <string.h>

#include "http/characters.h"

#define SIZE_DIGITS_MAX 15 /* below 2^60: sums of it cannot overflow */
#define EXTENSION_MAX 256
#define TRAILERS_MAX 4096

/* The position in the trailers. It is kept in `digits`, which is unused by then. */
enum trailer_phase {
	TRAILER_LINE_START,
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LINE_LF,
	TRAILER_LAST_LF,
};

static int chunked_take_size(struct http_chunked *chunked, char c, const char **ret_reason)
{
	if (http_is_hex(c)) {
		if (chunked->digits == SIZE_DIGITS_MAX) {
			*ret_reason = "a chunk size that is too large";
			return -400;
		}
		chunked->digits++;
		chunked->left = chunked->left << 4 | http_hex_value(c);
		return 0;
	}
	if (chunked->digits == 0 || (c != '\r' && c != ';')) {
		*ret_reason = "a chunk size that is not a number";
		return -400;
	}
	chunked->line = 0;
	chunked->phase = c == ';' ? CHUNK_EXTENSION : CHUNK_SIZE_LF;
	return 0;
}

static int chunked_take_extension(struct http_chunked *chunked, char c, const char **ret_reason)
{
	if (c == '\r' && chunked->line > 0) {
		chunked->phase = CHUNK_SIZE_LF;
		return 0;
	}
	if (!http_is_text(c) || ++chunked->line > EXTENSION_MAX) {
		*ret_reason = "a chunk extension that is invalid or too long";
		return -400;
	}
	return 0;
}

static void chunked_end_size(struct http_chunked *chunked)
{
	chunked->digits = 0;
	chunked->line = 0;
	chunked->phase = chunked->left ? CHUNK_DATA : CHUNK_TRAILER;
}

/* The step in the trailers that a character makes, or -1. */
static int chunked_trailer_step(enum trailer_phase phase, char c)
{
	switch (phase) {
	case TRAILER_LINE_START:
		return c == '\r' ? TRAILER_LAST_LF : http_is_token(c) ? TRAILER_NAME : -1;
	case TRAILER_NAME:
		return c == ':' ? TRAILER_VALUE : http_is_token(c) ? TRAILER_NAME : -1;
	case TRAILER_VALUE:
		return c == '\r' ? TRAILER_LINE_LF : http_is_text(c) ? TRAILER_VALUE : -1;
	case TRAILER_LINE_LF:
	case TRAILER_LAST_LF:
		return c == '\n' ? TRAILER_LINE_START : -1;
	}
	return -1;
}

static int chunked_take_trailer(struct http_chunked *chunked, char c, const char **ret_reason)
{
	bool last = chunked->digits == TRAILER_LAST_LF;
	int next = chunked_trailer_step((enum trailer_phase)chunked->digits, c);
	if (next < 0 || ++chunked->line > TRAILERS_MAX) {
		*ret_reason = "trailers that are invalid or too long";
		return -400;
	}
	chunked->digits = (uint32_t)next;
	if (last)
		chunked->phase = CHUNK_DONE;
	return 0;
}

/* One character of framing. */
static int chunked_take_framing(struct http_chunked *chunked, char c, const char **ret_reason)
{
	switch (chunked->phase) {
	case CHUNK_SIZE:
		return chunked_take_size(chunked, c, ret_reason);
	case CHUNK_EXTENSION:
		return chunked_take_extension(chunked, c, ret_reason);
	case CHUNK_TRAILER:
		return chunked_take_trailer(chunked, c, ret_reason);
	case CHUNK_SIZE_LF:
		if (c != '\n')
			break;
		chunked_end_size(chunked);
		return 0;
	case CHUNK_DATA_CR:
		if (c != '\r')
			break;
		chunked->phase = CHUNK_DATA_LF;
		return 0;
	case CHUNK_DATA_LF:
		if (c != '\n')
			break;
		chunked->phase = CHUNK_SIZE;
		return 0;
	case CHUNK_DATA:
	case CHUNK_DONE:
		break;
	}
	*ret_reason = "a chunk that does not end where its size says";
	return -400;
}

int64_t http_chunked_next(struct http_chunked *chunked, const char *data, size_t size,
			  const char **ret_data, size_t *ret_size, const char **ret_reason)
{
	size_t at = 0;
	*ret_data = NULL;
	*ret_size = 0;
	while (at < size && chunked->phase != CHUNK_DATA && chunked->phase != CHUNK_DONE) {
		int result = chunked_take_framing(chunked, data[at], ret_reason);
		if (result < 0)
			return result;
		at++;
	}
	if (chunked->phase == CHUNK_DATA && at < size) {
		size_t piece = (size_t)MIN((uint64_t)(size - at), chunked->left);
		*ret_data = data + at;
		*ret_size = piece;
		chunked->left -= piece;
		at += piece;
		if (chunked->left == 0)
			chunked->phase = CHUNK_DATA_CR;
	}
	return (int64_t)at;
}
