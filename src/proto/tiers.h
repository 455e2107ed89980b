/* The names of tiers and limits, as people and the API have them, and where a sandbox's init
 * listens. Called by everybody; never blocks. */
#pragma once

#include "base/id.h"
#include "base/macros.h"
#include "proto/spawner_messages.h"

const char *tier_name(enum tier tier);
/* TIER_COUNT when there is none of that name. */
enum tier tier_parse(const char *name);
const char *limit_name(enum limit_kind kind);
/* What one that does nothing costs the host, amply. */
uint64_t tier_idle_memory(enum tier tier);
/* For people: why a limit is not enforced; "" when it is. */
const char *limit_reason_text(enum limit_reason reason);

/* <runtime>/guests/<id>/init.sock; the directory is root's, 0750, the daemon's group. */
#define GUEST_SOCKET_PATH_MAX 108
NODISCARD int guest_socket_path(const char *runtime, const struct id *id,
				char path[GUEST_SOCKET_PATH_MAX]);
