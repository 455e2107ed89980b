/* The JSON record of a sandbox, as every route gives it. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "edge/json/json.h"

/* sandbox: NULL for a tombstone. */
void put_sandbox(struct json_writer *writer, const char *key, const struct sandbox_row *row,
		 const struct sandbox *sandbox);
