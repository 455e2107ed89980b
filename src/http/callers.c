/* The callers and how much of the server each may use. A caller is a uid (Unix sockets), an IPv4
 * address or IPv6 /64 (TCP; one host gets a /64), or all of loopback TCP, because the kernel does
 * not say which local user connects. Called by connection.c as connections come, change and go, and
 * by server.c when descriptors run out. Nothing here blocks.
 *
 * Anyone may connect to the Unix socket. So the connections and passed descriptors that a caller
 * may hold before it shows a token are bounded. Trusted uids have slots that no other caller can
 * take. A connection without a request at its handler is "spare": it can be closed in favour of a
 * new one, the oldest first, and its client loses only time. */
#include "http/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"

enum caller_kind { CALLER_UID, CALLER_LOOPBACK, CALLER_V4, CALLER_V6 };

struct caller_key {
	enum caller_kind kind;
	uint64_t value;
};

static struct caller_key caller_key_v4(uint32_t address)
{
	if (address >> 24 == 127)
		return (struct caller_key){CALLER_LOOPBACK, 0};
	return (struct caller_key){CALLER_V4, address};
}

static struct caller_key caller_key_of(const struct http_peer *peer,
				       const struct sockaddr_storage *from)
{
	if (peer->is_unix)
		return (struct caller_key){CALLER_UID, peer->uid};
	if (from->ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
		return caller_key_v4(ntohl(v4->sin_addr.s_addr));
	}
	struct caller_key key = {CALLER_V6, 0};
	if (from->ss_family == AF_INET6) {
		const struct in6_addr *v6 = &((const struct sockaddr_in6 *)from)->sin6_addr;
		uint32_t last;
		memcpy(&last, &v6->s6_addr[12], sizeof(last));
		if (IN6_IS_ADDR_V4MAPPED(v6))
			return caller_key_v4(ntohl(last));
		if (IN6_IS_ADDR_LOOPBACK(v6))
			return (struct caller_key){CALLER_LOOPBACK, 0};
		memcpy(&key.value, v6->s6_addr, sizeof(key.value));
	}
	return key;
}

static void caller_describe(const struct http_caller *caller, char *text, size_t room)
{
	char address[INET6_ADDRSTRLEN] = "";
	struct in_addr v4 = {.s_addr = htonl((uint32_t)caller->value)};
	struct in6_addr v6 = {0};
	switch ((enum caller_kind)caller->kind) {
	case CALLER_UID:
		snprintf(text, room, "uid %" PRIu64, caller->value);
		return;
	case CALLER_LOOPBACK:
		snprintf(text, room, "loopback TCP");
		return;
	case CALLER_V4:
		inet_ntop(AF_INET, &v4, address, sizeof(address));
		snprintf(text, room, "%s", address);
		return;
	case CALLER_V6:
		memcpy(&v6, &caller->value, sizeof(caller->value));
		inet_ntop(AF_INET6, &v6, address, sizeof(address));
		snprintf(text, room, "%s/64", address);
		return;
	}
}

