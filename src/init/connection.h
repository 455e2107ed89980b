/* The one connection from outside: accepts it, serves requests, queues frames. Nothing here
 * blocks. Frames that are sent while there is no connection are dropped: a new connection asks
 * with LIST. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "proto/init_messages.h"

NODISCARD int connection_listen(int listener);
/* Serves a channel that is never replaced; FRAME_BEGIN says that one connection on it ended and
 * another begins. */
NODISCARD int connection_use_channel(int channel);
/* The connection is such a channel. */
bool connection_is_permanent(void);
void connection_accept(void);
void connection_event(uint32_t generation, uint32_t events);
/* Serves the requests in the inbox. */
void connection_serve(void);
/* At the end of a turn of the loop: sends the outbox. */
void connection_flush(void);
/* A request can be served: the loop must not sleep. */
bool connection_has_request(void);

/* True after HELLO was exchanged; before that, frames are dropped. */
bool connection_ready(void);
/* DATA, OUTPUT and PROGRESS wait while this is false. Other frames always fit, since their
 * number is bounded. */
bool connection_has_room(void);
void connection_send(enum frame_type type, uint64_t id, const void *payload, size_t size);
void connection_send_number(enum frame_type type, uint64_t id, uint32_t number);
void connection_send_failure(enum frame_type type, uint64_t id, enum error_kind kind, int errnum,
			     const char *message);
/* Room in the outbox for one frame of the largest size, to be filled by the caller, header
 * included. Only while connection_has_room(). */
uint8_t *connection_reserve(void);
void connection_commit(size_t size);
/* The peer broke the protocol: sends REFUSED and closes. */
void connection_refuse(const char *message);
