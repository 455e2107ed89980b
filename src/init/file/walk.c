/* Walks a tree of any width and depth, which other processes may change meanwhile. Called by
 * remove, copy, glob, grep, watch and the recursive chmod and chown; may block on the disk.
 *
 * Only the innermost WINDOW directories stay open. A directory further up is closed and the
 * position in it remembered. On the way back it is opened again as ".." and must have the same
 * device and inode, so the walk never leaves a tree that is moved meanwhile. Names and depth
 * have no limit, since no path is put together to open an entry. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

#define WINDOW 32
#define ENTRIES_SIZE (32 * 1024)
#define SORTED_SIZE (1024 * 1024)
#define PROC_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572

/* struct statx as 64-bit words: the C library and the kernel's headers each declare their own. */
#define STATX_WORDS 32
#define STATX_WORD_ATTRIBUTES 1
#define STATX_WORD_ATTRIBUTES_MASK 7
#define STATX_MOUNT_ROOT 0x2000

/* The kernel's record. musl's readdir() would read only 2 KiB at a time. */
struct walk_entry {
	uint64_t inode;
	int64_t next;
	uint16_t size;
	uint8_t type;
	char name[];
};

static int walk_grow_path(struct file_walk *walk, const char *name)
{
	size_t size = strlen(name), needed = walk->path_size + size + 2;
	if (needed > walk->path_room) {
		size_t room = MAX(2 * walk->path_room, needed + 256);
		char *path = realloc(walk->path, room);
		if (!path)
			return -ENOMEM;
		walk->path = path;
		walk->path_room = room;
	}
	memcpy(walk->path + walk->path_size, name, size);
	walk->path_size += size;
	if (size > 0)
		walk->path[walk->path_size++] = '/';
	walk->path[walk->path_size] = '\0';
	return 0;
}

static void level_close(struct walk_level *level)
{
	fd_close(&level->fd);
	free(level->entries);
	level->entries = NULL;
	level->entries_at = level->entries_size = 0;
}

static int walk_push(struct file_walk *walk, int *directory, const char *name)
{
	int fd CLOSE_FD = TAKE_FD(*directory);
	struct stat stat;
	if (fstat(fd, &stat) < 0)
		return -errno;
	if (walk->depth == walk->room) {
		size_t room = MAX(64, 2 * walk->room);
		struct walk_level *levels = realloc(walk->levels, room * sizeof(*levels));
		if (!levels)
			return -ENOMEM;
		walk->levels = levels;
		walk->room = room;
	}
	size_t path_size = walk->path_size;
	int result = walk_grow_path(walk, name);
	if (result < 0)
		return result;
	/* Sorted entries are kept: they cannot be read again from a position in the directory. */
	if (walk->depth >= WINDOW && walk->sorted)
		fd_close(&walk->levels[walk->depth - WINDOW].fd);
	else if (walk->depth >= WINDOW)
		level_close(&walk->levels[walk->depth - WINDOW]);
	walk->levels[walk->depth++] = (struct walk_level){
	    .fd = TAKE_FD(fd),
	    .device = stat.st_dev,
	    .inode = stat.st_ino,
	    .path_size = path_size,
	};
	return 0;
}

int file_walk_open(struct file_walk *walk, int *directory)
{
	*walk = (struct file_walk){.directory = -1};
	return walk_push(walk, directory, "");
}

void file_walk_done(struct file_walk *walk)
{
	while (walk->depth > 0)
		level_close(&walk->levels[--walk->depth]);
	free(walk->levels);
	free(walk->path);
	*walk = (struct file_walk){.directory = -1};
}

int file_walk_enter(struct file_walk *walk, int *directory)
{
	return walk_push(walk, directory, walk->name);
}

