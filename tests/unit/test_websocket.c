/* WebSocket frames as an attacker might send them, and the handshake's answer. */
#include "http/websocket.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

TEST_MAIN

/* A client's frame, masked with `mask`. */
static size_t frame(uint8_t *to, uint8_t first, const char *text, size_t size, uint32_t mask)
{
	size_t at = 0;
	to[at++] = first;
	if (size < 126) {
		to[at++] = (uint8_t)(0x80 | size);
	} else {
		to[at++] = 0x80 | 126;
		to[at++] = (uint8_t)(size >> 8);
		to[at++] = (uint8_t)size;
	}
	memcpy(to + at, &mask, 4);
	for (size_t i = 0; i < size; i++)
		to[at + 4 + i] = (uint8_t)text[i] ^ to[at + (i & 3)];
	return at + 4 + size;
}

/* Feeds it byte by byte and whole; the number of messages, or the refusal. */
static int64_t feed(const uint8_t *data, size_t size, size_t piece, struct buffer *ret_text)
{
	struct websocket_parser parser;
	struct websocket_event event;
	const char *reason = NULL;
	int64_t messages = 0, result = 0;
	websocket_parser_init(&parser, 1000);
	for (size_t used = 0; used < size;) {
		int64_t taken = websocket_next(&parser, (const char *)data + used,
					       MIN(piece, size - used), &event, &reason);
		if (taken < 0) {
			CHECK(reason);
			result = taken;
			break;
		}
		CHECK(taken > 0);
		used += (size_t)taken;
		if (event.opcode == WEBSOCKET_TEXT || event.opcode == WEBSOCKET_BINARY) {
			messages++;
			CHECK_INT(buffer_append(ret_text, event.data, event.size), 0);
		}
	}
	websocket_parser_done(&parser);
	return result < 0 ? result : messages;
}

static void expect(const uint8_t *data, size_t size, int64_t result, const char *text)
{
	for (size_t piece = 1; piece <= size; piece += piece < 20 ? 1 : size) {
		DONE_BUFFER struct buffer got = BUFFER(4096);
		CHECK_INT(feed(data, size, piece, &got), result);
		if (text)
			CHECK_TEXT(buffer_text(&got), text);
	}
}

TEST(a_message_in_any_pieces)
{
	uint8_t data[2000];
	size_t size = frame(data, 0x81, "hello", 5, 0x12345678);
	size += frame(data + size, 0x82, "", 0, 0);
	size += frame(data + size, 0x81, " world", 6, 0xffffffff);
	expect(data, size, 3, "hello world");
}

TEST(fragments_with_a_ping_between)
{
	uint8_t data[2000];
	size_t size = frame(data, 0x01, "\xc3", 1, 1); /* half a character */
	size += frame(data + size, 0x89, "ping", 4, 2);
	size += frame(data + size, 0x00, "", 0, 2);
	size += frame(data + size, 0x80, "\xa4!", 2, 3);
	expect(data, size, 1, "\xc3\xa4!");
}

TEST(what_is_refused)
{
	static const struct {
		uint8_t bytes[16];
		size_t size;
		int64_t code;
	} table[] = {
	    {{0x81, 0x01, 'a'}, 3, -1002},                    /* not masked */
	    {{0xc1, 0x80, 0, 0, 0, 0}, 6, -1002},             /* reserved bit */
	    {{0x83, 0x80, 0, 0, 0, 0}, 6, -1002},             /* unknown opcode */
	    {{0x8b, 0x80, 0, 0, 0, 0}, 6, -1002},             /* unknown control opcode */
	    {{0x09, 0x80, 0, 0, 0, 0}, 6, -1002},             /* a ping in fragments */
	    {{0x89, 0xfe, 0, 126}, 4, -1002},                 /* a long ping */
	    {{0x80, 0x80, 0, 0, 0, 0}, 6, -1002},             /* a fragment of nothing */
	    {{0x01, 0x80, 0, 0, 0, 0, 0x81, 0x80}, 8, -1002}, /* a message inside another */
	    {{0x82, 0xfe, 0, 5, 0, 0, 0, 0}, 8, -1002},       /* not the shortest length */
	    {{0x82, 0xff, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}, 14, -1002},
	    {{0x82, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0}, 14, -1009},
	    {{0x82, 0xff, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0}, 14, -1009},
	    {{0x82, 0xfe, 4, 0, 0, 0, 0, 0}, 8, -1009},          /* longer than a message may be */
	    {{0x81, 0x81, 0, 0, 0, 0, 0xff}, 7, -1007},          /* not UTF-8 */
	    {{0x81, 0x81, 0, 0, 0, 0, 0xc3}, 7, -1007},          /* half a character */
	    {{0x88, 0x81, 0, 0, 0, 0, 3}, 7, -1002},             /* half a close code */
	    {{0x88, 0x82, 0, 0, 0, 0, 3, 0xed}, 8, -1002},       /* 1005 is never sent */
	    {{0x88, 0x83, 0, 0, 0, 0, 3, 0xe8, 0xff}, 9, -1007}, /* its reason is not UTF-8 */
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		expect(table[i].bytes, table[i].size, table[i].code, NULL);
}

/* Fragments add up: none of them is too long alone. */
TEST(many_fragments_are_one_message)
{
	uint8_t data[4096];
	char text[400];
	memset(text, 'x', sizeof(text));
	size_t size = frame(data, 0x02, text, 400, 1);
	size += frame(data + size, 0x00, text, 400, 1);
	size += frame(data + size, 0x00, text, 400, 1);
	expect(data, size, -1009, NULL);
}

TEST(a_close_has_code_and_reason)
{
	uint8_t data[64];
	struct websocket_parser parser;
	struct websocket_event event;
	const char *reason;
	size_t size = frame(data, 0x88,
			    "\x03\xe8"
			    "bye",
			    5, 77);
	websocket_parser_init(&parser, 100);
	CHECK_INT(websocket_next(&parser, (char *)data, size, &event, &reason), size);
	CHECK_INT(event.opcode, WEBSOCKET_CLOSE);
	CHECK_INT(event.code, 1000);
	CHECK_INT(event.size, 3);
	size = frame(data, 0x88, "", 0, 77);
	CHECK_INT(websocket_next(&parser, (char *)data, size, &event, &reason), size);
	CHECK_INT(event.code, 1005);
	websocket_parser_done(&parser);
}

TEST(our_headers)
{
	uint8_t header[WEBSOCKET_HEADER_MAX];
	CHECK_INT(websocket_header(WEBSOCKET_TEXT, 125, header), 2);
	CHECK_INT(header[0], 0x81);
	CHECK_INT(header[1], 125);
	CHECK_INT(websocket_header(WEBSOCKET_BINARY, 126, header), 4);
	CHECK_INT(header[1], 126);
	CHECK_INT(header[3], 126);
	CHECK_INT(websocket_header(WEBSOCKET_BINARY, 65536, header), 10);
	CHECK_INT(header[1], 127);
	CHECK_INT(header[7], 1);
}

TEST(the_handshake)
{
	char accept[WEBSOCKET_ACCEPT_MAX];
	/* RFC 6455, 1.3. */
	CHECK_INT(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept), 0);
	CHECK_TEXT(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	CHECK(websocket_accept("", accept) < 0);
	CHECK(websocket_accept("dGhlIHNhbXBsZSBub25jZQ=", accept) < 0);
	CHECK(websocket_accept("dGhlIHNhbXBsZSBub25jZQ===", accept) < 0);
	CHECK(websocket_accept("dGhlIHNhbXBsZSBub25j=Q==", accept) < 0);
}
