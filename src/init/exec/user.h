/* Users of the sandbox, from its own /etc/passwd and /etc/group. For runners: may block on
 * files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "base/macros.h"
#include "proto/init_messages.h"

#define USER_GROUPS_MAX 64

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX];
	size_t group_count;
	char name[64];
	char home[GUEST_PATH_MAX];
	char shell[256];
};

/* "name", "name:group", numbers; "" = root. 0, or -1 with *ret_failure (BAD_USER). */
NODISCARD int user_find(const char *text, struct user *ret_user, struct failure *ret_failure);
/* Attributes of the two files that show whether one of them was changed or replaced. False if one
 * is missing. */
#define USER_MARKS 8
bool user_files_read_marks(uint64_t marks[USER_MARKS]);
/* Changes to the user's ids for good. 0 or -errno. Safe after vfork(). */
NODISCARD int user_become(const struct user *user);
