/* Finds the route of a path. */
#pragma once

#include "edge/call.h"

/* Called once, with tables that routes_check() has accepted. They outlive the index. */
void route_index_build(const struct route *const *tables);
/* The route of a request, with its parameters; NULL if there is none: then `allow` has the methods
 * of the path ("" if the path does not exist). If a segment could be a word of a pattern or a
 * parameter, the word wins. */
const struct route *route_index_find(const char *method, const char *path,
				     char parameters[CALL_PARAMETERS_MAX][CALL_PARAMETER_MAX],
				     char allow[CALL_ALLOW_MAX]);
