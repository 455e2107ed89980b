/* Query parameters that may be given more than once, each "key=value": `label=team=red`. */
#pragma once

#include "core/sandbox.h"
#include "edge/call.h"

#define QUERY_PAIRS_MAX 16
#define QUERY_PAIR_MAX 512 /* of one, decoded */

struct query_pairs {
	struct pair pairs[QUERY_PAIRS_MAX]; /* borrow from `text` */
	size_t count;
	char text[QUERY_PAIRS_MAX][QUERY_PAIR_MAX];
};

/* Every `name` of the query; none is fine. */
NODISCARD int query_pairs(struct call *call, const char *name, struct query_pairs *ret_pairs,
			  struct error *error);
