/* Loading libarchive. See library.h. */
#include "cli/state/libarchive.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libarchive.so.13" /* its interface is part of its name */

struct state_library library;

int libarchive_load(struct error *error)
{
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return error_set(error, ERROR_UNSUPPORTED,
				 "%s is missing: `apt-get install libarchive13`", LIBRARY);
	const char *missing = NULL;
	/* A pointer to an object becomes one to a function, as POSIX promises. */
#define FIND(name)                                                                                 \
	do {                                                                                       \
		void *found = dlsym(handle, #name);                                                \
		memcpy(&library.name, &found, sizeof(found));                                      \
		missing = found ? missing : #name;                                                 \
	} while (0)
	LIBRARY_FUNCTIONS(FIND);
#undef FIND
	if (missing)
		return error_set(error, ERROR_UNSUPPORTED, "%s has no %s", LIBRARY, missing);
	return 0;
}
