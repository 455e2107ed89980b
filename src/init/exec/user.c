/* Looks up users and groups by reading the two files itself: a C library would also use sockets
 * and modules that the sandbox provides. Called by runners before they start a command or do a
 * file operation. The files are the sandbox's and may contain anything. */
#include "init/exec/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"

#define LINE_MAX_SIZE 8192
/* The rest of a larger file is not read. */
#define FILE_READ_MAX (4 * 1024 * 1024)
#define ID_MAX 4294967294u

struct line_reader {
	int fd;
	size_t used, at, read_so_far;
	bool skipping; /* inside a line that is too long */
	char room[LINE_MAX_SIZE];
};

static int lines_open(struct line_reader *lines, const char *path)
{
	struct stat status;
	/* Non-blocking: it could be a FIFO. */
	lines->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	lines->used = lines->at = lines->read_so_far = 0;
	lines->skipping = false;
	if (lines->fd < 0)
		return -errno;
	if (fstat(lines->fd, &status) == 0 && S_ISREG(status.st_mode))
		return 0;
	fd_close(&lines->fd);
	return -EINVAL;
}

/* The next line without its end, or NULL. */
static char *lines_next(struct line_reader *lines)
{
	for (;;) {
		char *start = lines->room + lines->at;
		char *end = memchr(start, '\n', lines->used - lines->at);
		if (end) {
			*end = '\0';
			lines->at = (size_t)(end + 1 - lines->room);
			if (!lines->skipping)
				return start;
			lines->skipping = false;
			continue;
		}
		memmove(lines->room, start, lines->used - lines->at);
		lines->used -= lines->at;
		lines->at = 0;
		if (lines->used == sizeof(lines->room) - 1) {
			lines->skipping = true;
			lines->used = 0;
		}
		ssize_t got = read(lines->fd, lines->room + lines->used,
				   sizeof(lines->room) - 1 - lines->used);
		if (got <= 0 || lines->read_so_far > FILE_READ_MAX) {
			/* The last line may lack a newline. */
			bool last = lines->used > 0 && !lines->skipping;
			lines->room[lines->used] = '\0';
			lines->used = 0;
			return last ? lines->room : NULL;
		}
		lines->used += (size_t)got;
		lines->read_so_far += (size_t)got;
	}
}

/* Splits at colons into exactly `count` fields; false when there are fewer. */
static bool fields_split(char *line, char **fields, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!line)
			return false;
		fields[i] = line;
		line = strchr(line, ':');
		if (line)
			*line++ = '\0';
	}
	return true;
}

static bool id_parse(const char *text, uint32_t *ret_id)
{
	uint64_t value;
	if (text_to_u64(text, 0, ID_MAX, &value) < 0)
		return false;
	*ret_id = (uint32_t)value;
	return true;
}

/* Finds a user by name, or by number if `name` is NULL. */
static bool passwd_find(const char *name, uid_t number, struct user *user)
{
	static struct line_reader lines;
	bool found = false;
	char *line, *fields[7];
	uint32_t uid, gid;
	if (lines_open(&lines, "/etc/passwd") < 0)
		return false;
	while (!found && (line = lines_next(&lines))) {
		if (!fields_split(line, fields, 7) || !id_parse(fields[2], &uid) ||
		    !id_parse(fields[3], &gid))
			continue;
		if (name ? strcmp(fields[0], name) != 0 : uid != number)
			continue;
		found = text_copy(user->name, sizeof(user->name), fields[0]) == 0 &&
			text_copy(user->home, sizeof(user->home), fields[5]) == 0 &&
			text_copy(user->shell, sizeof(user->shell), fields[6]) == 0;
		user->uid = uid;
		user->gid = gid;
	}
	fd_close(&lines.fd);
	return found;
}

static bool members_include(char *members, const char *name)
{
	char *rest = members;
	while (rest && *rest) {
		char *comma = strchr(rest, ',');
		if (comma)
			*comma++ = '\0';
		if (strcmp(rest, name) == 0)
			return true;
		rest = comma;
	}
	return false;
}