int file_walk_open_entry(const struct file_walk *walk)
{
	int fd = openat(walk->directory, walk->name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int level_fill(struct walk_level *level)
{
	if (!level->entries) {
		level->entries = malloc(ENTRIES_SIZE);
		if (!level->entries)
			return -ENOMEM;
		if (level->resume != 0 && lseek(level->fd, level->resume, SEEK_SET) < 0)
			return -errno;
	}
	long got = syscall(SYS_getdents64, level->fd, level->entries, ENTRIES_SIZE);
	if (got < 0)
		return -errno;
	level->entries_at = 0;
	level->entries_size = (size_t)got;
	level->finished = got == 0;
	return 0;
}

/* A heap sort: the C library's qsort() would make the init a fiftieth larger. */
static void heap_sift_down(const struct walk_entry **heap, size_t at, size_t count)
{
	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && strcmp(heap[child]->name, heap[child + 1]->name) < 0)
			child++;
		if (strcmp(heap[at]->name, heap[child]->name) >= 0)
			return;
		const struct walk_entry *larger = heap[child];
		heap[child] = heap[at];
		heap[at] = larger;
	}
}

static void heap_sort_by_name(const struct walk_entry **entries, size_t count)
{
	for (size_t at = count / 2; at-- > 0;)
		heap_sift_down(entries, at, count);
	while (count-- > 1) {
		const struct walk_entry *largest = entries[0];
		entries[0] = entries[count];
		entries[count] = largest;
		heap_sift_down(entries, 0, count);
	}
}

/* Copies the entries, sorted by name. */
static int level_sort(struct walk_level *level, const uint8_t *entries, size_t size)
{
	size_t count = 0, at = 0;
	for (size_t next = 0; next < size; count++)
		next += ((const struct walk_entry *)(entries + next))->size;
	const struct walk_entry **order CLEANUP(file_free) = malloc(count * sizeof(*order));
	level->entries = malloc(size);
	if (!order || !level->entries)
		return -ENOMEM;
	for (size_t i = 0, next = 0; i < count; next += order[i++]->size)
		order[i] = (const struct walk_entry *)(entries + next);
	level->resume = order[count - 1]->next;
	heap_sort_by_name(order, count);
	for (size_t i = 0; i < count; at += order[i++]->size)
		memcpy(level->entries + at, order[i], order[i]->size);
	return 0;
}

static int level_fill_sorted(struct walk_level *level)
{
	size_t room = 0, size = 0;
	uint8_t *entries CLEANUP(file_free) = NULL;
	long got = 1;
	while (got > 0 && size < SORTED_SIZE) {
		if (room - size < ENTRIES_SIZE) {
			room = 2 * room + ENTRIES_SIZE;
			uint8_t *more = realloc(entries, room);
			if (!more)
				return -ENOMEM;
			entries = more;
		}
		got = syscall(SYS_getdents64, level->fd, entries + size, room - size);
		if (got < 0)
			return -errno;
		size += (size_t)got;
	}
	free(level->entries);
	level->entries = NULL;
	level->entries_at = level->entries_size = 0;
	level->finished = size == 0;
	if (size == 0)
		return 0;
	int result = level_sort(level, entries, size);
	level->entries_size = result < 0 ? 0 : size;
	return result;
}

