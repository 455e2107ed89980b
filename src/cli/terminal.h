/* The user's own terminal while a terminal inside a sandbox is on it: for `run`, `exec` and
 * `attach`. There is one, standard input, so its state is here. */
#pragma once

#include <stdbool.h>

/* Each key goes to the sandbox. Undone by terminal_restore(), and at exit. */
void terminal_raw(void);
bool terminal_is_raw(void);
/* As it was; does nothing where it was not changed. */
void terminal_restore(void);
