/* What the files of the administration's tools share. */
#pragma once

#include "core/account/meter.h"
#include "mcp/tools/tool.h"

/* metrics.c: what was used in the last days, by sandbox of the caller's workspace or by
 * workspace of all. */
extern const struct field usage_fields[];
void usage_tool(struct mcp_request *request, const json_t *arguments, enum usage_by by);

/* Of a workspace that has a valid name; else the request is answered and false comes back. */
bool admin_workspace(struct mcp_request *request, const char *name);

extern const struct mcp_tool budget_tools[]; /* budget.c */
