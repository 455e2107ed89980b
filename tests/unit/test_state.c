/* Backups: which names may be in one, digests of files with holes, copies of a database that is in
 * use. What they are for is tried with real sandboxes in tests/cli/test_state.py. */
#include "cli/state/state.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "store/copy.h"
#include "store/store.h"
#include "test.h"

TEST_MAIN

TEST(paths)
{
	static const char *const good[] = {"db/caisson.db", "sandboxes/abcdefghijklmnop/disk.img",
					   "sandboxes/abcdefghijklmnop/files.tar",
					   "logs/abcdefghijklmnop/bcdefghijklmnopq.out",
					   "logs/abcdefghijklmnop/bcdefghijklmnopq.err"};
	static const char *const bad[] = {"",
					  "db",
					  "/db/caisson.db",
					  "db/caisson.db/",
					  "db/../db/caisson.db",
					  "./db/caisson.db",
					  "sandboxes/abcdefghijklmnop/slot",
					  "sandboxes/../abcdefghijklmnop/disk.img",
					  "sandboxes/abcdefghijklmno/disk.img",
					  "sandboxes/ABCDEFGHIJKLMNOP/disk.img",
					  "sandboxes/abcdefghijklmnopdisk.img",
					  "sandboxes/abcdefghijklmnop/disk.img\n",
					  "logs/abcdefghijklmnop/bcdefghijklmnopq.out.x",
					  "logs/abcdefghijklmnop/.out",
					  "logs/abcdefghijklmnop"};
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		CHECK(state_path_valid(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(!state_path_valid(bad[i]));
}

/* Each of the pieces from `data`, a file of `size` bytes. */
static void digest_pieces(const uint8_t *data, size_t size, size_t piece,
			  uint8_t digest[DIGEST_SIZE])
{
	static const uint8_t zeros[STATE_BLOCK];
	struct block_digest state = {0};
	CHECK(block_digest_begin(&state) == 0);
	for (size_t at = 0; at < size; at += piece) {
		size_t part = MIN(piece, size - at);
		/* Holes may be passed over or not. */
		if (part == STATE_BLOCK && memcmp(data + at, zeros, part) == 0)
			continue;
		CHECK(block_digest_add(&state, at, data + at, part) == 0);
	}
	CHECK(block_digest_end(&state, size, digest) == 0);
	block_digest_done(&state);
}

TEST(digests_do_not_depend_on_the_pieces)
{
	enum { SIZE = 5 * STATE_BLOCK + 100 };
	static uint8_t data[SIZE];
	static const size_t pieces[] = {1, 7, 512, 4095, STATE_BLOCK, 5000, SIZE};
	uint8_t first[DIGEST_SIZE], other[DIGEST_SIZE];
	memset(data + 10, 'x', 100);
	memset(data + 3 * STATE_BLOCK - 1, 'y', 2);
	data[SIZE - 1] = 'z';
	digest_pieces(data, SIZE, SIZE, first);
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		digest_pieces(data, SIZE, pieces[i], other);
		CHECK(memcmp(first, other, DIGEST_SIZE) == 0);
	}
	data[20]++;
	digest_pieces(data, SIZE, 512, other);
	CHECK(memcmp(first, other, DIGEST_SIZE) != 0);
	data[20]--;
	/* Zeros at the end count too. */
	digest_pieces(data, SIZE - 1, 512, first);
	digest_pieces(data, SIZE - 2, 512, other);
	CHECK(memcmp(first, other, DIGEST_SIZE) != 0);
	struct block_digest back = {0};
	CHECK(block_digest_begin(&back) == 0 &&
	      block_digest_add(&back, 2 * STATE_BLOCK, data, 1) == 0 &&
	      block_digest_add(&back, 3 * STATE_BLOCK, data, 1) == 0);
	CHECK(block_digest_add(&back, 0, data, 1) < 0);
	block_digest_done(&back);
}

static void parse(const char *text, bool good)
{
	struct state_manifest *manifest = calloc(1, sizeof(*manifest));
	struct error error = {0};
	CHECK((state_manifest_parse(manifest, text, strlen(text), &error) == 0) == good);
	state_manifest_done(manifest);
	free(manifest);
}

TEST(manifests)
{
#define BEGIN "{\"format\":1,\"schema\":1,\"created_wall\":1,\"rights\":\"root\",\"sandboxes\":["
#define BOX "{\"id\":\"abcdefghijklmnop\",\"tier\":\"vm\",\"slot\":0,\"owner\":70000}"
#define FILES "],\"files\":[{\"path\":\"db/caisson.db\",\"size\":5,\"data\":5}"
	parse(BEGIN FILES "]}", true);
	parse(BEGIN BOX FILES "]}", true);
	parse(BEGIN BOX "," BOX FILES "]}", false);
	parse(BEGIN BOX FILES
	      ",{\"path\":\"sandboxes/abcdefghijklmnop/disk.img\",\"size\":9,\"data\":9}]}",
	      true);
	parse(BEGIN BOX FILES
	      ",{\"path\":\"sandboxes/abcdefghijklmnop/disk.img\",\"size\":9,\"data\":10}]}",
	      false);
	parse(BEGIN FILES "", false);
	parse("{}", false);
	parse("", false);
	parse("{\"format\":2,\"schema\":1,\"created_wall\":1,\"rights\":\"root\"}", false);
}

static bool count_row(void *data, const struct id *id, const char *workspace, bool stopped)
{
	int *counts = data;
	CHECK(id_valid(id->text));
	CHECK_TEXT(workspace, "w");
	counts[stopped]++;
	return true;
}

TEST(a_copy_of_a_database_in_use)
{
	char directory[] = "/tmp/caisson-test-state-XXXXXX", copy[64], name[128];
	struct error error = {0};
	struct store *store = NULL;
	int version = 0, counts[2] = {0, 0};
	CHECK(mkdtemp(directory) != NULL);
	snprintf(copy, sizeof(copy), "%s/copy", directory);
	CHECK(store_open(directory, &store, &error) == 0);
	struct sandbox_row row = {.id = id_new(),
				  .workspace = text_duplicate("w"),
				  .template = text_duplicate("host"),
				  .state = SANDBOX_STOPPED,
				  .created_wall = 1,
				  .deadline_wall = 1000};
	CHECK(store_sandbox_insert(store, &row, &error) == 0);
	CHECK(store_copy(directory, copy, &error) == 0);
	CHECK(store_copy(directory, copy, &error) < 0); /* there is one, and it stays */
	CHECK(store_copy_examine(copy, &version, &error) == 0);
	CHECK_INT(version, store_version);
	CHECK(store_copy_each(copy, count_row, counts, &error) == 0);
	CHECK_INT(counts[true], 1);
	CHECK_INT(counts[false], 0);
	store_close(store);
	/* As another instance's database, later. */
	CHECK(store_copy_defer_deadlines(copy, 500, &error) == 0);
	snprintf(name, sizeof(name), "%s/caisson.db", directory);
	CHECK(rename(copy, name) == 0);
	CHECK(store_open(directory, &store, &error) == 0);
	struct sandbox_row found = {0};
	CHECK_INT(store_sandbox_get(store, &row.id, &found, &error), 1);
	CHECK_INT(found.deadline_wall, 1500);
	sandbox_row_done(&found);
	sandbox_row_done(&row);
	store_close(store);
	DIR *entries = opendir(directory);
	for (struct dirent *entry; entries && (entry = readdir(entries));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(entries), entry->d_name, 0);
	closedir(entries);
	CHECK(rmdir(directory) == 0);
}
