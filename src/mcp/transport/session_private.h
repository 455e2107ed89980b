/* The inside of a session, for session.c, stream.c and http_get.c. */
#pragma once

#include "mcp/transport/dispatch.h"
#include "mcp/server.h"
#include "mcp/transport/session.h"

/* The maximum number of events that one session keeps. */
#define SESSION_EVENTS_MAX 1024
/* The maximum that all sessions keep together; beyond it each keeps at most
 * SESSION_REPLAY_LEAST. */
#define SERVER_REPLAY_MAX (64 * MIB)
#define SESSION_REPLAY_LEAST (32 * KIB)
/* Requests of ours that one client has not answered yet. */
#define SESSION_CLIENT_REQUESTS_MAX 64
/* Cancelled requests whose clients may still ask for later messages. */
#define UNANSWERED_KEPT 64

struct mcp_stream;

struct mcp_session {
	unsigned references; /* the server's own, and one for each request */
	struct mcp_server *server;
	struct list bucket;
	char id[SESSION_ID_SIZE]; /* "" of lines */
	bool ended;
	struct principal principal;
	struct mcp_view view;
	enum mcp_revision revision;
	uint32_t client;
	enum mcp_log_level log_level;
	int64_t used; /* CLOCK_MONOTONIC, ns */
	struct request_set requests;
	struct list client_requests; /* struct client_request */
	int64_t next_client_request;
	size_t client_request_count;
	struct list subscriptions; /* struct subscription */
	size_t subscription_count;
	struct token_watcher watcher;
	/* For lines: the connection. */
	struct mcp_connection *connection;
	/* For HTTP. */
	struct list streams;
	struct mcp_stream *get; /* for unsolicited messages; NULL: none yet */
	uint64_t next_stream;
	uint64_t unanswered[UNANSWERED_KEPT]; /* freed streams: their numbers plus one */
	size_t unanswered_count;
	struct list events; /* of all its streams, the oldest first */
	size_t event_count, kept;
};

/* Has no id, and is in no table: for lines. */
struct mcp_session *session_new(struct mcp_server *server, const struct principal *principal,
				const struct mcp_view *view);
/* Gives it an id, by which session_find() finds it. BUSY: there are too many. */
NODISCARD int session_open(struct mcp_session *session, struct error *error);
/* NULL: unknown id, or it belongs to another principal. */
struct mcp_session *session_find(struct mcp_server *server, const char *id,
				 const struct principal *principal, const struct mcp_view *view);
/* Ends its requests and streams; it is not found any more. Drops the reference that session_new()
 * returned. */
void session_end(struct mcp_session *session);
struct mcp_session *session_hold(struct mcp_session *session);
void session_release(struct mcp_session *session);
/* It was used: its idle time begins again. */
void session_touch(struct mcp_session *session);
enum mcp_log_level session_log_level(const struct mcp_session *session);
/* A response of the client to a request of ours. */
void session_responded(struct mcp_session *session, const json_t *response);
/* Questions of this request will not be answered. */
void session_forget_client_requests(struct mcp_session *session, struct mcp_request *request);
/* Ends sessions that were idle for too long. */
void sessions_tend(struct mcp_server *server, int64_t now);
void sessions_end_all(struct mcp_server *server);
/* The server will end: closes the streams on which no answer is expected. */
void sessions_detach_all(struct mcp_server *server);
