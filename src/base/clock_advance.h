/* Time that a test moves. This replaces libc's clock_gettime() in the whole program, so that
 * libuv's timers move with our own clocks. It is linked into the build with fault points, where a
 * test moves the time of the daemon and the spawner (fault.c), and into the unit tests that jump
 * over a time-out; no other program has it. */
#pragma once

#include <stdint.h>

/* The nanoseconds that every clock but those of processor time is ahead. Never goes back. */
extern uint64_t *clock_advance;
