/* Server-sent events: an answer that continues until its source ends or the client disconnects. A
 * comment every few seconds keeps middle boxes from closing the connection.
 *
 *     sse_begin -> sse_event... -> sse_end         the source has ended
 *                               \-> sse_drop       the client is gone, or the answer was aborted
 *
 * Call exactly one of the two, once; do not use the pointer after that. */
#pragma once

#include "edge/call.h"

struct sse;

/* Sends the head. The exchange still belongs to the call. */
struct sse *sse_begin(struct call *call);
/* One event; `json` is one value as json_writer writes it, without line ends. false if the
 * connection's queue is full: the source waits for sse_drained(). */
bool sse_event(struct sse *sse, const char *name, const struct buffer *json);
/* Appends an event with an id, from which a client continues when it reconnects (Last-Event-ID).
 * `to` must have room for it. */
void sse_format(struct buffer *to, const char *id, const char *name, const struct buffer *json);
/* Sends formatted events in one write; returns as sse_event(). */
bool sse_send(struct sse *sse, const struct buffer *events);
/* Called in the call's on_drain. */
void sse_drained(struct sse *sse);
/* The last event was sent: the answer is complete. */
void sse_end(struct sse *sse);
/* Ends without a message to the client. NULL is allowed. */
void sse_drop(struct sse *sse);
