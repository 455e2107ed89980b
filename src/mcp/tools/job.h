/* What of the tools on jobs is in other files than their table (job.c). */
#pragma once

#include "mcp/request.h"

void read_job(struct mcp_request *request, const json_t *arguments);
