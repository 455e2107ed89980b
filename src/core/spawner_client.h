/* The daemon's side of the socket to the spawner: sends requests, matches replies, passes on
 * notices. When the spawner has exited, every pending request fails with SPAWNER_GONE and `lost` is
 * called: then the daemon exits, and the next spawner starts a new one. */
#pragma once

#include <uv.h>

#include "base/error.h"
#include "proto/spawner_messages.h"

struct spawner_client;

struct spawner_callbacks {
	void (*ended)(void *data, const struct id *sandbox, const struct spawn_ended *ended);
	/* For a request for all counters: called before its reply. */
	void (*counted)(void *data, const struct id *sandbox,
			const struct spawn_counters *counters);
	void (*listed)(void *data, const struct id *sandbox, const struct spawn_listed *listed);
	void (*reload)(void *data);
	void (*quit)(void *data);
	void (*lost)(void *data);
	/* The reply to a request of that type (enum spawn_type) after its `done` had TIMED_OUT. */
	void (*late)(void *data, uint32_t type, const struct spawn_message *reply);
};

struct spawner_client *spawner_client_new(uv_loop_t *loop, int fd,
					  const struct spawner_callbacks *callbacks, void *data);
/* Waiting requests fail with SPAWNER_GONE; `lost` is not called. */
void spawner_client_free(struct spawner_client *client);

/* How long the oldest request that the spawner should answer at once has waited; nanoseconds. */
int64_t spawner_client_waiting(const struct spawner_client *client);

/* Sends message (its `request` is filled in) with descriptors (not taken), and calls `done` with
 * the reply, or with error set. timeout_ms: after it TIMED_OUT, and a late reply goes to `late`. */
NODISCARD int spawner_request(struct spawner_client *client, struct spawn_message *message,
			      const int *fds, size_t fd_count, uint32_t timeout_ms,
			      void (*done)(void *data, const struct spawn_message *reply,
					   const struct error *error),
			      void *data, struct error *error);
