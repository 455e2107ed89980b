/* The HTTP parsers as functions: heads, chunked bodies, paths and queries. */
#include "test.h"

#include <errno.h>

#include "http/parser.h"
#include "http/target.h"

TEST_MAIN

static struct http_head head;
static const char *reason;
static char room[HTTP_HEAD_MAX + 4096];

static int parse(const char *text)
{
	size_t size = strlen(text);
	memcpy(room, text, size);
	reason = NULL;
	return http_head_parse(room, size, &head, &reason);
}

static bool is(uint32_t at, uint32_t size, const char *text)
{
	return size == strlen(text) && memcmp(room + at, text, size) == 0;
}

TEST(a_head_is_taken_apart)
{
	static const char text[] = "POST /a/b?c=d HTTP/1.1\r\nHost: example.org:80\r\n"
				   "X-Some-Name:  a value \t\r\nContent-Length: 12\r\n\r\nrest";
	CHECK_INT(parse(text), strlen(text) - 4);
	CHECK(is(head.method, head.method_size, "POST"));
	CHECK(is(head.target, head.target_size, "/a/b?c=d"));
	CHECK_INT(head.minor, 1);
	CHECK_INT(head.header_count, 3);
	CHECK(is(head.headers[1].name, head.headers[1].name_size, "x-some-name"));
	CHECK(is(head.headers[1].value, head.headers[1].value_size, "a value"));
	CHECK(is(head.host, head.host_size, "example.org:80"));
	CHECK_INT(head.content_length, 12);
	CHECK(head.keep_alive && !head.chunked && !head.expect_continue && !head.upgrade);
}

TEST(every_prefix_of_a_good_head_needs_more)
{
	static const char text[] =
	    "\r\nGET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n";
	for (size_t size = 0; size < strlen(text); size++) {
		memcpy(room, text, size);
		CHECK_INT(http_head_parse(room, size, &head, &reason), 0);
	}
	CHECK_INT(parse(text), strlen(text));
}

TEST(options_of_a_head)
{
	CHECK(parse("GET / HTTP/1.0\r\n\r\n") > 0 && !head.keep_alive && head.minor == 0);
	CHECK(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") > 0 && head.keep_alive);
	CHECK(parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") > 0 &&
	      !head.keep_alive);
	CHECK(parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Upgrade\r\nUpgrade: y\r\n\r\n") >
		  0 &&
	      head.upgrade);
	CHECK(parse("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: y\r\n\r\n") > 0 && !head.upgrade);
	CHECK(parse("POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: y\r\n"
		    "Content-Length: 1\r\n\r\n") > 0 &&
	      head.upgrade && head.content_length == 1);
	CHECK(parse("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n"
		    "Expect: 100-continue\r\n\r\n") > 0 &&
	      head.chunked && head.expect_continue && head.content_length == -1);
	CHECK(parse("GET https://h:1/p?q HTTP/1.1\r\nHost: h:1\r\n\r\n") > 0 &&
	      is(head.target, head.target_size, "/p?q"));
	CHECK(
	    parse(
		"POST / HTTP/1.1\r\nHost: [::1]:5\r\nContent-Length: 999999999999999999\r\n\r\n") >
		0 &&
	    head.content_length == 999999999999999999);
}

TEST(refusals_have_a_status_and_a_reason)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
	    {"GET / HTTP/1.1\r\n\r\n", 400},
	    {"\n", 400},
	    {"\r\n\r\n", 400},
	    {"\x16\x03\x01", 400},
	    {"G\xc3", 400},
	    {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000000000\r\n\r\n", 400},
	    {"AAAAAAAAAAAAAAAAAAAAAAAAA", 501},
	    {"GET / HTTP/3.0\r\n", 505},
	    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: br\r\n", 501},
	    {"POST / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", 417},
	    {"GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\nexpect: x\r\n\r\n", 400},
	    {"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: a\r\nauthorization: a\r\n\r\n", 400},
	    {"GET / HTTP/1.1\r\nHost: h\r\nContent-Type: a\r\nContent-Type: a\r\n\r\n", 400},
	    {"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n", 400},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CHECK_INT(parse(cases[i].text), -cases[i].status);
		CHECK(reason != NULL);
	}
}

