/* Legacy clients (session.h): their table, their end, questions to them and their subscriptions.
 * Called by the transports and by handlers, on the loop; nothing blocks. */
#include "mcp/transport/session_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "mcp/resources/listen.h"
#include "mcp/resources/resource.h"
#include "mcp/transport/stream.h"

struct client_request {
	struct list link;
	int64_t id;
	struct mcp_request *request; /* held */
	void (*answered)(struct mcp_request *request, void *data, const json_t *response);
	void *data;
};

struct subscription {
	struct list link;
	struct mcp_session *session;
	struct resource_watch *watch;
};

/* --- life --- */

static void token_ended(struct token_watcher *watcher)
{
	session_end(container_of(watcher, struct mcp_session, watcher));
}

struct mcp_session *session_new(struct mcp_server *server, const struct principal *principal,
				const struct mcp_view *view)
{
	struct mcp_session *session = calloc(1, sizeof(*session));
	if (!session)
		abort();
	session->references = 1;
	session->server = server;
	session->principal = *principal;
	session->view = *view;
	session->revision = MCP_NEWEST_LEGACY;
	session->log_level = MCP_INFO;
	session->used = clock_monotonic();
	session->next_client_request = session->next_stream = 1;
	list_init(&session->bucket);
	list_init(&session->client_requests);
	list_init(&session->subscriptions);
	list_init(&session->streams);
	list_init(&session->events);
	list_init(&session->watcher.link);
	request_set_init(&session->requests);
	return session;
}

struct mcp_session *session_hold(struct mcp_session *session)
{
	session->references++;
	return session;
}

void session_release(struct mcp_session *session)
{
	if (--session->references > 0)
		return;
	token_unwatch(&session->watcher);
	free(session);
}

void session_touch(struct mcp_session *session)
{
	session->used = clock_monotonic();
}

static void subscription_remove(struct subscription *subscription)
{
	subscription->session->subscription_count--;
	list_remove(&subscription->link);
	resource_watch_free(subscription->watch);
	free(subscription);
}

void session_end(struct mcp_session *session)
{
	if (session->ended)
		return;
	session->ended = true;
	token_unwatch(&session->watcher);
	if (session->id[0])
		session->server->session_count--;
	list_remove(&session->bucket);
	request_set_cancel(&session->requests);
	session_forget_client_requests(session, NULL);
	list_each (&session->subscriptions, node)
		subscription_remove(list_entry(node, struct subscription, link));
	session->get = NULL;
	list_each (&session->streams, node)
		stream_free(list_entry(node, struct mcp_stream, link));
	session_release(session);
}

/* --- the table --- */

static struct list *session_bucket(struct mcp_server *server, const char *id)
{
	return &server->sessions[((unsigned char)id[0] * 31u + (unsigned char)id[1]) %
				 SESSION_BUCKETS];
}

static bool views_equal(const struct mcp_view *a, const struct mcp_view *b)
{
	return a->face == b->face && a->toolsets == b->toolsets && a->read_only == b->read_only &&
	       id_equal(&a->sandbox, &b->sandbox);
}

struct mcp_session *session_find(struct mcp_server *server, const char *id,
				 const struct principal *principal, const struct mcp_view *view)
{
	if (strlen(id) != SESSION_ID_SIZE - 1)
		return NULL;
	list_each (session_bucket(server, id), node) {
		struct mcp_session *session = list_entry(node, struct mcp_session, bucket);
		if (strcmp(session->id, id) == 0)
			return principal_same(&session->principal, principal) &&
				       views_equal(&session->view, view)
				   ? session
				   : NULL;
	}
	return NULL;
}

/* Sessions of the same principal: their number, and the one to end first: idle ones before busy
 * ones, and among these the one that was not used for longest. */
static size_t sessions_count_own(const struct mcp_session *session, struct mcp_session **ret_last)
{
	size_t count = 0;
	struct mcp_session *last = NULL;
	for (size_t i = 0; i < SESSION_BUCKETS; i++) {
		list_each (&session->server->sessions[i], node) {
			struct mcp_session *other = list_entry(node, struct mcp_session, bucket);
			if (!principal_same(&other->principal, &session->principal))
				continue;
			count++;
			bool busy = other->requests.count > 0;
			bool last_busy = last && last->requests.count > 0;
			if (!last || busy < last_busy ||
			    (busy == last_busy && other->used < last->used))
				last = other;
		}
	}
	*ret_last = last;
	return count;
}

