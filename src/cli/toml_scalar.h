/* Numbers, dates, times and words of TOML. Used by toml_scan.c. Does not block. */
#pragma once

#include <stddef.h>

/* How many bytes the value takes that begins there; 0: it is none. */
size_t toml_scalar(const char *text);
