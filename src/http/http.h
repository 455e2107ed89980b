/* HTTP/1.1 as Caisson serves it: strict, streaming, pull-based, on one libuv loop. It knows nothing
 * about the served resources. Listeners are TCP or Unix sockets (or TLS on TCP) that the caller has
 * bound.
 *
 * It accepts a subset and closes on any doubt (docs/http.md lists every refusal). Each connection
 * has deadlines for its head, its body and its writes. Pipelined requests are answered in order,
 * one at a time. A disconnect is noticed even while nothing is written: on_gone is called.
 *
 * The life of a request: `handle` is called when its head is complete. The handler answers exactly
 * once, at once or later: with http_respond(), with http_stream_begin() ... http_stream_end(), or
 * with http_upgrade(). Until then the exchange and its http_data() belong to the handler. After the
 * answer, or after on_gone, the pointer is invalid (on_gone is the last call).
 *
 * The body comes only when asked for: http_body_read() starts it, on_data gives pieces (valid until
 * it returns), http_body_pause()/resume() hold it, on_end says that it is complete. If a body is
 * too long, its client gets 413 in the middle and the handler gets on_gone. A handler may answer
 * without reading the body: then a small rest is skipped, and a large one closes the connection.
 *
 * Writing by pull: http_stream_write() copies everything to the connection's queue. If it returns
 * false, the queue is above its high mark, and the producer must wait for on_drain. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/error.h"
#include "base/limits.h"

/* A client's own request id may have this length, of letters, digits and "-_.:". */
#define HTTP_REQUEST_ID_MAX 64
#define HTTP_REQUEST_ID_SIZE (HTTP_REQUEST_ID_MAX + 1)

struct http_server;
struct http_exchange;
struct work_share;

struct http_header {
	const char *name;  /* lower case */
	const char *value; /* trimmed; no control characters */
};

struct http_peer {
	bool is_unix;
	bool is_tls;
	pid_t pid; /* of a Unix peer */
	uid_t uid;
	gid_t gid;
};

struct http_request {
	const char *method;
	const char *target; /* as sent: starts with '/' */
	const char *path;   /* percent-decoded; no NUL, no control character, valid UTF-8 */
	const char *query;  /* as sent, without '?'; "" when there is none */
	const struct http_header *headers;
	size_t header_count;
	int64_t content_length; /* -1: chunked, or none (see has_body) */
	bool has_body;
	struct http_peer peer;
	int fds[HTTP_PASSED_FDS_MAX]; /* came with the head over a Unix socket; closed at the end of
					 the exchange unless taken (set to -1) */
	size_t fd_count;
	/* Also sent back as X-Request-Id; the client's own if it sent a valid one. */
	char id[HTTP_REQUEST_ID_SIZE];
};

struct http_handlers {
	/* A request's head is complete. */
	void (*handle)(void *context, struct http_exchange *exchange);
	/* The head of its answer is queued. May be NULL. Only for counting: it must not call
	 * functions of this layer. */
	void (*answered)(void *context, struct http_exchange *exchange, int status);
	void *context;
};

/* The callbacks of the handler of one exchange. Each may be NULL. */
struct http_callbacks {
	void (*on_data)(struct http_exchange *exchange, const char *data, size_t size);
	void (*on_end)(struct http_exchange *exchange);
	void (*on_drain)(struct http_exchange *exchange);
	/* The client is gone, or broke a limit; not called after a finished answer. */
	void (*on_gone)(struct http_exchange *exchange);
};

struct http_settings {
	uint32_t head_timeout_ms;  /* first byte of a request to the end of its head */
	uint32_t idle_timeout_ms;  /* keep-alive without a request */
	uint32_t body_timeout_ms;  /* longest pause in a body that is being read */
	uint32_t write_timeout_ms; /* longest time without progress of a pending write */
	uint32_t connections_max;
	/* How many of connections_max are reserved for trusted uids (at most half). On Unix sockets
	 * root, our own user and the listed uids are trusted; the list outlives the server. */
	uint32_t connections_reserved;
	const uid_t *trusted_uids;
	size_t trusted_uid_count;
	/* What each other caller may hold; 0: no bound of its own. An IPv6 /64 counts as one
	 * address; loopback TCP has no bound of its own. */
	uint32_t connections_per_uid;
	uint32_t connections_per_address;
	/* The most passed descriptors in unfinished requests: of one untrusted uid, and of all of
	 * them together. */
	uint32_t descriptors_per_uid;
	uint32_t descriptors_max;
	/* Host check against DNS rebinding: NULL-terminated list of names (port ignored) that a TCP
	 * request may carry; NULL = any. Unix sockets are not checked. */
	const char *const *hosts;
	/* Origins of other servers' pages that may call us: "https://host[:port]",
	 * NULL-terminated; NULL = none. Their answers have CORS headers, without credentials. */
	const char *const *origins;
};
extern const struct http_settings http_default_settings;

