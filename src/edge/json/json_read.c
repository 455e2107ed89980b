/* Reads untrusted JSON into a tree of jansson's (json.h). Called for every request with a body and
 * every MCP message, on the loop or in a thread. jansson has its own reader, and a fuzzer shows
 * that both agree (tests/fuzz/fuzz_json.c lists the allowed differences). But jansson's takes a
 * byte at a time, and bounds neither depth nor number while it reads. Works on memory; nothing
 * blocks. */
#include "edge/json/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/word.h"

/* Further digits of a number have no meaning. */
#define NUMBER_MAX 512

struct json_reader {
	const char *at, *begin, *end;
	const struct json_bounds *bounds;
	struct json_wrong *wrong;
	unsigned depth;
	size_t values;
	char *plain; /* for a text with escapes; as long as the whole input, made on demand */
};

static void *json_fail(struct json_reader *reader, const char *text)
{
	struct json_wrong *wrong = reader->wrong;
	if (wrong->text)
		return NULL;
	*wrong = (struct json_wrong){.text = text, .line = 1, .column = 1};
	for (const char *at = reader->begin; at < reader->at; at++) {
		wrong->column++;
		if (*at == '\n')
			wrong->line++, wrong->column = 1;
	}
	return NULL;
}

/* The input may be valid JSON, but our texts cannot hold it. */
static void *fail_text(struct json_reader *reader, const char *text)
{
	json_fail(reader, text);
	reader->wrong->no_text = true;
	return NULL;
}

/* jansson only fails here if memory runs out. */
static json_t *json_must(json_t *json)
{
	if (!json)
		abort();
	return json;
}

static void json_skip_space(struct json_reader *reader)
{
	while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
					    *reader->at == '\r' || *reader->at == '\t'))
		reader->at++;
}

/* The next byte that is no space; '\0' at the end, and for a NUL, which is never allowed. */
static char json_peek(struct json_reader *reader)
{
	json_skip_space(reader);
	return reader->at < reader->end ? *reader->at : '\0';
}

/* --- texts --- */

struct span {
	const char *data;
	size_t size;
};

