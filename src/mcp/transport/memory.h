/* The memory of clients' messages: bodies and lines while they arrive, and the messages of running
 * requests and tasks. There is one account for all and one for each workspace, so that no client
 * can exhaust the daemon's memory with many allowed messages. Small messages are free: a client can
 * always send requests and cancels. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/limits.h"

#define MEMORY_MAX (256 * MIB)
#define MEMORY_WORKSPACE_MAX (32 * MIB)
#define MEMORY_SMALL (4 * KIB)

struct mcp_problem;
/* The memory of one message. Counted: the last reference returns it to the accounts. */
struct memory;

struct memory *memory_new(const char *workspace);
/* Takes NULL. */
struct memory *memory_hold(struct memory *memory);
/* Sets *memory to NULL; takes NULL. */
void memory_release(struct memory **memory);
/* Adds so many bytes. false: there is no room, and nothing has changed. */
bool memory_grow(struct memory *memory, size_t more);
/* The error for a request that finds no memory left: 503, retryable. */
#define MEMORY_RETRY_AFTER "1"
void memory_problem(struct mcp_problem *problem);