/* Finds the group `wanted`, and every group that lists the user as a member. */
static bool group_file_read(const char *wanted, struct user *user, gid_t *ret_gid)
{
	static struct line_reader lines;
	bool found = false;
	char *line, *fields[4];
	uint32_t gid;
	if (lines_open(&lines, "/etc/group") < 0)
		return false;
	while ((line = lines_next(&lines))) {
		if (!fields_split(line, fields, 4) || !id_parse(fields[2], &gid))
			continue;
		if (wanted && strcmp(fields[0], wanted) == 0) {
			*ret_gid = gid;
			found = true;
		}
		if (user->group_count < USER_GROUPS_MAX && user->name[0] &&
		    members_include(fields[3], user->name))
			user->groups[user->group_count++] = gid;
	}
	fd_close(&lines.fd);
	return found;
}

static int user_refuse(struct failure *failure, const char *format, ...) PRINTF_LIKE(2, 3);
static int user_refuse(struct failure *failure, const char *format, ...)
{
	va_list args;
	*failure = (struct failure){.kind = ERROR_BAD_USER};
	va_start(args, format);
	vsnprintf(failure->message, sizeof(failure->message), format, args);
	va_end(args);
	return -1;
}

/* If the daemon's user has a single id, the sandbox has a single id too: its map is "0 N 1". */
static bool id_map_has_only_root(void)
{
	char map[64];
	ssize_t length = fd_read_small(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map));
	return length > 3 && memcmp(map + length - 3, " 1\n", 3) == 0;
}

int user_find(const char *text, struct user *ret_user, struct failure *ret_failure)
{
	char name[64], *group;
	uint32_t number = 0;
	*ret_user = (struct user){.group_count = 0};
	if (text_copy(name, sizeof(name), text[0] ? text : "0") < 0)
		return user_refuse(ret_failure, "the user's name is too long");
	group = strchr(name, ':');
	if (group)
		*group++ = '\0';
	bool numeric = id_parse(name, &number);
	if (!passwd_find(numeric ? NULL : name, numeric ? number : 0, ret_user)) {
		if (!numeric && strcmp(name, "root") != 0)
			return user_refuse(ret_failure,
					   "no user \"%s\" in the sandbox's /etc/passwd", name);
		/* A numeric user need not be in the file. */
		ret_user->uid = numeric ? number : 0;
		ret_user->gid = 0;
		const char *home = ret_user->uid == 0 ? "/root" : "/";
		snprintf(ret_user->home, sizeof(ret_user->home), "%s", home);
		if (ret_user->uid == 0)
			snprintf(ret_user->name, sizeof(ret_user->name), "root");
	}
	bool by_name = group && group[0] && !id_parse(group, &number);
	if (!group_file_read(by_name ? group : NULL, ret_user, &ret_user->gid) && by_name)
		return user_refuse(ret_failure, "no group \"%s\" in the sandbox's /etc/group",
				   group);
	if (group && group[0] && !by_name)
		ret_user->gid = number;
	if ((ret_user->uid != 0 || ret_user->gid != 0) && id_map_has_only_root())
		return user_refuse(ret_failure,
				   "this sandbox has one id, root's: /etc/subuid grants "
				   "no others to the user who runs the daemon");
	return 0;
}

bool user_files_read_marks(uint64_t marks[USER_MARKS])
{
	static const char *const paths[] = {"/etc/passwd", "/etc/group"};
	for (int i = 0; i < 2; i++) {
		struct stat status;
		if (stat(paths[i], &status) < 0)
			return false;
		*marks++ = status.st_ino;
		*marks++ = (uint64_t)status.st_size;
		*marks++ = (uint64_t)status.st_ctim.tv_sec;
		*marks++ = (uint64_t)status.st_ctim.tv_nsec;
	}
	return true;
}

int user_become(const struct user *user)
{
	/* EPERM: in a sandbox with a single id the kernel forbids it, and there are no groups to
	 * drop. */
	int result = sys_setgroups(user->group_count, user->groups);
	if (result == 0 || result == -EPERM)
		result = sys_setresgid(user->gid, user->gid, user->gid);
	if (result == 0)
		result = sys_setresuid(user->uid, user->uid, user->uid);
	/* A change of ids sets this to fs.suid_dumpable. If that is 1, other processes of the
	 * user could trace this one, which has a socket to PID 1. */
	if (result == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		result = -errno;
	return result;
}
