/* Terminals. PID 1 holds the master; the command gets the slave. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

/* Opens /dev/pts once, before user code could replace it. If that fails, only terminals fail. */
void terminal_begin(void);
/* A new terminal: the master non-blocking, both CLOEXEC. 0 or -errno. */
NODISCARD int terminal_open(uint16_t rows, uint16_t columns, int *ret_master, int *ret_slave);
void terminal_resize(int master, uint16_t rows, uint16_t columns);
