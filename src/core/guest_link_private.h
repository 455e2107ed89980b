/* What guest_link.c shares with guest_ping.c: the connection itself. */
#pragma once

#include <sys/un.h>

#include "base/buffer.h"
#include "base/work.h"
#include "core/guest_link.h"

enum link_state { LINK_CONNECTING, LINK_GREETING, LINK_OPEN, LINK_FAILED };

struct guest_link {
	uv_poll_t poll;
	uv_timer_t timer;    /* connect and HELLO; then pings */
	uv_idle_t turn;      /* active: something was sent in this turn of the loop */
	struct work work;    /* waits for its turn to read */
	struct work telling; /* waits for its turn to call `closed` */
	struct work_share *share;
	bool poll_open, freed;
	unsigned open_handles;
	int fd;
	enum link_state state;
	uint32_t version; /* the agreed protocol version; 0 before that */
	struct sockaddr_un address;
	int64_t until; /* CLOCK_BOOTTIME: connect + HELLO */
	struct guest_link_callbacks callbacks;
	void *data;
	struct buffer in;   /* data that was read and is not handled yet */
	bool more;          /* it has complete frames */
	struct list queue;  /* struct outgoing_frame (guest_link.c) */
	size_t queued;      /* bytes */
	bool blocked;       /* the socket was full: the rest is sent when it is writable */
	bool throttled;     /* room was 0: `drained` is to be called */
	bool unanswered;    /* something was sent since the last frame came */
	uint64_t ping;      /* the number of the last ping */
	int64_t ping_sent;  /* CLOCK_BOOTTIME, 0 = none outstanding */
	bool doubted;       /* guest_link_doubt() was called, and no answer has come since */
	struct list echoes; /* struct guest_echo */
	struct error error;
};

/* guest_link.c */
/* Queues a frame in any state except a failed one. */
NODISCARD int guest_frame_queue(struct guest_link *link, enum frame_type type, uint64_t id,
				const void *payload, size_t size, const int *fds, size_t fd_count,
				struct error *error);
/* No more reading or writing; `closed` is called in a separate piece of work. */
void guest_link_fail(struct guest_link *link, const struct error *error);
void guest_link_fail_gone(struct guest_link *link, const char *why);
void guest_link_fail_protocol(struct guest_link *link, const char *why);
/* Reads once, or handles frames that were read already. False: nothing more has come. */
bool guest_link_read(struct guest_link *link);
/* Calls guest_ping_check() after that time, while the link is open. */
void guest_link_set_timer(struct guest_link *link, uint64_t milliseconds);

/* guest_ping.c */
/* Something was sent: pings after a while if no answer comes. */
void guest_ping_arm(struct guest_link *link);
void guest_ping_check(struct guest_link *link);
void guest_ping_answered(struct guest_link *link, const struct frame *pong);
/* Tells all waiting echoes that the link has ended. */
void guest_echoes_lose(struct guest_link *link);
