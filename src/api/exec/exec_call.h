/* A call that runs a command, waits for it or streams it. */
#pragma once

#include "api/exec/record.h"
#include "core/exec/foreground.h"
#include "edge/fields/exec_fields.h"
#include "edge/exec_follower.h"
#include "proto/exec_stream.h"

struct idempotent;
struct oneshot;

struct exec_call {
	struct call *call;
	struct foreground *exec;       /* while the call waits for it */
	struct exec_follower follower; /* of a stream */
	struct exec_fields fields;
	struct idempotent *request; /* NULL: it has no key, or the command has begun */
	bool kept;                  /* it has a key: it continues without its client */
	/* stream.c */
	struct oneshot *oneshot; /* its sandbox ends with the stream; or NULL */
	bool upgraded;
	bool detach;
	bool blocked;             /* the connection's queue is full */
	uint64_t stdin_granted;   /* credit that the client has left */
	bool stdin_end;           /* STDIN_CLOSE came */
	struct buffer stdin_left; /* received and not yet taken by the exec */
	struct buffer input;      /* an incomplete frame from the client */
};

void exec_call_clear(struct exec_call *exec_call);

/* stream.c. Called when the sandbox is ready. */
void exec_stream_begin(struct call *call, struct sandbox *sandbox);

/* replay.c. A command with an Idempotency-Key runs once: a repeated request gets the answer about
 * the same command, and waits for its end if the first one did. 0: continue (exec->request is set);
 * 1: it is, or will be, answered; -1. */
NODISCARD int exec_replay(struct call *call, struct exec_call *exec, struct error *error);
