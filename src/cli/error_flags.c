/* The API's errors name fields of a request, but the user typed flags. Replaces field names by
 * flags. Called where a verb's error is reported; works on memory only. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

/* The flag that sets this field; false if none of these options does. */
static bool field_flag_text(const struct option_spec *options, const char *field, char text[80])
{
	const char *unit = field_unit(field);
	const struct option_spec *option;
	for (struct option_walk walk = {options}; (option = option_next(&walk));)
		if (option->field && strcmp(option->field, field) == 0)
			return snprintf(text, 80, unit ? "--%s (in %s)" : "--%s", option->name,
					unit) > 0;
	return false;
}

/* True if this text can follow a field name at the start of a message: "memory_mb is 1", "name: 1
 * to 63". Other words can start a sentence too: "state directory /x belongs to uid 5". */
static bool text_describes_field(const char *rest)
{
	static const char *const beginnings[] = {":", " is ", " must ", " has ", " = ", " `"};
	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
		if (text_starts(rest, beginnings[i]))
			return true;
	return false;
}

/* Finds a field name at this place. Returns the length of the text that names it, or 0. An unquoted
 * name must start the message ("memory_mb is 1"). A quoted word alone may be anything, for example
 * a sandbox's name, unless it looks like a field. */
static size_t message_field_at(const char *message, const char *at, char field[64])
{
	static const char *const openings[] = {"field `", "query parameter `", "`", ""};
	for (size_t i = 0; i < ARRAY_SIZE(openings); i++) {
		const char *begin = at + strlen(openings[i]);
		if (!text_starts(at, openings[i]))
			continue;
		size_t size = strspn(begin, "abcdefghijklmnopqrstuvwxyz_");
		bool quoted = *openings[i], alone = strcmp(openings[i], "`") == 0;
		if (size == 0 || size >= 64 || (quoted && begin[size] != '`') ||
		    (!quoted && (at != message || !text_describes_field(begin + size))))
			continue;
		snprintf(field, 64, "%.*s", (int)size, begin);
		if (!alone || strchr(field, '_'))
			return (size_t)(begin - at) + size + quoted;
	}
	return 0;
}

void error_name_flags(const struct option_spec *options, struct error *error)
{
	char text[ERROR_MESSAGE_MAX], field[64], flag[80];
	size_t used = 0;
	/* Usage errors are the command line's own and name flags already. */
	if (error->kind == ERROR_USAGE)
		return;
	for (const char *at = error->message; *at && used < sizeof(text) - 1;) {
		size_t size = message_field_at(error->message, at, field);
		if (size > 0 && field_flag_text(options, field, flag)) {
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", flag);
			at += size;
		} else {
			text[used++] = *at++;
		}
	}
	text[MIN(used, sizeof(text) - 1)] = '\0';
	memcpy(error->message, text, sizeof(text));
}

void error_name_verb(const struct verb *verb, struct error *error)
{
	static const char create[] = "`caisson create --";
	char text[ERROR_MESSAGE_MAX], option[64];
	const char *found = strstr(error->message, create);
	if (!found)
		return;
	const char *name = found + strlen(create);
	snprintf(option, sizeof(option), "%.*s", (int)strcspn(name, " =`"), name);
	const struct option_spec *one;
	for (struct option_walk walk = {verb->options}; (one = option_next(&walk));) {
		if (strcmp(one->name, option) != 0)
			continue;
		snprintf(text, sizeof(text), "%.*s`caisson %s --%s", (int)(found - error->message),
			 error->message, verb->name, name);
		memcpy(error->message, text, sizeof(text));
		return;
	}
}
