/* The daemon's side of the socket to the spawner: sends requests, matches replies, passes on what
 * comes unasked. When the spawner is gone every pending request fails with SPAWNER_GONE and `lost`
 * is called: the daemon exits then, and whoever starts the spawner again starts it too. */
#pragma once

#include <uv.h>

#include "base/error.h"
#include "proto/spawner_messages.h"

struct spawner_client;

struct spawner_callbacks {
	void (*ended)(void *data, const struct id *sandbox, const struct spawn_ended *ended);
	/* Of a request for the counters of all: before its reply. */
	void (*counted)(void *data, const struct id *sandbox,
			const struct spawn_counters *counters);
	void (*listed)(void *data, const struct id *sandbox, const struct spawn_listed *listed);
	void (*reload)(void *data);
	void (*quit)(void *data);
	void (*lost)(void *data);
	/* The reply to a request of that type (enum spawn_type) whose `done` had TIMED_OUT before.
	 */
	void (*late)(void *data, uint32_t type, const struct spawn_message *reply);
};

struct spawner_client *spawner_client_new(uv_loop_t *loop, int fd,
					  const struct spawner_callbacks *callbacks, void *data);
/* Requests that wait fail with SPAWNER_GONE; `lost` is not called. */
void spawner_client_free(struct spawner_client *client);

/* For how long the oldest question that it should answer at once has waited; nanoseconds. */
int64_t spawner_client_waiting(const struct spawner_client *client);

/* Sends message (its `request` is filled in) with descriptors (not taken), and calls `done` with
 * the reply, or with error set. timeout_ms: after it TIMED_OUT, and a late reply goes to `late`. */
NODISCARD int spawner_request(struct spawner_client *client, struct spawn_message *message,
			      const int *fds, size_t fd_count, uint32_t timeout_ms,
			      void (*done)(void *data, const struct spawn_message *reply,
					   const struct error *error),
			      void *data, struct error *error);
