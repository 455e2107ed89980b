/* Reads long JSON outside of the loop: in a thread, since a tree of megabytes takes a considerable
 * part of a second. */
#pragma once

#include <jansson.h>

#include "base/buffer.h"
#include "base/work.h"

struct json_parse;

struct json_parser {
	/* Called in the thread. 0, or -1 and the error. */
	int (*parse)(const char *data, size_t size, json_t **ret_json, void *problem);
	size_t problem_size;
};

/* Takes the share, by whose turns it is read, and the buffer's contents. `done` is called in a
 * later turn, with a value that it owns, or with NULL and the error. */
struct json_parse *json_parse_begin(struct work_share *share, struct buffer *text,
				    const struct json_parser *parser,
				    void (*done)(void *data, json_t *json, const void *problem),
				    void *data);
/* done() will not be called. Takes NULL. */
void json_parse_forget(struct json_parse *parse);
