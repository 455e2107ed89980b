/* The spawner's fault points. requests.c calls them around a request, loop.c around a message. A
 * reply carries the number of its request but not its type, so the types are remembered here.
 * Built only with -Dfault_points=true. */
#include "spawner/fault.h"

#include "base/macros.h"

#define LOOK_MS 5 /* how soon the spawner sees that a test has moved the time */

FAULT_SET(spawner_request, "spawner.request", spawn_request_name, SPAWN_REPLY);
FAULT_SET(spawner_reply, "spawner.reply", spawn_request_name, SPAWN_REPLY);
FAULT_SET(spawner_notice, "spawner.notice", spawn_notice_name, SPAWN_TYPE_COUNT);

/* By the request's number; far more than can be open at once. */
static uint32_t request_types[4096];

void spawner_fault_serve(const struct spawn_message *request, enum fault_moment moment)
{
	request_types[request->request % ARRAY_SIZE(request_types)] = request->type;
	fault_point(&spawner_request, request->type, moment);
}

void spawner_fault_send(const struct spawn_message *message, enum fault_moment moment)
{
	if (message->type == SPAWN_REPLY)
		fault_point(&spawner_reply,
			    request_types[message->request % ARRAY_SIZE(request_types)], moment);
	else
		fault_point(&spawner_notice, message->type, moment);
}

int spawner_fault_turn(int timeout_ms)
{
	fault_turn(FAULT_SPAWNER);
	return timeout_ms < 0 ? LOOK_MS : MIN(timeout_ms, LOOK_MS);
}
