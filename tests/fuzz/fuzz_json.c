/* Our JSON reader and jansson's own, on any text: both take it and make the same of it, or neither
 * takes it. What may differ are our bounds, and a NUL, which jansson passes over behind a number. A
 * tree that was read, written out and read again is the same. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"

#define FLAGS (JSON_REJECT_DUPLICATES | JSON_DECODE_ANY)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const json_t *json)
{
	const struct json_bounds most = {.depth = 200, .values = SIZE_MAX};
	struct json_wrong wrong;
	char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
	json_t *second = text ? json_read(text, strlen(text), &most, &wrong) : NULL;
	if (!second || !json_equal(json, second))
		abort();
	json_decref(second);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct json_bounds most = {.depth = 200, .values = SIZE_MAX}, few = {4, 16};
	struct json_wrong wrong;
	json_error_t error;
	json_t *ours = json_read((const char *)data, size, &most, &wrong);
	json_t *theirs = json_loadb((const char *)data, size, FLAGS, &error);
	if (!ours != (wrong.text != NULL) || (!ours && (wrong.line == 0 || wrong.column == 0)))
		abort();
	bool nul = size > 0 && memchr(data, '\0', size);
	if (nul && ours)
		abort();
	bool bounded = wrong.text && (strcmp(wrong.text, "it is nested too deeply") == 0 ||
				      strcmp(wrong.text, "a number is too long") == 0);
	if (!bounded && !nul && (!ours != !theirs || (ours && !json_equal(ours, theirs))))
		abort();
	if (ours)
		again(ours);
	json_decref(ours);
	json_decref(theirs);
	json_decref(json_read((const char *)data, size, &few, &wrong));
	return 0;
}
