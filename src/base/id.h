/* Ids and names. We make ids: 16 of [a-z0-9], the first a letter, 79 random bits. An id is a DNS
 * label, a file name and a cgroup name without quoting. Users choose names: DNS labels of up to
 * 63 of [a-z0-9-], no '-' at either end, never in the form of an id. So any text is one or the
 * other, and every API takes either. */
#pragma once

#include <stdbool.h>

#include "base/limits.h"
#include "base/macros.h"

struct id {
	char text[ID_LENGTH + 1];
};

struct id id_new(void);
bool id_valid(const char *text);
bool name_valid(const char *text);
/* 0, or -EINVAL. */
NODISCARD int id_parse(const char *text, struct id *ret_id);
bool id_equal(const struct id *a, const struct id *b);
bool id_is_set(const struct id *id);
