/* The records of a language driver's control channel and the requests to it. See records.h.
 * Pure functions on bytes; the parser is fuzzed (tests/fuzz). */
#include "core/code/records.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"

static const char *const record_kinds[] = {
    [CODE_RECORD_READY] = "ready", [CODE_RECORD_BEGIN] = "begin", [CODE_RECORD_DATA] = "data",
    [CODE_RECORD_LEFT] = "left",   [CODE_RECORD_ERROR] = "error", [CODE_RECORD_WHOLE] = "whole",
    [CODE_RECORD_END] = "end",
};

/* What is left to read of a line. */
struct line_cursor {
	const char *at, *end;
};

/* Its next word, without the blank behind it. */
static bool line_next_word(struct line_cursor *line, char *to, size_t room)
{
	const char *blank = memchr(line->at, ' ', (size_t)(line->end - line->at));
	const char *stop = blank ? blank : line->end;
	size_t size = (size_t)(stop - line->at);
	if (size == 0 || size >= room || memchr(line->at, '\0', size) ||
	    (blank && blank + 1 == line->end))
		return false;
	memcpy(to, line->at, size);
	to[size] = '\0';
	line->at = blank ? blank + 1 : line->end;
	return true;
}

static bool line_next_number(struct line_cursor *line, uint64_t maximum, uint64_t *ret_number)
{
	char text[24];
	return line_next_word(line, text, sizeof(text)) &&
	       text_to_u64(text, 0, maximum, ret_number) == 0;
}

static bool key_valid(const char *key)
{
	return strspn(key,
		      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/+.;=_-") ==
	       strlen(key);
}

static uint64_t size_max(enum code_record_kind kind)
{
	switch (kind) {
	case CODE_RECORD_READY:
		return 200;
	case CODE_RECORD_DATA:
		return CODE_RESULT_BYTES_MAX;
	case CODE_RECORD_LEFT:
		return 20;
	case CODE_RECORD_ERROR:
		return CODE_ERROR_BYTES_MAX;
	case CODE_RECORD_BEGIN:
	case CODE_RECORD_WHOLE:
	case CODE_RECORD_END:
		break;
	}
	return 0;
}

static bool error_key(const char *key)
{
	return strcmp(key, "name") == 0 || strcmp(key, "value") == 0 ||
	       strcmp(key, "traceback") == 0;
}

static bool record_is_sensible(const struct code_record *record)
{
	switch (record->kind) {
	case CODE_RECORD_DATA:
		return record->index < CODE_RESULTS_MAX && strchr(record->key, '/') != NULL;
	case CODE_RECORD_LEFT:
		return record->index <= CODE_RESULTS_MAX && record->size > 0;
	case CODE_RECORD_ERROR:
		return error_key(record->key);
	case CODE_RECORD_WHOLE:
		return record->index < CODE_RESULTS_MAX;
	case CODE_RECORD_END:
		return record->index <= 255;
	case CODE_RECORD_READY:
	case CODE_RECORD_BEGIN:
		break;
	}
	return true;
}

int code_record_parse(const char *data, size_t size, struct code_record *ret_record)
{
	const char *end = memchr(data, '\n', size < CODE_HEADER_MAX ? size : CODE_HEADER_MAX);
	if (!end)
		return size < CODE_HEADER_MAX ? 0 : -EBADMSG;
	struct line_cursor line = {data, end};
	struct code_record record = {0};
	char kind[16];
	uint64_t index, bytes;
	if (!line_next_word(&line, kind, sizeof(kind)))
		return -EBADMSG;
	for (size_t i = CODE_RECORD_READY; i <= CODE_RECORD_END; i++)
		if (strcmp(kind, record_kinds[i]) == 0)
			record.kind = (enum code_record_kind)i;
	if (!record.kind || !line_next_number(&line, INT64_MAX, &record.cell) ||
	    !line_next_number(&line, UINT32_MAX, &index) ||
	    !line_next_word(&line, record.key, sizeof(record.key)) || !key_valid(record.key) ||
	    !line_next_number(&line, size_max(record.kind), &bytes) || line.at != line.end)
		return -EBADMSG;
	record.index = (uint32_t)index;
	record.size = (uint32_t)bytes;
	if (!record_is_sensible(&record))
		return -EBADMSG;
	*ret_record = record;
	return (int)(end - data) + 1;
}

static bool character_is_unescaped(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '-' || c == '/';
}

int code_request_write(struct buffer *buffer, const char *verb, uint64_t number, const char *code,
		       size_t size)
{
	static const char digits[] = "0123456789ABCDEF";
	int result = buffer_printf(buffer, "%s %llu %zu ", verb, (unsigned long long)number, size);
	if (result < 0 || buffer_reserve(buffer, 3 * size + 1) < 0)
		return -EMSGSIZE;
	char *to = buffer->data + buffer->size;
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)code[i];
		if (character_is_unescaped(c)) {
			*to++ = (char)c;
			continue;
		}
		*to++ = '%';
		*to++ = digits[c >> 4];
		*to++ = digits[c & 15];
	}
	*to++ = '\n';
	buffer_grow(buffer, (size_t)(to - buffer->data) - buffer->size);
	return 0;
}
