/* The request head: from bytes to offsets, or a named refusal. Called by connection.c for each head
 * and by the fuzzers; pure, never blocks, allocates nothing.
 *
 * Two readers of the same bytes must never disagree about where a message ends. So this parser
 * refuses everything that RFC 9112 lets a lenient reader repair: folds, bare line feeds, spaces
 * before a colon, lists of equal lengths. */
#include "http/parser.h"

#include <string.h>
#include <strings.h>

#include "base/word.h"
#include "http/characters.h"

#define METHOD_MAX 24
#define TARGET_MAX (8 * 1024)
#define LENGTH_DIGITS_MAX 18 /* below 2^63 whatever the digits */

/* What the headers say; checked when all are read. */
struct findings {
	bool length, coding, host, expect, expect_known;
	unsigned once; /* those of `single` that were present */
	bool says_close, says_keep_alive, says_upgrade, names_protocol;
};

static int head_refuse(int status, const char *reason, const char **ret_reason)
{
	*ret_reason = reason;
	return -status;
}

static bool word_is(const char *text, size_t size, const char *word)
{
	return size == strlen(word) && strncasecmp(text, word, size) == 0;
}

/* The end of the line at `at`: the index of its CR, 0 if the line is incomplete, or minus a status.
 * A forbidden character is refused at once, before the line is complete. */
static int line_find_end(const char *data, size_t at, size_t size, const char **ret_reason)
{
	size_t i = at;
	while (size - i >= 8 && !word_has_below(word_load(data + i), 0x20) &&
	       !word_has(word_load(data + i), 0x7f))
		i += 8;
	for (; i < size; i++) {
		if (http_is_text(data[i]))
			continue;
		if (data[i] == '\n')
			return head_refuse(400, "a line ends with a bare line feed", ret_reason);
		if (data[i] != '\r')
			return head_refuse(400, "a control character in the head", ret_reason);
		if (i + 1 == size)
			return 0;
		if (data[i + 1] != '\n')
			return head_refuse(400, "a bare carriage return in the head", ret_reason);
		return (int)i;
	}
	return 0;
}

static int version_parse(const char *text, size_t size, struct http_head *head,
			 const char **ret_reason)
{
	if (size != 8 || memcmp(text, "HTTP/", 5) != 0 || !http_is_digit(text[5]) ||
	    text[6] != '.' || !http_is_digit(text[7]))
		return head_refuse(400, "the request line has no HTTP version", ret_reason);
	if (text[5] != '1' || text[7] > '1')
		return head_refuse(505, "only HTTP/1.1 and HTTP/1.0 are supported", ret_reason);
	head->minor = text[7] - '0';
	return 0;
}

/* method SP target SP version, one space each. */
static int request_line_parse(const char *data, size_t at, size_t end, struct http_head *head,
			      const char **ret_reason)
{
	size_t i = at;
	while (i < end && http_is_token(data[i]))
		i++;
	if (i == at || i == end || data[i] != ' ')
		return head_refuse(400, "the request line has no method", ret_reason);
	if (i - at > METHOD_MAX)
		return head_refuse(501, "unknown method", ret_reason);
	head->method = (uint32_t)at;
	head->method_size = (uint32_t)(i - at);
	size_t target = ++i;
	while (i < end && (unsigned char)data[i] > ' ' && (unsigned char)data[i] < 0x7f &&
	       data[i] != '#')
		i++;
	if (i == target || i == end || data[i] != ' ')
		return head_refuse(400, "invalid request target", ret_reason);
	if (i - target > TARGET_MAX)
		return head_refuse(414, "the request target is too long", ret_reason);
	head->target = (uint32_t)target;
	head->target_size = (uint32_t)(i - target);
	return version_parse(data + i + 1, end - i - 1, head, ret_reason);
}

/* Checks an incomplete request line, so that a peer with another protocol (TLS, for example) is
 * refused at once. */
static int request_line_check_partial(const char *data, size_t at, size_t size,
				      const char **ret_reason)
{
	size_t i = at;
	while (i < size && http_is_token(data[i]))
		i++;
	if (i - at > METHOD_MAX)
		return head_refuse(501, "unknown method", ret_reason);
	if (i < size && data[i] != ' ')
		return head_refuse(400, "the request line has no method", ret_reason);
	if (size - at > TARGET_MAX + METHOD_MAX + 16)
		return head_refuse(414, "the request target is too long", ret_reason);
	return 0;
}

static int findings_note_length(const char *value, size_t size, struct http_head *head,
				struct findings *found, const char **ret_reason)
{
	if (found->length)
		return head_refuse(400, "Content-Length is given twice", ret_reason);
	found->length = true;
	if (size == 0 || size > LENGTH_DIGITS_MAX)
		return head_refuse(400, "Content-Length is empty or too long", ret_reason);
	int64_t length = 0;
	for (size_t i = 0; i < size; i++) {
		if (!http_is_digit(value[i]))
			return head_refuse(400, "Content-Length is not a number", ret_reason);
		length = length * 10 + (value[i] - '0');
	}
	head->content_length = length;
	return 0;
}

