/* The command line's side of the API: finds the daemon, starts one where there is none, speaks
 * HTTP/1.1 with it. Blocking; one request per connection. What the daemon says is checked for form
 * (it may be another version), what a sandbox put into it is never trusted as text for a terminal.
 */
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
	char config_path[256]; /* "" when the default one is used */
	char socket[108];      /* the Unix socket, unless url is set */
	char host[256];        /* from CAISSON_URL */
	char port[8];
	bool tls;           /* it begins with https:// */
	bool remote;        /* CAISSON_URL is set: no starting, no descriptors */
	bool no_start;      /* where no daemon runs none is started */
	bool runtime_named; /* the runtime directory is no default: the user said whom to trust */
	char token[256];
};

/* Reads configuration and environment. With CAISSON_URL a configuration that cannot be read is an
 * error only where it is `needed`. */
NODISCARD int client_setup(struct client *client, bool needed, struct error *error);
/* From now on the daemon at that URL; `name`: who said so, for errors. */
NODISCARD int client_use_url(struct client *client, const char *name, const char *url,
			     struct error *error);
/* A connection; starts a daemon when none answers, unless remote. */
NODISCARD int client_connect(struct client *client, struct error *error);
/* Only an answer counts: 0 when a daemon answers at the socket, else -1. Starts nothing. */
NODISCARD int client_ping(struct client *client, struct error *error);

/* A connection over http:// was lost: where the port speaks TLS, *error says so instead. */
void client_explain_lost_connection(const struct client *client, struct error *error);

/* Set by the signal handler of a verb that cleans up after itself: requests then fail with
 * ERROR_CANCELLED, also one that waits for its answer. */
extern volatile sig_atomic_t client_interrupted;

/* One exchange. */
struct exchange {
	int fd;
	void *tls; /* over TLS: see tls.h; else NULL */
	int status;
	char request_id[64];
	int64_t content_length;     /* -1 unknown */
	int64_t offset, gap, total; /* X-Offset, X-Gap, X-Total where sent, else -1 */
	bool chunked;
	bool head_only;
	uint64_t left; /* of the body or the chunk */
	bool body_done;
	char buffer[65536]; /* unread input */
	size_t start, end;
};

struct request {
	const char *method;
	const char *path; /* percent-encoded, with query */
	const char *type; /* of the body, or NULL */
	const char *upgrade;
	const char *extra; /* more header lines, each with its "\r\n", or NULL */
	int64_t length;    /* of the body; -1: chunked; 0: none */
	const int *fds;
	size_t fd_count;
};

/* Connects and sends the head; the body follows with exchange_write() and exchange_finish(). */
NODISCARD int exchange_begin(struct client *client, const struct request *request,
			     struct exchange *ret_exchange, struct error *error);
NODISCARD int exchange_write(struct exchange *exchange, bool chunked, const void *data, size_t size,
			     struct error *error);
NODISCARD int exchange_write_end(struct exchange *exchange, bool chunked, struct error *error);
/* Reads the head. A status of 400 and above is turned into *error (the body's error object). */
NODISCARD int exchange_read_head(struct exchange *exchange, struct error *error);
/* Up to size bytes of the body; 0 at its end; a body that breaks off is an error. */
NODISCARD ssize_t exchange_read(struct exchange *exchange, void *data, size_t size,
				struct error *error);
/* Whatever comes after the head of an upgrade: as recv(), EINTR where nothing came after all. */
ssize_t exchange_receive(struct exchange *exchange, void *data, size_t size);
/* The other way: as send() with these flags. */
ssize_t exchange_send(struct exchange *exchange, const void *data, size_t size, int flags);
/* Says that nothing more is sent; what is received goes on. */
void exchange_half_close(struct exchange *exchange);
/* There is input that poll() on the socket does not tell of. */
bool exchange_has_input(const struct exchange *exchange);
void exchange_done(struct exchange *exchange);

/* The common case: JSON there (or NULL), JSON back (or NULL for an empty answer). */
NODISCARD int client_request_json(struct client *client, const char *method, const char *path,
				  json_t *body, const int *fds, size_t fd_count, json_t **ret_json,
				  struct error *error);

/* "http://HOST:PORT" of the daemon's TCP door, as the daemon itself says: what the configuration
 * names may be somebody else's port by now. "" where it has none, with *error saying so. */
NODISCARD int client_daemon_url(struct client *client, char *url, size_t room, struct error *error);
/* Appends text percent-encoded, as a path segment or query value. */
NODISCARD int buffer_append_encoded(struct buffer *buffer, const char *text);
/* The error object of an answer as *error. */
void error_from_json(const json_t *json, int status, struct error *error);
