/* One member of a JSON text put in or replaced, everything else byte for byte as it was: numbers,
 * tabs, line ends. Used by mcp_config_file.c for files that are their users' own. Does not block.
 */
#pragma once

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"

/* As json_loadb() for a text that is to be edited. On failure *error has what is wrong, where, in
 * words that go on after the file's name: "has a comment (line 2, column 3)". */
NODISCARD int json_edit_load(const struct buffer *text, json_t **ret_json, struct error *error);

/* Of a text that json_edit_load() took and whose `outer` is an object or missing: the same with
 * text[outer][name] = value, laid out as its neighbours are. -EMSGSIZE where *result is full. */
NODISCARD int json_edit_set(const struct buffer *text, const char *outer, const char *name,
			    const json_t *value, struct buffer *result);
