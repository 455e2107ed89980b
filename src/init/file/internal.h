/* Shared by the file operations. Each operation is one function, which operation_run() calls in
 * a process of its own: 0 after it has sent its result, or -1 with *failure filled. Everything
 * may block, but never on a FIFO or a device: those are not opened.
 *
 * The file system is the sandbox's and hostile: any name may be a link, may change its type
 * between two calls, or may be a directory of a million entries. So a type is checked before a
 * file is opened for use, trees are walked by descriptors, and links inside a tree are never
 * followed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/macros.h"
#include "init/file/operation.h"

int file_stat(struct operation *operation, struct failure *failure);
int file_list(struct operation *operation, struct failure *failure);
int file_read(struct operation *operation, struct failure *failure);
int file_write(struct operation *operation, struct failure *failure);
int file_append(struct operation *operation, struct failure *failure);
int file_mkdir(struct operation *operation, struct failure *failure);
int file_remove(struct operation *operation, struct failure *failure);
int file_rename(struct operation *operation, struct failure *failure);
int file_copy(struct operation *operation, struct failure *failure);
int file_symlink(struct operation *operation, struct failure *failure);
int file_readlink(struct operation *operation, struct failure *failure);
int file_chmod(struct operation *operation, struct failure *failure);
int file_chown(struct operation *operation, struct failure *failure);
int file_glob(struct operation *operation, struct failure *failure);
int file_grep(struct operation *operation, struct failure *failure);
int file_replace(struct operation *operation, struct failure *failure);
int file_watch(struct operation *operation, struct failure *failure);
int file_pack(struct operation *operation, struct failure *failure);
int file_unpack(struct operation *operation, struct failure *failure);

/* failure.c: reports a failure. Each function returns -1. */

/* Fills in the kind and the words for an errno of either sign: "/workspace/x: no such file or
 * directory". ECANCELED becomes CANCELLED. */
int file_failed(struct failure *failure, int errnum, const char *path);
/* Fills in a given kind and words. */
int file_refused(struct failure *failure, enum error_kind kind, const char *path,
		 const char *words);
/* FILE_WRONG_TYPE: says what the entry is and what was expected ("a regular file"). */
int file_wrong_type(struct failure *failure, const char *path, mode_t mode, const char *wanted);

/* For CLEANUP: frees what the variable points to. */
static inline void file_free(void *variable)
{
	void *memory;
	memcpy(&memory, variable, sizeof(memory));
	free(memory);
}

/* path.c: paths of a request, and opening what they name. */

struct file_path {
	char text[GUEST_PATH_MAX]; /* absolute; a relative one is below /workspace */
};

#define FILE_WORKSPACE "/workspace"
NODISCARD int file_path_of(struct bytes bytes, struct file_path *ret_path, struct failure *failure);
/* Removes every "/" and "/." at the end, for paths that may be directories. */
void file_path_trim(struct file_path *path);
/* The last component; "" if the path ends in a slash. */
const char *file_path_base(const char *path);

/* Opens a regular file to read or, with O_WRONLY | O_APPEND, to write. Checks its type before and
 * after the open, so a file of another type is opened only if it is put there in between. Returns
 * the descriptor or -errno; -EMEDIUMTYPE for another type. Fills *ret_stat if the file exists. */
NODISCARD int file_open_regular(int directory, const char *path, int flags, struct stat *ret_stat);

/* "/proc/self/fd/N", for system calls that only take a path. */
void file_descriptor_path(int fd, char path[32]);

/* Where a path leads, so that a file can be made, replaced or opened there: the directory and
 * name of the last component. Links were followed, also dangling ones, unless TARGET_NO_FOLLOW. */
struct file_target {
	int directory; /* owned, O_PATH */
	char base[256];
	bool exists;
	struct stat stat; /* when it exists */
};
#define FILE_TARGET ((struct file_target){.directory = -1})
void file_target_done(struct file_target *target);
#define DONE_TARGET CLEANUP(file_target_done)
enum file_target_flag { TARGET_NO_FOLLOW = 1, TARGET_PARENTS = 2 };
NODISCARD int file_target_find(const char *path, int flags, struct file_target *ret_target);
/* Finds an entry itself: a link at the end is not followed, and slashes at the end are ignored. */
NODISCARD int file_place_find(struct file_path *path, int flags, struct file_target *ret_target);
/* Like mkdir -p: opens the directory (O_PATH), making what is missing. */
NODISCARD int file_make_directories(const char *path, mode_t mode, int *ret_fd);

/* write.c: a new file, which appears under its name complete or not at all. */

struct file_new {
	int fd;        /* open for writing */
	int directory; /* not owned */
	char name[48]; /* its temporary name, or "" */
};
#define FILE_NEW ((struct file_new){.fd = -1, .directory = -1})
NODISCARD int file_new_open(struct file_new *new_file, int directory);
/* Gives it the owner of the file that it replaces, and the mode; mode 0: that file's mode. */
NODISCARD int file_new_set_attributes(struct file_new *new_file, const struct file_target *target,
				      mode_t mode);
