/* The kinds of activity by number and by name, and the lists of kinds that clients send. Pure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/activity/activity.h"

static const struct {
	uint32_t number;
	const char *name;
} kinds[] = {
#define X(name, number, text) {number, text},
    ACTIVITY_KINDS(X)
#undef X
};

const char *activity_kind_name(uint32_t kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].number == kind)
			return kinds[i].name;
	return NULL;
}

/* "exec.ended", or "exec" and "exec.*" for all with this prefix. */
static bool kind_matches(const char *name, const char *word, size_t size)
{
	if (size >= 2 && memcmp(word + size - 2, ".*", 2) == 0)
		size -= 2;
	return strncmp(name, word, size) == 0 && (name[size] == '\0' || name[size] == '.');
}

int activity_kinds_parse(const char *text, char *ret_list, size_t room, struct error *error)
{
	size_t used = 1;
	if (room < 2 + ARRAY_SIZE(kinds) * 4)
		abort();
	ret_list[0] = ',';
	while (*text) {
		size_t size = strcspn(text, ",");
		bool any = false;
		for (size_t i = 0; size > 0 && i < ARRAY_SIZE(kinds); i++) {
			if (!kind_matches(kinds[i].name, text, size))
				continue;
			any = true;
			char number[8];
			int length = snprintf(number, sizeof(number), ",%u,", kinds[i].number);
			ret_list[used] = '\0';
			if (strstr(ret_list, number))
				continue;
			memcpy(ret_list + used, number + 1, (size_t)length - 1);
			used += (size_t)length - 1;
		}
		if (!any)
			return error_set(error, ERROR_INVALID,
					 "there is no kind of activity \"%.*s\"; kinds are like "
					 "exec.ended, sandbox.created, or file for all of files",
					 (int)MIN(size, (size_t)64), text);
		text += size + (text[size] == ',');
	}
	ret_list[used] = '\0';
	return 0;
}
