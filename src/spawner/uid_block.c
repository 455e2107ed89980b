/* Claims a block of uids. All instances of a host agree through one small file per block, in a
 * directory in /run that is locked while one chooses. A file names the state directory that owns
 * the block. If that directory no longer exists, the block is free. The state directory
 * remembers its block, so that it gets the same one after a reboot has emptied /run. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define OWNER_MAX 400

/* "DEVICE:INODE PATH" of an existing state directory, else "". */
static void owner_text(const char *state, char text[OWNER_MAX])
{
	struct stat info;
	text[0] = '\0';
	if (stat(state, &info) == 0)
		(void)!text_format(text, OWNER_MAX, "%llx:%llx %s", (unsigned long long)info.st_dev,
				   (unsigned long long)info.st_ino, state);
}

/* Whether the recorded state directory still exists. */
static bool owner_exists(const char *recorded)
{
	char now[OWNER_MAX];
	const char *path = strchr(recorded, ' ');
	if (!path)
		return false;
	owner_text(path + 1, now);
	return strcmp(now, recorded) == 0;
}

static void owner_read(int directory, int block, char text[OWNER_MAX])
{
	char name[16];
	snprintf(name, sizeof(name), "%d", block);
	if (fd_read_small(directory, name, text, OWNER_MAX) < 0)
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* Writes the file completely or not at all. */
static int file_replace(int directory, const char *name, const char *text)
{
	CLOSE_FD int fd = openat(directory, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int result = fd_write_full(fd, text, strlen(text));
	if (result == 0)
		result = fd_write_full(fd, "\n", 1);
	if (result == 0 && renameat(directory, "new", directory, name) < 0)
		result = -errno;
	return result;
}

/* The block that the sandboxes' files were made for; -1: none yet. */
static int block_read_remembered(int state_fd)
{
	char text[32];
	uint64_t block;
	ssize_t length = fd_read_small(state_fd, "uid-block", text, sizeof(text));
	text[length > 0 ? strcspn(text, "\n") : 0] = '\0';
	return text_to_u64(text, 0, UID_BLOCKS - 1, &block) < 0 ? -1 : (int)block;
}

static int block_prefer(int remembered, const char *state)
{
	if (remembered >= 0)
		return remembered;
	/* Spread by a hash, so that two instances seldom want the same block after a reboot. */
	return (int)(instance_hash(INSTANCE_HASH_START, state, strlen(state)) % UID_BLOCKS);
}

static int sandbox_note_owner(int directory, int block)
{
	char text[64];
	uint64_t slot;
	if (faccessat(directory, "owner", F_OK, 0) == 0)
		return 0;
	ssize_t length = fd_read_small(directory, "slot", text, sizeof(text));
	text[length > 0 ? strcspn(text, " \n") : 0] = '\0';
	/* A half-made sandbox is removed later. */
	if (text_to_u64(text, 0, UID_BLOCK_SLOTS - 1, &slot) < 0)
		return 0;
	snprintf(text, sizeof(text), "%u",
		 UID_RANGE_BASE +
		     ((uint32_t)block * UID_BLOCK_SLOTS + (uint32_t)slot) * UID_RANGE_SIZE);
	return file_replace(directory, "owner", text);
}

/* After a reboot another instance may have claimed our block first. The sandboxes then get other
 * ids, and each disk must record whose ids its files have (tier/jail/disk/disk_owner.h). */
static int sandboxes_note_owners(int state_fd, int block)
{
	int fd = openat(state_fd, "sandboxes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	if (!entries) {
		int saved = errno;
		fd_close(&fd);
		return saved == ENOENT ? 0 : -saved;
	}
	int result = 0;
	for (struct dirent *entry; result == 0 && (entry = readdir(entries));) {
		CLOSE_FD int sandbox =
		    entry->d_name[0] == '.'
			? -1
			: openat(dirfd(entries), entry->d_name,
				 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sandbox >= 0)
			result = sandbox_note_owner(sandbox, block);
	}
	closedir(entries);
	return result;
}

/* The block that we own already, else the first free one from the preferred on; -1: none. */
static int block_choose(int directory, int preferred, const char *owner)
{
	char recorded[OWNER_MAX];
	for (int block = 0; block < UID_BLOCKS; block++) {
		owner_read(directory, block, recorded);
		if (strcmp(recorded, owner) == 0)
			return block;
	}
	for (int i = 0; i < UID_BLOCKS; i++) {
		int block = (preferred + i) % UID_BLOCKS;
		owner_read(directory, block, recorded);
		if (!owner_exists(recorded))
			return block;
	}
	return -1;
}

static int block_directory_lock(const char *directory)
{
	struct stat info;
	/* Not readable for others: a lock on the directory delays every start. */
	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return -errno;
	CLOSE_FD int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info) < 0)
		return -errno;
	/* A user who could write here could make two instances share uids. */
	if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	if (((info.st_mode & 077) && fchmod(fd, 0700) < 0) || flock(fd, LOCK_EX) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int uid_block_claim(const char *directory, const char *state, struct error *error)
{
	char owner[OWNER_MAX], number[16];
	CLOSE_FD int place = block_directory_lock(directory);
	if (place < 0)
		return error_set_errno(error, error_kind_of_errno(place), place, "%s", directory);
	CLOSE_FD int state_fd = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	owner_text(state, owner);
	if (state_fd < 0 || !*owner)
		return error_set_errno(error, ERROR_INTERNAL, errno, "state directory %s", state);
	int remembered = block_read_remembered(state_fd);
	int preferred = block_prefer(remembered, state);
	int block = block_choose(place, preferred, owner);
	if (block < 0)
		return error_set(error, ERROR_BUSY,
				 "all %d blocks of uids are taken by other instances on this host "
				 "(%s lists their state directories): remove one that is no longer "
				 "needed",
				 UID_BLOCKS, directory);
	snprintf(number, sizeof(number), "%d", block);
	int result = file_replace(place, number, owner);
	/* Recorded before the old block is forgotten. */
	if (result == 0 && remembered >= 0 && remembered != block)
		result = sandboxes_note_owners(state_fd, remembered);
	if (result == 0)
		result = file_replace(state_fd, "uid-block", number);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "claiming block %d of uids", block);
	if (block != preferred)
		log_debug("uid block %d instead of %d", block, preferred);
	return block;
}

void uid_block_release(const char *directory, int block)
{
	char name[16];
	CLOSE_FD int place = block_directory_lock(directory);
	if (place < 0 || block < 0)
		return;
	snprintf(name, sizeof(name), "%d", block);
	unlinkat(place, name, 0);
}
