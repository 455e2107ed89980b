/* PID 1's table of runners: keeps spare ones waiting, gives each request a runner, passes on the
 * runners' frames. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "init/relay.h"
#include "proto/init_messages.h"

#define RUNNERS_MAX (EXEC_PER_SANDBOX_MAX + OPERATIONS_MAX + 32)
#define NO_PROCESS_MESSAGE "no process can be started in the sandbox"

enum runner_role {
	RUNNER_FREE = 0, /* a free slot of the table */
	RUNNER_SPARE,
	RUNNER_EXEC,
	RUNNER_OPERATION,
	RUNNER_STAYING, /* has done a file operation and waits for another as the same user */
	RUNNER_ENDING,  /* its socket is closed; killed at kill_at */
};

#define RUNNER_USER_MAX 68

/* What a request belongs to. */
enum owner_kind { OWNER_EXEC, OWNER_OPERATION };

struct runner_request {
	enum owner_kind kind;
	uint32_t owner; /* index of the exec or operation */
	size_t size;    /* of the frame, header included */
	uint32_t tries; /* runners that were killed before they had read it */
	int64_t since;  /* while it waits for a runner */
	bool withdrawn;
};

struct runner {
	enum runner_role role;
	pid_t pid; /* 0 once reaped */
	int socket;
	uint32_t generation;
	uint32_t owner;   /* as in its request */
	uint32_t watched; /* events asked of epoll; 0: not registered */
	uint32_t kept;    /* 1 + the index of its kept request; 0: none is kept */
	int64_t kill_at;  /* NEVER */
	bool stayed;      /* has served an earlier request */
	/* The user of its file request, as in the frame. */
	uint8_t user[RUNNER_USER_MAX];
};

/* Whether runner_request_submit() may be called. */
bool runner_request_has_room(void);
/* Gives the request and its frame to a runner now, or as soon as there is one; then
 * exec_send_to_runner() or relay_send_to_runner() is called, or ..._runner_failed(). */
void runner_request_submit(const struct runner_request *request, const uint8_t *frame);
/* Drops a request that has no runner yet. */
void runner_request_withdraw(enum owner_kind kind, uint32_t owner);
/* The runner has answered, so it has read its request: the copy is not needed any more. */
void runner_request_read(uint32_t index);
/* After a runner was killed before it read its request: whether another runner may get it, and
 * giving it to another. The latter releases the runner. */
bool runner_request_may_retry(uint32_t index);
void runner_request_retry(uint32_t index);
/* The oldest request that waits for a runner fails. False: none waits. */
bool runner_request_fail_first(int errnum, const char *message);

struct runner *runner_at(uint32_t index);
/* The pid is the launcher's or a runner's. */
bool runners_include(pid_t pid);
/* How many more runners are needed: one for each waiting request, and the spares. */
uint32_t runners_missing(void);
/* A new runner: for the oldest waiting request, or as a spare. */
void runner_add(pid_t pid, int socket);
/* Asks epoll for these events of a runner's socket. */
void runner_watch(uint32_t index, uint32_t events);
/* Its operation is over and it stays for another. False: enough of them stay already. */
NODISCARD bool runner_stay(uint32_t index);
/* Its command has ended and left no process: it becomes a spare, or it is released if there are
 * enough of them. */
void runner_return(uint32_t index);
/* Closes the socket; the process is killed if it still exists after grace_ms. */
void runner_release(uint32_t index, uint32_t grace_ms);

void runner_event(uint32_t index, uint32_t generation, uint32_t events);
/* A child of PID 1 has ended. */
void child_reaped(pid_t pid, int status);
/* Does what is due now; returns when something is due next, or NEVER. */
int64_t runners_time(int64_t now);
