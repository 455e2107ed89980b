/* The fields of a create: the body of POST /v1/sandboxes, and the sandbox's part of POST
 * /v1/run. */
#pragma once

#include "edge/call.h"
#include "edge/sandbox_fields.h"

struct create_fields {
	struct sandbox_fields fields; /* borrows from the JSON and from here */
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX];
};

/* What the fields say together. */
NODISCARD int create_fields_check(struct call *call, struct create_fields *create,
				  struct error *error);
void create_fields_done(struct create_fields *create);
