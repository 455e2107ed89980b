/* The glob matcher under any pattern and any text. The first byte chooses dots and where the
 * pattern ends; what must hold besides memory safety: matching in two parts is matching at once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	bool hidden = data[0] & 1;
	const char *pattern_text = (const char *)data + 1;
	const char *newline = memchr(pattern_text, '\n', size - 1);
	size_t pattern_size = newline ? (size_t)(newline - pattern_text) : size - 1;
	const char *text = newline ? newline + 1 : pattern_text;
	size_t text_size = newline ? size - 2 - pattern_size : size - 1;
	(void)glob_fixed_prefix(pattern_text, pattern_size);
	struct pattern *pattern FREE_PATTERN = NULL;
	if (pattern_compile_glob(pattern_text, pattern_size, hidden, &pattern) < 0)
		return 0;
	bool whole = pattern_matches(pattern, text, text_size);

	/* Cut where glob cuts: after a slash, so that no character is halved. */
	const char *slash = text_size > 0 ? memchr(text, '/', text_size) : NULL;
	size_t first = slash ? (size_t)(slash - text) + 1 : 0;
	struct pattern_state start DONE_STATE = {0}, middle DONE_STATE = {0}, end DONE_STATE = {0};
	if (pattern_start(&start) < 0 ||
	    pattern_advance(pattern, &start, text, first, &middle) < 0 ||
	    pattern_advance(pattern, &middle, text + first, text_size - first, &end) < 0)
		return 0;
	if (pattern_accepts(pattern, &end) != whole)
		abort();
	pattern_drop_recursion(pattern, &end);
	return 0;
}
