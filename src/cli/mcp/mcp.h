/* Shared by the files of `caisson mcp`: mcp.c (the verb), stdio_bridge.c (carries standard input
 * and output to the daemon and back), pending_requests.c (what the bridge remembers of the
 * messages), http_relay.c (OpenSandbox's streamable-http transport), client_config.c and
 * client_config_file.c (`mcp config`). */
#pragma once

#include "base/message_id.h"
#include "cli/cli.h"
#include "proto/mcp_lines.h"

struct mcp_options {
	const char *toolsets, *dialect;
	bool read_only, ephemeral, list_tools;
	/* options of OpenSandbox's server */
	const char *api_key, *domain, *protocol, *request_timeout, *transport, *host, *port;
	bool use_server_proxy;
	/* options of `mcp config` */
	const char *name, *token;
	bool write, http, list;
};
extern struct mcp_options mcp_options;

/* Appends "/mcp/lines?..." for these options. connection: the id of an ephemeral connection, or
 * NULL. */
NODISCARD int mcp_lines_path(struct buffer *path, const char *connection, struct error *error);
/* Opens the connection and sends the request; does not wait for the answer. */
NODISCARD int mcp_lines_open(struct client *client, const char *path, struct exchange *exchange,
			     struct error *error);
/* Reads the answer's head; the lines follow it. */
NODISCARD int mcp_lines_read_head(struct exchange *exchange, struct error *error);
/* Runs until the client closes its input. Returns the exit code. */
NODISCARD int mcp_bridge_run(struct client *client, const char *path, struct error *error);
NODISCARD int mcp_relay_run(struct client *client, struct error *error);
NODISCARD int mcp_config_run(struct client *client, int argc, char **argv, struct error *error);

/* --- pending_requests.c --- */

#define MCP_PENDING_MAX 1024
#define MCP_REPLAY_MAX 160

struct mcp_messages {
	json_t *pending; /* requests by the text of their ids: {"id":, "method":} */
	json_t *replay;  /* messages that a new daemon needs first, in this order, by their kind */
	uint64_t replayed;
};

/* The id found in a line that is not JSON, or is not parsed; NULL if it has none. */
json_t *mcp_id_json(const struct message_id *id);
void mcp_messages_init(struct mcp_messages *messages);
void mcp_messages_done(struct mcp_messages *messages);
/* Records a line from the client: its requests are pending from now on. Their ids are appended to
 * `ids` (may be NULL). */
void mcp_message_sent(struct mcp_messages *messages, const char *line, size_t size, json_t *ids);
/* Records a line from the daemon. false: it must not reach the client. */
bool mcp_message_received(struct mcp_messages *messages, const char *line, size_t size);
/* Appends the lines that give a new daemon the session's state, except an `initialize` that is
 * still pending. */
NODISCARD int mcp_replay_append(struct mcp_messages *messages, struct buffer *to);
/* Appends the line of an initialize that was sent and not answered; false: there is none. */
bool mcp_initialize_append(struct mcp_messages *messages, struct buffer *to);
/* Answers pending requests with an error: these `ids`, or (NULL) all but an initialize. */
NODISCARD int mcp_pending_fail(struct mcp_messages *messages, const json_t *ids, const char *text,
			       struct buffer *to);
