/* The names of the revisions. Called for every message; nothing blocks. */
#include "mcp/transport/revision.h"

#include <string.h>

static const char *const names[MCP_REVISION_COUNT] = {
    [MCP_2024_11_05] = "2024-11-05", [MCP_2025_03_26] = "2025-03-26",
    [MCP_2025_06_18] = "2025-06-18", [MCP_2025_11_25] = "2025-11-25",
    [MCP_2026_07_28] = "2026-07-28",
};

const char *revision_name(enum mcp_revision revision)
{
	return names[revision];
}

int revision_parse(const char *name)
{
	for (int i = 0; i < MCP_REVISION_COUNT; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	/* The tag before the first release, which clients still list: the same on the wire. */
	return strcmp(name, "2024-10-07") == 0 ? MCP_2024_11_05 : -1;
}
