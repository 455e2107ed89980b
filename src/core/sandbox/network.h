/* The network of a sandbox. Pure; nothing blocks. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

enum network {
	NETWORK_OFF, /* only itself */
};

/* The names at every edge, and as lists: those that a sandbox can have, and all that are known. */
#define NETWORK_OFF_NAME "off"
#define NETWORK_NAMES NETWORK_OFF_NAME
#define NETWORK_NAMES_KNOWN NETWORK_NAMES ",restricted,open"

const char *network_name(uint32_t network);
/* 0; -EOPNOTSUPP: a known name that is not implemented yet; -EINVAL: an unknown name. */
NODISCARD int network_parse(const char *name, enum network *ret_network);
