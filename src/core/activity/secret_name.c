/* Which names are those of secrets: the patterns of `[activity] redact`. Called by redact.c for the
 * names in a text. Pure. */
#include "core/activity/secret_name.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"

#define NAME_MAX_SIZE 256 /* longer words are data */

/* Does a word of the name begin or end before name[at]? "MY_TOKEN", "my-token", "myToken",
 * "token2". */
static bool word_boundary(const char *name, size_t size, size_t at)
{
	if (at == 0 || at == size)
		return true;
	unsigned char before = (unsigned char)name[at - 1], after = (unsigned char)name[at];
	return !isalnum(before) || !isalnum(after) || !isalpha(before) != !isalpha(after) ||
	       (islower(before) && isupper(after));
}

/* Do two words meet before name[at] without a character between them: "myToken"? */
static bool word_joint(const char *name, size_t size, size_t at)
{
	return at > 0 && at < size && isalnum((unsigned char)name[at - 1]) &&
	       isalnum((unsigned char)name[at]) && word_boundary(name, size, at);
}

/* '*' matches any text, and '-' what is between two words: '-', '_' or a joint. Case does not
 * matter. */
static bool glob_matches(const char *pattern, size_t pattern_size, const char *name, size_t size)
{
	size_t at = 0, star = SIZE_MAX, from = 0, i = 0;
	while (i < size) {
		char c = (char)tolower((unsigned char)name[i]);
		char p = at < pattern_size ? (char)tolower((unsigned char)pattern[at]) : '\0';
		if (at < pattern_size && p == '*') {
			star = at++;
			from = i;
		} else if (at < pattern_size && (p == c || (strchr("-_", p) && strchr("-_", c)))) {
			at++;
			i++;
		} else if (p == '-' && word_joint(name, size, i)) {
			at++;
		} else if (star != SIZE_MAX) {
			at = star + 1;
			i = ++from;
		} else {
			return false;
		}
	}
	while (at < pattern_size && pattern[at] == '*')
		at++;
	return at == pattern_size;
}

/* `?NAME`, `--NAME` and `NAME=` are one exact name in that form. Any other pattern with a '*' must
 * match the whole name; without one it must match a word of it, or several words in a row. */
static bool secret_pattern_matches(const char *pattern, size_t length,
				   const struct secret_name *secret)
{
	const char *name = secret->text;
	size_t size = secret->size;
	if (*pattern == '?')
		return secret->query && glob_matches(pattern + 1, length - 1, name, size);
	if (length > 2 && strncmp(pattern, "--", 2) == 0)
		return glob_matches(pattern, length, name, size);
	if (pattern[length - 1] == '=')
		return secret->assigned && glob_matches(pattern, length - 1, name, size);
	while (size > 0 && strchr("-_", *name)) {
		name++;
		size--;
	}
	if (memchr(pattern, '*', length))
		return glob_matches(pattern, length, name, size);
	for (size_t at = 0; at + length <= size; at++)
		if (word_boundary(name, size, at) && word_boundary(name, size, at + length) &&
		    glob_matches(pattern, length, name + at, length))
			return true;
	return false;
}

bool name_is_secret(const char *patterns, const struct secret_name *name)
{
	bool secret = false;
	if (name->size == 0 || name->size > NAME_MAX_SIZE)
		return false;
	while (*patterns) {
		bool exception = *patterns == '!';
		patterns += exception;
		size_t length = strcspn(patterns, " \t,:");
		if (length > 0 && (exception || !secret) &&
		    secret_pattern_matches(patterns, length, name)) {
			if (exception)
				return false;
			secret = true;
		}
		patterns += length + (patterns[length] != '\0');
	}
	return secret;
}
