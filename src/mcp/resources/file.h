/* Shared by the two files about file resources. */
#pragma once

#include "base/limits.h"
#include "mcp/resources/resource.h"

/* The value of {+path} as an absolute path. */
NODISCARD int file_resource_path(const char *value, char path[GUEST_PATH_MAX], struct error *error);
/* file_watch.c */
int file_resource_watch(struct resource_watch *watch, const char *const *variables,
			struct error *error);