/* The body that comes out of `text` fed in pieces of that size, or a status. */
static int decode(const char *text, size_t piece, char *to, size_t *ret_used)
{
	struct http_chunked chunked = {0};
	size_t size = strlen(text), at = 0, length = 0;
	while (at < size && chunked.phase != CHUNK_DONE) {
		const char *data;
		size_t found, step = MIN(piece, size - at);
		int64_t used = http_chunked_next(&chunked, text + at, step, &data, &found, &reason);
		if (used < 0)
			return (int)used;
		memcpy(to + length, data ? data : "", found);
		length += found;
		at += (size_t)used;
	}
	to[length] = '\0';
	*ret_used = at;
	return chunked.phase == CHUNK_DONE;
}

TEST(chunks_in_pieces_of_every_size)
{
	static const char text[] = "5\r\nhello\r\n00a;x=y\r\n, the worl\r\n1;q=\"1\"\r\nd\r\n"
				   "0\r\nX-T: 1\r\n\r\nNEXT";
	char body[256];
	size_t used = 0;
	for (size_t piece = 1; piece < sizeof(text); piece++) {
		CHECK_INT(decode(text, piece, body, &used), 1);
		CHECK_TEXT(body, "hello, the world");
		CHECK_INT(used, strlen(text) - 4);
	}
}

TEST(chunks_that_are_refused)
{
	static const char *const cases[] = {
	    "\r\n",
	    "g\r\n",
	    "-1\r\n",
	    "0x1\r\n",
	    "1 \r\n",
	    "1\n",
	    "1\rx",
	    "1;\r\n",
	    "1;a\nb",
	    "1\r\nab",
	    "1\r\na\n",
	    "1\r\na\rx",
	    "0\r\n x",
	    "0\r\n\n",
	    "0\r\nx\r\n",
	    "0\r\nx: y\n",
	    "0\r\nx: y\r\rn",
	    "0\r\n\rx",
	    "0\r\n: x",
	    "1000000000000000\r\n",
	    "0000000000000001\r\n",
	};
	char body[256];
	size_t used;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t piece = 1; piece < 20; piece++)
			CHECK_INT(decode(cases[i], piece, body, &used), -400);
}

TEST(paths)
{
	static const struct {
		const char *target, *path; /* NULL: refused */
	} cases[] = {
	    {"/", "/"},
	    {"/a%20b?c%zz", "/a b"},
	    {"/%C3%A4", "/\xc3\xa4"},
	    {"/a/.b/..c/...", "/a/.b/..c/..."},
	    {"/a%2Fb", "/a/b"},
	    {"//", "//"},
	    {"/.", NULL},
	    {"/..", NULL},
	    {"/a/./b", NULL},
	    {"/a/%2E%2e", NULL},
	    {"/a%2f..%2fb", NULL},
	    {"/%", NULL},
	    {"/%4", NULL},
	    {"/%4?", NULL},
	    {"/%0a", NULL},
	    {"/%00", NULL},
	    {"/%7f", NULL},
	    {"/%80", NULL},
	};
	char path[256];
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int result =
		    http_path_decode(cases[i].target, strlen(cases[i].target), path, &reason);
		CHECK_INT(result, cases[i].path ? 0 : -400);
		if (cases[i].path)
			CHECK_TEXT(path, cases[i].path);
	}
}

TEST(queries)
{
	char value[8];
	CHECK_INT(http_query_find("", "a", value, sizeof(value)), -ENOENT);
	CHECK_INT(http_query_find("&&a=1&", "a", value, sizeof(value)), 1);
	CHECK_INT(http_query_find("a==", "a", value, sizeof(value)), 1);
	CHECK_TEXT(value, "=");
	CHECK_INT(http_query_find("ab=1", "a", value, sizeof(value)), -ENOENT);
	CHECK_INT(http_query_find("a=1234567", "a", value, sizeof(value)), 7);
	CHECK_INT(http_query_find("a=12345678", "a", value, sizeof(value)), -EINVAL);
	CHECK_INT(http_query_find("a=1&%61=1", "a", value, sizeof(value)), -EINVAL);
	CHECK_INT(http_query_find("a=%", "a", value, sizeof(value)), -EINVAL);
}
