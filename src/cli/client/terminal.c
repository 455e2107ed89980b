/* Sets the user's terminal to raw mode and back. Called by exec_session.c and cli/verbs/attach.c.
 * Blocks only until pending output is written. */
#include "cli/client/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved_terminal;
static bool raw_now;

void terminal_restore(void)
{
	if (raw_now)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_terminal);
	raw_now = false;
}

void terminal_set_raw(void)
{
	if (tcgetattr(STDIN_FILENO, &saved_terminal) < 0)
		return;
	struct termios raw = saved_terminal;
	cfmakeraw(&raw);
	raw_now = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
	atexit(terminal_restore);
}

const char *terminal_find_leave_key(const char *typed, size_t size)
{
	return raw_now ? memchr(typed, TERMINAL_LEAVE_KEY, size) : NULL;
}

bool terminal_is_raw(void)
{
	return raw_now;
}
