/* The files for the output of a sandbox's next exec: made, opened and named ahead, so that
 * beginning a command makes no file. Their name is the exec's id, which is chosen with them. A
 * daemon that ends leaves them, and the next one removes them as stray logs. On the loop; a few
 * short file operations. */
#pragma once

#include "base/id.h"
#include "proto/output_log.h"

struct core;
struct exec;

struct ready_logs {
	bool made;
	struct id exec;
	struct output_log logs[2]; /* with the retention of the configuration */
};

/* Does nothing if they are made, or if there are no spare files just now. */
void ready_logs_make(struct core *core, const struct id *sandbox, struct ready_logs *ready);
/* Gives them to an exec without an id. False: there are none. */
bool ready_logs_take(struct ready_logs *ready, struct exec *exec);
/* Closes them; the files stay. */
void ready_logs_done(struct ready_logs *ready);
