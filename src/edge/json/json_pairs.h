/* JSON objects of strings as the domain's pairs: environments and metadata. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "core/sandbox/sandbox.h"

/* json may be NULL. The pairs are borrowed from the JSON; the caller frees the array. */
NODISCARD int json_pairs(const char *name, const json_t *json, size_t count_max, size_t bytes_max,
			 struct pair **ret_pairs, size_t *ret_count, struct error *error);
/* The same with the rules for names in an environment: not empty, and without a '='. */
NODISCARD int json_environment(const char *name, const json_t *json, size_t bytes_max,
			       struct pair **ret_pairs, size_t *ret_count, struct error *error);
