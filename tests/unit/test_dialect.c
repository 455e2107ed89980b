/* What the dialects' tools take and give, without a daemon: indented JSON, encodings, ranges of
 * bytes, images, quantities, modes. */
#include "base/config.h"
#include "base/limits.h"
#include "mcp/dialects/encoding.h"
#include "mcp/dialects/opensandbox.h"

#include "test.h"

TEST_MAIN

static char *indented(const char *json)
{
	static struct buffer text;
	buffer_done(&text);
	text = BUFFER(64 * KIB);
	CHECK_INT(json_indent(&text, json, strlen(json)), 0);
	return text.data;
}

TEST(json_is_indented)
{
	CHECK_TEXT(indented("{}"), "{}");
	CHECK_TEXT(indented("[]"), "[]");
	CHECK_TEXT(indented("7"), "7");
	CHECK_TEXT(indented("{\"a\":[1,{\"b\":null}],\"c\":{},\"d\":[]}"),
		   "{\n  \"a\": [\n    1,\n    {\n      \"b\": null\n    }\n  ],\n"
		   "  \"c\": {},\n  \"d\": []\n}");
	/* What is in a text stays as it is. */
	CHECK_TEXT(indented("[\"{,:}\\\"[\",\"\\\\\"]"), "[\n  \"{,:}\\\"[\",\n  \"\\\\\"\n]");
}

TEST(json_that_is_not_whole_ends)
{
	static const char whole[] = "{\"a\":[\"b\\\\\",{\"c\":\"\\\"\"}]}";
	for (size_t size = 0; size < sizeof(whole); size++) {
		DONE_BUFFER struct buffer text = BUFFER(KIB);
		(void)!json_indent(&text, whole, size);
		DONE_BUFFER struct buffer none = BUFFER(size / 2);
		(void)!json_indent(&none, whole, size);
		CHECK(none.size <= size / 2);
	}
	DONE_BUFFER struct buffer closed = BUFFER(KIB);
	CHECK_INT(json_indent(&closed, "]]]}", 4), 0);
}

static const char *bytes(enum text_encoding encoding, const char *text)
{
	static struct buffer to;
	struct error error;
	buffer_done(&to);
	to = BUFFER(KIB);
	return encoding_bytes(encoding, text, &to, &error) < 0 ? "refused" : buffer_text(&to);
}

TEST(encodings)
{
	enum text_encoding encoding;
	struct error error;
	static const struct {
		const char *name;
		int encoding;
	} names[] = {
	    {"utf-8", ENCODING_UTF8},
	    {"UTF8", ENCODING_UTF8},
	    {"ascii", ENCODING_ASCII},
	    {"latin_1", ENCODING_LATIN1},
	    {"ISO-8859-1", ENCODING_LATIN1},
	    {"base64", ENCODING_BASE64},
	    {"", -1},
	    {"utf-16", -1},
	    {"utf-8-and-then-some", -1},
	};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		int result = encoding_parse(names[i].name, &encoding, &error);
		CHECK_INT(result < 0 ? -1 : (int)encoding, names[i].encoding);
	}
	CHECK_TEXT(bytes(ENCODING_UTF8, "h\xc3\xa4"), "h\xc3\xa4");
	CHECK_TEXT(bytes(ENCODING_ASCII, "ha"), "ha");
	CHECK_TEXT(bytes(ENCODING_ASCII, "h\xc3\xa4"), "refused");
	CHECK_TEXT(bytes(ENCODING_LATIN1, "h\xc3\xa4\xc2\x80"), "h\xe4\x80");
	CHECK_TEXT(bytes(ENCODING_LATIN1, "\xe2\x82\xac"), "refused");
	CHECK_TEXT(bytes(ENCODING_BASE64, "aGk="), "hi");
	CHECK_TEXT(bytes(ENCODING_BASE64, "aGk"), "refused");
	CHECK_TEXT(bytes(ENCODING_BASE64, ""), "");
	CHECK(encoding_holds(ENCODING_LATIN1, "\xff", 1) &&
	      !encoding_holds(ENCODING_UTF8, "\xff", 1));
}

TEST(ranges)
{
	static const struct {
		const char *text;
		uint64_t offset, length, last;
	} good[] = {
	    {"bytes=0-0", 0, 1, 0},
	    {"bytes=5-9", 5, 5, 0},
	    {"bytes=7-", 7, 0, 0},
	    {"bytes=-3", 0, 0, 3},
	};
	static const char *const refused[] = {
	    "bytes",       "bytes=",      "bytes=-",       "bytes=-0",
	    "bytes=5-4",   "bytes=a-b",   "bytes=1-2,4-5", "bytes= 1-2",
	    "lines=1-2",   "bytes=0-100", "bytes=-101",    "bytes=99999999999999999999-",
	    "bytes=1-2-3",
	};
	struct byte_range range;
	struct error error;
	CHECK_INT(byte_range_parse(NULL, 100, &range, &error), 0);
	CHECK(!range.given);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CHECK_INT(byte_range_parse(good[i].text, 100, &range, &error), 0);
		CHECK(range.given);
		CHECK_INT(range.offset, good[i].offset);
		CHECK_INT(range.length, good[i].length);
		CHECK_INT(range.last, good[i].last);
	}
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (byte_range_parse(refused[i], 100, &range, &error) == 0)
			test_fail(__FILE__, __LINE__, "%s was taken", refused[i]);
}

