/* Sends a directory or a file as a tar archive while reading it. Called by operation_run();
 * waits for the disk and for credit. Special files, /proc and /sys are left out and counted. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"
#include "proto/tar.h"

/* How many files with several names are remembered. Beyond that, each name of a file is packed as
 * a separate file. */
#define LINKED_MAX 65536u
#define BUCKETS 1024u

struct linked {
	struct linked *next;
	dev_t device;
	ino_t inode;
	char path[];
};

struct pack {
	struct file_output output;
	struct tar_entry entry;
	struct linked *linked[BUCKETS];
	uint32_t linked_count;
	uint64_t entries, bytes, skipped;
};

static void pack_free(struct pack **variable)
{
	struct pack *pack = *variable;
	if (!pack)
		return;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct linked *next, *at = pack->linked[i]; at; at = next) {
			next = at->next;
			free(at);
		}
	}
	file_output_done(&pack->output);
	free(pack);
}

/* The free room of the current frame; sends the frame first if it is full. */
static int pack_make_room(struct pack *pack, size_t *ret_room)
{
	if (pack->output.size == FILE_CHUNK_MAX) {
		int result = file_output_flush(&pack->output);
		if (result < 0)
			return result;
	}
	*ret_room = FILE_CHUNK_MAX - pack->output.size;
	return 0;
}

/* data NULL: zeros. */
static int pack_put(struct pack *pack, const uint8_t *data, size_t size)
{
	while (size > 0) {
		size_t room;
		int result = pack_make_room(pack, &room);
		if (result < 0)
			return result;
		room = MIN(room, size);
		uint8_t *to = pack->output.data + pack->output.size;
		if (data)
			memcpy(to, data, room);
		else
			memset(to, 0, room);
		data += data ? room : 0;
		pack->output.size += room;
		pack->bytes += room;
		size -= room;
	}
	return 0;
}

static int pack_put_header(struct pack *pack)
{
	uint8_t header[TAR_HEADER_MAX];
	size_t size = tar_write(&pack->entry, header);
	pack->entries++;
	return pack_put(pack, header, size);
}

/* Writes as many bytes as the header says, even if the file changes meanwhile. */
static int pack_put_contents(struct pack *pack, int fd)
{
	uint64_t left = pack->entry.size;
	while (left > 0) {
		size_t room;
		int result = pack_make_room(pack, &room);
		if (result < 0)
			return result;
		ssize_t got = read(fd, pack->output.data + pack->output.size, MIN(room, left));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ESTALE;
		pack->output.size += (size_t)got;
		pack->bytes += (uint64_t)got;
		left -= (uint64_t)got;
	}
	size_t rest = pack->entry.size % TAR_BLOCK;
	return rest ? pack_put(pack, NULL, TAR_BLOCK - rest) : 0;
}

/* True if another name of the file is in the archive already: it is then in entry.link. */
static bool pack_find_linked(struct pack *pack, const struct stat *stat)
{
	struct linked **bucket = &pack->linked[stat->st_ino % BUCKETS];
	for (struct linked *at = *bucket; at; at = at->next) {
		if (at->device != stat->st_dev || at->inode != stat->st_ino)
			continue;
		memcpy(pack->entry.link, at->path, strlen(at->path) + 1);
		return true;
	}
	size_t size = strlen(pack->entry.path) + 1;
	struct linked *new_one =
	    pack->linked_count < LINKED_MAX ? malloc(sizeof(*new_one) + size) : NULL;
	if (!new_one)
		return false;
	new_one->device = stat->st_dev;
	new_one->inode = stat->st_ino;
	memcpy(new_one->path, pack->entry.path, size);
	new_one->next = *bucket;
	*bucket = new_one;
	pack->linked_count++;
	return false;
}

static void pack_take_stat(struct pack *pack, enum tar_type type, const struct stat *stat)
{
	struct tar_entry *entry = &pack->entry;
	entry->type = type;
	entry->link[0] = '\0';
	entry->mode = stat->st_mode & 07777;
	entry->uid = stat->st_uid;
	entry->gid = stat->st_gid;
	entry->size = type == TAR_FILE ? (uint64_t)stat->st_size : 0;
	entry->mtime = stat->st_mtim.tv_sec;
	entry->mtime_ns = (uint32_t)stat->st_mtim.tv_nsec;
}

static int pack_file(struct pack *pack, int directory, const char *name)
{
	struct stat stat;
	int fd CLOSE_FD = file_open_regular(directory, name, O_RDONLY | O_NOFOLLOW, &stat);
	if (fd < 0)
		return fd;
	pack_take_stat(pack, TAR_FILE, &stat);
	if (stat.st_nlink > 1 && pack_find_linked(pack, &stat)) {
		pack->entry.type = TAR_HARDLINK;
		pack->entry.size = 0;
		return pack_put_header(pack);
	}
	int result = pack_put_header(pack);
	return result < 0 ? result : pack_put_contents(pack, fd);
}

