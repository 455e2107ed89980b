/* Finds the cgroup hierarchies of this host. See cgroup_hierarchy.h. Reads /proc/self/mountinfo and
 * a few small files, once; called by cgroup.c. */
#include "tier/jail/cgroup/cgroup_hierarchy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

#define MOUNTINFO_LINE_MAX 8192
#define MOUNT_PATH_MAX 512
#define PATH_ROOM (2 * MOUNT_PATH_MAX)
/* The leaf that the spawner moves to in a delegated version 2 cgroup. */
#define SERVE_LEAF "caisson-serve"

static const struct {
	const char *name;
	uint32_t controller;
} controller_names[] = {
    {"cpu", CONTROLLER_CPU},   {"cpuacct", CONTROLLER_CPUACCT}, {"memory", CONTROLLER_MEMORY},
    {"pids", CONTROLLER_PIDS}, {"freezer", CONTROLLER_FREEZER}, {"devices", CONTROLLER_DEVICES},
};

/* The controllers in a list with `separator` between the names. */
static uint32_t controllers_parse(const char *text, char separator)
{
	uint32_t found = 0;
	while (*text) {
		size_t length = strcspn(text, (char[]){separator, '\n', '\0'});
		for (size_t i = 0; i < ARRAY_SIZE(controller_names); i++) {
			if (strlen(controller_names[i].name) == length &&
			    strncmp(controller_names[i].name, text, length) == 0)
				found |= controller_names[i].controller;
		}
		text += length;
		text += *text != '\0';
	}
	return found;
}

/* Cuts the next word off a line in place; NULL: none left. */
static char *line_take_word(char **line)
{
	char *word = *line;
	if (!word || *word == '\0')
		return NULL;
	char *end = strchr(word, ' ');
	if (end)
		*end = '\0';
	*line = end ? end + 1 : NULL;
	return word;
}

