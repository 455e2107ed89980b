/* What the files of `caisson mcp` share: mcp.c (the verb), bridge.c (standard input and output
 * to the daemon and back), pending.c (what the bridge has to know of the messages),
 * relay.c (OpenSandbox's streamable-http transport), config.c and config_file.c (`mcp
 * config`). */
#pragma once

#include "base/message_id.h"
#include "cli/cli.h"
#include "proto/mcp_lines.h"

struct mcp_options {
	const char *toolsets, *dialect;
	bool read_only, ephemeral, list_tools;
	/* of OpenSandbox's server */
	const char *api_key, *domain, *protocol, *request_timeout, *transport, *host, *port;
	bool use_server_proxy;
	/* of `mcp config` */
	const char *name, *token;
	bool write, http, list;
};
extern struct mcp_options mcp_options;

/* "/mcp/lines?..." for these options; connection: the id of an ephemeral one, else NULL. */
NODISCARD int mcp_lines_path(struct buffer *path, const char *connection, struct error *error);
/* Opens the connection: sent, not answered yet. */
NODISCARD int mcp_lines_open(struct client *client, const char *path, struct exchange *exchange,
			     struct error *error);
/* Reads the answer's head: the lines follow. */
NODISCARD int mcp_lines_read_head(struct exchange *exchange, struct error *error);
/* Until the client closes its end: its exit code. */
NODISCARD int mcp_bridge_run(struct client *client, const char *path, struct error *error);
NODISCARD int mcp_relay_run(struct client *client, struct error *error);
NODISCARD int mcp_config_run(struct client *client, int argc, char **argv, struct error *error);

/* --- pending.c --- */

#define MCP_PENDING_MAX 1024
#define MCP_REPLAY_MAX 160

struct mcp_messages {
	json_t *pending; /* by the text of their ids: {"id":, "method":} */
	json_t *replay;  /* what a new daemon has to be told first, in this order, by what it is */
	uint64_t replayed;
};

/* The id that was found in a line that is no JSON, or is not read as such; NULL: it has none. */
json_t *mcp_id_json(const struct message_id *id);
void mcp_messages_init(struct mcp_messages *messages);
void mcp_messages_done(struct mcp_messages *messages);
/* A line of the client's: requests are under way from here on. `ids` (may be NULL) gets those of
 * this line appended. */
void mcp_message_sent(struct mcp_messages *messages, const char *line, size_t size, json_t *ids);
/* A line of the daemon's. false: the client must not see it. */
bool mcp_message_received(struct mcp_messages *messages, const char *line, size_t size);
/* The lines that bring a new daemon to where the old one was; without an `initialize` that is still
 * to be answered. */
NODISCARD int mcp_replay_append(struct mcp_messages *messages, struct buffer *to);
/* The line of an initialize that was sent and not answered; false: there is none. */
bool mcp_initialize_append(struct mcp_messages *messages, struct buffer *to);
/* Answers with an error what is under way (`ids` NULL: all but an initialize), or these. */
NODISCARD int mcp_pending_fail(struct mcp_messages *messages, const json_t *ids, const char *text,
			       struct buffer *to);
