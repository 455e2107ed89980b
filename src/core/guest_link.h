/* The daemon's connection to the init of one sandbox: frames out, frames in, reconnect. All
 * received data may come from an attacker: an invalid frame, an unknown id or credit that was not
 * given ends the link with GUEST_PROTOCOL. Output is bounded: a guest that does not read (queue
 * above its maximum, or no answer to a ping in time) is GUEST_GONE. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "base/error.h"
#include "base/list.h"
#include "proto/init_messages.h"

struct guest_link;
struct work_share;

struct guest_link_callbacks {
	/* HELLO was answered. */
	void (*connected)(void *data, const struct hello_reply *reply);
	/* A frame with a known type; the payload is only valid during the call. -1 with *error (the
	 * payload was invalid) ends the link. */
	int (*frame)(void *data, const struct frame *frame, struct error *error);
	/* The link has ended; call guest_link_free() now or later. */
	void (*closed)(void *data, const struct error *error);
	/* guest_link_room() was 0 and now is not. May be NULL. */
	void (*drained)(void *data);
};

/* Connects to a Unix socket path; reports through callbacks. timeout_ms bounds connect + HELLO. */
NODISCARD int guest_link_open(uv_loop_t *loop, const char *socket_path, uint32_t timeout_ms,
			      const struct guest_link_callbacks *callbacks, void *data,
			      struct guest_link **ret_link, struct error *error);
/* The same on a connected stream socket, which it takes. */
struct guest_link *guest_link_open_fd(uv_loop_t *loop, int fd, uint32_t timeout_ms,
				      const struct guest_link_callbacks *callbacks, void *data);
void guest_link_free(struct guest_link *link);
/* Replaces the callbacks from now on. */
void guest_link_set_callbacks(struct guest_link *link, const struct guest_link_callbacks *callbacks,
			      void *data);

/* Takes the share of the loop's time that is charged for the init's data (base/work.h); until then
 * all links have one share together. */
void guest_link_set_share(struct guest_link *link, struct work_share *share);
/* Queues one frame; descriptors are duplicated. */
NODISCARD int guest_link_send(struct guest_link *link, enum frame_type type, uint64_t id,
			      const void *payload, size_t size, const int *fds, size_t fd_count,
			      struct error *error);
/* The version of the protocol that both ends speak; 0 before HELLO is answered. */
uint32_t guest_link_version(const struct guest_link *link);
/* How many bytes of bulk data may be queued now; 0 = wait for `drained`. Control frames are always
 * accepted. */
size_t guest_link_room(struct guest_link *link);

/* The init owes an answer: pings it at once, and ends the link if there is no answer in ten
 * seconds. */
void guest_link_doubt(struct guest_link *link);

/* Called when the init has answered data that was sent after this: by then it has run its loop
 * once, and has read every pipe. `lost`: the link has ended first. The link must not be freed in
 * the callback. */
struct guest_echo {
	struct list link;
	void (*answered)(struct guest_echo *echo, bool lost);
	uint64_t number; /* used by guest_link.c */
};
void guest_link_echo(struct guest_link *link, struct guest_echo *echo);

/* Makes an error of an init's failure: only kinds that an init may claim, and text that is
 * printable UTF-8. */
void error_from_failure(struct error *error, const struct failure *failure);
