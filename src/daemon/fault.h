/* The daemon's part in moving time (base/fault.h). Empty without -Dfault_points=true. */
#pragma once

#ifdef CAISSON_FAULT_POINTS

#include <uv.h>

void daemon_fault_watch_clock(uv_loop_t *loop);
#define FAULT_WATCH_CLOCK(loop) daemon_fault_watch_clock(loop)

#else

#define FAULT_WATCH_CLOCK(loop) ((void)0)

#endif