/* mountinfo writes space, tab, newline and backslash as \040 and so on. */
static void path_unescape(char *text)
{
	char *to = text;
	for (char *from = text; *from; to++) {
		if (from[0] == '\\' && from[1] && from[2] && from[3]) {
			*to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* A mounted hierarchy. */
struct mounted {
	char path[MOUNT_PATH_MAX]; /* mount point */
	char root[MOUNT_PATH_MAX]; /* the cgroup at the mount point: "/" except in containers */
	uint32_t controllers;
};

static void hierarchies_add(struct hierarchies *found, int root, bool unified, uint32_t controllers)
{
	if (found->count == CGROUP_HIERARCHIES_MAX) {
		close(root);
		return;
	}
	found->list[found->count++] =
	    (struct hierarchy){.root = root, .unified = unified, .controllers = controllers};
}

/* The cgroup of this process; `wanted` 0: in version 2. -ENOENT: none. */
static int own_cgroup_path(uint32_t wanted, char path[MOUNT_PATH_MAX])
{
	char line[MOUNTINFO_LINE_MAX];
	int result = -ENOENT;
	FILE *file = fopen("/proc/self/cgroup", "re");
	if (!file)
		return -errno;
	while (result == -ENOENT && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		char *names = strchr(line, ':');
		char *place = names ? strchr(names + 1, ':') : NULL;
		if (!place)
			continue;
		*place = '\0';
		bool unified = names[1] == '\0' && line[0] == '0';
		if (wanted == 0 ? unified : (controllers_parse(names + 1, ',') & wanted) != 0)
			result = text_copy(path, MOUNT_PATH_MAX, place + 1);
	}
	fclose(file);
	return result;
}

/* The path of that cgroup through the mount point. */
static int mounted_path_of(const struct mounted *mounted, const char *cgroup, char path[PATH_ROOM])
{
	size_t length = strlen(mounted->root);
	if (strcmp(mounted->root, "/") == 0)
		length = 0;
	if (strncmp(cgroup, mounted->root, length) != 0 ||
	    (cgroup[length] != '/' && cgroup[length] != '\0'))
		return -ENOENT;
	return text_format(path, PATH_ROOM, "%s%s", mounted->path, cgroup + length);
}

static int base_notes_path(const struct host *host, char path[PATH_ROOM])
{
	return text_format(path, PATH_ROOM, "%s/cgroups", host->runtime);
}

/* The base that an earlier spawner used in the same hierarchy, if it still has cgroups of ours. */
static int base_notes_find(const struct host *host, const char *mount_path, char base[PATH_ROOM])
{
	char path[PATH_ROOM], instance[PATH_ROOM + 64], line[2 * PATH_ROOM];
	size_t length = strlen(mount_path);
	int result = base_notes_path(host, path);
	FILE *file = result < 0 ? NULL : fopen(path, "re");
	if (!file)
		return -ENOENT;
	result = -ENOENT;
	while (result < 0 && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, mount_path, length) != 0 || line[length] != '\t' ||
		    text_copy(base, PATH_ROOM, line + length + 1) < 0)
			continue;
		snprintf(instance, sizeof(instance), "%s/%s", base, host->instance);
		result = access(instance, W_OK) < 0 ? -errno : 0;
	}
	fclose(file);
	return result;
}

static void base_notes_add(FILE *notes, const struct mounted *mounted, const char *base)
{
	if (notes)
		fprintf(notes, "%s\t%s\n", mounted->path, base);
}

/* A process may move between two version 2 cgroups if we may write to their common ancestor. */
static bool process_can_move(const struct mounted *mounted, const char *from, const char *to)
{
	char path[PATH_ROOM + 16];
	size_t same = 0;
	for (size_t i = 0; i == 0 || (from[i - 1] == to[i - 1] && from[i - 1]); i++) {
		if ((from[i] == '/' || !from[i]) && (to[i] == '/' || !to[i]))
			same = i;
	}
	if (same < strlen(mounted->path))
		return false;
	snprintf(path, sizeof(path), "%.*s/cgroup.procs", (int)same, from);
	return access(path, W_OK) == 0;
}

/* Without root: the cgroup below which ours are made; -EACCES: not writable. */
static int hierarchy_find_base(const struct host *host, const struct mounted *mounted, bool unified,
			       FILE *notes)
{
	char own[MOUNT_PATH_MAX], here[PATH_ROOM], base[PATH_ROOM];
	int result = own_cgroup_path(unified ? 0 : mounted->controllers, own);
	if (result >= 0)
		result = mounted_path_of(mounted, own, here);
	if (result < 0)
		return result;
	if (base_notes_find(host, mounted->path, base) < 0 ||
	    (unified && !process_can_move(mounted, here, base))) {
		if (text_copy(base, sizeof(base), here) < 0)
			return -ENAMETOOLONG;
		/* We are in the leaf that an earlier spawner made here; the base is its parent. */
		char *slash = strrchr(base, '/');
		if (unified && slash && strcmp(slash + 1, SERVE_LEAF) == 0)
			*slash = '\0';
	}
	if (access(base, W_OK | X_OK) < 0 || (unified && !process_can_move(mounted, here, base)))
		return -EACCES;
	int fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	base_notes_add(notes, mounted, base);
	return fd;
}

/* Version 2 passes controllers on only from a cgroup without processes. So we move to a leaf
 * below it, if no other process is there. */
static bool base_move_us_to_leaf(int base)
{
	char text[4096], ours[32];
	ssize_t length = fd_read_small(base, "cgroup.procs", text, sizeof(text));
	if (length == 0)
		return true;
	snprintf(ours, sizeof(ours), "%d\n", (int)getpid());
	if (length < 0 || strcmp(text, ours) != 0)
		return false;
	if (mkdirat(base, SERVE_LEAF, 0755) < 0 && errno != EEXIST)
		return false;
	return fd_write_small(base, SERVE_LEAF "/cgroup.procs", "0") >= 0;
}

static void hierarchies_take(struct hierarchies *found, const struct host *host,
			     const struct mounted *mounted, bool unified, FILE *notes)
{
	int root = host->rights == RIGHTS_ROOT
		       ? open(mounted->path, O_PATH | O_DIRECTORY | O_CLOEXEC)
		       : hierarchy_find_base(host, mounted, unified, notes);
	if (root < 0) {
		found->withheld |= mounted->controllers;
		return;
	}
	hierarchies_add(found, root, unified, mounted->controllers);
	if (unified && host->rights != RIGHTS_ROOT)
		found->list[found->count - 1].shared = !base_move_us_to_leaf(root);
}

/* Parses a line: id parent dev ROOT MOUNTPOINT options [tags...] - TYPE source OPTIONS. 1:
 * version 1, 2: version 2, 0: no cgroup mount. */
static int mount_line_parse(char *line, struct mounted *ret_mounted)
{
	char *rest = line, *word = NULL, *root = NULL, *path = NULL;
	for (int i = 0; i < 5; i++) {
		root = path;
		path = line_take_word(&rest);
	}
	do
		word = line_take_word(&rest);
	while (word && strcmp(word, "-") != 0);
	char *type = line_take_word(&rest);
	line_take_word(&rest);
	char *options = line_take_word(&rest);
	if (!path || !root || !type || !options ||
	    (strcmp(type, "cgroup") != 0 && strcmp(type, "cgroup2") != 0))
		return 0;
	path_unescape(root);
	path_unescape(path);
	if (text_copy(ret_mounted->path, sizeof(ret_mounted->path), path) < 0 ||
	    text_copy(ret_mounted->root, sizeof(ret_mounted->root), root) < 0)
		return 0;
	bool unified = strcmp(type, "cgroup2") == 0;
	ret_mounted->controllers = unified ? 0 : controllers_parse(options, ',');
	return unified ? 2 : 1;
}

/* Freezing and counting cpu time are part of version 2 itself and need no controller. */
static void hierarchies_take_unified(struct hierarchies *found, const struct host *host,
				     struct mounted *mounted, uint32_t mounted_on_1, FILE *notes)
{
	char path[PATH_ROOM], text[512];
	uint32_t taken = 0;
	for (uint32_t i = 0; i < found->count; i++)
		taken |= found->list[i].controllers;
	if (text_format(path, sizeof(path), "%s/cgroup.controllers", mounted->path) < 0)
		return;
	if (fd_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return;
	mounted->controllers = controllers_parse(text, ' ');
	mounted->controllers &= CONTROLLER_CPU | CONTROLLER_MEMORY | CONTROLLER_PIDS;
	mounted->controllers &= ~mounted_on_1;
	mounted->controllers |= (CONTROLLER_FREEZER | CONTROLLER_CPUACCT) & ~taken;
	if (mounted->controllers)
		hierarchies_take(found, host, mounted, true, notes);
}

static FILE *base_notes_open(const struct host *host, char path[PATH_ROOM])
{
	char draft[PATH_ROOM + 8];
	if (host->rights == RIGHTS_ROOT || base_notes_path(host, path) < 0)
		return NULL;
	snprintf(draft, sizeof(draft), "%s.new", path);
	return fopen(draft, "we");
}

/* Without the notes processes are still found, and their limits hold. */
static void base_notes_close(FILE *notes, const char *path)
{
	char draft[PATH_ROOM + 8];
	if (!notes)
		return;
	snprintf(draft, sizeof(draft), "%s.new", path);
	if (fclose(notes) != 0 || rename(draft, path) < 0)
		unlink(draft);
}

static void hierarchies_find(struct hierarchies *found, const struct host *host)
{
	char line[MOUNTINFO_LINE_MAX], notes_at[PATH_ROOM];
	struct mounted mounted, unified = {.path = ""};
	uint32_t seen = 0;
	FILE *file = fopen("/proc/self/mountinfo", "re");
	if (!file)
		return;
	FILE *notes = base_notes_open(host, notes_at);
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		int version = mount_line_parse(line, &mounted);
		if (version == 2 && unified.path[0] == '\0')
			unified = mounted;
		mounted.controllers &= ~seen;
		if (version != 1 || mounted.controllers == 0)
			continue;
		seen |= mounted.controllers;
		hierarchies_take(found, host, &mounted, false, notes);
	}
	fclose(file);
	if (unified.path[0])
		hierarchies_take_unified(found, host, &unified, seen, notes);
	/* A controller withheld by one hierarchy may be granted by another. */
	for (uint32_t i = 0; i < found->count; i++)
		found->withheld &= ~found->list[i].controllers;
	base_notes_close(notes, notes_at);
}

const struct hierarchies *cgroup_hierarchies(const struct host *host)
{
	static struct hierarchies found;
	static bool looked;
	if (!looked)
		hierarchies_find(&found, host);
	looked = true;
	return &found;
}

void hierarchy_enable(const struct hierarchy *hierarchy, int directory)
{
	uint32_t asked = CONTROLLER_CPU | CONTROLLER_MEMORY | CONTROLLER_PIDS;
	asked &= hierarchy->controllers;
	for (size_t i = 0; i < ARRAY_SIZE(controller_names); i++) {
		char text[32];
		if (!(asked & controller_names[i].controller))
			continue;
		/* One by one: the kernel accepts or refuses a list as a whole. */
		int result = text_format(text, sizeof(text), "+%s", controller_names[i].name);
		if (result >= 0)
			result = fd_write_small(directory, "cgroup.subtree_control", text);
		(void)result;
	}
}
