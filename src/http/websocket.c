/* WebSocket frames. See websocket.h. Called by edge/web_socket.c with the bytes that a client
 * sends. Pure, except for the one buffer of the current message. */
#include "http/websocket.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define FINAL 0x80
#define RESERVED 0x70
#define OPCODE 0x0f
#define MASKED 0x80
#define LENGTH 0x7f
#define NO_CODE 1005

void websocket_parser_init(struct websocket_parser *parser, size_t message_max)
{
	*parser = (struct websocket_parser){.message = BUFFER(message_max)};
}

void websocket_parser_done(struct websocket_parser *parser)
{
	buffer_done(&parser->message);
}

static int64_t frame_refuse(enum websocket_code code, const char *reason, const char **ret_reason)
{
	*ret_reason = reason;
	return -(int64_t)code;
}

static bool opcode_is_control(uint8_t opcode)
{
	return opcode & 8;
}

/* The first two bytes say how long the header is. */
static int64_t frame_check_start(struct websocket_parser *parser, const char **ret_reason)
{
	uint8_t first = parser->header[0], second = parser->header[1];
	uint8_t opcode = first & OPCODE, length = second & LENGTH;
	if (first & RESERVED)
		return frame_refuse(WEBSOCKET_PROTOCOL, "a reserved bit is set", ret_reason);
	if (opcode > WEBSOCKET_PONG || (opcode > WEBSOCKET_BINARY && opcode < WEBSOCKET_CLOSE))
		return frame_refuse(WEBSOCKET_PROTOCOL, "an unknown opcode", ret_reason);
	if (!(second & MASKED))
		return frame_refuse(WEBSOCKET_PROTOCOL, "an unmasked frame", ret_reason);
	if (opcode_is_control(opcode) && (!(first & FINAL) || length > WEBSOCKET_CONTROL_MAX))
		return frame_refuse(WEBSOCKET_PROTOCOL, "a fragmented or long control frame",
				    ret_reason);
	if (opcode == WEBSOCKET_CONTINUATION && !parser->message_type)
		return frame_refuse(WEBSOCKET_PROTOCOL, "an unexpected continuation", ret_reason);
	if (!opcode_is_control(opcode) && opcode != WEBSOCKET_CONTINUATION && parser->message_type)
		return frame_refuse(WEBSOCKET_PROTOCOL, "a message inside another", ret_reason);
	parser->opcode = opcode;
	parser->final = first & FINAL;
	parser->header_needed = (uint8_t)(6 + (length == 126 ? 2 : length == 127 ? 8 : 0));
	return 0;
}

static int64_t frame_check_length(struct websocket_parser *parser, const char **ret_reason)
{
	uint8_t length = parser->header[1] & LENGTH, extra = (uint8_t)(parser->header_needed - 6);
	parser->left = extra ? 0 : length;
	for (uint8_t i = 0; i < extra; i++)
		parser->left = parser->left << 8 | parser->header[2 + i];
	if ((extra == 2 && parser->left <= WEBSOCKET_CONTROL_MAX) ||
	    (extra == 8 && parser->left <= UINT16_MAX))
		return frame_refuse(WEBSOCKET_PROTOCOL, "a length not in its shortest form",
				    ret_reason);
	memcpy(parser->mask, parser->header + 2 + extra, sizeof(parser->mask));
	parser->mask_at = 0;
	parser->control_size = 0;
	if (opcode_is_control(parser->opcode))
		return 0;
	if (parser->opcode != WEBSOCKET_CONTINUATION) {
		buffer_clear(&parser->message);
		parser->message_type = parser->opcode;
		parser->message_told = false;
	}
	if (parser->left > parser->message.maximum - parser->message.size)
		return frame_refuse(WEBSOCKET_TOO_BIG, "a message is too long", ret_reason);
	return 0;
}

/* Returns how many of the bytes belong to the header. */
static int64_t frame_take_header(struct websocket_parser *parser, const char *data, size_t size,
				 const char **ret_reason)
{
	size_t used = 0;
	while (used < size) {
		parser->header[parser->header_size++] = (uint8_t)data[used++];
		int64_t result = 0;
		if (parser->header_size == 2)
			result = frame_check_start(parser, ret_reason);
		else if (parser->header_size == parser->header_needed)
			result = frame_check_length(parser, ret_reason);
		if (result < 0)
			return result;
		if (parser->header_size == parser->header_needed)
			break;
	}
	return (int64_t)used;
}

static void frame_unmask(struct websocket_parser *parser, const char *data, size_t size, char *to)
{
	for (size_t i = 0; i < size; i++)
		to[i] = (char)((uint8_t)data[i] ^ parser->mask[parser->mask_at++ & 3]);
}

