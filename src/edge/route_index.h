/* Which route a path belongs to. */
#pragma once

#include "edge/call.h"

/* Once, of tables that routes_check() has passed. They outlive the index. */
void route_index_build(const struct route *const *tables);
/* The route of a request, with its parameters; NULL when there is none, and then `allow` has the
 * methods of the path ("" when there is no such path). Where a segment could be a word of a pattern
 * or a parameter, the word is meant. */
const struct route *route_index_find(const char *method, const char *path,
				     char parameters[CALL_PARAMETERS_MAX][CALL_PARAMETER_MAX],
				     char allow[CALL_ALLOW_MAX]);
