/* The tools on jobs that are in other files than their table (job.c). */
#pragma once

#include "edge/fields/fields.h"
#include "mcp/request.h"

extern const struct field read_job_fields[];
void read_job(struct mcp_request *request, const json_t *arguments);