struct http_server *http_server_new(uv_loop_t *loop, const struct http_settings *settings,
				    const struct http_handlers *handlers);
/* Takes a listening socket (the server then owns its descriptor). tls: an SSL_CTX or NULL. */
NODISCARD int http_server_listen(struct http_server *server, int fd, void *tls,
				 struct error *error);
/* Stops accepting connections, and lets pending answers finish for at most `grace_ms`. Then
 * `last_call` (may be NULL) may answer the requests that still wait. HTTP_LAST_CALL_MS later all
 * connections are closed. Calls `closed` when none is left. */
#define HTTP_LAST_CALL_MS 200
void http_server_shutdown(struct http_server *server, uint32_t grace_ms,
			  void (*last_call)(void *data), void (*closed)(void *data), void *data);
void http_server_free(struct http_server *server);
/* Applies to later requests. The lists must outlive the server or the next such call. */
void http_server_set_names(struct http_server *server, const char *const *hosts,
			   const char *const *origins);
/* Applies to later connections: replaces the context of each TLS listener. */
void http_server_set_tls(struct http_server *server, void *tls);
size_t http_server_connections(const struct http_server *server);

const struct http_request *http_request(const struct http_exchange *exchange);
/* The value of a header (lower-case name), or NULL. */
const char *http_header(const struct http_exchange *exchange, const char *name);
/* Which web page made the browser send the request. On Unix sockets it is always none. */
enum http_origin { HTTP_ORIGIN_NONE, HTTP_ORIGIN_OWN, HTTP_ORIGIN_LISTED, HTTP_ORIGIN_FOREIGN };
enum http_origin http_origin(const struct http_exchange *exchange);
/* A strict check for requests through a proxy, also on Unix sockets. True if the request comes from
 * no page, from our own page (with a name that is served), or from a listed origin. */
bool http_origin_known(const struct http_exchange *exchange);
/* A browser with a page of a listed origin asks whether it may send a request. The answer does not
 * depend on that request, which is checked when it comes. */
bool http_is_preflight(const struct http_exchange *exchange);
void http_respond_preflight(struct http_exchange *exchange);
void http_set_data(struct http_exchange *exchange, void *data);
void *http_data(const struct http_exchange *exchange);
void http_set_callbacks(struct http_exchange *exchange, const struct http_callbacks *callbacks);
/* The share that pays for the connection's time (base/work.h): at first that of its uid, or that of
 * all TCP clients; after http_set_share() the given one. */
struct work_share *http_share(const struct http_exchange *exchange);
void http_set_share(struct http_exchange *exchange, struct work_share *share);

/* Body. `maximum` bytes at most. "Expect: 100-continue" is answered here. */
void http_body_read(struct http_exchange *exchange, uint64_t maximum);
void http_body_pause(struct http_exchange *exchange);
void http_body_resume(struct http_exchange *exchange);

struct http_text {
	const char *data;
	size_t size;
};
/* Answers. `headers` are extra ones ("name: value", no line ends), count of them. A response to
 * HEAD is sent without its body by this layer. */
void http_respond(struct http_exchange *exchange, int status, const char *type,
		  const struct http_header *headers, size_t header_count, const void *data,
		  size_t size);
/* The same with a body in two parts; many answers may share one `rest`. */
void http_respond_in_two(struct http_exchange *exchange, int status, const char *type,
			 const struct http_header *headers, size_t header_count,
			 const struct http_text *first, const struct http_text *rest);
/* length < 0: chunked. */
void http_stream_begin(struct http_exchange *exchange, int status, const char *type, int64_t length,
		       const struct http_header *headers, size_t header_count);
bool http_stream_write(struct http_exchange *exchange, const void *data, size_t size);
void http_stream_end(struct http_exchange *exchange);
/* Closes the connection in a way that shows the client that the answer is incomplete. */
void http_stream_abort(struct http_exchange *exchange);

/* Closes the connection as if the client had gone: on_gone is called before this returns. Must not
 * be called from a callback of the same connection. */
void http_drop(struct http_exchange *exchange);

/* Answers 101 to an upgrade that the client asked for. From then on raw bytes go both ways: on_data
 * and http_stream_write(), with on_drain and on_gone as before. http_body_pause()/resume() hold the
 * incoming side; http_stream_end() closes. on_end: the client has closed its half. */
void http_upgrade(struct http_exchange *exchange, const char *protocol,
		  const struct http_header *headers, size_t header_count);
