/* What a route, a tool or a server of MCP asks of a token. They say it in their tables; it is
 * checked here alone. */
#pragma once

#include <stdbool.h>

#include "core/account/token.h"

/* The scope; `unbound`: not a token that is bound to one sandbox. The administration, which is of
 * the whole host, is never for such a token. FORBIDDEN says what is missing. */
NODISCARD int token_admit(const struct principal *principal, enum scope scope, bool unbound,
			  struct error *error);
