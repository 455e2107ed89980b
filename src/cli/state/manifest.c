/* The list of files in a backup, its checks, and digests of sparse files. Called by backup.c and,
 * in a process without rights, by extract.c. Does not block. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/state/state.h"
#include "proto/spawner_messages.h"
#include "store/copy.h"

void state_manifest_done(struct state_manifest *manifest)
{
	free(manifest->files);
	*manifest = (struct state_manifest){0};
}

static bool path_skip_text(const char **at, const char *text)
{
	if (!text_starts(*at, text))
		return false;
	*at += strlen(text);
	return true;
}

static bool path_skip_id(const char **at)
{
	char text[ID_LENGTH + 1];
	if (strnlen(*at, ID_LENGTH) < ID_LENGTH)
		return false;
	memcpy(text, *at, ID_LENGTH);
	text[ID_LENGTH] = '\0';
	*at += ID_LENGTH;
	return id_valid(text);
}

bool state_path_valid(const char *path)
{
	if (strcmp(path, STATE_DATABASE) == 0)
		return true;
	if (path_skip_text(&path, "sandboxes/"))
		return path_skip_id(&path) &&
		       (strcmp(path, "/disk.img") == 0 || strcmp(path, "/files.tar") == 0);
	return path_skip_text(&path, "logs/") && path_skip_id(&path) &&
	       path_skip_text(&path, "/") && path_skip_id(&path) &&
	       (strcmp(path, ".out") == 0 || strcmp(path, ".err") == 0);
}

int state_manifest_add(struct state_manifest *manifest, const char *path, uint64_t size,
		       uint64_t data, struct error *error)
{
	enum { STEP = 256 };
	if (manifest->file_count == STATE_FILES_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED, "a backup holds at most %d files",
				 STATE_FILES_MAX);
	if (manifest->file_count % STEP == 0) {
		struct state_file *more = realloc(manifest->files, (manifest->file_count + STEP) *
								       sizeof(*manifest->files));
		if (!more)
			return error_set(error, ERROR_NO_MEMORY, "no memory for the list of files");
		manifest->files = more;
	}
	struct state_file *file = &manifest->files[manifest->file_count];
	*file = (struct state_file){.size = size, .data = data};
	if (!state_path_valid(path) || text_copy(file->path, sizeof(file->path), path) < 0 ||
	    size > SANDBOX_DISK_MAX || data > size)
		return error_set(error, ERROR_BACKUP_INVALID, "\"%.80s\" is not a file of a backup",
				 path);
	manifest->file_count++;
	manifest->data += data;
	return 0;
}

/* Names of enum rights in the manifest. */
static const char *const rights_names[] = {"root", "subuids", "one-id"};

static int manifest_parse_rights(struct state_manifest *manifest, const json_t *root)
{
	for (size_t i = 0; i < ARRAY_SIZE(rights_names); i++)
		if (strcmp(member_text(root, "rights"), rights_names[i]) == 0) {
			manifest->rights = (enum rights)i;
			return 0;
		}
	return -1;
}

json_t *state_manifest_json(const struct state_manifest *manifest)
{
	char created[CLOCK_TEXT_SIZE];
	json_t *sandboxes = json_array(), *files = json_array();
	clock_text(manifest->created, created);
	for (size_t i = 0; i < manifest->sandbox_count; i++) {
		const struct state_sandbox *sandbox = &manifest->sandboxes[i];
		json_array_append_new(sandboxes, json_pack("{s:s, s:s, s:I, s:I}", "id",
							   sandbox->id.text, "tier", sandbox->tier,
							   "slot", (json_int_t)sandbox->slot,
							   "owner", (json_int_t)sandbox->owner));
	}
	for (size_t i = 0; i < manifest->file_count; i++) {
		const struct state_file *file = &manifest->files[i];
		json_array_append_new(files, json_pack("{s:s, s:I, s:I}", "path", file->path,
						       "size", (json_int_t)file->size, "data",
						       (json_int_t)file->data));
	}
	return json_pack("{s:i, s:s, s:i, s:s, s:I, s:s, s:b, s:o, s:o}", "format", STATE_FORMAT,
			 "caisson", CAISSON_VERSION, "schema", manifest->schema, "created", created,
			 "created_wall", (json_int_t)manifest->created, "rights",
			 rights_names[manifest->rights], "database_only", manifest->database_only,
			 "sandboxes", sandboxes, "files", files);
}

