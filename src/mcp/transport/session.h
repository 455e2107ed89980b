/* A legacy client: an HTTP session (Mcp-Session-Id) or the lines of a process. It has the settings
 * of `initialize`, subscriptions, the level of its log, requests under way by id, requests of ours
 * without an answer yet, and over HTTP its streams with the messages that may have to be replayed.
 *
 * Sessions belong to the server, are only found by id and by the principal that opened them (404
 * for any other), and end by DELETE, after SESSION_IDLE_MS without a request or stream, with their
 * token, or when a principal has more than SESSIONS_OWN_MAX or its workspace more than SESSIONS_MAX
 * (the one idle for longest; of a principal's own, where all are busy, the oldest). */
#pragma once

#include "base/base64.h"
#include "mcp/request.h"

#define SESSION_IDLE_MS (3600ull * 1000)
#define SESSIONS_MAX 256                  /* of one workspace */
#define SESSIONS_OWN_MAX 64               /* of one token or local user */
#define SESSION_ID_SIZE BASE64URL_32_SIZE /* 256 bits */
#define SESSION_SUBSCRIPTIONS_MAX 128
#define SESSION_REPLAY_MAX (1 * MIB) /* bytes of events that are kept for reconnects */
#define SESSION_REPLAY_MS (600ull * 1000)

struct mcp_session;

/* Over HTTP: ends the connection of `request`'s stream before its answer; the client reconnects for
 * the rest (Last-Event-ID). Does nothing for any other request. */
void session_close_stream(struct mcp_request *request);
/* A notification that belongs to no request: sent on the GET stream, or as a line. */
void session_notify(struct mcp_session *session, const struct buffer *message);
/* Sends a request of ours on the stream of `request`; `answered` comes once, with the whole
 * response message, or with NULL if it will never come (the session ended, the request was
 * cancelled). */
NODISCARD int session_request_client(struct mcp_session *session, struct mcp_request *request,
				     const char *method, const char *params,
				     void (*answered)(struct mcp_request *request, void *data,
						      const json_t *response),
				     void *data);
NODISCARD int session_subscribe(struct mcp_session *session, const char *uri, struct error *error);
void session_unsubscribe(struct mcp_session *session, const char *uri);
void session_set_log_level(struct mcp_session *session, enum mcp_log_level level);
/* Notifies every client whose face can change: "tools", "prompts", "resources". */
void mcp_list_changed(struct mcp_server *server, const char *what);
