/* What is said of an exec in words and numbers that every edge shares: its exit code, its state,
 * the names of signals, how a shell command is run. Pure; nothing blocks. */
#include <signal.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "core/account/access.h"

#define SIGNAL_MAX 64
#define TIMED_OUT_CODE 124 /* as timeout(1) */

int exec_exit_code(const struct exec_row *row)
{
	switch ((enum exec_end)row->end) {
	case EXEC_END_EXITED:
		return (int)row->code;
	case EXEC_END_SIGNALED:
	case EXEC_END_CANCELLED:
	case EXEC_END_TOO_MANY_PROCESSES:
		return 128 + (int)row->code;
	case EXEC_END_TIMED_OUT:
		return TIMED_OUT_CODE;
	case EXEC_END_LOST:
		break;
	}
	return -1;
}

const char *exec_state_name(uint32_t state)
{
	return state == EXEC_STARTING  ? "starting"
	       : state == EXEC_RUNNING ? "running"
	       : state == EXEC_ENDED   ? "ended"
				       : "failed";
}

const char *exec_state_text(const struct exec_row *row)
{
	if (row->state != EXEC_ENDED)
		return exec_state_name(row->state);
	switch ((enum exec_end)row->end) {
	case EXEC_END_EXITED:
		return "exited";
	case EXEC_END_SIGNALED:
	case EXEC_END_TOO_MANY_PROCESSES:
		return "killed";
	case EXEC_END_CANCELLED:
		return "cancelled";
	case EXEC_END_TIMED_OUT:
		return "timed_out";
	case EXEC_END_LOST:
		break;
	}
	return "lost";
}

int signal_by_name(const char *name)
{
	uint64_t number;
	if (text_to_u64(name, 1, SIGNAL_MAX, &number) == 0)
		return (int)number;
	if (strncasecmp(name, "SIG", 3) == 0)
		name += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *known = sigabbrev_np(i);
		if (known && strcasecmp(known, name) == 0)
			return i;
	}
	return -1;
}

void shell_argv(const char *command, const char *argv[4])
{
	argv[0] = "/bin/sh";
	argv[1] = "-c";
	argv[2] = command;
	argv[3] = NULL;
}
