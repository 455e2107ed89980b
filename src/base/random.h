/* Random bytes from the kernel. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Always succeeds: a host without getrandom() ends the program. */
void random_bytes(void *data, size_t size);
uint64_t random_u64(void);
