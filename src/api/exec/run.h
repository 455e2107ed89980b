/* A command that a request waits for or streams. */
#pragma once

#include "api/exec/ask.h"
#include "edge/exec_follower.h"
#include "proto/exec_stream.h"

struct exec_run {
	struct call *call;
	struct run *run;               /* while a request waits for it */
	struct exec_follower follower; /* of a stream */
	struct exec_ask ask;
	struct idempotent *request; /* once.c; NULL: it has no key, or was begun */
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

/* As exec_post's act. */
void exec_stream_begin(struct call *call, struct sandbox *sandbox);
