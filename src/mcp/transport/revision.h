/* The revisions of the protocol, and what each has (envelope.c). */
#pragma once

#include <stdbool.h>

enum mcp_revision {
	MCP_2024_11_05, /* also what asks for 2024-10-07 is given */
	MCP_2025_03_26,
	MCP_2025_06_18,
	MCP_2025_11_25,
	MCP_2026_07_28, /* modern: without initialize, sessions, requests of ours */
	MCP_REVISION_COUNT
};
#define MCP_NEWEST_LEGACY MCP_2025_11_25
/* Of a legacy request over HTTP that does not say. */
#define MCP_ASSUMED MCP_2025_03_26

const char *revision_name(enum mcp_revision revision);
/* -1: there is no such revision. */
int revision_parse(const char *name);
bool revision_modern(enum mcp_revision revision);
