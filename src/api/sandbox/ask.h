/* What a client asks for when it creates a sandbox: the body of POST /v1/sandboxes, and the part of
 * POST /v1/run that is about the sandbox. */
#pragma once

#include "edge/call.h"

#define REGION_LOCAL "local" /* the only one a single host has */

struct sandbox_ask {
	struct sandbox_spec spec; /* borrows from the JSON and from here */
	struct pair *environment, *metadata, *labels;
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX];
};

NODISCARD int sandbox_ask_parse(struct call *call, const json_t *body, struct sandbox_ask *ask,
				struct error *error);
void sandbox_ask_done(struct sandbox_ask *ask);

/* Shared with a PATCH: thousandths of a cpu; "a size by name" as cpu and memory. */
NODISCARD int parse_cpu(double cpu, uint32_t *ret_millis, struct error *error);
/* config: NULL, or whose maximum it must fit. */
NODISCARD int parse_size(const struct config *config, const char *size, struct limits *limits,
			 struct error *error);
