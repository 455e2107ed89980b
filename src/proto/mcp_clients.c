/* The table of mcp_clients.h. */
#include "proto/mcp_clients.h"

#include <stddef.h>

const struct mcp_client mcp_clients[] = {
    {"claude-code", "Claude Code", "mcpServers", ".claude.json", "CLAUDE_CONFIG_DIR",
     ".claude.json", "url", "http", "stdio"},
    {"claude-desktop", "Claude Desktop", "mcpServers", ".config/Claude/claude_desktop_config.json",
     NULL, NULL, NULL, NULL, NULL},
    {"cursor", "Cursor", "mcpServers", ".cursor/mcp.json", NULL, NULL, "url", NULL, NULL},
    {"vscode", "VS Code", "servers", ".config/Code/User/mcp.json", NULL, NULL, "url", "http",
     "stdio"},
    {"windsurf", "Windsurf", "mcpServers", ".codeium/windsurf/mcp_config.json", NULL, NULL,
     "serverUrl", NULL, NULL},
    {"zed", "Zed", "context_servers", ".config/zed/settings.json", NULL, NULL, "url", NULL, NULL},
    {"codex", "Codex", NULL, ".codex/config.toml", "CODEX_HOME", "config.toml", "url", NULL, NULL},
    {"gemini", "Gemini CLI", "mcpServers", ".gemini/settings.json", NULL, NULL, "httpUrl", NULL,
     NULL},
    {"generic", "any other client", "mcpServers", NULL, NULL, NULL, "url", "http", "stdio"},
    {0},
};
