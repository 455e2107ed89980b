/* Reading long messages outside of the loop: in a thread, as a tree of megabytes takes a good part
 * of a second. */
#pragma once

#include "base/work.h"
#include "mcp/message.h"

struct mcp_parse;

/* Takes the share, by whose turns it is read, and the buffer's contents. `done` is called in a
 * later turn, with a value that it owns, or with NULL and the problem. */
struct mcp_parse *parse_begin(struct work_share *share, struct buffer *text,
			      void (*done)(void *data, json_t *json,
					   const struct mcp_problem *problem),
			      void *data);
/* done() will not be called. NULL is fine. */
void parse_forget(struct mcp_parse *parse);
