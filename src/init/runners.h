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
	RUNNER_STAYING, /* has done a file operation and waits for another as the same user */
	RUNNER_ENDING,  /* nobody listens to it any more; killed at kill_at */
};

#define RUNNER_USER_MAX 68

/* What a request belongs to. */
enum owner_kind { OWNER_EXEC, OWNER_OPERATION };

struct runner {
	enum runner_role role;
	pid_t pid; /* 0 once reaped */
	int socket;
	uint32_t generation;
	uint32_t owner;   /* index of the exec or operation */
	uint32_t watched; /* events asked of epoll; 0: not registered */
	uint32_t kept;    /* its request is kept, at this place less one; 0: it is not */
	int64_t kill_at;  /* NEVER */
	bool stayed;      /* it has served before */
	/* As whom it serves: the user of its file request, as it stands in the frame. */
	uint8_t user[RUNNER_USER_MAX];
};

/* Forks the first launcher, ahead of the loop and of CONFIGURE: what it has to wait for then costs
 * nobody anything. Without it launcher_begin_runners() does. */
void launcher_prepare(void);
/* The loop is open: it is watched from here on. */
NODISCARD int launcher_watch(void);
/* The sandbox is configured: runners may be made. 0 or -errno. */
NODISCARD int launcher_begin_runners(void);
/* Whether runner_request_submit() may be called. */
bool runner_request_has_room(void);
/* Gives the request (its frame, header included) to a runner, now or when there is one; then
 * exec_send_to_runner() / relay_send_to_runner() is called, or ..._refused(). */
void runner_request_submit(enum owner_kind kind, uint32_t owner, const uint8_t *frame, size_t size);

/* A runner that was killed before it had read its request: whether another may get it, and that.
 * The runner is released. */
bool runner_request_may_retry(uint32_t index);
void runner_request_retry(uint32_t index);
/* The runner has answered: its request need not be kept. */
void runner_request_read(uint32_t index);

/* Nobody wants the answer any more; only for a request that has no runner yet. */
void runner_request_withdraw(enum owner_kind kind, uint32_t owner);

struct runner *runner_at(uint32_t index);
bool runners_include(pid_t pid); /* the launcher or a runner */
bool launcher_owes_runner(void); /* a runner may exist that is not in the table yet */
/* Asks epoll for these events of a runner's socket. */
void runner_watch(uint32_t index, uint32_t events);
/* Its operation is over, and it stays for another: true; or there are enough of them. */
NODISCARD bool runner_stay(uint32_t index);
/* Closes the socket; the process is killed when it is still there after grace_ms. */
void runner_release(uint32_t index, uint32_t grace_ms);

void launcher_event(void); /* the launcher's socket */
void runner_event(uint32_t index, uint32_t generation, uint32_t events);
void child_reaped(pid_t pid, int status);
void runners_time(int64_t now);
int64_t runners_deadline(void);