TEST(images)
{
	static const struct {
		const char *image, *template;
	} images[] = {
	    {"host", "host"},
	    {"python-3.12", "python-3.12"},
	    {"python", "python-3.12"},
	    {"python:3", "python-3.12"},
	    {"python:3.12.4-slim", "python-3.12"},
	    {"docker.io/library/python:latest", "python-3.12"},
	    {"localhost/python:3.12", "python-3.12"},
	    {"python:3.1", NULL},
	    {"python:3.13", NULL},
	    {"python:3.121", NULL},
	    {"someone/python:3.12", NULL},
	    {"python@sha256:00", NULL},
	    {"ubuntu:noble-20240901", "ubuntu-24.04"},
	    {"ubuntu:22.04", NULL},
	    {"node:22-alpine", "node-22"},
	    {"node:2", NULL},
	    {"debian:12", "base"},
	    {"r.example:5000/opensandbox/code-interpreter:v1", "code-interpreter"},
	    {"code-interpreter", "code-interpreter"},
	    {"nginx", NULL},
	    {":", NULL},
	    {"/", NULL},
	};
	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		const char *template = NULL;
		struct error error = {0};
		int result = opensandbox_image(images[i].image, &template, &error);
		if (result < 0)
			CHECK_INT(error.kind, ERROR_TEMPLATE_UNAVAILABLE);
		const char *wanted = images[i].template ? images[i].template : "none";
		if (strcmp(result < 0 ? "none" : template, wanted) != 0)
			test_fail(__FILE__, __LINE__, "%s is %s, not %s", images[i].image,
				  result < 0 ? "none" : template, wanted);
	}
}

TEST(quantities)
{
	static const struct {
		const char *json;
		uint32_t millis;
		uint64_t memory;
	} quantities[] = {
	    {"{\"cpu\":\"500m\",\"memory\":\"512Mi\"}", 500, 512 * MIB},
	    {"{\"cpu\":\"2\",\"memory\":\"2Gi\"}", 2000, 2 * GIB},
	    {"{\"cpu\":\"0.25\",\"memory\":\"1G\"}", 250, 1 * GIB},
	    {"{\"memory\":\"1048576\"}", 0, 1 * MIB},
	    {"{}", 0, 0},
	};
	static const char *const refused[] = {
	    "{\"cpu\":\"\"}",        "{\"cpu\":\"-1\"}",   "{\"cpu\":\"1e3\"}",
	    "{\"cpu\":\"nan\"}",     "{\"cpu\":1}",        "{\"cpu\":\"1mm\"}",
	    "{\"cpu\":\"0\"}",       "{\"cpu\":\"0x10\"}", "{\"memory\":\"\"}",
	    "{\"memory\":\"-1Gi\"}", "{\"memory\":\"0\"}", "{\"gpu\":\"1\"}",
	    "{\"memory\":\"1Zi\"}",
	};
	struct config config = {.maximum = {.cpu_millis = 4000, .memory = 1 * GIB}};
	struct limits limits;
	struct error error;
	for (size_t i = 0; i < ARRAY_SIZE(quantities); i++) {
		json_t *json = json_loads(quantities[i].json, 0, NULL);
		CHECK_INT(opensandbox_resource(&config, json, &limits, &error), 0);
		CHECK_INT(limits.cpu_millis, quantities[i].millis);
		CHECK_INT(limits.memory, quantities[i].memory);
		json_decref(json);
	}
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		json_t *json = json_loads(refused[i], 0, NULL);
		if (opensandbox_resource(&config, json, &limits, &error) == 0)
			test_fail(__FILE__, __LINE__, "%s was taken", refused[i]);
		json_decref(json);
	}
	/* Nothing was asked: what OpenSandbox gives, as far as the host lets it. */
	CHECK_INT(opensandbox_resource(&config, NULL, &limits, &error), 0);
	CHECK_INT(limits.cpu_millis, 1000);
	CHECK_INT(limits.memory, 1 * GIB);
}

TEST(modes)
{
	uint32_t mode;
	struct error error;
	CHECK_INT(opensandbox_mode(755, &mode, &error), 0);
	CHECK_INT(mode, 0755);
	CHECK_INT(opensandbox_mode(4711, &mode, &error), 0);
	CHECK_INT(mode, 04711);
	CHECK_INT(opensandbox_mode(0, &mode, &error), 0);
	CHECK_INT(mode, 0);
	CHECK_INT(opensandbox_mode(648, &mode, &error), -1);
	CHECK_INT(opensandbox_mode(10000, &mode, &error), -1);
	CHECK_INT(opensandbox_mode(UINT64_MAX, &mode, &error), -1);
}
