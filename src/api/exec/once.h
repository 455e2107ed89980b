/* A command with an Idempotency-Key runs once: the same request again is told of the same command,
 * and waits for its end where the first one did. */
#pragma once

#include "api/exec/run.h"

/* 0: go on (run->request is set where there is a key); 1: it is, or will be, answered; -1. */
NODISCARD int exec_once(struct call *call, struct exec_run *run, struct error *error);
/* Right before the command is started: after a crash it is known, or it was not begun. */
NODISCARD int exec_once_record(struct exec_run *run, struct sandbox *sandbox, struct error *error);
/* It was begun, or could not be. */
void exec_once_end(struct exec_run *run, bool begun);
