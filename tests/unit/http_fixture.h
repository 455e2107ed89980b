/* A real server and its clients in one thread, for the tests of the HTTP layer: the client's
 * sockets are non-blocking, and the loop is run in between, so that each test decides what the
 * server sees at once and what it sees later. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "http/http.h"

struct http_fixture {
	uv_loop_t loop;
	struct http_server *server;
	int port;
	char unix_path[64];
	/* What the handler saw. */
	struct http_exchange *pending; /* of /later and the like: the test answers */
	int handled, gone, ended, drained;
	size_t received;
	bool closed;
};

/* What the server sent to one client. */
struct http_seen {
	char data[4 * 1024 * 1024];
	size_t size;
	bool closed; /* by end of file or a reset */
};

struct http_answer {
	int status;
	const char *head, *body; /* NUL-terminated copies in `text` */
	size_t body_size;
	bool whole;
};

void fixture_start(struct http_fixture *fixture, const struct http_settings *settings, void *tls);
void fixture_stop(struct http_fixture *fixture);
/* Runs the loop until nothing more happens at once. */
void fixture_pump(struct http_fixture *fixture);
/* The same while time is moved by so much. */
void fixture_wait(struct http_fixture *fixture, int ms);

/* From here on clients are of that uid, or come from that address; NULL and -1: as they are. */
void fixture_pretend(struct http_fixture *fixture, uid_t uid, const char *address);

int client_tcp(struct http_fixture *fixture);
int client_unix(struct http_fixture *fixture);
/* Sends in pieces of at most `piece` bytes, the loop run after each. False when the server has
 * closed before everything was sent. */
bool client_send(struct http_fixture *fixture, int fd, const char *data, size_t size, size_t piece);
bool client_text(struct http_fixture *fixture, int fd, const char *text);
/* Appends what the server has sent so far. */
void client_receive(struct http_fixture *fixture, int fd, struct http_seen *seen);
struct http_seen *client_ask(struct http_fixture *fixture, int fd, const char *text);
/* The final answer at *at, which moves behind it; false when there is none. A 1xx is skipped. */
bool answer_next(const struct http_seen *seen, size_t *at, struct http_answer *ret_answer);
int answer_status(const struct http_seen *seen);
bool seen_has(const struct http_seen *seen, const char *text);