/* Sessions of the same workspace: their number, and the one that was not used for longest;
 * preferably one of the same principal, so that a principal that opens many loses its own. */
static size_t sessions_count_beside(const struct mcp_session *session,
				    struct mcp_session **ret_idle)
{
	size_t count = 0;
	struct mcp_session *idle = NULL;
	bool own = false;
	for (size_t i = 0; i < SESSION_BUCKETS; i++) {
		list_each (&session->server->sessions[i], node) {
			struct mcp_session *other = list_entry(node, struct mcp_session, bucket);
			if (strcmp(other->principal.workspace, session->principal.workspace) != 0)
				continue;
			count++;
			bool same = principal_same(&other->principal, &session->principal);
			if (other->requests.count > 0 || (own && !same))
				continue;
			if (!idle || (same && !own) || other->used < idle->used)
				idle = other;
			own |= same;
		}
	}
	*ret_idle = idle;
	return count;
}

int session_open(struct mcp_session *session, struct error *error)
{
	struct mcp_server *server = session->server;
	struct mcp_session *idle, *own;
	uint8_t id[32];
	/* A principal that opens many sessions and keeps them busy must not lock out others. */
	if (sessions_count_own(session, &own) >= SESSIONS_OWN_MAX)
		session_end(own);
	if (sessions_count_beside(session, &idle) >= SESSIONS_MAX) {
		if (!idle)
			return error_set(error, ERROR_BUSY,
					 "%d sessions of this workspace have requests under way",
					 SESSIONS_MAX);
		session_end(idle);
	}
	random_bytes(id, sizeof(id));
	base64url_encode_32(id, session->id);
	list_append(session_bucket(server, session->id), &session->bucket);
	server->session_count++;
	server_tend(server);
	/* Lines end with their connection, which watches the token itself. */
	if (id_is_set(&session->principal.token)) {
		session->watcher.token = session->principal.token;
		session->watcher.expires_wall = session->principal.expires_wall;
		session->watcher.ended = token_ended;
		token_watch(server->core, &session->watcher);
	}
	return 0;
}

static bool session_has_connection(const struct mcp_session *session)
{
	list_each ((struct list *)&session->streams, node)
		if (list_entry(node, struct mcp_stream, link)->call)
			return true;
	return false;
}

void sessions_tend(struct mcp_server *server, int64_t now)
{
	for (size_t i = 0; i < SESSION_BUCKETS; i++) {
		list_each (&server->sessions[i], node) {
			struct mcp_session *session = list_entry(node, struct mcp_session, bucket);
			streams_expire(session, now);
			if (now - session->used > (int64_t)SESSION_IDLE_MS * NSEC_PER_MSEC &&
			    session->requests.count == 0 && !session_has_connection(session))
				session_end(session);
		}
	}
}

void sessions_detach_all(struct mcp_server *server)
{
	for (size_t i = 0; i < SESSION_BUCKETS; i++) {
		list_each (&server->sessions[i], node) {
			struct mcp_session *session = list_entry(node, struct mcp_session, bucket);
			if (session->get)
				stream_detach(session->get);
		}
	}
}

void sessions_end_all(struct mcp_server *server)
{
	for (size_t i = 0; i < SESSION_BUCKETS; i++)
		while (!list_empty(&server->sessions[i]))
			session_end(
			    list_entry(server->sessions[i].next, struct mcp_session, bucket));
}

/* --- messages of ours --- */

void session_notify(struct mcp_session *session, const struct buffer *message)
{
	if (session->ended)
		return;
	if (session->connection)
		session->connection->send(session->connection, message);
	else if (session->get)
		stream_send(session->get, message);
}

void session_forget_client_requests(struct mcp_session *session, struct mcp_request *request)
{
	struct list gone;
	list_init(&gone);
	list_each (&session->client_requests, node) {
		struct client_request *sent = list_entry(node, struct client_request, link);
		if (request && sent->request != request)
			continue;
		list_remove(&sent->link);
		list_append(&gone, &sent->link);
		session->client_request_count--;
	}
	while (!list_empty(&gone)) {
		struct client_request *sent = list_entry(gone.next, struct client_request, link);
		list_remove(&sent->link);
		sent->answered(sent->request, sent->data, NULL);
		mcp_release(sent->request);
		free(sent);
	}
}

#define CLIENT_REQUEST_BYTES_MAX (256 * KIB)