static int pack_link(struct pack *pack, int directory, const char *name, const struct stat *stat)
{
	pack_take_stat(pack, TAR_SYMLINK, stat);
	ssize_t length = readlinkat(directory, name, pack->entry.link, GUEST_PATH_MAX - 1);
	if (length < 0)
		return -errno;
	pack->entry.link[length] = '\0';
	return pack_put_header(pack);
}

/* The entry's name in the archive: its directory's name there, and its own. */
static int pack_name_entry(struct pack *pack, const char *above, const char *name, const char *end)
{
	const char *parts[] = {above, name, end};
	size_t used = 0;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t size = strlen(parts[i]);
		if (size >= GUEST_PATH_MAX - used)
			return -ENAMETOOLONG;
		memcpy(pack->entry.path + used, parts[i], size + 1);
		used += size;
	}
	return 0;
}

static int pack_directory(struct pack *pack, struct file_walk *walk, const struct stat *stat)
{
	int fd CLOSE_FD = file_walk_open_entry(walk);
	if (fd < 0)
		return fd;
	if (file_is_kernel_tree(fd)) {
		pack->skipped++;
		return 0;
	}
	pack_take_stat(pack, TAR_DIRECTORY, stat);
	int result = pack_put_header(pack);
	return result < 0 ? result : file_walk_enter(walk, &fd);
}

static int pack_entry(struct pack *pack, struct file_walk *walk)
{
	struct stat stat;
	if (fstatat(walk->directory, walk->name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	bool directory = S_ISDIR(stat.st_mode);
	int result = pack_name_entry(pack, walk->path, walk->name, directory ? "/" : "");
	if (result < 0)
		return result;
	if (directory)
		return pack_directory(pack, walk, &stat);
	if (S_ISREG(stat.st_mode)) {
		result = pack_file(pack, walk->directory, walk->name);
		/* It was removed after it was listed. */
		return result == -ENOENT ? 0 : result;
	}
	if (S_ISLNK(stat.st_mode))
		return pack_link(pack, walk->directory, walk->name, &stat);
	pack->skipped++;
	return 0;
}

static int pack_tree(struct pack *pack, int *directory, const char *path, struct failure *failure)
{
	struct file_walk walk DONE_WALK = {.directory = -1};
	struct stat stat;
	if (fstat(*directory, &stat) < 0)
		return -errno;
	pack_take_stat(pack, TAR_DIRECTORY, &stat);
	memcpy(pack->entry.path, "./", 3);
	int result = pack_put_header(pack);
	if (result == 0)
		result = file_walk_open(&walk, directory);
	while (result == 0) {
		int event = file_walk_next(&walk);
		if (event == WALK_END)
			return 0;
		if (event == WALK_ENTRY)
			result = pack_entry(pack, &walk);
		else if (event < 0)
			result = event;
		if (result == 0 && operation_cancelled(pack->output.operation))
			result = -ECANCELED;
	}
	if (walk.name)
		return file_walk_failed(failure, result, NULL, path, &walk);
	return result;
}

static int pack_path(struct pack *pack, struct file_path *path, struct failure *failure)
{
	struct file_target target DONE_TARGET = FILE_TARGET;
	int directory CLOSE_FD = open(path->text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (directory >= 0)
		return pack_tree(pack, &directory, path->text, failure);
	if (errno != ENOTDIR)
		return -errno;
	int result = file_target_find(path->text, 0, &target);
	if (result == 0 && !target.exists)
		result = -ENOENT;
	if (result == 0 && !S_ISREG(target.stat.st_mode))
		return file_wrong_type(failure, path->text, target.stat.st_mode,
				       "a directory or a regular file");
	if (result == 0)
		result = pack_name_entry(pack, target.base, "", "");
	return result < 0 ? result : pack_file(pack, target.directory, target.base);
}

int file_pack(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	struct pack *pack CLEANUP(pack_free) = calloc(1, sizeof(*pack));
	int result = pack ? file_output_open(&pack->output, operation) : -ENOMEM;
	if (result == 0)
		result = pack_path(pack, &path, failure);
	if (result == 0)
		result = pack_put(pack, NULL, 2ul * TAR_BLOCK);
	if (result == 0)
		result = file_output_flush(&pack->output);
	if (result < 0)
		return failure->kind != ERROR_NONE ? -1 : file_failed(failure, result, path.text);
	uint8_t payload[24];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, pack->entries);
	write_u64(&writer, pack->bytes);
	write_u64(&writer, pack->skipped);
	operation_result(operation, payload, writer.size);
	return 0;
}