/* Four hexadecimal digits; -1: invalid. */
static int json_read_hex(struct json_reader *reader)
{
	int value = 0;
	if (reader->end - reader->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = *reader->at++;
		int digit = c >= '0' && c <= '9'   ? c - '0'
			    : c >= 'a' && c <= 'f' ? c - 'a' + 10
			    : c >= 'A' && c <= 'F' ? c - 'A' + 10
						   : -1;
		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

/* The code after `\u`, with the second half of a pair; 0: it was refused. */
static unsigned json_read_code(struct json_reader *reader)
{
	static const char half[] = "half of a surrogate pair in a string";
	int code = json_read_hex(reader);
	if (code < 0)
		json_fail(reader, "invalid Unicode escape");
	if (code == 0)
		fail_text(reader, "a NUL (\\u0000) in a string");
	if (code >= 0xdc00 && code <= 0xdfff)
		fail_text(reader, half);
	if (reader->wrong->text)
		return 0;
	if (code < 0xd800 || code > 0xdbff)
		return (unsigned)code;
	int low = -1;
	if (reader->end - reader->at >= 2 && reader->at[0] == '\\' && reader->at[1] == 'u') {
		reader->at += 2;
		low = json_read_hex(reader);
	}
	if (low < 0xdc00 || low > 0xdfff) {
		fail_text(reader, half);
		return 0;
	}
	return 0x10000u + (((unsigned)code - 0xd800u) << 10) + ((unsigned)low - 0xdc00u);
}

static char *put_code(char *to, unsigned code)
{
	if (code < 0x80) {
		*to++ = (char)code;
		return to;
	}
	if (code < 0x800) {
		*to++ = (char)(0xc0 | (code >> 6));
	} else {
		if (code < 0x10000) {
			*to++ = (char)(0xe0 | (code >> 12));
		} else {
			*to++ = (char)(0xf0 | (code >> 18));
			*to++ = (char)(0x80 | ((code >> 12) & 0x3f));
		}
		*to++ = (char)(0x80 | ((code >> 6) & 0x3f));
	}
	*to++ = (char)(0x80 | (code & 0x3f));
	return to;
}

/* Reads on after a backslash; NULL: invalid escape. */
static char *put_escaped(struct json_reader *reader, char *to)
{
	static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
	char c = reader->at < reader->end ? *reader->at : '\0';
	const char *found = c ? strchr(names, c) : NULL;
	if (found) {
		reader->at++;
		*to = meant[found - names];
		return to + 1;
	}
	if (c != 'u')
		return json_fail(reader, "invalid escape");
	reader->at++;
	unsigned code = json_read_code(reader);
	return code ? put_code(to, code) : NULL;
}

/* The length up to the next quote, backslash or control character. */
static size_t plain_run_size(const char *at, const char *end)
{
	const char *from = at;
	while (end - at >= 8) {
		uint64_t word = word_load(at);
		if (word_has_below(word, 0x20) || word_has(word, '"') || word_has(word, '\\'))
			break;
		at += 8;
	}
	while (at < end && (unsigned char)*at >= 0x20 && *at != '"' && *at != '\\')
		at++;
	return (size_t)(at - from);
}

static bool json_read_escapes(struct json_reader *reader, const char *from, struct span *ret)
{
	if (!reader->plain)
		reader->plain = malloc((size_t)(reader->end - reader->begin));
	if (!reader->plain)
		abort();
	size_t before = (size_t)(reader->at - from);
	memcpy(reader->plain, from, before);
	char *to = reader->plain + before;
	while (reader->at < reader->end && *reader->at == '\\') {
		reader->at++;
		to = put_escaped(reader, to);
		if (!to)
			return false;
		size_t size = plain_run_size(reader->at, reader->end);
		memcpy(to, reader->at, size);
		to += size;
		reader->at += size;
	}
	*ret = (struct span){reader->plain, (size_t)(to - reader->plain)};
	return true;
}

/* Valid until the next one is read. */
static bool json_read_text(struct json_reader *reader, struct span *ret)
{
	const char *from = ++reader->at;
	reader->at += plain_run_size(reader->at, reader->end);
	*ret = (struct span){from, (size_t)(reader->at - from)};
	if (reader->at < reader->end && *reader->at == '\\' &&
	    !json_read_escapes(reader, from, ret))
		return false;
	if (reader->at == reader->end)
		return json_fail(reader, "a string does not end");
	if (*reader->at != '"')
		return json_fail(reader, "a control character in a string");
	if (!text_is_utf8(ret->data, ret->size))
		return fail_text(reader, "a string is not UTF-8");
	reader->at++;
	return true;
}

/* --- numbers --- */

static size_t digits_count(const char *at, const char *end)
{
	const char *from = at;
	while (at < end && *at >= '0' && *at <= '9')
		at++;
	return (size_t)(at - from);
}

/* The length of the number, by JSON's grammar; 0: invalid. */
static size_t number_size(const char *from, const char *end, bool *ret_real)
{
	const char *at = from + (from < end && *from == '-');
	size_t count = digits_count(at, end);
	if (count == 0 || (*at == '0' && count > 1))
		return 0;
	at += count;
	*ret_real = false;
	if (at < end && *at == '.') {
		count = digits_count(++at, end);
		*ret_real = true;
		if (count == 0)
			return 0;
		at += count;
	}
	if (at < end && (*at == 'e' || *at == 'E')) {
		at++;
		at += at < end && (*at == '+' || *at == '-');
		count = digits_count(at, end);
		*ret_real = true;
		if (count == 0)
			return 0;
		at += count;
	}
	return (size_t)(at - from);
}

static json_t *json_read_number(struct json_reader *reader)
{
	char text[NUMBER_MAX + 1];
	bool real;
	size_t size = number_size(reader->at, reader->end, &real);
	if (size == 0)
		return json_fail(reader, "not a JSON value");
	if (size > NUMBER_MAX)
		return json_fail(reader, "a number is too long");
	memcpy(text, reader->at, size);
	text[size] = '\0';
	errno = 0;
	if (real) {
		double value = strtod(text, NULL);
		if (!isfinite(value))
			return json_fail(reader, "a number is too large");
		reader->at += size;
		return json_must(json_real(value));
	}
	long long value = strtoll(text, NULL, 10);
	if (errno == ERANGE)
		return json_fail(reader, "a number is too large");
	reader->at += size;
	return json_must(json_integer(value));
}

/* --- values --- */

static json_t *json_read_value(struct json_reader *reader);

static bool json_deepen(struct json_reader *reader)
{
	if (reader->depth == reader->bounds->depth)
		return json_fail(reader, "it is nested too deeply");
	reader->depth++;
	reader->at++;
	return true;
}

/* After a member or an element: is there another one? */
static bool json_another_follows(struct json_reader *reader, char close)
{
	char c = json_peek(reader);
	if (c != ',' && c != close)
		return json_fail(reader,
				 close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
	reader->at++;
	if (c == close)
		reader->depth--;
	return c == ',';
}

static bool json_read_member(struct json_reader *reader, json_t *object)
{
	struct span name;
	if (json_peek(reader) != '"')
		return json_fail(reader, "expected a member's name");
	if (!json_read_text(reader, &name))
		return false;
	const char *behind = reader->at;
	/* The value may have escapes of its own. */
	char *kept = name.data == reader->plain ? strndup(name.data, name.size) : NULL;
	if (name.data == reader->plain && !kept)
		abort();
	json_t *value = NULL;
	if (json_peek(reader) != ':') {
		json_fail(reader, "expected ':'");
	} else {
		reader->at++;
		value = json_read_value(reader);
	}
	size_t before = json_object_size(object);
	if (value &&
	    json_object_setn_new_nocheck(object, kept ? kept : name.data, name.size, value) < 0)
		abort();
	free(kept);
	/* It replaced another member: this check is cheaper than a look-up before each. */
	if (value && json_object_size(object) == before) {
		reader->at = behind;
		return json_fail(reader, "a duplicate name");
	}
	return value != NULL;
}

static bool json_read_element(struct json_reader *reader, json_t *array)
{
	json_t *value = json_read_value(reader);
	if (value && json_array_append_new(array, value) < 0)
		abort();
	return value != NULL;
}

/* An object or an array, from its opening to its closing bracket. */
static json_t *json_read_all(struct json_reader *reader, json_t *empty, char close,
			     bool (*read_one)(struct json_reader *reader, json_t *into))
{
	json_t *all = json_must(empty);
	bool more = json_deepen(reader) && json_peek(reader) != close;
	if (!more && !reader->wrong->text)
		reader->depth--, reader->at++;
	while (more)
		more = read_one(reader, all) && json_another_follows(reader, close);
	if (!reader->wrong->text)
		return all;
	json_decref(all);
	return NULL;
}

static json_t *json_read_word(struct json_reader *reader)
{
	size_t left = (size_t)(reader->end - reader->at);
	static const struct {
		const char *text;
		size_t size;
	} words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (left < words[i].size || memcmp(reader->at, words[i].text, words[i].size) != 0)
			continue;
		reader->at += words[i].size;
		return i == 2 ? json_null() : json_boolean(i == 0);
	}
	return json_fail(reader, "not a JSON value");
}

static json_t *json_read_value(struct json_reader *reader)
{
	struct span text;
	char c = json_peek(reader);
	if (reader->at == reader->end)
		return json_fail(reader, "it ends too early");
	if (++reader->values > reader->bounds->values)
		return json_fail(reader, "it has too many values");
	switch (c) {
	case '{':
		return json_read_all(reader, json_object(), '}', json_read_member);
	case '[':
		return json_read_all(reader, json_array(), ']', json_read_element);
	case '"':
		return json_read_text(reader, &text)
			   ? json_must(json_stringn_nocheck(text.data, text.size))
			   : NULL;
	case 't':
	case 'f':
	case 'n':
		return json_read_word(reader);
	default:
		return json_read_number(reader);
	}
}

json_t *json_read(const char *data, size_t size, const struct json_bounds *bounds,
		  struct json_wrong *wrong)
{
	struct json_reader reader = {
	    .at = data, .begin = data, .end = data + size, .bounds = bounds, .wrong = wrong};
	*wrong = (struct json_wrong){0};
	json_t *json = json_read_value(&reader);
	json_skip_space(&reader);
	if (json && reader.at < reader.end)
		json_fail(&reader, "there is more behind it");
	free(reader.plain);
	if (wrong->text) {
		json_decref(json);
		return NULL;
	}
	return json;
}
