/* The reader of tar archives under any bytes. What must hold besides memory safety: no entry's name
 * leads out of the directory, and an entry that is written again is read as the same. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
	const uint8_t *data;
	size_t left;
};

static int read_memory(void *data, void *to, size_t size)
{
	struct memory *memory = data;
	if (size > memory->left)
		return -ENODATA;
	memcpy(to, memory->data, size);
	memory->data += size;
	memory->left -= size;
	return 0;
}

static void check_clean(const char *path)
{
	while (*path) {
		size_t size = strcspn(path, "/");
		if (size == 0 || size > 255 || (size == 1 && path[0] == '.') ||
		    (size == 2 && path[0] == '.' && path[1] == '.'))
			abort();
		path += size;
		if (*path == '/' && *++path == '\0')
			abort();
	}
}

static void check_again(const struct tar_entry *entry)
{
	static uint8_t header[TAR_HEADER_MAX];
	static struct tar_entry again;
	const char *why;
	struct memory memory = {header, tar_write(entry, header)};
	struct tar_source source = {read_memory, &memory};
	if (tar_next(&source, &again, &why) != 1 || memory.left != 0)
		abort();
	if (again.type != entry->type || strcmp(again.path, entry->path) != 0 ||
	    strcmp(again.link, entry->link) != 0 || again.mode != entry->mode ||
	    again.uid != entry->uid || again.gid != entry->gid || again.size != entry->size ||
	    again.mtime != entry->mtime || again.mtime_ns != entry->mtime_ns)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tar_entry entry;
	struct memory memory = {data, size};
	struct tar_source source = {read_memory, &memory};
	const char *why;
	int result;
	while ((result = tar_next(&source, &entry, &why)) == 1) {
		check_clean(entry.path);
		if (entry.type == TAR_HARDLINK)
			check_clean(entry.link);
		check_again(&entry);
		uint64_t padded = (entry.size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
		if (padded > memory.left)
			break;
		memory.data += padded;
		memory.left -= padded;
	}
	if (result == -EBADMSG && !why)
		abort();
	return 0;
}
