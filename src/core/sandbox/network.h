/* What a sandbox may reach. Pure; nothing blocks. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

enum network {
	NETWORK_OFF, /* nothing but itself */
};

/* As it is named at every edge. */
const char *network_name(uint32_t network);
/* 0; -EOPNOTSUPP: a name that is known, of what is not there yet; -EINVAL: no such name. */
NODISCARD int network_parse(const char *name, enum network *ret_network);
