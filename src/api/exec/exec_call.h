/* A call that runs a command, waits for it or streams it. */
#pragma once

#include "api/exec/record.h"
#include "core/exec/foreground.h"
#include "edge/exec_fields.h"
#include "edge/exec_follower.h"
#include "proto/exec_stream.h"

struct idempotent;

struct exec_call {
	struct call *call;
	struct foreground *exec;       /* while the call waits for it */
	struct exec_follower follower; /* of a stream */
	struct exec_fields ask;
	struct idempotent *request; /* NULL: it has no key, or was begun */
	bool kept;                  /* it has a key: it goes on without its client */
	/* stream.c */
	bool upgraded;
	bool detach;
	bool blocked;             /* the connection's queue is full */
	uint64_t stdin_granted;   /* credit that the client still has */
	bool stdin_end;           /* STDIN_CLOSE came */
	struct buffer stdin_left; /* came and not yet taken by the exec */
	struct buffer input;      /* an incomplete frame of the client's */
};

/* execs.c */
/* The answer to one who has waited: the exec, what it printed, what it left running. */
void put_exec_result(struct json_writer *writer, struct exec *exec, uint64_t answer_max,
		     const struct left_process *left, size_t count);

/* stream.c. When the sandbox is ready. */
void exec_stream_begin(struct call *call, struct sandbox *sandbox);

/* repeat.c. A command with an Idempotency-Key runs once: the same request again is told of the same
 * command, and waits for its end where the first one did. 0: go on (exec->request is set); 1: it
 * is, or will be, answered; -1. */
NODISCARD int exec_repeat(struct call *call, struct exec_call *exec, struct error *error);
