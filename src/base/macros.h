/* Attributes and small macros used everywhere. Knows nothing above it. */
#pragma once

#include <stddef.h>
#include <sys/param.h> /* MIN, MAX */

#define NODISCARD __attribute__((warn_unused_result))
#define PRINTF_LIKE(at, args) __attribute__((format(printf, at, args)))
#define CLEANUP(function) __attribute__((cleanup(function)))
#define UNUSED __attribute__((unused))

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Transfers ownership of a pointer: the variable becomes NULL, so that its cleanup does nothing. */
#define TAKE_PTR(pointer)                                                                          \
	({                                                                                         \
		typeof(pointer) *_place = &(pointer);                                              \
		typeof(pointer) _taken = *_place;                                                  \
		*_place = NULL;                                                                    \
		_taken;                                                                            \
	})

#define SWAP(a, b)                                                                                 \
	do {                                                                                       \
		typeof(a) _kept = (a);                                                             \
		(a) = (b);                                                                         \
		(b) = _kept;                                                                       \
	} while (0)

#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int *_place = &(fd);                                                               \
		int _taken = *_place;                                                              \
		*_place = -1;                                                                      \
		_taken;                                                                            \
	})
