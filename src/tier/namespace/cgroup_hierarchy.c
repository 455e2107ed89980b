/* Finds the cgroup hierarchies of this host. Reads /proc/self/mountinfo once; called by cgroup.c.
 */
#include "tier/namespace/cgroup_hierarchy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"

#define MOUNTINFO_LINE_MAX 8192

static const struct {
	const char *name;
	uint32_t controller;
} controller_names[] = {
    {"cpu", CONTROLLER_CPU},   {"cpuacct", CONTROLLER_CPUACCT}, {"memory", CONTROLLER_MEMORY},
    {"pids", CONTROLLER_PIDS}, {"freezer", CONTROLLER_FREEZER}, {"devices", CONTROLLER_DEVICES},
};

/* The controllers in a list of words with `separator` between them. */
static uint32_t parse_controllers(const char *text, char separator)
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

/* The n-th word of a line, cut out in place; NULL when there are fewer. */
static char *take_word(char **line)
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
static void unescape(char *text)
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

static void add(struct hierarchies *found, const char *path, bool unified, uint32_t controllers)
{
	if (found->count == CGROUP_HIERARCHIES_MAX)
		return;
	int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return;
	found->list[found->count++] =
	    (struct hierarchy){.root = root, .unified = unified, .controllers = controllers};
}

/* One line: id parent dev root MOUNTPOINT options [tags...] - TYPE source OPTIONS. Version 2 is
 * kept for later, when it is known what version 1 has. */
static void parse_line(struct hierarchies *found, char *line, uint32_t *taken, char *unified_path,
		       size_t unified_room)
{
	char *rest = line, *word = NULL, *path = NULL;
	for (int i = 0; i < 5; i++)
		path = take_word(&rest);
	do
		word = take_word(&rest);
	while (word && strcmp(word, "-") != 0);
	char *type = take_word(&rest);
	take_word(&rest);
	char *options = take_word(&rest);
	if (!path || !type || !options)
		return;
	unescape(path);
	if (strcmp(type, "cgroup2") == 0 && unified_path[0] == '\0' &&
	    text_copy(unified_path, unified_room, path) < 0)
		unified_path[0] = '\0';
	if (strcmp(type, "cgroup") != 0)
		return;
	uint32_t controllers = parse_controllers(options, ',') & ~*taken;
	if (controllers == 0)
		return;
	*taken |= controllers;
	add(found, path, false, controllers);
}

/* Freezing and the count of cpu time are part of version 2 itself. */
static void add_unified(struct hierarchies *found, const char *path, uint32_t taken)
{
	CLOSE_FD int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char text[512];
	if (root < 0 || fd_read_small(root, "cgroup.controllers", text, sizeof(text)) < 0)
		return;
	uint32_t controllers = parse_controllers(text, ' ');
	controllers &= CONTROLLER_CPU | CONTROLLER_MEMORY | CONTROLLER_PIDS;
	controllers |= CONTROLLER_FREEZER | CONTROLLER_CPUACCT;
	controllers &= ~taken;
	if (controllers)
		add(found, path, true, controllers);
}

static void look(struct hierarchies *found)
{
	char line[MOUNTINFO_LINE_MAX], unified[256] = "";
	uint32_t taken = 0;
	FILE *file = fopen("/proc/self/mountinfo", "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		parse_line(found, line, &taken, unified, sizeof(unified));
	}
	fclose(file);
	if (unified[0])
		add_unified(found, unified, taken);
}

const struct hierarchies *cgroup_hierarchies(void)
{
	static struct hierarchies found;
	static bool looked;
	if (!looked)
		look(&found);
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
		/* One by one: a list is taken or refused as a whole. */
		int result = text_format(text, sizeof(text), "+%s", controller_names[i].name);
		if (result >= 0)
			result = fd_write_small(directory, "cgroup.subtree_control", text);
		(void)result;
	}
}
