/* The names of the fault points (base/fault.h) of messages between daemon and spawner. The
 * compiler warns if a new message is missing here. */
#pragma once

#include "base/fault.h"

#ifdef CAISSON_FAULT_POINTS

#include <stddef.h>

#include "proto/spawner_messages.h"

static inline const char *spawn_type_name(unsigned type)
{
	switch ((enum spawn_type)type) {
	case SPAWN_HELLO:
		return "hello";
	case SPAWN_CREATE:
		return "create";
	case SPAWN_START:
		return "start";
	case SPAWN_KILL:
		return "kill";
	case SPAWN_DESTROY:
		return "destroy";
	case SPAWN_FREEZE:
		return "freeze";
	case SPAWN_THAW:
		return "thaw";
	case SPAWN_LIMITS:
		return "limits";
	case SPAWN_COUNTERS:
		return "counters";
	case SPAWN_LIST:
		return "list";
	case SPAWN_PROBE:
		return "probe";
	case SPAWN_RECLAIM:
		return "reclaim";
	case SPAWN_OWN:
		return "own";
	case SPAWN_REPLY:
		return NULL; /* its points are named after the request */
	case SPAWN_LISTED:
		return "listed";
	case SPAWN_ENDED:
		return "ended";
	case SPAWN_RELOAD:
		return "reload";
	case SPAWN_QUIT:
		return "quit";
	case SPAWN_COUNTED:
		return "counted";
	}
	return NULL;
}

static inline const char *spawn_request_name(unsigned type)
{
	return type < SPAWN_REPLY ? spawn_type_name(type) : NULL;
}

static inline const char *spawn_notice_name(unsigned type)
{
	return type > SPAWN_REPLY ? spawn_type_name(type) : NULL;
}

#define SPAWN_TYPE_COUNT (SPAWN_REPLY + 16)

#endif
