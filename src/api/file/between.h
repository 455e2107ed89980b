/* A copy whose other end is another sandbox. */
#pragma once

#include "edge/call.h"

/* What POST .../files/copy asks for. Borrowed from the call's body. */
struct between_ask {
	const char *from, *to;
	const char *from_sandbox, *to_sandbox; /* NULL: the one in the path */
	const char *user;
	bool recursive, no_replace, parents;
};

/* Answers the call and returns true; false when both ends are the sandbox in the path. */
NODISCARD bool file_between(struct call *call, const struct between_ask *ask);