static uint8_t entry_look_up_type(int directory, const char *name)
{
	struct stat stat;
	if (fstatat(directory, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return IFTODT(stat.st_mode);
}

/* Goes back to the directory above: it is still open, or is opened again and checked. */
static int walk_reach_parent(struct file_walk *walk, const struct walk_level *left)
{
	struct walk_level *parent = &walk->levels[walk->depth - 1];
	if (parent->fd >= 0)
		return 0;
	int fd CLOSE_FD = openat(left->fd, "..", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat) < 0)
		return -errno;
	if (stat.st_dev != parent->device || stat.st_ino != parent->inode)
		return -ESTALE;
	if (parent->entries && lseek(fd, parent->resume, SEEK_SET) < 0)
		return -errno;
	parent->fd = TAKE_FD(fd);
	return 0;
}

static int walk_leave(struct file_walk *walk)
{
	struct walk_level left = walk->levels[--walk->depth];
	if (walk->depth == 0) {
		walk->directory = -1;
		level_close(&left);
		return WALK_END;
	}
	int result = walk_reach_parent(walk, &left);
	size_t size = walk->path_size - left.path_size;
	size = MIN(size > 0 ? size - 1 : 0, sizeof(walk->left_name) - 1);
	memcpy(walk->left_name, walk->path + left.path_size, size);
	walk->left_name[size] = '\0';
	walk->path_size = left.path_size;
	walk->path[walk->path_size] = '\0';
	level_close(&left);
	if (result < 0) {
		while (walk->depth > 0)
			level_close(&walk->levels[--walk->depth]);
		return -ESTALE;
	}
	walk->name = walk->left_name;
	walk->type = DT_DIR;
	walk->directory = walk->levels[walk->depth - 1].fd;
	return WALK_LEAVE;
}

int file_walk_next(struct file_walk *walk)
{
	while (walk->depth > 0) {
		struct walk_level *level = &walk->levels[walk->depth - 1];
		walk->directory = level->fd;
		if (level->entries_at >= level->entries_size) {
			int result = level->finished ? 0
				     : walk->sorted  ? level_fill_sorted(level)
						     : level_fill(level);
			if (result < 0) {
				level->finished = true;
				return result;
			}
			if (level->finished)
				return walk_leave(walk);
			continue;
		}
		struct walk_entry *entry =
		    (struct walk_entry *)(level->entries + level->entries_at);
		level->entries_at += entry->size;
		if (!walk->sorted)
			level->resume = entry->next;
		if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
			continue;
		walk->name = entry->name;
		walk->type = entry->type;
		if (walk->type == DT_UNKNOWN)
			walk->type = entry_look_up_type(level->fd, entry->name);
		return WALK_ENTRY;
	}
	return WALK_END;
}

bool file_walk_skipped(const struct file_walk *walk)
{
	return walk->skips_generated &&
	       (strcmp(walk->name, ".git") == 0 || strcmp(walk->name, "node_modules") == 0);
}

int file_walk_failed(struct failure *failure, int errnum, const char *words, const char *root,
		     const struct file_walk *walk)
{
	/* The path may be longer than any message: the end of each part is kept. */
	char path[1024];
	size_t size = 0;
	const char *parts[] = {root, "/", walk->path ? walk->path : "", walk->name};
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t part = strlen(parts[i]);
		size_t keep = MIN(part, sizeof(path) / ARRAY_SIZE(parts) - 1);
		memcpy(path + size, parts[i] + part - keep, keep);
		size += keep;
	}
	path[size] = '\0';
	if (words)
		return file_refused(failure, error_kind_of_file_errno(errnum), path, words);
	return file_failed(failure, errnum, path);
}

int file_is_mount(int directory, dev_t device, bool *ret_is_mount)
{
	/* A bind mount has the device of its source: only this attribute shows that it is a
	 * mount. */
	uint64_t words[STATX_WORDS] = {0};
	if (syscall(SYS_statx, directory, "", AT_EMPTY_PATH, 0, words) == 0 &&
	    (words[STATX_WORD_ATTRIBUTES_MASK] & STATX_MOUNT_ROOT)) {
		*ret_is_mount = (words[STATX_WORD_ATTRIBUTES] & STATX_MOUNT_ROOT) != 0;
		return 0;
	}
	struct stat stat;
	if (fstat(directory, &stat) < 0)
		return -errno;
	*ret_is_mount = stat.st_dev != device;
	return 0;
}

bool file_is_kernel_tree(int directory)
{
	struct statfs information;
	return fstatfs(directory, &information) == 0 &&
	       (information.f_type == PROC_MAGIC || information.f_type == SYSFS_MAGIC);
}