static int findings_note_coding(const char *value, size_t size, struct http_head *head,
				struct findings *found, const char **ret_reason)
{
	if (found->coding)
		return head_refuse(400, "Transfer-Encoding is given twice", ret_reason);
	found->coding = true;
	if (!word_is(value, size, "chunked")) {
		/* "gzip, chunked", "chunked;x", "xchunked": another reader may see chunks there. */
		for (size_t i = 0; i + 7 <= size; i++)
			if (strncasecmp(value + i, "chunked", 7) == 0)
				return head_refuse(400, "Transfer-Encoding is not exactly chunked",
						   ret_reason);
		return head_refuse(size ? 501 : 400, "unknown transfer coding", ret_reason);
	}
	head->chunked = true;
	return 0;
}

/* A name, an address or an address in brackets, optionally with a port. */
static bool host_is_valid(const char *text, size_t size)
{
	size_t i = 0;
	if (size > 0 && text[0] == '[') {
		for (i = 1; i < size && text[i] != ']'; i++)
			if (!http_is_hex(text[i]) && text[i] != ':' && text[i] != '.')
				return false;
		if (i < 3 || i == size)
			return false;
		i++;
	} else {
		while (i < size && (http_is_letter(text[i]) || http_is_digit(text[i]) ||
				    strchr("-._~", text[i])))
			i++;
		if (i == 0 || i > 255)
			return false;
	}
	if (i == size)
		return true;
	if (text[i++] != ':' || size - i < 1 || size - i > 5)
		return false;
	for (; i < size; i++)
		if (!http_is_digit(text[i]))
			return false;
	return true;
}

/* A list of tokens. Empty elements are allowed; anything else that is not a token is refused. */
static int findings_note_connection(const char *value, size_t size, struct findings *found,
				    const char **ret_reason)
{
	for (size_t at = 0; at < size;) {
		size_t start = at;
		while (at < size && http_is_token(value[at]))
			at++;
		const char *word = value + start;
		size_t length = at - start;
		if (word_is(word, length, "close"))
			found->says_close = true;
		else if (word_is(word, length, "keep-alive"))
			found->says_keep_alive = true;
		else if (word_is(word, length, "upgrade"))
			found->says_upgrade = true;
		while (at < size && (value[at] == ' ' || value[at] == '\t'))
			at++;
		if (at < size && value[at] != ',')
			return head_refuse(400, "Connection is not a list of names", ret_reason);
		for (at++; at < size && (value[at] == ' ' || value[at] == '\t');)
			at++;
	}
	return 0;
}

static int findings_note_host(const char *data, const struct http_parsed_header *header,
			      struct http_head *head, struct findings *found,
			      const char **ret_reason)
{
	if (found->host)
		return head_refuse(400, "Host is given twice", ret_reason);
	found->host = true;
	if (!host_is_valid(data + header->value, header->value_size))
		return head_refuse(400, "Host is not a host name", ret_reason);
	head->host = header->value;
	head->host_size = header->value_size;
	return 0;
}

/* Headers that may come only once: of two, different readers could choose different ones. */
static const struct {
	const char *name, *reason;
} single[] = {
    {"authorization", "Authorization is given twice"},
    {"content-type", "Content-Type is given twice"},
    {"upgrade", "Upgrade is given twice"},
    {"expect", "Expect is given twice"},
    {"origin", "Origin is given twice"},
};

static int findings_note_single(const char *name, size_t size, struct findings *found,
				const char **ret_reason)
{
	for (size_t i = 0; i < ARRAY_SIZE(single); i++) {
		if (!word_is(name, size, single[i].name))
			continue;
		if (found->once & 1u << i)
			return head_refuse(400, single[i].reason, ret_reason);
		found->once |= 1u << i;
	}
	return 0;
}

static int findings_note_header(const char *data, const struct http_parsed_header *header,
				struct http_head *head, struct findings *found,
				const char **ret_reason)
{
	const char *name = data + header->name, *value = data + header->value;
	size_t name_size = header->name_size, size = header->value_size;
	if (word_is(name, name_size, "content-length"))
		return findings_note_length(value, size, head, found, ret_reason);
	if (word_is(name, name_size, "transfer-encoding"))
		return findings_note_coding(value, size, head, found, ret_reason);
	if (word_is(name, name_size, "connection"))
		return findings_note_connection(value, size, found, ret_reason);
	if (word_is(name, name_size, "host"))
		return findings_note_host(data, header, head, found, ret_reason);
	if (word_is(name, name_size, "expect")) {
		found->expect_known = word_is(value, size, "100-continue");
		found->expect = true;
	} else if (word_is(name, name_size, "upgrade")) {
		found->names_protocol = size > 0;
	}
	return findings_note_single(name, name_size, found, ret_reason);
}

