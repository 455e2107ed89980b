/* Folders of the host that come with a request: POST /v1/sandboxes and its start. */
#pragma once

#include "edge/call.h"

/* `json` (an array, or NULL) and the passed descriptors correspond one to one. The results live as
 * long as the request. */
NODISCARD int parse_mounts(struct call *call, const json_t *json,
			   struct mount_spec mounts[SANDBOX_MOUNTS_MAX], size_t *ret_count,
			   struct error *error);
