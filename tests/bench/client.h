/* The client that the bench measures with: raw sockets, requests kept alive, one buffer each, no
 * allocation while it measures. It ends the program on anything unexpected: a figure with failures
 * in it is no figure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ANSWER_ROOM (256 * 1024)
#define REQUEST_ROOM (32 * 1024)

struct address {
	const char *path;  /* of a Unix socket, or NULL: */
	uint16_t port;     /* on the loopback */
	const char *token; /* or NULL */
};

/* One connection; `answer` holds what was received, of which `body` begins at `head_size`. */
struct link {
	int fd;
	char request[REQUEST_ROOM];
	size_t request_size;
	char answer[ANSWER_ROOM];
	size_t received, head_size;
	int64_t length; /* of the body; -1 not known yet */
	bool chunked;   /* length is 0 then: its end is the last chunk's */
	int status;
};

_Noreturn void client_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void link_open(struct link *link, const struct address *address);
void link_close(struct link *link);
/* Writes the request into link->request. */
void link_prepare(struct link *link, const struct address *address, const char *method,
		  const char *path, const char *body, const char *headers);
void link_send(struct link *link);
/* Takes what came. True: the answer is whole. */
bool link_receive(struct link *link);
/* All of it, and a status of 2xx or the end of the program. */
void link_call(struct link *link);
/* The head alone: what is left of the body is still on the socket, or behind the head. */
void link_head(struct link *link);
/* The value of a string field of the JSON answer. */
void link_field(struct link *link, const char *name, char *to, size_t room);
double client_now(void); /* microseconds */

void measure_repeat(const struct address *address, unsigned long count, const char *method,
		    const char *path, const char *body, const char *headers);
void measure_cycle(const struct address *address, unsigned long count, const char *create,
		   const char *exec);
void measure_burst(const struct address *address, unsigned long count, const char *create,
		   const char *exec);
/* GET, or POST where there is a body; headers: whole lines, or NULL. */
void measure_rate(const struct address *address, bool awake, double seconds,
		  unsigned long connections, const char *path, const char *body,
		  const char *headers);
void measure_put(const struct address *address, uint64_t size, const char *path);
void measure_get(const struct address *address, const char *path);
void measure_raw_put(uint16_t port, uint64_t size);
void measure_raw_get(uint16_t port);
void measure_stream(const struct address *address, const char *path, const char *body);
void measure_digest(uint64_t size);
void measure_hold(const struct address *address, unsigned long count, const char *path);
void measure_release(void);
void measure_load(const struct address *address, double seconds, unsigned long clients,
		  const char *create, const char *exec);
