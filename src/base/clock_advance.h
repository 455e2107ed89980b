/* Lets a test move time. This replaces libc's clock_gettime() in the whole program, so that
 * libuv's timers move with our own clocks. It is linked into the build with fault points, where
 * a test moves the time of the daemon and the spawner (fault.c), and into unit tests that skip a
 * time-out; no other program has it. */
#pragma once

#include <stdint.h>

/* Nanoseconds added to every clock except processor time. Never decreases. */
extern uint64_t *clock_advance;
