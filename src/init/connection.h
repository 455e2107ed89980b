/* The one connection from outside: accepts it, takes requests from it, queues frames for it. All of
 * it non-blocking. What others send while nobody is connected is dropped: whoever connects asks
 * with LIST. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "proto/init_messages.h"

NODISCARD int connection_listen(int listener);
/* Serves the one that is there for good instead, whose ends BEGIN tells of. */
NODISCARD int connection_use_channel(int channel);
/* It is one of those. */
bool connection_is_permanent(void);
void connection_accept(void);
void connection_event(uint32_t generation, uint32_t events);
/* Serves what waits in the inbox. */
void connection_serve(void);
/* The end of a loop's turn: sends what there is to be told. */
void connection_flush(void);
/* There is more to be served: the loop must not sleep. */
bool connection_has_request(void);

/* HELLO was exchanged: frames sent now arrive. */
bool connection_ready(void);
/* DATA, OUTPUT and PROGRESS wait while this is false; other frames always fit, since there is a
 * bounded number of them. */
bool connection_has_room(void);
void connection_send(enum frame_type type, uint64_t id, const void *payload, size_t size);
void connection_send_number(enum frame_type type, uint64_t id, uint32_t number);
void connection_send_failure(enum frame_type type, uint64_t id, enum error_kind kind, int errnum,
			     const char *message);
/* Room for one frame of the largest size, to be filled in place (header too); only while
 * connection_has_room(). */
uint8_t *connection_reserve(void);
void connection_commit(size_t size);
/* The peer broke the protocol: says so and closes. */
void connection_refuse(const char *message);
