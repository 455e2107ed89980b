/* The dialect of OpenSandbox: the table of its nineteen tools, and the face that offers them at
 * /mcp/opensandbox and in `caisson mcp --dialect opensandbox`. opensandbox.json describes each tool
 * to clients, with the schemas that OpenSandbox's own server lists. The tools are in the
 * opensandbox_*.c beside it. Only tables; nothing runs here. */
#include "mcp/dialects/opensandbox.h"

#include "mcp/dialects/opensandbox_tools.h"

static const struct mcp_tool tools[] = {
    DIALECT_TOOL(sandbox_create, SCOPE_WRITE, TOOL_UNBOUND, opensandbox_create),
    DIALECT_TOOL(sandbox_connect, SCOPE_READ, 0, opensandbox_connect),
    DIALECT_TOOL(sandbox_kill, SCOPE_WRITE, 0, opensandbox_kill),
    DIALECT_TOOL(sandbox_get_info, SCOPE_READ, 0, opensandbox_get_info),
    DIALECT_TOOL(sandbox_list, SCOPE_READ, 0, opensandbox_list),
    DIALECT_TOOL(sandbox_renew, SCOPE_WRITE, 0, opensandbox_renew),
    DIALECT_TOOL(sandbox_get_metrics, SCOPE_READ, 0, opensandbox_metrics),
    DIALECT_TOOL(sandbox_healthcheck, SCOPE_READ, 0, opensandbox_healthcheck),
    DIALECT_TOOL(command_run, SCOPE_WRITE, 0, opensandbox_run),
    DIALECT_TOOL(command_interrupt, SCOPE_WRITE, 0, opensandbox_interrupt),
    DIALECT_TOOL(file_read, SCOPE_READ, 0, opensandbox_read),
    DIALECT_TOOL(file_write, SCOPE_WRITE, 0, opensandbox_write),
    DIALECT_TOOL(file_delete, SCOPE_WRITE, 0, opensandbox_delete),
    DIALECT_TOOL(file_search, SCOPE_READ, 0, opensandbox_search),
    DIALECT_TOOL(file_create_directories, SCOPE_WRITE, 0, opensandbox_make_directories),
    DIALECT_TOOL(file_delete_directories, SCOPE_WRITE, 0, opensandbox_delete_directories),
    DIALECT_TOOL(file_move, SCOPE_WRITE, 0, opensandbox_move),
    DIALECT_TOOL(file_replace_contents, SCOPE_WRITE, 0, opensandbox_replace),
    DIALECT_TOOL(sandbox_get_endpoint, SCOPE_READ, 0, opensandbox_endpoint),
    {0},
};
DIALECT_TOOLS_COMPLETE(tools);
static const struct mcp_tool *const tables[] = {tools, NULL};

static void opensandbox_instructions(const struct mcp_view *view, struct buffer *to)
{
	(void)view;
	(void)!buffer_append_text(
	    to,
	    "Sandboxes: Linux machines for running commands and keeping files. Make one with "
	    "sandbox_create, use its sandbox_id in every other call, end it with sandbox_kill. Any "
	    "sandbox that sandbox_list shows can be used at once, without sandbox_connect. "
	    "Sandboxes end by themselves after timeout_seconds (600 if it is left out, or the "
	    "host's maximum where that is less); "
	    "sandbox_renew gives them longer. They have no network. The output of a command is cut "
	    "in its middle where it is long: send long output to a file and read it in parts with "
	    "file_read.");
}

const struct mcp_face opensandbox_face = {.name = "opensandbox-sandbox",
					  .title = "OpenSandbox",
					  .scope = SCOPE_READ,
					  .tools = tables,
					  .instructions = opensandbox_instructions};
