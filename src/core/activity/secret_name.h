/* Names of secrets, by patterns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A name, and the form in which it stands. */
struct secret_name {
	const char *text; /* with the dashes of an option */
	size_t size;
	bool query;    /* a parameter in the query of a URL */
	bool assigned; /* NAME=value, or "NAME": value */
};

/* Does it match one of the patterns, and none with '!' before it? */
bool name_is_secret(const char *patterns, const struct secret_name *name);
