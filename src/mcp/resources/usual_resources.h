/* The kinds of the usual face's resources, and the declarations that their files share. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "mcp/resources/resource.h"

#define SANDBOX_URI "sandbox://%s"
#define SANDBOX_URI_SIZE (sizeof(SANDBOX_URI) + ID_LENGTH)

extern const struct resource_kind inventory_resource, record_resource; /* sandbox.c */
extern const struct resource_kind file_resource;                       /* file.c */
extern const struct resource_kind job_resource;                        /* job.c */

/* Answers with the ids and names that have this prefix. */
void complete_sandbox(struct mcp_request *request, const char *value);
/* The sandbox for completing another variable; NULL: unknown. */
struct sandbox *completion_sandbox(struct mcp_request *request);