/* Gives it the target's name and closes it. It must be closed, since the client may execute the
 * file at once, which the kernel refuses (ETXTBSY) while it is open for writing. */
NODISCARD int file_new_commit(struct file_new *new_file, const struct file_target *target,
			      bool no_replace);
/* Removes the file if it was not committed. */
void file_new_done(struct file_new *new_file);
#define DONE_NEW CLEANUP(file_new_done)
/* A temporary name that is not in use: ".caisson-" and random letters. */
void file_temporary_name(char name[48]);
NODISCARD int file_rename_at(int from, const char *from_name, int to, const char *to_name,
			     bool no_replace);
NODISCARD int file_write_all(int fd, const void *data, size_t size);

/* walk.c: walks everything below a directory, by descriptors, at any depth. */

enum walk_event { WALK_END = 0, WALK_ENTRY = 1, WALK_LEAVE = 2 };

struct walk_level {
	int fd; /* -1: closed because too many were open; opened again through ".." */
	dev_t device;
	ino_t inode;
	off_t resume;     /* where to continue reading */
	size_t path_size; /* of the walk's path, up to this directory */
	uint8_t *entries; /* entries that were read and not returned yet; a sorted walk keeps them
			     while fd is closed */
	size_t entries_at, entries_size;
	bool finished;
};

struct file_walk {
	struct walk_level *levels;
	size_t depth, room;
	/* The directory of the current entry, or the one above the directory that was just left.
	 * Not owned. */
	int directory;
	const char *name; /* the entry's, or that of the directory that was left */
	uint8_t type;     /* its d_type; never DT_UNKNOWN unless the look-up failed */
	/* The current directory relative to the root, with a slash at its end; or empty. */
	char *path;
	size_t path_size, path_room;
	char left_name[256];
	/* Set by the caller after opening: returns each directory sorted by name (a very large
	 * one in sorted parts of 1 MiB); skips .git and node_modules. */
	bool sorted, skips_generated;
};
/* Takes over the descriptor, also on failure. */
NODISCARD int file_walk_open(struct file_walk *walk, int *directory);
void file_walk_done(struct file_walk *walk);
#define DONE_WALK CLEANUP(file_walk_done)
/* The next event. -errno: the rest of the current directory could not be read; the walk can go
 * on. -ESTALE: the tree was moved meanwhile; the walk is over. */
NODISCARD int file_walk_next(struct file_walk *walk);
/* Enters the current entry, which the caller has opened as a directory; takes over the
 * descriptor. */
NODISCARD int file_walk_enter(struct file_walk *walk, int *directory);
/* Whether the current entry is a directory to be skipped. */
bool file_walk_skipped(const struct file_walk *walk);
/* Opens the current entry as a directory, never through a link. */
NODISCARD int file_walk_open_entry(const struct file_walk *walk);
/* Reports a failure at the current entry of a walk over the tree at `root`; words may be NULL.
 * Returns -1. */
int file_walk_failed(struct failure *failure, int errnum, const char *words, const char *root,
		     const struct file_walk *walk);
/* Whether an open directory is the root of a mount (or on another file system than `device`). */
NODISCARD int file_is_mount(int directory, dev_t device, bool *ret_is_mount);
/* Whether it is /proc or /sys, which no search of a tree enters by itself. */
bool file_is_kernel_tree(int directory);

/* remove.c, copy.c: used for a rename across file systems. A removal without an operation is a
 * clean-up, which cannot be cancelled. */
NODISCARD int file_remove_tree(struct operation *operation, int directory, const char *base,
			       const char *path, uint64_t *removed, struct failure *failure);
NODISCARD int file_copy_entry(struct operation *operation, int from, const char *from_base, int to,
			      const char *to_base, const char *path, uint64_t *copied,
			      struct failure *failure);

/* owner.c: parses "user", "user:group", ":group", "user:" or numbers with the sandbox's
 * /etc/passwd and /etc/group; an id that is not given becomes -1. 0, or -1 with *failure filled. */
NODISCARD int file_owner_parse(struct bytes owner, uid_t *ret_uid, gid_t *ret_gid,
			       struct failure *failure);

/* output.c: gathers records into DATA frames; a record is never split. */

struct file_output {
	struct operation *operation;
	uint8_t *data; /* FILE_CHUNK_MAX */
	size_t size;
};
NODISCARD int file_output_open(struct file_output *output, struct operation *operation);
void file_output_done(struct file_output *output);
#define DONE_OUTPUT CLEANUP(file_output_done)
/* Adds a record. -EMSGSIZE: it does not fit into a frame. */
NODISCARD int file_output_add(struct file_output *output, const void *record, size_t size);
NODISCARD int file_output_flush(struct file_output *output);
/* The request's path with a slash, to be put before names that were found: "base/found". */
struct file_prefix {
	char text[GUEST_PATH_MAX + 1];
	size_t size;
};
void file_prefix_of(struct bytes path, struct file_prefix *ret_prefix);
