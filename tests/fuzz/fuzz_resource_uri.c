/* URIs of resources from any bytes against every template that there is: a value that comes out is
 * UTF-8 without control characters, there are as many as the template has variables, and none is
 * longer than the URI. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/resources/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
	const char *template;
	size_t variables;
} templates[] = {
    {"sandboxes://all", 0},
    {"sandbox://{sandbox}", 1},
    {"sandbox://{sandbox}/files/{+path}", 2},
    {"job://{sandbox}/{job}/{stream}", 3},
};

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check(const struct uri_variables *variables, size_t count, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		const char *value = variables->values[i];
		require(value && strlen(value) <= size && text_is_utf8(value, strlen(value)));
		for (const char *at = value; *at; at++)
			require((unsigned char)*at >= 0x20 && *at != 0x7f);
	}
	require(!variables->values[count]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *uri = malloc(size + 1);
	size_t matched = 0;
	require(uri != NULL);
	memcpy(uri, data, size);
	uri[size] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(templates); i++) {
		struct uri_variables variables;
		if (uri_match(templates[i].template, uri, &variables)) {
			check(&variables, templates[i].variables, size);
			matched++;
		} else {
			require(!variables.storage && !variables.values[0]);
		}
		uri_variables_done(&variables);
	}
	require(matched <= 1);
	free(uri);
	return 0;
}
