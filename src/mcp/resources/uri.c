/* Matches URIs of resources with their templates. A URI comes from a client and is not trusted: the
 * users of a value check it again. Called by resources.c and completion.c. */
#include "mcp/resources/uri.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

void uri_variables_done(struct uri_variables *variables)
{
	free(variables->storage);
	*variables = (struct uri_variables){0};
}

bool uri_has_variables(const char *template)
{
	return strchr(template, '{') != NULL;
}

bool uri_names(const char *template, const char *variable)
{
	size_t size = strlen(variable);
	for (const char *at = template; (at = strchr(at, '{'));) {
		at += at[1] == '+' ? 2 : 1;
		if (strncmp(at, variable, size) == 0 && at[size] == '}')
			return size > 0;
	}
	return false;
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

/* Appends the decoded value and its NUL to *to. */
static bool variable_decode(const char *from, size_t size, char **to)
{
	char *begin = *to, *at = begin;
	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)from[i];
		if (byte == '%') {
			int high = i + 2 < size ? hex_digit(from[i + 1]) : -1;
			int low = i + 2 < size ? hex_digit(from[i + 2]) : -1;
			if (high < 0 || low < 0)
				return false;
			byte = (unsigned char)(high << 4 | low);
			i += 2;
		}
		if (byte < 0x20 || byte == 0x7f)
			return false;
		*at++ = (char)byte;
	}
	if (!text_is_utf8(begin, (size_t)(at - begin)))
		return false;
	*at++ = '\0';
	*to = at;
	return true;
}

static bool template_match(const char *template, const char *uri, struct uri_variables *variables)
{
	char *to = variables->storage;
	size_t count = 0;
	while (*template) {
		if (*template != '{') {
			if (*template ++ != *uri++)
				return false;
			continue;
		}
		bool rest = template[1] == '+';
		size_t size = rest ? strlen(uri) : strcspn(uri, "/");
		const char *end = strchr(template, '}');
		if ((size == 0 && !rest) || !end || count == URI_VARIABLES_MAX)
			return false;
		variables->values[count++] = to;
		if (!variable_decode(uri, size, &to))
			return false;
		uri += size;
		template = end + 1;
	}
	return *uri == '\0';
}

bool uri_match(const char *template, const char *uri, struct uri_variables *ret_variables)
{
	size_t size = strlen(uri);
	*ret_variables = (struct uri_variables){0};
	if (size > RESOURCE_URI_MAX)
		return false;
	ret_variables->storage = malloc(size + URI_VARIABLES_MAX + 1);
	if (!ret_variables->storage)
		abort();
	if (template_match(template, uri, ret_variables))
		return true;
	uri_variables_done(ret_variables);
	return false;
}
