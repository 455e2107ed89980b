/* The user's own terminal while a terminal inside a sandbox is on it: for `run`, `exec` and
 * `attach`. There is one, standard input, so its state is here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The same key, Ctrl-], and the same words in the help of every verb with a terminal. */
#define TERMINAL_LEAVE_KEY 0x1d
#define TERMINAL_LEAVE_HELP                                                                        \
	"On a terminal Ctrl-] leaves the command running; `caisson attach` comes back to it."

/* Each key goes to the sandbox. Undone by terminal_restore(), and at exit. */
void terminal_set_raw(void);
bool terminal_is_raw(void);
/* Where in what was typed the key to leave is, or NULL. */
const char *terminal_find_leave_key(const char *typed, size_t size);
/* As it was; does nothing where it was not changed. */
void terminal_restore(void);
