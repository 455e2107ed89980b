/* The revisions of the protocol, and their features (envelope.c). */
#pragma once

#include <stdbool.h>

enum mcp_revision {
	MCP_2024_11_05, /* clients that ask for 2024-10-07 get it too */
	MCP_2025_03_26,
	MCP_2025_06_18,
	MCP_2025_11_25,
	MCP_2026_07_28, /* modern: no initialize, no sessions, no requests of ours */
	MCP_REVISION_COUNT
};
#define MCP_NEWEST_LEGACY MCP_2025_11_25
/* For a legacy request over HTTP without a revision. */
#define MCP_ASSUMED MCP_2025_03_26

const char *revision_name(enum mcp_revision revision);
/* -1: no such revision. */
int revision_parse(const char *name);
bool revision_modern(enum mcp_revision revision);
