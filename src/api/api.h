/* REST for the daemon. */
#pragma once

#include "edge/route.h"

extern const struct surface rest_surface;
