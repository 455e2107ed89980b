/* What the files of this folder share: the server, its connections, and the one exchange that a
 * connection has at a time.
 *
 *   server.c      listeners, accept, shutdown                 calls open, run, lose
 *   callers.c     how much each caller holds; who makes room  calls lose
 *   deadline.c    one timer for all deadlines                 calls expire
 *   transport.c   bytes in and out: TCP, Unix, TLS
 *   queue.c       a growing byte queue
 *   state.c       the states of a connection and of a body, as tables
 *   connection.c  turns: reads, calls handlers, writes, closes
 *   exchange.c    a request from its head, and its accessors
 *   origin.c      which web page a browser asks for
 *   body.c        a request's body, to its handler
 *   answer.c      answers, from the handler to the queue
 *   unread_answers.c      answers that nobody reads
 *
 * The one rule about re-entrancy: callbacks of handlers are called only from
 * http_connection_run() and http_connection_lose(), which only the loop calls (poll, work, timer).
 * The functions that handlers call (http.h) change the state, queue bytes and ask for a turn
 * (http_connection_wake). They never call back and never free. */
#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/list.h"
#include "base/work.h"
#include "http/http.h"
#include "http/parser.h"
#include "http/state.h"

/* A producer is told to wait above the high mark, and asked for more below the low one. */
#define HTTP_QUEUE_HIGH (256 * 1024)
#define HTTP_QUEUE_LOW (64 * 1024)
/* A producer that does not wait, and passes this mark, loses its connection. */
#define HTTP_QUEUE_MAX (64 * 1024 * 1024)
/* The most memory that unread answers may use: those of one caller, and those of all. One answer
 * always fits. */
#define HTTP_UNREAD_CALLER_MAX ((size_t)128 * 1024 * 1024)
#define HTTP_UNREAD_MAX ((size_t)256 * 1024 * 1024)
/* Bytes that a client may send ahead of the answer to its previous request. */
#define HTTP_AHEAD_MAX (64 * 1024)
/* The rest of an unwanted body is skipped up to this; a longer one closes the connection. */
#define HTTP_SKIP_MAX (64 * 1024)
/* What one connection may do in one piece of work (base/work.h). */
#define HTTP_TURN_BYTES (64 * 1024)
#define HTTP_TURN_REQUESTS 8
#define HTTP_TURN_WRITTEN (256 * 1024)
#define HTTP_SCRATCH (64 * 1024)
/* How long we read and discard after our last byte. Closing a socket with unread bytes makes the
 * kernel send a reset, which can overtake the answer. */
#define HTTP_LINGER_MS 2000
/* For a head that comes with descriptors. Any honest client sends it in one piece. */
#define HTTP_PASSED_MS 2000
/* Callers: slots of the table, rows by powers of two, and the pause between warnings. */
#define HTTP_CALLER_SLOTS 1024
#define HTTP_RANKS 20
#define HTTP_WARN_EVERY_MS 10000
/* The most new connections of one untrusted uid or address within HTTP_PACE_MS. More are closed
 * right after accept(): all callers share the kernel's queue, so it must be emptied faster than it
 * is filled. */
#define HTTP_PACE_MS 100
#define HTTP_PACE_JOINS 256

enum http_deadline_kind {
	HTTP_DEADLINE_HEAD,
	HTTP_DEADLINE_PASSED, /* a head that has descriptors */
	HTTP_DEADLINE_IDLE,
	HTTP_DEADLINE_BODY,
	HTTP_DEADLINE_WRITE,
	HTTP_DEADLINE_LINGER,
	HTTP_DEADLINE_FIRST, /* its first request, while the server stops */
	HTTP_DEADLINE_KINDS,
};

/* In one of the server's lists while it runs. A list is sorted because its duration is constant. */
struct http_deadline {
	struct list node;
	uint64_t due;
};

struct http_queue {
	char *data;
	uint32_t start, size, room;
};

struct http_server {
	uv_loop_t *loop;
	struct http_settings settings;
	struct http_handlers handlers;
	uv_timer_t timer, accept_timer, grace_timer;
	uv_idle_t idle; /* runs when a shutdown may be complete */
	struct list listeners, connections;
	struct work_queue *work;
	struct list deadlines[HTTP_DEADLINE_KINDS];
	uint64_t timer_due; /* 0: not running */
	size_t connection_count, untrusted_count;
	uint32_t untrusted_descriptors;
	struct list callers[HTTP_CALLER_SLOTS];
	struct list ranks[2][HTTP_RANKS]; /* callers with spare connections; [true]: trusted */
	struct list leaving; /* callers without a connection, the first to be freed first */
	uint64_t caller_seed;
	uint64_t warned_at, unwarned; /* the last warning about a caller; events since */
	uint64_t accept_warned_at;
	/* Identifies the peer. A test may replace it. */
	void (*identify)(int fd, struct http_peer *peer, struct sockaddr_storage *ret_from);
	size_t handle_count; /* libuv handles that are not closed yet: the server outlives them */
	bool accepting, stopping, freed;
	void (*last_call)(void *data); /* of a shutdown; NULL when it was called */
	void (*closed)(void *data);
	void *closed_data;
	uint32_t request_prefix;
	uint64_t request_count;
	time_t date_second;
	char date[32];
	char *scratch; /* HTTP_SCRATCH bytes that every connection reads into */
};

