/* What the messages of clients take: bodies and lines while they come, and messages of requests and
 * tasks under way. One account for all and one for each workspace, so that nobody takes the
 * daemon's memory by many messages, each of which is allowed. Small ones are free: a client can
 * always ask and cancel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/limits.h"

#define MEMORY_MAX (256 * MIB)
#define MEMORY_WORKSPACE_MAX (32 * MIB)
#define MEMORY_SMALL (4 * KIB)

struct mcp_problem;
/* One message. Counted: what it takes is given back with the last reference. */
struct memory;

struct memory *memory_new(const char *workspace);
/* Takes NULL. */
struct memory *memory_hold(struct memory *memory);
/* *memory is NULL afterwards; takes one that is. */
void memory_release(struct memory **memory);
/* It becomes larger by so much. false: there is no room, and it is as large as before. */
bool memory_grow(struct memory *memory, size_t more);
/* What who has found no room is told: 503, retryable. */
#define MEMORY_RETRY_AFTER "1"
void memory_problem(struct mcp_problem *problem);
