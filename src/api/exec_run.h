/* A command that a request waits for or streams. */
#pragma once

#include "api/call.h"
#include "api/exec_ask.h"
#include "proto/exec_stream.h"

struct exec_run {
	struct call *call;
	struct exec_watcher watcher;
	struct exec *exec; /* NULL before it was begun and after it was forgotten */
	struct exec_ask ask;
	bool finishing; /* its end was seen; what it left running is being asked for */
	/* exec_stream.c */
	bool upgraded;
	bool detach;
	bool blocked;             /* the connection's queue is full */
	uint64_t sent[2];         /* of stdout, stderr */
	uint64_t stdin_granted;   /* credit that the client still has */
	bool stdin_end;           /* STDIN_CLOSE came */
	struct buffer stdin_left; /* came and not yet taken by the exec */
	struct buffer input;      /* an incomplete frame of the client's */
};

/* The client asked for `Upgrade: caisson-exec/1`. */
bool exec_stream_wanted(struct call *call);
/* As exec_post's act. */
void exec_stream_begin(struct call *call, struct sandbox *sandbox);