static int header_parse(char *data, size_t at, size_t end, struct http_head *head,
			struct findings *found, const char **ret_reason)
{
	if (data[at] == ' ' || data[at] == '\t')
		return head_refuse(400, "a folded header line", ret_reason);
	if (head->header_count == HTTP_HEADERS_MAX)
		return head_refuse(431, "too many headers", ret_reason);
	size_t i = at;
	for (; i < end && http_is_token(data[i]); i++)
		if (data[i] >= 'A' && data[i] <= 'Z')
			data[i] += 'a' - 'A';
	if (i == at || i == end || data[i] != ':')
		return head_refuse(400, "invalid header name", ret_reason);
	struct http_parsed_header *header = &head->headers[head->header_count++];
	header->name = (uint32_t)at;
	header->name_size = (uint32_t)(i - at);
	for (i++; i < end && (data[i] == ' ' || data[i] == '\t');)
		i++;
	while (end > i && (data[end - 1] == ' ' || data[end - 1] == '\t'))
		end--;
	header->value = (uint32_t)i;
	header->value_size = (uint32_t)(end - i);
	return findings_note_header(data, header, head, found, ret_reason);
}

/* "http://HOST/path" names the same thing as "/path" at Host: the scheme and the host are cut off,
 * but only if they equal Host. */
static int target_cut_host(const char *data, struct http_head *head, const char **ret_reason)
{
	const char *target = data + head->target;
	if (target[0] == '/')
		return 0;
	size_t size = head->target_size, skip = 0;
	if (size > 7 && strncasecmp(target, "http://", 7) == 0)
		skip = 7;
	else if (size > 8 && strncasecmp(target, "https://", 8) == 0)
		skip = 8;
	else
		return head_refuse(400, "the request target must be a path", ret_reason);
	if (size <= skip + head->host_size || head->host_size == 0 ||
	    strncasecmp(target + skip, data + head->host, head->host_size) != 0)
		return head_refuse(400, "the request target and Host differ", ret_reason);
	skip += head->host_size;
	if (target[skip] != '/')
		return head_refuse(400, "the request target and Host differ", ret_reason);
	head->target += (uint32_t)skip;
	head->target_size -= (uint32_t)skip;
	return 0;
}

static int head_judge(const char *data, struct http_head *head, const struct findings *found,
		      const char **ret_reason)
{
	if (found->length && found->coding)
		return head_refuse(400, "both Content-Length and Transfer-Encoding", ret_reason);
	if (head->chunked && head->minor == 0)
		return head_refuse(400, "Transfer-Encoding in an HTTP/1.0 request", ret_reason);
	if (!found->host && head->minor == 1)
		return head_refuse(400, "Host is missing", ret_reason);
	if (found->expect && !found->expect_known)
		return head_refuse(417, "Expect is not 100-continue", ret_reason);
	bool body = head->chunked || head->content_length > 0;
	head->expect_continue = found->expect && head->minor == 1 && body;
	head->keep_alive = !found->says_close && (head->minor == 1 || found->says_keep_alive);
	/* Also with a body: http_upgrade() requires that the whole body is read first, so that the
	 * bytes of the body and of the new protocol cannot be confused. */
	head->upgrade = found->says_upgrade && found->names_protocol && head->minor == 1;
	return target_cut_host(data, head, ret_reason);
}

int http_head_parse(char *data, size_t size, struct http_head *ret_head, const char **ret_reason)
{
	struct http_head *head = ret_head;
	struct findings found = {0};
	size_t limit = MIN(size, (size_t)HTTP_HEAD_MAX), at = 0;
	head->header_count = 0;
	head->minor = 1;
	head->chunked = head->keep_alive = head->expect_continue = head->upgrade = false;
	head->content_length = -1;
	head->host = head->host_size = 0;
	/* One empty line before a request is allowed (RFC 9112, 2.2). */
	int end = line_find_end(data, 0, limit, ret_reason);
	if (end == 0 && limit >= 2 && data[0] == '\r' && data[1] == '\n') {
		at = 2;
		end = line_find_end(data, at, limit, ret_reason);
		if (end == 2)
			return head_refuse(400, "the request line is empty", ret_reason);
	}
	if (end < 0)
		return end;
	if (end == 0)
		return request_line_check_partial(
		    data, at, limit && data[limit - 1] == '\r' ? limit - 1 : limit, ret_reason);
	int result = request_line_parse(data, at, (size_t)end, head, ret_reason);
	while (result == 0) {
		at = (size_t)end + 2;
		end = line_find_end(data, at, limit, ret_reason);
		if (end < 0)
			return end;
		if (end == 0)
			return limit == HTTP_HEAD_MAX
				   ? head_refuse(431, "the head is too long", ret_reason)
				   : 0;
		if ((size_t)end == at) {
			result = head_judge(data, head, &found, ret_reason);
			return result < 0 ? result : end + 2;
		}
		result = header_parse(data, at, (size_t)end, head, &found, ret_reason);
	}
	return result;
}
