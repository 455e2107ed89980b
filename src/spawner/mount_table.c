/* Reads /proc/self/mountinfo about the mount that a directory is on. The file system itself is
 * not asked, because it may never answer. Called by validate.c. */
#include "spawner/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* Two paths of at most PATH_MAX, whose bytes may each be written as \ooo, and the other fields. */
#define LINE_MAX_SIZE (8 * PATH_MAX + 1024)

/* The line of the descriptor's mount. -ENOENT: the mount is not in this namespace. */
static int mount_line_find(int fd, char *line, size_t room)
{
	char name[64];
	int wanted = -1, id;
	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(name, "re");
	if (!file)
		return -errno;
	while (wanted < 0 && fgets(line, (int)room, file))
		if (sscanf(line, "mnt_id: %d", &wanted) != 1)
			wanted = -1;
	fclose(file);
	file = wanted < 0 ? NULL : fopen("/proc/self/mountinfo", "re");
	if (!file)
		return -ENOENT;
	int result = -ENOENT;
	while (result < 0 && fgets(line, (int)room, file))
		if (sscanf(line, "%d ", &id) == 1 && id == wanted)
			result = 0;
	fclose(file);
	return result;
}

int mount_table_type(int fd, char *type, size_t room)
{
	char line[LINE_MAX_SIZE];
	int result = mount_line_find(fd, line, sizeof(line));
	const char *dash = result < 0 ? NULL : strstr(line, " - ");
	if (!dash)
		return -ENOENT;
	return text_format(type, room, "%.*s", (int)strcspn(dash + 3, " "), dash + 3);
}

/* The path in field `number`, with \ooo unescaped. */
static int mount_line_read_path(const char *line, int number, char path[PATH_MAX])
{
	size_t size = 0;
	for (; number > 0 && line; number--)
		line = strchr(line, ' ') ? strchr(line, ' ') + 1 : NULL;
	for (; line && *line && *line != ' ' && size < PATH_MAX - 1; line++) {
		unsigned value;
		if (*line == '\\' && sscanf(line + 1, "%3o", &value) == 1) {
			path[size++] = (char)value;
			line += 3;
		} else {
			path[size++] = *line;
		}
	}
	path[size] = '\0';
	return line && *line == ' ' && path[0] == '/' ? 0 : -ENOENT;
}

int mount_table_place(int fd, char place[MOUNT_PLACE_SIZE])
{
	char line[LINE_MAX_SIZE], root[PATH_MAX], mounted_at[PATH_MAX], name[64], path[PATH_MAX];
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(name, path, sizeof(path) - 1);
	int result = mount_line_find(fd, line, sizeof(line));
	if (length <= 0 || result < 0 || mount_line_read_path(line, 3, root) < 0 ||
	    mount_line_read_path(line, 4, mounted_at) < 0)
		return -ENOENT;
	path[length] = '\0';
	/* "/" is a prefix of every path and adds no name. */
	size_t size = strcmp(mounted_at, "/") == 0 ? 0 : strlen(mounted_at);
	if (strncmp(path, mounted_at, size) != 0 || (path[size] && path[size] != '/'))
		return -ENOENT;
	return text_format(place, MOUNT_PLACE_SIZE, "%s%s/", strcmp(root, "/") == 0 ? "" : root,
			   strcmp(path + size, "/") == 0 ? "" : path + size);
}