int session_request_client(struct mcp_session *session, struct mcp_request *request,
			   const char *method, const char *params,
			   void (*answered)(struct mcp_request *request, void *data,
					    const json_t *response),
			   void *data)
{
	struct buffer message DONE_BUFFER = BUFFER(CLIENT_REQUEST_BYTES_MAX);
	struct json_writer writer = json_writer_on(&message);
	if (session->ended || !request->open || request->silent ||
	    session->client_request_count >= SESSION_CLIENT_REQUESTS_MAX)
		return -1;
	put_object(&writer, NULL);
	put_text(&writer, "jsonrpc", "2.0");
	put_int(&writer, "id", session->next_client_request);
	put_text(&writer, "method", method);
	if (params)
		put_json(&writer, "params", params, strlen(params));
	put_object_end(&writer);
	if (writer.full)
		return -1;
	struct client_request *sent = calloc(1, sizeof(*sent));
	if (!sent)
		abort();
	*sent = (struct client_request){.id = session->next_client_request++,
					.request = mcp_hold(request),
					.answered = answered,
					.data = data};
	list_append(&session->client_requests, &sent->link);
	session->client_request_count++;
	request->carrier->notify(request, &message);
	return 0;
}

void session_responded(struct mcp_session *session, const json_t *response)
{
	const json_t *id = json_object_get(response, "id");
	list_each (&session->client_requests, node) {
		struct client_request *sent = list_entry(node, struct client_request, link);
		if (!json_is_integer(id) || json_integer_value(id) != sent->id)
			continue;
		list_remove(&sent->link);
		session->client_request_count--;
		sent->answered(sent->request, sent->data, response);
		mcp_release(sent->request);
		free(sent);
		return;
	}
}

/* --- what it watches --- */

static void subscription_updated(struct resource_watch *watch)
{
	struct subscription *subscription = watch->data;
	struct buffer message DONE_BUFFER = BUFFER(64 * KIB);
	struct json_writer writer = json_writer_on(&message);
	put_object(&writer, NULL);
	put_text(&writer, "jsonrpc", "2.0");
	put_text(&writer, "method", "notifications/resources/updated");
	put_object(&writer, "params");
	put_text(&writer, "uri", watch->uri);
	put_object_end(&writer);
	put_object_end(&writer);
	if (!writer.full)
		session_notify(subscription->session, &message);
}

static struct subscription *session_find_subscription(struct mcp_session *session, const char *uri)
{
	list_each (&session->subscriptions, node) {
		struct subscription *found = list_entry(node, struct subscription, link);
		if (strcmp(found->watch->uri, uri) == 0)
			return found;
	}
	return NULL;
}

int session_subscribe(struct mcp_session *session, const char *uri, struct error *error)
{
	if (session_find_subscription(session, uri))
		return 0;
	if (session->subscription_count >= SESSION_SUBSCRIPTIONS_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "a session can be subscribed to %d resources at most",
				 SESSION_SUBSCRIPTIONS_MAX);
	struct subscription *subscription = calloc(1, sizeof(*subscription));
	if (!subscription)
		abort();
	subscription->session = session;
	subscription->watch =
	    resource_watch_new(session->server->core, session->view.face, &session->principal, uri,
			       subscription_updated, subscription, error);
	if (!subscription->watch) {
		free(subscription);
		return -1;
	}
	list_append(&session->subscriptions, &subscription->link);
	session->subscription_count++;
	return 0;
}

void session_unsubscribe(struct mcp_session *session, const char *uri)
{
	struct subscription *subscription = session_find_subscription(session, uri);
	if (subscription)
		subscription_remove(subscription);
}

void session_set_log_level(struct mcp_session *session, enum mcp_log_level level)
{
	session->log_level = level;
}

enum mcp_log_level session_log_level(const struct mcp_session *session)
{
	return session->log_level;
}

static void session_notify_of_change(struct list *sessions, const struct buffer *message)
{
	list_each (sessions, node) {
		struct mcp_session *session = list_entry(node, struct mcp_session, bucket);
		if (session->view.face->features & FACE_LIST_CHANGED)
			session_notify(session, message);
	}
}

void mcp_list_changed(struct mcp_server *server, const char *what)
{
	struct buffer message DONE_BUFFER = BUFFER(256);
	if (buffer_printf(&message,
			  "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/%s/list_changed\"}",
			  what) < 0)
		return;
	for (size_t i = 0; i < SESSION_BUCKETS; i++)
		session_notify_of_change(&server->sessions[i], &message);
	session_notify_of_change(&server->line_sessions, &message);
	listen_list_changed(server, what);
}
