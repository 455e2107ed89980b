/* Shared by the files of the administration's tools. */
#pragma once

#include "core/account/meter.h"
#include "mcp/tools/tool.h"

/* metrics.c: the usage of the last days, by sandbox for the caller's workspace, or by workspace for
 * all. */
extern const struct field usage_fields[];
void usage_tool(struct mcp_request *request, const json_t *arguments, enum usage_by by);

/* Is the workspace's name valid? Else the request was answered and the result is false. */
bool admin_workspace(struct mcp_request *request, const char *name);

extern const struct mcp_tool budget_tools[]; /* budget.c */
