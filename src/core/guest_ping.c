/* Checks that the init responds. Pings are sent only while something is unanswered, so that an idle
 * sandbox costs nothing. Called by guest_link.c, and for a link in doubt by exec/frames.c; nothing
 * blocks. */
#include "base/clock.h"
#include "core/guest_link_private.h"

#define PING_INTERVAL_MS 10000
#define PING_TIMEOUT_MS 30000
#define DOUBT_TIMEOUT_MS 10000
/* If a link is in doubt, received data is read first, up to so many pieces. */
#define PIECES_IN_DOUBT 8

static void ping_send(struct guest_link *link)
{
	uint8_t room[8];
	struct error error;
	struct writer writer = writer_on(room, sizeof(room));
	write_u64(&writer, ++link->ping);
	link->ping_sent = clock_boot();
	if (guest_frame_queue(link, FRAME_PING, 0, room, sizeof(room), NULL, 0, &error) < 0)
		guest_link_fail(link, &error);
}

void guest_ping_arm(struct guest_link *link)
{
	if (link->state == LINK_OPEN && !uv_is_active((uv_handle_t *)&link->timer))
		guest_link_set_timer(link, PING_INTERVAL_MS);
}

void guest_link_doubt(struct guest_link *link)
{
	if (link->state != LINK_OPEN || link->freed || link->doubted)
		return;
	link->doubted = true;
	if (link->ping_sent == 0)
		ping_send(link);
	/* The loop's clock lags: a timer may fire a moment early. */
	if (link->state == LINK_OPEN)
		guest_link_set_timer(link, DOUBT_TIMEOUT_MS + 100);
}

static void echoes_tell(struct guest_link *link, bool lost)
{
	list_each (&link->echoes, node) {
		struct guest_echo *echo = list_entry(node, struct guest_echo, link);
		if (!lost && echo->number > link->ping)
			continue;
		list_remove(node);
		echo->answered(echo, lost);
	}
	if (!list_empty(&link->echoes) && link->ping_sent == 0 && link->state == LINK_OPEN)
		ping_send(link);
}

void guest_echoes_lose(struct guest_link *link)
{
	echoes_tell(link, true);
}

void guest_link_echo(struct guest_link *link, struct guest_echo *echo)
{
	echo->number = link->ping + 1;
	list_append(&link->echoes, &echo->link);
	if (link->ping_sent == 0 && link->state == LINK_OPEN)
		ping_send(link);
}

void guest_ping_answered(struct guest_link *link, const struct frame *pong)
{
	struct reader reader = reader_on(pong->payload, pong->size);
	uint64_t value = read_u64(&reader);
	if (reader_finish(&reader) < 0 || link->ping_sent == 0 || value != link->ping)
		guest_link_fail_protocol(link, "a PONG that answers no PING");
	link->ping_sent = 0;
	link->doubted = false;
	echoes_tell(link, false);
}

void guest_ping_check(struct guest_link *link)
{
	int64_t now = clock_boot();
	int64_t allowed = link->doubted ? DOUBT_TIMEOUT_MS : PING_TIMEOUT_MS;
	if (link->ping_sent != 0 && now - link->ping_sent >= allowed * NSEC_PER_MSEC) {
		/* This daemon may have been suspended: the answer can be waiting in the socket. */
		for (int i = 0; i < PIECES_IN_DOUBT && guest_link_read(link); i++)
			;
		if (link->ping_sent != 0 && link->state == LINK_OPEN && !link->freed)
			guest_link_fail_gone(link, link->doubted
						       ? "no answer to a ping in 10 seconds"
						       : "no answer to a ping in 30 seconds");
	}
	if (link->state != LINK_OPEN || link->freed)
		return;
	/* Complete frames that were read already: no event will report them. */
	if (link->more)
		work_wait(&link->work, link->share);
	if (link->ping_sent == 0 && (link->unanswered || !list_empty(&link->queue)))
		ping_send(link);
	if (link->state != LINK_OPEN)
		return;
	if (link->ping_sent != 0)
		guest_link_set_timer(link, PING_INTERVAL_MS);
}
