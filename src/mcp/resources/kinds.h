/* The kinds of the usual face's resources, and what their files share. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "mcp/resources/resource.h"

#define SANDBOX_URI "sandbox://%s"
#define SANDBOX_URI_SIZE (sizeof(SANDBOX_URI) + ID_LENGTH)

extern const struct resource_kind inventory_resource, record_resource; /* sandbox.c */
extern const struct resource_kind file_resource;                       /* file.c */
extern const struct resource_kind job_resource;                        /* job.c */

/* Answers with the ids and names that begin so. */
void complete_sandbox(struct mcp_request *request, const char *value);
/* The sandbox in which another variable is completed; NULL: it is not known which. */
struct sandbox *completion_sandbox(struct mcp_request *request);
