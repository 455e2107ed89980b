/* WebSocket frames from any bytes, whole and in pieces whose sizes the input chooses: both ways
 * must give the same messages, the same control frames and the same refusal. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGE_MAX 4096

struct outcome {
	int64_t refused;
	size_t messages, controls;
	uint64_t sum;
};

static void note(struct outcome *outcome, const struct websocket_event *event)
{
	if (event->opcode == WEBSOCKET_CONTINUATION)
		return;
	if (event->opcode == WEBSOCKET_TEXT && !text_is_utf8(event->data, event->size))
		abort();
	if (event->opcode >= WEBSOCKET_CLOSE && event->size > WEBSOCKET_CONTROL_MAX)
		abort();
	if (event->size > MESSAGE_MAX)
		abort();
	if (event->opcode >= WEBSOCKET_CLOSE)
		outcome->controls++;
	else
		outcome->messages++;
	outcome->sum = outcome->sum * 31 + (uint64_t)event->opcode + event->code;
	for (size_t i = 0; i < event->size; i++)
		outcome->sum = outcome->sum * 31 + (unsigned char)event->data[i];
}

static void parse(const char *data, size_t size, size_t piece, struct outcome *outcome)
{
	struct websocket_parser parser;
	struct websocket_event event;
	const char *reason = NULL;
	size_t used = 0;
	memset(outcome, 0, sizeof(*outcome));
	websocket_parser_init(&parser, MESSAGE_MAX);
	while (used < size) {
		size_t step = MIN(piece, size - used);
		int64_t taken = websocket_next(&parser, data + used, step, &event, &reason);
		if (taken < 0) {
			if (!reason || (taken != -1002 && taken != -1007 && taken != -1009))
				abort();
			outcome->refused = taken;
			break;
		}
		if (taken == 0 || (size_t)taken > step || parser.message.size > MESSAGE_MAX)
			abort();
		note(outcome, &event);
		used += (size_t)taken;
	}
	websocket_parser_done(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole, pieces;
	if (size < 1)
		return 0;
	size_t piece = (size_t)data[0] % 17 + 1;
	parse((const char *)data + 1, size - 1, SIZE_MAX, &whole);
	parse((const char *)data + 1, size - 1, piece, &pieces);
	if (memcmp(&whole, &pieces, sizeof(whole)) != 0)
		abort();
	return 0;
}
