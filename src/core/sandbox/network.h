/* The network of a sandbox. Pure; nothing blocks. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

enum network {
	NETWORK_OFF, /* only itself */
};

/* Its name at every edge. */
const char *network_name(uint32_t network);
/* 0; -EOPNOTSUPP: a known name that is not implemented yet; -EINVAL: an unknown name. */
NODISCARD int network_parse(const char *name, enum network *ret_network);
