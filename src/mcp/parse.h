/* Reading long messages outside of the loop: in libuv's thread pool, as a tree of megabytes takes
 * jansson a good part of a second. */
#pragma once

#include <uv.h>

#include "mcp/message.h"

struct mcp_parse;

/* Takes the buffer's contents. `done` is called in a later turn, with a value that it owns, or with
 * NULL and the problem. */
struct mcp_parse *parse_begin(uv_loop_t *loop, struct buffer *text,
			      void (*done)(void *data, json_t *json,
					   const struct mcp_problem *problem),
			      void *data);
/* done() will not be called. NULL is fine. */
void parse_forget(struct mcp_parse *parse);