json_t *state_digests_json(const struct state_manifest *manifest)
{
	json_t *digests = json_object();
	for (size_t i = 0; i < manifest->file_count; i++) {
		char hex[2 * DIGEST_SIZE + 1];
		text_hex(manifest->files[i].digest, DIGEST_SIZE, hex);
		json_object_set_new(digests, manifest->files[i].path, json_string(hex));
	}
	return digests;
}

static int manifest_invalid(struct error *error, const char *what)
{
	return error_set(error, ERROR_BACKUP_INVALID, "its manifest is damaged: %s", what);
}

static bool member_number_within(const json_t *object, const char *name, uint64_t maximum,
				 uint64_t *ret)
{
	const json_t *value = json_object_get(object, name);
	json_int_t number = json_integer_value(value);
	*ret = (uint64_t)number;
	return json_is_integer(value) && number >= 0 && (uint64_t)number <= maximum;
}

static int manifest_parse_sandbox(struct state_manifest *manifest, const json_t *json,
				  struct error *error)
{
	struct state_sandbox *sandbox = &manifest->sandboxes[manifest->sandbox_count];
	uint64_t slot, owner;
	const char *tier = member_text(json, "tier");
	if (manifest->sandbox_count == STATE_SLOTS)
		return manifest_invalid(error, "too many sandboxes");
	if (id_parse(member_text(json, "id"), &sandbox->id) < 0 ||
	    !member_number_within(json, "slot", STATE_SLOTS - 1, &slot) ||
	    !member_number_within(json, "owner", UINT32_MAX - UID_RANGE_SIZE, &owner) ||
	    (strcmp(tier, "namespace") != 0 && strcmp(tier, "gvisor") != 0 &&
	     strcmp(tier, "vm") != 0) ||
	    text_copy(sandbox->tier, sizeof(sandbox->tier), tier) < 0)
		return manifest_invalid(error, "a sandbox");
	for (size_t i = 0; i < manifest->sandbox_count; i++)
		if (id_equal(&manifest->sandboxes[i].id, &sandbox->id) ||
		    manifest->sandboxes[i].slot == slot)
			return manifest_invalid(error, "a sandbox is named twice");
	sandbox->slot = (uint32_t)slot;
	sandbox->owner = (uint32_t)owner;
	manifest->sandbox_count++;
	return 0;
}

/* An image must belong to a sandbox in the list. */
static bool manifest_explains_file(const struct state_manifest *manifest, const char *path)
{
	if (!text_starts(path, "sandboxes/"))
		return true;
	for (size_t i = 0; i < manifest->sandbox_count; i++)
		if (memcmp(path + strlen("sandboxes/"), manifest->sandboxes[i].id.text,
			   ID_LENGTH) == 0)
			return true;
	return false;
}

static int manifest_parse_lists(struct state_manifest *manifest, const json_t *root,
				struct error *error)
{
	const json_t *sandboxes = json_object_get(root, "sandboxes");
	const json_t *files = json_object_get(root, "files"), *entry;
	size_t at;
	if (!json_is_array(sandboxes) || !json_is_array(files))
		return manifest_invalid(error, "no lists");
	json_array_foreach(sandboxes, at, entry)
	{
		if (manifest_parse_sandbox(manifest, entry, error) < 0)
			return -1;
	}
	json_t *seen = json_object();
	int result = 0;
	json_array_foreach(files, at, entry)
	{
		uint64_t size, data;
		const char *path = member_text(entry, "path");
		if (!member_number_within(entry, "size", SANDBOX_DISK_MAX, &size) ||
		    !member_number_within(entry, "data", SANDBOX_DISK_MAX, &data) ||
		    json_object_get(seen, path))
			result = manifest_invalid(error, "a file");
		else
			result = state_manifest_add(manifest, path, size, data, error);
		if (result == 0 && !manifest_explains_file(manifest, path))
			result = manifest_invalid(error, "an image of no sandbox");
		if (result < 0)
			break;
		json_object_set_new(seen, path, json_true());
	}
	json_decref(seen);
	if (result == 0 &&
	    (manifest->file_count == 0 || strcmp(manifest->files[0].path, STATE_DATABASE) != 0))
		result = manifest_invalid(error, "it does not begin with a database");
	return result;
}

