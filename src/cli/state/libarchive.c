/* Loads libarchive. See libarchive.h. */
#include "cli/state/libarchive.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libarchive.so.13" /* the name includes the version of its interface */

struct state_library library;

int libarchive_load(struct error *error)
{
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return error_set(error, ERROR_UNSUPPORTED,
				 "%s is missing: `apt-get install libarchive13`", LIBRARY);
	const char *missing = NULL;
	/* POSIX guarantees that this object pointer can be converted to a function pointer. */
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
