/* A command's output as events: see exec_events.c. */
#pragma once

#include "core/exec.h"
#include "edge/call.h"

/* Does the client ask for events, or lines of JSON? */
bool exec_events_wanted(struct call *call);
/* Runs the command of the body. */
void exec_stream_post(struct call *call);
/* Follows one that is there, from these offsets, until it ends. */
void exec_events_follow(struct call *call, struct exec *exec, bool out, bool err, uint64_t from_out,
			uint64_t from_err);
