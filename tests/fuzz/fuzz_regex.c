/* The regular expressions of grep under any pattern and any text; the first byte chooses case. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool stop(void *context)
{
	return ++*(int *)context > 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	const char *pattern = (const char *)data + 1;
	const char *newline = memchr(pattern, '\n', size - 1);
	size_t pattern_size = newline ? (size_t)(newline - pattern) : size - 1;
	const char *text = newline ? newline + 1 : pattern;
	size_t text_size = newline ? size - 2 - pattern_size : size - 1;
	struct pattern *regex FREE_PATTERN = NULL;
	const char *reason = NULL;
	int asked = 0;
	size_t at = 0;
	if (pattern_compile_regex(pattern, pattern_size, data[0] & 1, &regex, &reason) < 0)
		return 0;
	const struct pattern_text searched = {.text = text,
					      .end = text_size,
					      .begins = data[0] & 2,
					      .ends = data[0] & 4,
					      .cancelled = stop,
					      .context = &asked};
	if (pattern_find(regex, &searched, &at) > 0 && at > text_size)
		abort();
	return 0;
}