struct http_listener {
	uv_poll_t poll;
	struct http_server *server;
	struct list node;
	int fd;
	bool is_unix;
	SSL_CTX *tls;
};

/* One uid or address, with all of its connections. Owned by the server's table. Freed a while after
 * its last connection, so that a caller cannot reset its pace by closing them all. */
struct http_caller {
	struct list node;
	struct list ranked; /* in a row of `ranks`, or in `leaving` */
	struct list spare;  /* connections without a request at its handler, the oldest first */
	struct work_share *share; /* of connections whose token is not known yet */
	uint64_t value;
	uint32_t count, spare_count;
	uint32_t references;  /* connections whose memory is still there */
	uint32_t descriptors; /* passed, and not closed or taken yet */
	uint32_t joins;       /* connections since `pace_start` */
	uint64_t pace_start;
	uint8_t kind;
	bool trusted;
};

/* Descriptors that came ahead of the head they belong to. */
struct http_passed {
	size_t count;
	int fds[HTTP_PASSED_FDS_MAX];
};

/* An idle connection has no other memory: an idle client costs this size. */
struct http_connection {
	uv_poll_t poll;
	struct http_server *server;
	struct http_caller *caller;
	struct list node;
	struct work work;         /* queued when a turn is due */
	struct work_share *share; /* its turns take this share's time */
	struct list spare;        /* in the caller's list, while it can be closed to make room */
	struct http_deadline waiting; /* for the client's bytes */
	struct http_deadline writing; /* for the client to take our bytes */
	struct http_exchange *exchange;
	struct http_queue input, output;
	struct http_passed *passed;
	SSL *ssl;
	struct http_peer peer;
	int fd;
	enum http_state state;
	uint32_t scanned;      /* bytes of an incomplete head already searched for a line end */
	uint32_t written;      /* in this turn, past the queue */
	int16_t requests_left; /* in this turn */
	uint8_t armed;         /* what libuv watches for */
	uint8_t events;        /* what it has reported, for the next turn */
	int8_t waiting_kind;   /* of `waiting`, -1: not running */
	bool running : 1;      /* inside http_connection_run() */
	bool more : 1;         /* the socket may have more bytes */
	bool blocked : 1;      /* the socket takes no more bytes */
	bool hung_up : 1;      /* the client has closed its half; its bytes may still be unread */
	bool peer_done : 1;    /* the same, and all of its bytes were read */
	bool close_after : 1;  /* this answer is the last */
	bool used : 1;         /* it has had a request */
	bool lingers : 1;      /* the client may still be sending when we close */
	bool reset : 1;        /* close with a reset: the only sign that the answer is incomplete */
	bool held : 1;         /* requests in `input` wait for a turn, not for bytes */
	bool disarm : 1;       /* unwanted bytes came: stop watching for them */
	bool body_moved : 1;   /* bytes of a body came in this turn */
	bool tls_read_wants_write : 1;
	bool tls_write_wants_read : 1;
};

struct http_exchange {
	struct http_connection *connection;
	struct http_request request;
	struct http_callbacks callbacks;
	void *data;
	size_t fds_charged;
	enum http_origin origin;
	/* The body. */
	enum http_body_state body;
	uint64_t body_left; /* of a body with a length */
	uint64_t body_taken;
	uint64_t body_maximum;
	struct http_chunked chunked;
	/* The answer. */
	int64_t answer_left; /* of a stream with a length; -1: no length */
	bool is_head : 1;
	bool is_old : 1; /* HTTP/1.0 */
	bool keep_alive : 1;
	bool expect_continue : 1;
	bool upgrade_asked : 1;
	bool body_chunked : 1;
	bool body_paused : 1;
	bool answer_chunked : 1;
	bool wants_drain : 1;
};

/* queue.c */
/* 0, or -EMSGSIZE beyond HTTP_QUEUE_MAX. */
NODISCARD int http_queue_append(struct http_queue *queue, const void *data, size_t size);
/* Room for at least `size` more bytes at the returned place; NULL beyond HTTP_QUEUE_MAX. */
char *http_queue_reserve(struct http_queue *queue, size_t size);
size_t http_queue_room(const struct http_queue *queue);
void http_queue_consume(struct http_queue *queue, size_t size);
void http_queue_done(struct http_queue *queue);
static inline char *http_queue_data(const struct http_queue *queue)
{
	return queue->data + queue->start;
}

