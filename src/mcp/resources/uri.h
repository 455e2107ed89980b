/* Matches URIs of resources with their templates: the small part of RFC 6570 that these templates
 * use. */
#pragma once

#include <stdbool.h>

#include "base/macros.h"

/* A path of GUEST_PATH_MAX with each byte as %XX, and the rest of the URI. */
#define RESOURCE_URI_MAX (16 * 1024)
#define URI_VARIABLES_MAX 4

struct uri_variables {
	const char *values[URI_VARIABLES_MAX + 1]; /* decoded, in the template's order; then NULL */
	char *storage;
};
void uri_variables_done(struct uri_variables *variables);
#define DONE_VARIABLES CLEANUP(uri_variables_done)

bool uri_has_variables(const char *template);
/* Does it have a variable of that name? */
bool uri_names(const char *template, const char *variable);
/* false: it does not match, or a value is not UTF-8, has a control character or an invalid
 * escape. */
bool uri_match(const char *template, const char *uri, struct uri_variables *ret_variables);
