/* The command line's side of the API. client.c finds the daemon, starts one if none runs, and
 * connects; exchange.c is the HTTP/1.1 client: one blocking request per connection. The form of the
 * daemon's answers is checked, since it may be another version. Text that comes from a sandbox is
 * never trusted on a terminal. */
#pragma once

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/config.h"
#include "base/error.h"

struct client {
	struct config config;
	char config_path[256]; /* "" for the default file */
	char socket[108];      /* the Unix socket, unless `remote` */
	char host[256];        /* from CAISSON_URL */
	char port[8];
	bool tls;           /* CAISSON_URL begins with https:// */
	bool remote;        /* CAISSON_URL is set: we start no daemon and send no descriptors */
	bool no_start;      /* do not start a daemon */
	bool runtime_named; /* the user named the runtime directory, and so whom to trust */
	char token[256];
};

/* Reads configuration and environment. With CAISSON_URL an unreadable configuration is an error
 * only if it is `needed`. */
NODISCARD int client_setup(struct client *client, bool needed, struct error *error);
/* Use the daemon at this URL from now on. `name`: where the URL comes from, for error messages. */
NODISCARD int client_use_url(struct client *client, const char *name, const char *url,
			     struct error *error);
/* Opens a connection. Starts a daemon if none answers, unless remote. */
NODISCARD int client_connect(struct client *client, struct error *error);
/* 0 if a daemon answers at the socket, else -1. Starts nothing. */
NODISCARD int client_ping(struct client *client, struct error *error);

/* After an http:// connection was lost: if the port uses TLS, *error says so. */
void client_explain_lost_connection(const struct client *client, struct error *error);

/* Set by the signal handler of a verb that cleans up after itself. Requests then fail with
 * ERROR_CANCELLED, also while they wait for the answer. */
extern volatile sig_atomic_t client_interrupted;

/* One request and its answer. */
struct exchange {
	int fd;
	void *tls; /* TLS state, see tls.h; NULL without TLS */
	int status;
	char request_id[64];
	int64_t content_length;     /* -1 unknown */
	int64_t offset, gap, total; /* X-Offset, X-Gap, X-Total; -1 if absent */
	bool chunked;
	bool head_only;
	uint64_t left; /* bytes left of the body or the chunk */
	bool body_done;
	char buffer[65536]; /* unread input */
	size_t start, end;
};

struct request {
	const char *method;
	const char *path; /* percent-encoded, with query */
	const char *type; /* the body's media type, or NULL */
	const char *upgrade;
	const char *extra; /* more header lines, each with its "\r\n", or NULL */
	int64_t length;    /* length of the body; -1: chunked; 0: none */
	const int *fds;
	size_t fd_count;
};

struct exchange *exchange_new(void);
/* Closes the connection; NULL is allowed. */
void exchange_free(struct exchange *exchange);
/* Connects and sends the head. exchange_write() and exchange_write_end() send the body. */
NODISCARD int exchange_begin(struct client *client, const struct request *request,
			     struct exchange *ret_exchange, struct error *error);
NODISCARD int exchange_write(struct exchange *exchange, bool chunked, const void *data, size_t size,
			     struct error *error);
NODISCARD int exchange_write_end(struct exchange *exchange, bool chunked, struct error *error);
/* Reads the answer's head. For a status of 400 and above *error is filled from the error object in
 * the body. */
NODISCARD int exchange_read_head(struct exchange *exchange, struct error *error);
/* Reads up to size bytes of the body. Returns 0 at its end; a truncated body is an error. */
NODISCARD ssize_t exchange_read(struct exchange *exchange, void *data, size_t size,
				struct error *error);
/* Receives what follows an upgrade's head, like recv(). EINTR means that no data has arrived. */
ssize_t exchange_receive(struct exchange *exchange, void *data, size_t size);
/* Sends after an upgrade, like send() with these flags. */
ssize_t exchange_send(struct exchange *exchange, const void *data, size_t size, int flags);
/* Closes our sending side. Receiving continues. */
void exchange_half_close(struct exchange *exchange);
/* True if there is input that poll() on the socket does not report. */
bool exchange_has_input(const struct exchange *exchange);
void exchange_done(struct exchange *exchange);

/* The common case: sends JSON (or nothing, if NULL) and receives JSON (or NULL for an empty
 * answer). */
NODISCARD int client_call(struct client *client, const char *method, const char *path, json_t *body,
			  const int *fds, size_t fd_count, json_t **ret_json, struct error *error);

/* "http://HOST:PORT" of the daemon's TCP listener, as the daemon reports it: the port in the
 * configuration may belong to another program by now. If there is none, "" and *error says so. */
NODISCARD int client_daemon_url(struct client *client, char *url, size_t room, struct error *error);
/* Appends text percent-encoded, as a path segment or query value. */
NODISCARD int buffer_append_encoded(struct buffer *buffer, const char *text);
/* Appends "?name=value" to a path, or "&name=value" if it has a query; nothing if value is NULL. */
NODISCARD int buffer_append_parameter(struct buffer *path, const char *name, const char *value);
/* Turns the error object of an answer into *error. */
void error_from_json(const json_t *json, int status, struct error *error);
