/* The chunked body from any bytes, whole and in pieces whose sizes the input chooses: both ways
 * must give the same body, the same end and the same refusal. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
	bool refused, done;
	size_t used, length;
	uint64_t sum;
};

static void decode(const char *data, size_t size, size_t piece, struct outcome *outcome)
{
	struct http_chunked chunked = {0};
	const char *reason = NULL, *found;
	size_t found_size;
	memset(outcome, 0, sizeof(*outcome));
	while (outcome->used < size && chunked.phase != CHUNK_DONE) {
		size_t step = MIN(piece, size - outcome->used);
		int64_t used = http_chunked_next(&chunked, data + outcome->used, step, &found,
						 &found_size, &reason);
		if (used < 0) {
			if (used != -400 || !reason)
				abort();
			outcome->refused = true;
			outcome->used = 0;
			return;
		}
		if (used == 0 || (size_t)used > step || found_size > (size_t)used)
			abort();
		for (size_t i = 0; i < found_size; i++)
			outcome->sum = outcome->sum * 31 + (unsigned char)found[i];
		outcome->length += found_size;
		outcome->used += (size_t)used;
	}
	outcome->done = chunked.phase == CHUNK_DONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole, pieces;
	if (size < 1)
		return 0;
	size_t piece = (size_t)data[0] % 17 + 1;
	decode((const char *)data + 1, size - 1, SIZE_MAX, &whole);
	decode((const char *)data + 1, size - 1, piece, &pieces);
	if (whole.refused != pieces.refused)
		abort();
	if (!whole.refused && (whole.done != pieces.done || whole.used != pieces.used ||
			       whole.length != pieces.length || whole.sum != pieces.sum))
		abort();
	return 0;
}
