/* See network.h. */
#include "core/sandbox/network.h"

#include <errno.h>
#include <string.h>

static const char *const network_names[] = {[NETWORK_OFF] = NETWORK_OFF_NAME};
static const char *const to_come[] = {"restricted", "open"};

const char *network_name(uint32_t network)
{
	return network < ARRAY_SIZE(network_names) ? network_names[network] : "unknown";
}

int network_parse(const char *name, enum network *ret_network)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(network_names); i++)
		if (strcmp(name, network_names[i]) == 0) {
			*ret_network = (enum network)i;
			return 0;
		}
	for (size_t i = 0; i < ARRAY_SIZE(to_come); i++)
		if (strcmp(name, to_come[i]) == 0)
			return -EOPNOTSUPP;
	return -EINVAL;
}
