/* The fields of a create: the body of POST /v1/sandboxes, and the sandbox's part of POST
 * /v1/run. */
#pragma once

#include "edge/call.h"
#include "edge/sandbox_fields.h"

struct sandbox_ask {
	struct sandbox_fields fields; /* borrows from the JSON and from here */
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX];
};

/* What the fields say together. */
NODISCARD int sandbox_ask_check(struct call *call, struct sandbox_ask *ask, struct error *error);
void sandbox_ask_done(struct sandbox_ask *ask);
