/* URIs of resources against their templates: the small part of RFC 6570 that ours are made of. */
#pragma once

#include <stdbool.h>

#include "base/macros.h"

/* A path of GUEST_PATH_MAX with each byte as %XX, and what is around it. */
#define RESOURCE_URI_MAX (16 * 1024)
#define URI_VARIABLES_MAX 4

struct uri_variables {
	const char *values[URI_VARIABLES_MAX + 1]; /* decoded, in the template's order; then NULL */
	char *storage;
};
void uri_variables_done(struct uri_variables *variables);
#define DONE_VARIABLES CLEANUP(uri_variables_done)

bool uri_has_variables(const char *template);
/* Is there a variable of that name in it? */
bool uri_names(const char *template, const char *variable);
/* false: it is not of that form, or a value is not UTF-8, holds a control character or a broken
 * escape. */
bool uri_match(const char *template, const char *uri, struct uri_variables *ret_variables);
