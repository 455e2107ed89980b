/* See encoding.h. Called by the file tools of the dialects; pure. */
#include "mcp/dialects/encoding.h"

#include <ctype.h>
#include <string.h>

#include "base/base64.h"
#include "base/text.h"

static const struct {
	const char *name;
	enum text_encoding encoding;
} names[] = {
    {"utf8", ENCODING_UTF8},     {"ascii", ENCODING_ASCII}, {"usascii", ENCODING_ASCII},
    {"latin1", ENCODING_LATIN1}, {"l1", ENCODING_LATIN1},   {"iso88591", ENCODING_LATIN1},
    {"base64", ENCODING_BASE64},
};

int encoding_parse(const char *name, enum text_encoding *ret_encoding, struct error *error)
{
	/* Case, '-' and '_' are ignored. */
	char plain[16];
	size_t size = 0;
	for (const char *at = name; *at && size < sizeof(plain) - 1; at++)
		if (isalnum((unsigned char)*at))
			plain[size++] = (char)tolower((unsigned char)*at);
	plain[size] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i].name, plain) == 0) {
			*ret_encoding = names[i].encoding;
			return 0;
		}
	return error_set(error, ERROR_INVALID,
			 "field `encoding` is `%.40s`; it must be utf-8, ascii, latin-1 or base64",
			 name);
}

const char *encoding_name(enum text_encoding encoding)
{
	static const char *const shown[] = {"UTF-8", "ASCII", "Latin-1", "base64"};
	return shown[encoding];
}

bool encoding_holds(enum text_encoding encoding, const char *data, size_t size)
{
	switch (encoding) {
	case ENCODING_UTF8:
		return text_is_utf8(data, size);
	case ENCODING_ASCII:
		for (size_t i = 0; i < size; i++)
			if ((unsigned char)data[i] >= 0x80)
				return false;
		return true;
	case ENCODING_LATIN1:
	case ENCODING_BASE64:
		return true;
	}
	return false;
}

static void put_latin1(struct json_writer *writer, const char *key, const char *data, size_t size)
{
	DONE_BUFFER struct buffer text = BUFFER(2 * size + 1);
	if (size > 0 && buffer_reserve(&text, 2 * size) < 0) {
		writer->full = true;
		return;
	}
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)data[i];
		if (c >= 0x80)
			text.data[text.size++] = (char)(0xc0 | c >> 6);
		text.data[text.size++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
	}
	put_text_size(writer, key, buffer_text(&text), text.size);
}

void encoding_put(struct json_writer *writer, const char *key, enum text_encoding encoding,
		  const char *data, size_t size)
{
	if (encoding == ENCODING_BASE64)
		put_base64(writer, key, data, size);
	else if (encoding == ENCODING_LATIN1)
		put_latin1(writer, key, data, size);
	else
		put_text_size(writer, key, size > 0 ? data : "", size);
}

static int content_unencodable(enum text_encoding encoding, struct error *error)
{
	return error_set(error, ERROR_INVALID,
			 "field `content` has characters that %s does not have; use utf-8",
			 encoding_name(encoding));
}

static int latin1_bytes(const char *text, struct buffer *to, struct error *error)
{
	for (const char *at = text; *at; at++) {
		unsigned char c = (unsigned char)*at;
		if (c >= 0x80) {
			/* U+0080 to U+00FF have two bytes: c2 or c3, and another. */
			if (c != 0xc2 && c != 0xc3)
				return content_unencodable(ENCODING_LATIN1, error);
			c = (unsigned char)((c & 3) << 6 | ((unsigned char)*++at & 0x3f));
		}
		if (buffer_append(to, &c, 1) < 0)
			return error_set(error, ERROR_TOO_LARGE, "field `content` is too long");
	}
	return 0;
}

static int base64_bytes(const char *text, struct buffer *to, struct error *error)
{
	size_t size = strlen(text);
	if (size > 0 && buffer_reserve(to, size / 4 * 3 + 3) < 0)
		return error_set(error, ERROR_TOO_LARGE, "field `content` is too long");
	ssize_t got = size > 0 ? base64_decode(text, size, to->data + to->size) : 0;
	if (got < 0)
		return error_set(error, ERROR_INVALID, "field `content` is not valid base64");
	if (got > 0)
		buffer_grow(to, (size_t)got);
	return 0;
}

int encoding_bytes(enum text_encoding encoding, const char *text, struct buffer *to,
		   struct error *error)
{
	size_t size = strlen(text);
	if (encoding == ENCODING_LATIN1)
		return latin1_bytes(text, to, error);
	if (encoding == ENCODING_BASE64)
		return base64_bytes(text, to, error);
	if (!encoding_holds(encoding, text, size))
		return content_unencodable(encoding, error);
	if (size > 0 && buffer_append(to, text, size) < 0)
		return error_set(error, ERROR_TOO_LARGE, "field `content` is too long");
	return 0;
}

/* --- ranges --- */

static int number_parse(const char *text, size_t size, uint64_t *ret_value)
{
	char digits[20];
	if (size == 0 || size >= sizeof(digits))
		return -1;
	memcpy(digits, text, size);
	digits[size] = '\0';
	return text_to_u64(digits, 0, INT64_MAX / 2, ret_value);
}

int byte_range_parse(const char *text, uint64_t max, struct byte_range *ret_range,
		     struct error *error)
{
	struct byte_range range = {0};
	uint64_t end = 0;
	*ret_range = range;
	if (!text || !*text)
		return 0;
	const char *numbers = text_starts(text, "bytes=") ? text + strlen("bytes=") : "";
	const char *dash = strchr(numbers, '-');
	bool open = dash && dash[1] == '\0', suffix = dash && dash == numbers;
	bool good =
	    dash && !(open && suffix) &&
	    (suffix || number_parse(numbers, (size_t)(dash - numbers), &range.offset) == 0) &&
	    (open || number_parse(dash + 1, strlen(dash + 1), &end) == 0) &&
	    (open || suffix || end >= range.offset) && !(suffix && end == 0);
	if (!good)
		return error_set(error, ERROR_INVALID,
				 "field `range_header` is `%.60s`; it must be like "
				 "\"bytes=0-1023\", \"bytes=100-\" or \"bytes=-50\"",
				 text);
	range.given = true;
	if (suffix)
		range.last = end;
	else if (!open)
		range.length = end - range.offset + 1;
	if (range.length > max || range.last > max)
		return error_set(error, ERROR_INVALID,
				 "field `range_header` asks for more than %llu bytes at once",
				 (unsigned long long)max);
	*ret_range = range;
	return 0;
}
