/* What a hostile driver says on its control channel: whatever is taken for a record keeps to every
 * bound that core/code/cells.c relies on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/code/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	size_t at = 0;
	while (at < size) {
		struct code_record record;
		int header = code_record_parse(text + at, size - at, &record);
		if (header <= 0)
			return 0;
		if ((size_t)header > size - at || header > CODE_HEADER_MAX ||
		    text[at + (size_t)header - 1] != '\n' || strlen(record.key) > CODE_KEY_MAX ||
		    record.size > CODE_RESULT_BYTES_MAX ||
		    (record.kind == CODE_RECORD_DATA && record.index >= CODE_RESULTS_MAX))
			abort();
		at += (size_t)header + record.size + 1;
	}
	struct buffer line = BUFFER(4096);
	if (code_request_write(&line, "cell", 1, text, size) == 0 &&
	    (line.data[line.size - 1] != '\n' || memchr(line.data, '\n', line.size - 1)))
		abort();
	buffer_done(&line);
	return 0;
}
