/* See authorization.h. Called by the router, and by MCP for its servers and tools; pure. */
#include "edge/authorization.h"

#include "core/account/access.h"

int token_admit(const struct principal *principal, enum scope scope, bool unbound,
		struct error *error)
{
	if (authorize(principal, scope, error) < 0)
		return -1;
	if ((unbound || scope == SCOPE_ADMIN) && id_is_set(&principal->sandbox))
		return error_set(error, ERROR_FORBIDDEN, "this token is for one sandbox only");
	return 0;
}
