/* Query parameters. */
#pragma once

#include "core/sandbox/sandbox.h"

struct call;
struct route;

/* INVALID names the first parameter that the route does not have. A misspelt one must not be
 * ignored: with `recursve=1` the request would remove something else. */
NODISCARD int query_check(const struct route *route, const char *query, struct error *error);
/* -1 with INVALID that names it. A missing parameter keeps the value. */
NODISCARD int query_text(struct call *call, const char *name, char *to, size_t room, bool required,
			 struct error *error);
NODISCARD int query_uint(struct call *call, const char *name, uint64_t min, uint64_t max,
			 uint64_t *value, struct error *error);
NODISCARD int query_flag(struct call *call, const char *name, bool *value, struct error *error);

/* Parameters that may be given more than once, each "key=value": `label=team=red`. */
#define QUERY_PAIRS_MAX 16
#define QUERY_PAIR_MAX 512 /* of one, decoded */

struct query_pairs {
	struct pair pairs[QUERY_PAIRS_MAX]; /* borrow from `text` */
	size_t count;
	char text[QUERY_PAIRS_MAX][QUERY_PAIR_MAX];
};

/* Every `name` of the query; there may be none. */
NODISCARD int query_pairs(struct call *call, const char *name, struct query_pairs *ret_pairs,
			  struct error *error);
