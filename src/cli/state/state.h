/* Shared by the files of `caisson state`: what is in a backup and how it is checked.
 *
 *   state.c            the verb
 *   backup.c           which files belong to a backup
 *   backup_archive.c   writing the archive of them
 *   restore.c          the lock, the staging directory, putting it in place; removal
 *   extract.c          reading an archive that may be hostile, in a process without rights
 *   manifest.c         the list of files, and digests
 *   file_tree.c        files of sandboxes without an image
 *   libarchive.c       loading libarchive
 *
 * A backup is one file: tar (pax, sparse entries) compressed with zstd. Its first entry is
 * manifest.json (versions, sandboxes, the size of every file), its last digests.json (SHA-256 of
 * each file); the files are between them in the manifest's order. docs/operations.md describes it.
 */
#pragma once

#include <jansson.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "base/limits.h"
#include "cli/client/client.h"
#include "cli/client/progress.h"
#include "tier/guest.h"

#define STATE_FORMAT 1
/* The uid ranges of one instance, and so the maximum of sandboxes in a state directory. */
#define STATE_SLOTS 256
#define STATE_FILES_MAX 1000000
#define STATE_JSON_MAX (256 * MIB)
#define STATE_MANIFEST "manifest.json"
#define STATE_DIGESTS "digests.json"
#define STATE_DATABASE "db/caisson.db"
#define STATE_BLOCK 4096
#define DIGEST_SIZE 32

struct state_file {
	char path[64];       /* relative to the state directory; see state_path_valid() */
	uint64_t size, data; /* data: how much of it is data, at most; the rest is holes */
	uint8_t digest[DIGEST_SIZE];
};

struct state_sandbox {
	struct id id;
	uint32_t slot;
	uint32_t owner; /* the first of the ids that own the files in its image */
	char tier[16];
};

struct state_manifest {
	int schema;
	int64_t created; /* wall clock */
	bool database_only;
	enum rights rights; /* of the daemon whose state it is */
	struct state_sandbox sandboxes[STATE_SLOTS];
	size_t sandbox_count;
	struct state_file *files; /* owned */
	size_t file_count;
	uint64_t data; /* data of all files */
};

void state_manifest_done(struct state_manifest *manifest);
/* True for STATE_DATABASE, sandboxes/ID/disk.img or files.tar, logs/ID/ID.out and .err. A backup
 * has no other paths. */
bool state_path_valid(const char *path);
NODISCARD int state_manifest_add(struct state_manifest *manifest, const char *path, uint64_t size,
				 uint64_t data, struct error *error);
json_t *state_manifest_json(const struct state_manifest *manifest);
json_t *state_digests_json(const struct state_manifest *manifest);
/* Checks everything: ids, slots, sizes, paths, and that each occurs once. */
NODISCARD int state_manifest_parse(struct state_manifest *manifest, const char *text, size_t size,
				   struct error *error);
/* Checks that these are the digests of the files. */
NODISCARD int state_digests_check(const struct state_manifest *manifest, const char *text,
				  size_t size, struct error *error);

/* SHA-256 over each block of 4096 bytes that is not all zero (its offset as 8 bytes, lowest first,
 * then its bytes; the last block is padded with zeros) and then the file's size. Holes cost
 * nothing, and it does not matter in which pieces a file is added. */
struct block_digest {
	EVP_MD_CTX *context;
	uint8_t block[STATE_BLOCK];
	uint64_t at; /* offset of the block */
	bool used;
	/* Called for each block that is not all zero; may be NULL. -errno ends it. */
	int (*each)(void *data, uint64_t offset, const uint8_t block[STATE_BLOCK]);
	void *data;
};
NODISCARD int block_digest_begin(struct block_digest *digest);
/* Offsets must not decrease. Returns 0 or -errno. */
NODISCARD int block_digest_add(struct block_digest *digest, uint64_t offset, const void *data,
			       size_t size);
NODISCARD int block_digest_end(struct block_digest *digest, uint64_t size,
			       uint8_t ret_digest[DIGEST_SIZE]);
void block_digest_done(struct block_digest *digest);

struct state_options {
	const char *state;
	enum rights rights; /* the rights of this user's daemon, which decide how sandboxes' files
			       are stored */
	bool served;        /* a daemon serves it, and the client is connected to that daemon */
	bool force, stop, database_only;
};
NODISCARD int state_backup(struct client *client, const struct state_options *options,
			   const char *file, struct error *error);
NODISCARD int state_restore(struct client *client, const struct state_options *options,
			    const char *file, struct error *error);

/* Removes the state directory with everything in it. */
NODISCARD int state_remove(struct client *client, const struct state_options *options,
			   struct error *error);
/* The kind of an error about a path that the user named: a missing file is not an internal error.
 */
enum error_kind state_error_kind(int errnum);

/* Unpacks the archive into the empty directory, in a child, and checks all of it. *manifest is
 * filled. As root the child is confined to that directory and has no rights. */
NODISCARD int state_extract(int archive, const char *directory, struct state_manifest *manifest,
			    struct error *error);

/* Pack a tree of files into a tar file, and unpack it. `directory`: the tree itself; empty for
 * unpacking. `owner`: as root, the first of the ids that all files must belong to; 0: the kernel
 * checks which ids are allowed. */
NODISCARD int state_tree_pack(int directory, int archive, struct error *error);
NODISCARD int state_tree_unpack(int archive, int directory, uint32_t owner, struct error *error);
