/* A copy to or from another sandbox. */
#pragma once

#include "edge/call.h"

/* The fields of POST .../files/copy. Borrowed from the call's body. */
struct sandbox_copy_fields {
	const char *from, *to;
	const char *from_sandbox, *to_sandbox; /* NULL: the one in the path */
	const char *user;
	bool recursive, no_replace, parents;
};

/* Answers the call and returns true; false if both sides are the sandbox in the path. */
NODISCARD bool sandbox_copy_answer(struct call *call, const struct sandbox_copy_fields *fields);