void http_peer_identify(int fd, struct http_peer *peer, struct sockaddr_storage *ret_from)
{
	struct ucred credentials = {0};
	socklen_t size = sizeof(credentials), from_size = sizeof(*ret_from);
	memset(ret_from, 0, sizeof(*ret_from));
	if (!peer->is_unix) {
		(void)getpeername(fd, (struct sockaddr *)ret_from, &from_size);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return;
	peer->pid = credentials.pid;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
}

/* Users who could replace the daemon anyway are trusted. An unknown uid is (uid_t)-1. */
static bool caller_key_is_trusted(const struct http_server *server, const struct caller_key *key)
{
	const struct http_settings *settings = &server->settings;
	if (key->kind != CALLER_UID || key->value == (uid_t)-1)
		return false;
	if (key->value == 0 || key->value == geteuid())
		return true;
	for (size_t i = 0; i < settings->trusted_uid_count; i++)
		if (key->value == settings->trusted_uids[i])
			return true;
	return false;
}

/* Connections of all untrusted callers together. */
static uint32_t server_untrusted_max(const struct http_server *server)
{
	uint32_t all = server->settings.connections_max;
	return all - MIN(server->settings.connections_reserved, all / 2);
}

static uint32_t caller_connections_max(const struct http_server *server,
				       const struct http_caller *caller)
{
	const struct http_settings *settings = &server->settings;
	uint32_t most = server_untrusted_max(server), own = 0;
	if (caller->trusted)
		return settings->connections_max;
	if (caller->kind == CALLER_UID)
		own = settings->connections_per_uid;
	else if (caller->kind != CALLER_LOOPBACK)
		own = settings->connections_per_address;
	return own ? MIN(own, most) : most;
}

/* The seed is random, so that an attacker cannot choose addresses that all fall into one slot. */
static struct list *caller_slot(struct http_server *server, const struct caller_key *key)
{
	uint64_t mixed = (key->value ^ server->caller_seed) + (uint64_t)key->kind;
	for (int i = 0; i < 2; i++) {
		mixed *= 0x9e3779b97f4a7c15ULL;
		mixed ^= mixed >> 32;
	}
	return &server->callers[mixed % HTTP_CALLER_SLOTS];
}

/* Each local user has a share. All addresses together have one, because a client can have any
 * number of addresses. Little work is done before a token is known. */
static struct work_share *caller_share(struct http_server *server, const struct caller_key *key)
{
	char name[WORK_NAME_MAX + 1] = "tcp";
	if (key->kind == CALLER_UID)
		snprintf(name, sizeof(name), "uid %" PRIu64, key->value);
	return work_share_get(server->work, name);
}

static struct http_caller *caller_find_or_add(struct http_server *server,
					      const struct caller_key *key)
{
	struct list *slot = caller_slot(server, key);
	list_each (slot, node) {
		struct http_caller *caller = list_entry(node, struct http_caller, node);
		if (caller->kind == key->kind && caller->value == key->value)
			return caller;
	}
	struct http_caller *caller = calloc(1, sizeof(*caller));
	if (!caller)
		abort();
	caller->kind = (uint8_t)key->kind;
	caller->value = key->value;
	caller->trusted = caller_key_is_trusted(server, key);
	caller->share = caller_share(server, key);
	list_init(&caller->ranked);
	list_init(&caller->spare);
	list_append(slot, &caller->node);
	return caller;
}

/* Frees callers whose last connection closed long enough ago. */
static void callers_sweep(struct http_server *server, uint64_t now)
{
	while (!list_empty(&server->leaving)) {
		struct http_caller *caller =
		    list_entry(server->leaving.next, struct http_caller, ranked);
		if (now - caller->pace_start < HTTP_PACE_MS)
			return;
		list_remove(&caller->ranked);
		list_remove(&caller->node);
		work_share_release(caller->share);
		free(caller);
	}
}

/* Callers are in rows by the power of two of their spare connections. So one with the most is found
 * at once, independent of the number of callers. */
static void caller_rank(struct http_server *server, struct http_caller *caller, uint32_t before)
{
	uint32_t now = caller->spare_count;
	int row = now ? 31 - __builtin_clz(now) : -1;
	int old = before ? 31 - __builtin_clz(before) : -1;
	if (row == old)
		return;
	list_remove(&caller->ranked);
	if (row >= 0)
		list_append(&server->ranks[caller->trusted][MIN(row, HTTP_RANKS - 1)],
			    &caller->ranked);
}

void http_caller_spare(struct http_connection *connection, bool spare)
{
	struct http_caller *caller = connection->caller;
	uint32_t before = caller->spare_count;
	if (spare == !list_empty(&connection->spare))
		return;
	list_remove(&connection->spare);
	if (spare) {
		list_append(&caller->spare, &connection->spare);
		caller->spare_count++;
	} else {
		caller->spare_count--;
	}
	caller_rank(connection->server, caller, before);
}

/* At most one warning every few seconds for all callers: a flood must not flood the log. */
static void caller_warn(struct http_server *server, const struct http_caller *caller,
			const char *what)
{
	char who[64];
	uint64_t now = uv_now(server->loop);
	caller_describe(caller, who, sizeof(who));
	log_debug("http: %s %s", who, what);
	server->unwarned++;
	if (server->warned_at && now - server->warned_at < HTTP_WARN_EVERY_MS)
		return;
	log_warning("http: %s %s; connections closed or refused so far: %" PRIu64, who, what,
		    server->unwarned);
	server->warned_at = MAX(now, 1);
	server->unwarned = 0;
}

static bool caller_close_oldest(struct http_caller *caller)
{
	if (list_empty(&caller->spare))
		return false;
	http_connection_lose(list_entry(caller->spare.next, struct http_connection, spare));
	return true;
}

static bool callers_close_one(struct http_server *server, bool trusted)
{
	for (int row = HTTP_RANKS - 1; row >= 0; row--) {
		struct list *list = &server->ranks[trusted][row];
		if (!list_empty(list))
			return caller_close_oldest(
			    list_entry(list->next, struct http_caller, ranked));
	}
	return false;
}

bool http_callers_make_room(struct http_server *server)
{
	return callers_close_one(server, false) || callers_close_one(server, true);
}

/* Loopback TCP has many users, so it is not limited; root's clients do not wait in its queue. */
static bool caller_is_too_fast(struct http_server *server, struct http_caller *caller)
{
	uint64_t now = uv_now(server->loop);
	if (caller->trusted || caller->kind == CALLER_LOOPBACK)
		return false;
	if (now - caller->pace_start >= HTTP_PACE_MS) {
		caller->pace_start = now;
		caller->joins = 0;
	}
	return ++caller->joins > HTTP_PACE_JOINS;
}

static bool caller_is_admitted(struct http_server *server, struct http_caller *caller)
{
	if (caller_is_too_fast(server, caller)) {
		caller_warn(server, caller, "connects too often");
		return false;
	}
	if (!caller->trusted && caller->count >= caller_connections_max(server, caller)) {
		caller_warn(server, caller, "has the maximum of connections for one caller");
		if (!caller_close_oldest(caller))
			return false;
	}
	if (server->connection_count >= server->settings.connections_max ||
	    (!caller->trusted && server->untrusted_count >= server_untrusted_max(server))) {
		caller_warn(server, caller, "connects while all connections are in use");
		return callers_close_one(server, false) ||
		       (caller->trusted && callers_close_one(server, true));
	}
	return true;
}

struct http_caller *http_caller_join(struct http_server *server, const struct http_peer *peer,
				     const struct sockaddr_storage *from)
{
	struct caller_key key = caller_key_of(peer, from);
	callers_sweep(server, uv_now(server->loop));
	struct http_caller *caller = caller_find_or_add(server, &key);
	if (caller->references++ == 0)
		list_remove(&caller->ranked);
	if (!caller_is_admitted(server, caller)) {
		http_caller_release(server, caller);
		return NULL;
	}
	caller->count++;
	server->connection_count++;
	server->untrusted_count += !caller->trusted;
	return caller;
}

void http_caller_leave(struct http_connection *connection)
{
	struct http_caller *caller = connection->caller;
	http_caller_spare(connection, false);
	caller->count--;
	connection->server->connection_count--;
	connection->server->untrusted_count -= !caller->trusted;
}

void http_caller_release(struct http_server *server, struct http_caller *caller)
{
	if (--caller->references == 0)
		list_append(&server->leaving, &caller->ranked);
}

int http_caller_charge(struct http_connection *connection, size_t count)
{
	struct http_server *server = connection->server;
	struct http_caller *caller = connection->caller;
	const struct http_settings *settings = &server->settings;
	if (!caller->trusted) {
		bool own = settings->descriptors_per_uid &&
			   caller->descriptors + count > settings->descriptors_per_uid;
		bool all = settings->descriptors_max &&
			   server->untrusted_descriptors + count > settings->descriptors_max;
		if (own || all) {
			caller_warn(server, caller,
				    own ? "exceeds the maximum of passed descriptors for one caller"
					: "passes descriptors while the maximum for all is in use");
			return -EMFILE;
		}
		server->untrusted_descriptors += (uint32_t)count;
	}
	caller->descriptors += (uint32_t)count;
	return 0;
}

void http_caller_discharge(struct http_connection *connection, size_t count)
{
	struct http_caller *caller = connection->caller;
	caller->descriptors -= (uint32_t)count;
	if (!caller->trusted)
		connection->server->untrusted_descriptors -= (uint32_t)count;
}

void http_callers_init(struct http_server *server)
{
	random_bytes(&server->caller_seed, sizeof(server->caller_seed));
	for (size_t i = 0; i < HTTP_CALLER_SLOTS; i++)
		list_init(&server->callers[i]);
	list_init(&server->leaving);
	for (size_t i = 0; i < HTTP_RANKS; i++) {
		list_init(&server->ranks[false][i]);
		list_init(&server->ranks[true][i]);
	}
}

void http_callers_done(struct http_server *server)
{
	callers_sweep(server, UINT64_MAX);
}
