/* A connection to a port inside the sandbox, as an operation. For runners. */
#pragma once

#include "proto/frame.h"

/* Connects, carries DATA both ways, answers, exits. */
_Noreturn void tunnel_run(int socket, const struct frame *frame);
