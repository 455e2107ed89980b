/* Sizes by name. See sizes.h. Never blocks. */
#include "core/sandbox/sizes.h"

#include <stddef.h>
#include <string.h>

#include "base/limits.h"
#include "base/resources.h"

const struct sandbox_size sandbox_sizes[] = {
    {"small", 1000, 512 * MIB},
    {"medium", 2000, 2 * GIB},
    {"large", 4000, 8 * GIB},
    {0},
};

const struct sandbox_size *sandbox_size_find(const char *name)
{
	for (const struct sandbox_size *size = sandbox_sizes; size->name; size++)
		if (strcmp(size->name, name) == 0)
			return size;
	return NULL;
}

bool sandbox_size_fits(const struct sandbox_size *size, const struct limits *maximum)
{
	return (maximum->memory == 0 || size->memory <= maximum->memory) &&
	       (maximum->cpu_millis == 0 || size->cpu_millis <= maximum->cpu_millis);
}