static size_t frame_take_payload(struct websocket_parser *parser, const char *data, size_t size)
{
	size_t piece = (size_t)MIN((uint64_t)size, parser->left);
	if (opcode_is_control(parser->opcode)) {
		frame_unmask(parser, data, piece, (char *)parser->control + parser->control_size);
		parser->control_size = (uint8_t)(parser->control_size + piece);
	} else if (piece > 0) {
		/* The frame's whole length was checked against the maximum. Memory is allocated for
		 * bytes that have arrived, not for announced ones. */
		if (buffer_reserve(&parser->message, piece) < 0)
			return 0;
		frame_unmask(parser, data, piece, parser->message.data + parser->message.size);
		buffer_grow(&parser->message, piece);
	}
	parser->left -= piece;
	return piece;
}

static bool close_code_is_allowed(uint16_t code)
{
	return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
	       (code >= 3000 && code <= 4999);
}

static int64_t frame_end_control(struct websocket_parser *parser, struct websocket_event *event,
				 const char **ret_reason)
{
	event->opcode = (enum websocket_opcode)parser->opcode;
	event->data = (const char *)parser->control;
	event->size = parser->control_size;
	if (parser->opcode != WEBSOCKET_CLOSE)
		return 0;
	event->code = NO_CODE;
	if (event->size == 0)
		return 0;
	if (event->size < 2)
		return frame_refuse(WEBSOCKET_PROTOCOL, "half a close code", ret_reason);
	event->code = (uint16_t)(parser->control[0] << 8 | parser->control[1]);
	event->data += 2;
	event->size -= 2;
	if (!close_code_is_allowed(event->code))
		return frame_refuse(WEBSOCKET_PROTOCOL, "not a close code", ret_reason);
	if (!text_is_utf8(event->data, event->size))
		return frame_refuse(WEBSOCKET_NOT_UTF8, "the close reason is not UTF-8",
				    ret_reason);
	return 0;
}

static int64_t frame_end_message(struct websocket_parser *parser, struct websocket_event *event,
				 const char **ret_reason)
{
	if (!parser->final)
		return 0;
	event->opcode = (enum websocket_opcode)parser->message_type;
	event->data = buffer_text(&parser->message);
	event->size = parser->message.size;
	parser->message_type = 0;
	parser->message_told = true;
	if (event->opcode == WEBSOCKET_TEXT && !text_is_utf8(event->data, event->size))
		return frame_refuse(WEBSOCKET_NOT_UTF8, "text is not UTF-8", ret_reason);
	return 0;
}

int64_t websocket_next(struct websocket_parser *parser, const char *data, size_t size,
		       struct websocket_event *ret_event, const char **ret_reason)
{
	*ret_event = (struct websocket_event){.opcode = WEBSOCKET_CONTINUATION};
	size_t used = 0;
	/* An idle connection holds no memory for a message. */
	if (parser->message_told) {
		size_t maximum = parser->message.maximum;
		buffer_done(&parser->message);
		parser->message = BUFFER(maximum);
		parser->message_told = false;
	}
	if (parser->header_needed == 0 || parser->header_size < parser->header_needed) {
		int64_t taken = frame_take_header(parser, data, size, ret_reason);
		if (taken < 0)
			return taken;
		used = (size_t)taken;
		if (parser->header_needed == 0 || parser->header_size < parser->header_needed)
			return (int64_t)used;
	}
	used += frame_take_payload(parser, data + used, size - used);
	if (parser->left > 0)
		return (int64_t)used;
	parser->header_size = parser->header_needed = 0;
	int64_t result = opcode_is_control(parser->opcode)
			     ? frame_end_control(parser, ret_event, ret_reason)
			     : frame_end_message(parser, ret_event, ret_reason);
	return result < 0 ? result : (int64_t)used;
}

size_t websocket_header(enum websocket_opcode opcode, size_t size,
			uint8_t header[WEBSOCKET_HEADER_MAX])
{
	header[0] = (uint8_t)(FINAL | (uint8_t)opcode);
	if (size <= WEBSOCKET_CONTROL_MAX) {
		header[1] = (uint8_t)size;
		return 2;
	}
	size_t extra = size <= UINT16_MAX ? 2 : 8;
	header[1] = extra == 2 ? 126 : 127;
	for (size_t i = 0; i < extra; i++)
		header[2 + i] = (uint8_t)(size >> 8 * (extra - 1 - i));
	return 2 + extra;
}

int websocket_accept(const char *key, char accept[WEBSOCKET_ACCEPT_MAX])
{
	static const char suffix[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	static const char letters[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[24 + sizeof(suffix)];
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned size = 0;
	/* Sixteen bytes in base64. */
	if (strlen(key) != 24 || strspn(key, letters) != 22 || strcmp(key + 22, "==") != 0)
		return -EINVAL;
	snprintf(text, sizeof(text), "%s%s", key, suffix);
	if (!EVP_Digest(text, strlen(text), digest, &size, EVP_sha1(), NULL) || size != 20)
		return -EINVAL;
	EVP_EncodeBlock((unsigned char *)accept, digest, (int)size);
	return 0;
}
