/* The user's terminal while a terminal in a sandbox is connected to it: for `run`, `exec`, `shell`
 * and `attach`. There is one, standard input, so its state is global. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The key, Ctrl-], and its help text are the same in every verb with a terminal. */
#define TERMINAL_LEAVE_KEY 0x1d
#define TERMINAL_LEAVE_HELP                                                                        \
	"On a terminal Ctrl-] detaches from the command; `caisson attach` attaches again."

/* Sets raw mode: every key goes to the sandbox. Undone by terminal_restore(), also at exit. */
void terminal_set_raw(void);
bool terminal_is_raw(void);
/* The position of the leave key in the typed bytes, or NULL. */
const char *terminal_find_leave_key(const char *typed, size_t size);
/* Restores the terminal; does nothing if it was not changed. */
void terminal_restore(void);
