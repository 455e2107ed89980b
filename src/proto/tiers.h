/* The names of tiers and limits for people and the API, and the path of an init's socket. Called
 * from everywhere; never blocks. */
#pragma once

#include "base/id.h"
#include "base/macros.h"
#include "proto/spawner_messages.h"

const char *tier_name(enum tier tier);
/* TIER_COUNT if no tier has that name. */
enum tier tier_parse(const char *name);
const char *limit_name(enum limit_kind kind);
/* For people: why a limit is not enforced; "" if it is. */
const char *limit_reason_text(enum limit_reason reason);

/* <runtime>/guests/<id>/init.sock; the directory is root's, 0750, the daemon's group. */
#define GUEST_SOCKET_PATH_MAX 108
NODISCARD int guest_socket_path(const char *runtime, const struct id *id,
				char path[GUEST_SOCKET_PATH_MAX]);
