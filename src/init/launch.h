/* PID 1's side of launcher and runners: keeps a launcher alive and spare runners waiting, gives
 * each request a runner, passes on what runners say, reaps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "init/relay.h"
#include "proto/init_messages.h"

#define RUNNERS_MAX (EXEC_PER_SANDBOX_MAX + OPERATIONS_MAX + 32)

enum runner_role {
	RUNNER_FREE = 0,
	RUNNER_SPARE,
	RUNNER_EXEC,
	RUNNER_OPERATION,
	RUNNER_ENDING, /* nobody listens to it any more; killed at kill_at */
};

/* What a request belongs to. */
enum owner_kind { OWNER_EXEC, OWNER_OPERATION };

struct runner {
	enum runner_role role;
	pid_t pid; /* 0 once reaped */
	int socket;
	uint32_t generation;
	uint32_t owner;   /* index of the exec or operation */
	uint32_t watched; /* events asked of epoll; 0: not registered */
	int64_t kill_at;  /* NEVER */
};

/* Forks the first launcher. 0 or -errno. */
NODISCARD int launch_begin(void);
/* Whether launch_submit() may be called. */
bool launch_has_room(void);
/* Gives the request (its frame, header included) to a runner, now or when there is one; then
 * exec_assigned() / relay_assigned() is called, or ..._refused(). */
void launch_submit(enum owner_kind kind, uint32_t owner, const uint8_t *frame, size_t size);

/* Nobody wants the answer any more; only for a request that has no runner yet. */
void launch_withdraw(enum owner_kind kind, uint32_t owner);

struct runner *launch_runner(uint32_t index);
bool launch_is_ours(pid_t pid); /* the launcher or a runner */
bool launch_pending(void);      /* a runner may exist that is not in the table yet */
/* Asks epoll for these events of a runner's socket. */
void launch_watch(uint32_t index, uint32_t events);
/* Closes the socket; the process is killed when it is still there after grace_ms. */
void launch_release(uint32_t index, uint32_t grace_ms);

void launch_event(void); /* the launcher's socket */
void launch_runner_event(uint32_t index, uint32_t generation, uint32_t events);
void launch_reaped(pid_t pid, int status);
void launch_time(int64_t now);
int64_t launch_deadline(void);
