/* The list of tiers. Called by the spawner; never blocks. */
#include "tier/driver.h"

static const struct driver *const drivers[TIER_COUNT] = {
    [TIER_NAMESPACE] = &namespace_driver,
    [TIER_GVISOR] = &gvisor_driver,
};

const struct driver *driver_of(enum tier tier)
{
	return (unsigned)tier < TIER_COUNT ? drivers[tier] : NULL;
}
