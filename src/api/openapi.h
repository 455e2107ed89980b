/* The OpenAPI document (tools/openapi), compact, made at build time by embed.py. */
#pragma once

#include <stddef.h>

extern const char openapi_json[];
extern const size_t openapi_json_size;
