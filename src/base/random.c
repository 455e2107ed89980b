/* Random bytes from the kernel. */
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void random_bytes(void *data, size_t size)
{
	unsigned char *place = data;
	while (size > 0) {
		ssize_t got = getrandom(place, size, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			abort();
		place += got;
		size -= (size_t)got;
	}
}

uint64_t random_u64(void)
{
	uint64_t value;
	random_bytes(&value, sizeof(value));
	return value;
}