/* deadline.c */
void http_deadlines_init(struct http_server *server);
void http_deadline_set(struct http_server *server, struct http_deadline *deadline,
		       enum http_deadline_kind kind);
void http_deadline_clear(struct http_deadline *deadline);
/* Sets the deadline for the client's bytes that the connection's state requires, or none. */
void http_deadline_update(struct http_connection *connection);
/* Stops the deadline for the client's bytes. */
void http_deadline_stop(struct http_connection *connection);

/* callers.c */
void http_callers_init(struct http_server *server);
void http_callers_done(struct http_server *server);
/* Asks the kernel for the peer's ids. */
void http_peer_identify(int fd, struct http_peer *peer, struct sockaddr_storage *ret_from);
/* Counts a new connection; NULL if the maximum is reached. May close others to make room. */
struct http_caller *http_caller_join(struct http_server *server, const struct http_peer *peer,
				     const struct sockaddr_storage *from);
/* The connection is closed; its memory is not freed yet. */
void http_caller_leave(struct http_connection *connection);
void http_caller_release(struct http_server *server, struct http_caller *caller);
/* Records whether the connection may be closed in favour of a new one. */
void http_caller_spare(struct http_connection *connection, bool spare);
/* Closes a connection that has no request; false if every connection has one. Called by the loop
 * only. */
bool http_callers_make_room(struct http_server *server);
/* 0, or -EMFILE if the caller would then hold too many passed descriptors. */
NODISCARD int http_caller_charge(struct http_connection *connection, size_t count);
void http_caller_discharge(struct http_connection *connection, size_t count);

/* transport.c */
/* Adds TLS to the connection; false: OpenSSL failed. */
NODISCARD bool http_transport_secure(struct http_connection *connection, SSL_CTX *context);
/* 1: done; 0: waits for the client; -errno. */
NODISCARD int http_transport_handshake(struct http_connection *connection);
/* Bytes read, 0 at the end of the client's bytes, -EAGAIN, or -errno. */
NODISCARD ssize_t http_transport_read(struct http_connection *connection, char *to, size_t room);
/* Writes the queue, then `data`; returns how much of `data` went out, or -errno. A full socket is
 * no error here: it only sets `blocked`. */
NODISCARD ssize_t http_transport_write(struct http_connection *connection, const void *data,
				       size_t size);
/* Closes descriptors that no head has taken. */
void http_transport_drop_passed(struct http_connection *connection);
void http_transport_shutdown(struct http_connection *connection);
void http_transport_close(struct http_connection *connection);

/* connection.c */
/* Takes a connected, non-blocking socket. On -errno the caller keeps the socket; -EBUSY: its peer
 * has too many connections. */
NODISCARD int http_connection_open(struct http_server *server, int fd, bool is_unix, SSL_CTX *tls);
void http_connection_run(struct http_connection *connection, int events);
/* Asks for a turn soon. */
void http_connection_wake(struct http_connection *connection);
/* Closes at once; tells the handler that its client is gone. Called by the loop only. */
void http_connection_lose(struct http_connection *connection);
/* The same at its next turn; may be called from anywhere. */
void http_connection_break(struct http_connection *connection);
void http_connection_expire(struct http_connection *connection, enum http_deadline_kind kind);

/* exchange.c */
/* Makes the connection's exchange of a parsed head. 0, or minus a status with *ret_reason. */
NODISCARD int http_exchange_new(struct http_connection *connection, const char *data,
				size_t head_size, const struct http_head *head,
				const char **ret_reason);
void http_exchange_free(struct http_exchange *exchange);
/* Closes the descriptors that came with the request and were not taken. */
void http_exchange_drop_passed(struct http_exchange *exchange);
/* Returns whether a handler has the request and may still answer. */
bool http_exchange_open(const struct http_exchange *exchange);

/* Returns whether the Host header's name (without its port) is one that is served here. */
bool http_host_served(const struct http_server *server, const char *host, size_t size);

/* origin.c */
void http_origin_note(struct http_exchange *exchange);

/* body.c */
/* Passes as much of the data to the handler as it wants, or discards it (HTTP_SKIP). Returns the
 * number of bytes used. */
size_t http_body_take(struct http_exchange *exchange, char *data, size_t size);
bool http_body_wanted(const struct http_exchange *exchange);

/* answer.c */
/* Answers in place of a handler and closes. May be called from anywhere. */
void http_refuse(struct http_connection *connection, int status, const char *reason);

/* unread_answers.c */
/* Called after much was queued. If it is too much, closes the connection of the slowest reader. */
void http_unread_check(struct http_connection *connection);

/* server.c */
void http_server_forget(struct http_connection *connection);
void http_server_handle_closed(struct http_server *server);
const char *http_server_date(struct http_server *server);
void http_server_next_id(struct http_server *server, char id[HTTP_REQUEST_ID_SIZE]);