int state_manifest_parse(struct state_manifest *manifest, const char *text, size_t size,
			 struct error *error)
{
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	uint64_t format = 0, schema = 0, created = 0;
	int result;
	if (!json_is_object(root) || !member_number_within(root, "format", INT32_MAX, &format) ||
	    !member_number_within(root, "schema", INT32_MAX, &schema) ||
	    !member_number_within(root, "created_wall", INT64_MAX, &created) ||
	    manifest_parse_rights(manifest, root) < 0)
		result = manifest_invalid(error, "it is not a manifest");
	else if (format > STATE_FORMAT)
		result = error_set(error, ERROR_STORE_NEWER,
				   "the backup has format %d, this caisson knows up to %d",
				   (int)format, STATE_FORMAT);
	else if (schema > (uint64_t)store_version)
		result =
		    error_set(error, ERROR_STORE_NEWER,
			      "the backup's schema has version %d, this caisson knows up to %d",
			      (int)schema, store_version);
	else
		result = manifest_parse_lists(manifest, root, error);
	if (result == 0) {
		manifest->schema = (int)schema;
		manifest->created = (int64_t)created;
		manifest->database_only = json_is_true(json_object_get(root, "database_only"));
	}
	json_decref(root);
	return result;
}

int state_digests_check(const struct state_manifest *manifest, const char *text, size_t size,
			struct error *error)
{
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	int result = 0;
	if (json_object_size(root) != manifest->file_count)
		result = error_set(error, ERROR_BACKUP_INVALID, "its list of digests is damaged");
	for (size_t i = 0; result == 0 && i < manifest->file_count; i++) {
		char hex[2 * DIGEST_SIZE + 1];
		text_hex(manifest->files[i].digest, DIGEST_SIZE, hex);
		if (strcmp(member_text(root, manifest->files[i].path), hex) != 0)
			result = error_set(error, ERROR_BACKUP_INVALID,
					   "%s is not what was saved: its SHA-256 differs",
					   manifest->files[i].path);
	}
	json_decref(root);
	return result;
}

int block_digest_begin(struct block_digest *digest)
{
	digest->context = EVP_MD_CTX_new();
	digest->used = false;
	digest->at = 0;
	if (!digest->context || EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1)
		return -ENOMEM;
	return 0;
}

static int block_digest_hash_number(struct block_digest *digest, uint64_t number)
{
	uint8_t bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(number >> 8 * i);
	return EVP_DigestUpdate(digest->context, bytes, sizeof(bytes)) == 1 ? 0 : -EIO;
}

static int block_digest_flush(struct block_digest *digest)
{
	static const uint8_t zeros[STATE_BLOCK];
	bool empty = !digest->used || memcmp(digest->block, zeros, STATE_BLOCK) == 0;
	digest->used = false;
	if (empty)
		return 0;
	if (block_digest_hash_number(digest, digest->at) < 0 ||
	    EVP_DigestUpdate(digest->context, digest->block, STATE_BLOCK) != 1)
		return -EIO;
	return digest->each ? digest->each(digest->data, digest->at, digest->block) : 0;
}

int block_digest_add(struct block_digest *digest, uint64_t offset, const void *data, size_t size)
{
	const uint8_t *bytes = data;
	while (size > 0) {
		uint64_t start = offset / STATE_BLOCK * STATE_BLOCK;
		size_t within = (size_t)(offset - start), part = MIN(size, STATE_BLOCK - within);
		if (digest->used && start != digest->at) {
			int result = block_digest_flush(digest);
			if (result < 0)
				return result;
		}
		if (!digest->used) {
			if (start < digest->at)
				return -EINVAL;
			memset(digest->block, 0, STATE_BLOCK);
			digest->at = start;
			digest->used = true;
		}
		memcpy(digest->block + within, bytes, part);
		bytes += part;
		offset += part;
		size -= part;
	}
	return 0;
}

int block_digest_end(struct block_digest *digest, uint64_t size, uint8_t ret_digest[DIGEST_SIZE])
{
	int result = block_digest_flush(digest);
	if (result < 0)
		return result;
	if (block_digest_hash_number(digest, size) < 0 ||
	    EVP_DigestFinal_ex(digest->context, ret_digest, NULL) != 1)
		return -EIO;
	return 0;
}

void block_digest_done(struct block_digest *digest)
{
	EVP_MD_CTX_free(digest->context);
	digest->context = NULL;
}
