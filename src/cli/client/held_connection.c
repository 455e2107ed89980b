/* A sandbox of `wrap` or `selftest` ends with this connection. No data is sent on it. Called by
 * cli/verbs/wrap.c and cli/selftest/selftest.c; blocks until the daemon has answered. */
#include "cli/client/held_connection.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/id.h"
#include "cli/mcp/mcp.h"

int held_connection_open(struct client *client, struct exchange **ret_exchange, struct error *error)
{
	static char label[64];
	char path[128];
	struct id id = id_new();
	struct text_list *labels = &create_options.labels;
	if (labels->count == TEXT_LIST_MAX)
		return error_set(error, ERROR_USAGE, "too many labels");
	struct exchange *exchange = exchange_new();
	snprintf(path, sizeof(path), MCP_LINES_PATH "?ephemeral=1&connection=%s", id.text);
	if (mcp_lines_open(client, path, exchange, error) < 0 ||
	    mcp_lines_read_head(exchange, error) < 0) {
		held_connection_close(exchange);
		return -1;
	}
	snprintf(label, sizeof(label), MCP_CONNECTION_LABEL "=%s", id.text);
	labels->items[labels->count++] = label;
	*ret_exchange = exchange;
	return 0;
}

void held_connection_close(struct exchange *exchange)
{
	exchange_free(exchange);
}
