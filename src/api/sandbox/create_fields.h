/* The fields of a create: the body of POST /v1/sandboxes, and the sandbox's part of POST
 * /v1/run. And the folders of the host that come with them, or with a start. */
#pragma once

#include "edge/call.h"
#include "edge/fields/sandbox_fields.h"

/* Its owner frees `fields`. */
struct create_fields {
	struct sandbox_fields fields; /* borrows from the JSON and from here */
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX];
};

/* What the fields say together. */
NODISCARD int create_fields_check(struct call *call, struct create_fields *create,
				  struct error *error);
/* `json` (an array, or NULL) and the passed descriptors correspond one to one. The results live as
 * long as the request. */
NODISCARD int mounts_parse(struct call *call, const json_t *json,
			   struct mount_spec mounts[SANDBOX_MOUNTS_MAX], size_t *ret_count,
			   struct error *error);
