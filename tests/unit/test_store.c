/* The store: rows survive, names are unique while alive, keys are never used twice, and a database
 * that is damaged, foreign, newer or without room is refused without a change. */
#include "store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "store/secrets.h"
#include "store/sqlite.h"
#include "test.h"

TEST_MAIN

static char directory[64];
static char database[96];

static void fresh_directory(void)
{
	static int count;
	snprintf(directory, sizeof(directory), "/tmp/caisson-test-store-%d-%d", (int)getpid(),
		 count++);
	snprintf(database, sizeof(database), "%s/caisson.db", directory);
}

static void remove_directory(void)
{
	char name[512];
	DIR *entries = opendir(directory);
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		snprintf(name, sizeof(name), "%s/%s", directory, entry->d_name);
		unlink(name);
	}
	if (entries)
		closedir(entries);
	rmdir(directory);
}

static struct store *open_store(void)
{
	struct store *store = NULL;
	struct error error = {0};
	if (store_open(directory, &store, &error) < 0)
		test_fail(__FILE__, __LINE__, "open: %s", error.message);
	return store;
}

static struct sandbox_row sandbox(const char *workspace, const char *name, int64_t created)
{
	return (struct sandbox_row){
	    .id = id_new(),
	    .workspace = text_duplicate(workspace),
	    .name = name ? text_duplicate(name) : NULL,
	    .template = text_duplicate("host"),
	    .tier = TIER_NAMESPACE,
	    .state = SANDBOX_CREATING,
	    .limits = {.memory = 1ULL << 40,
		       .disk = 2,
		       .inodes = 3,
		       .cpu_millis = 4,
		       .pids = 5,
		       .files = 6},
	    .limit_reasons = {0, 1, 2, 3, 4, 0},
	    .flags = 1,
	    .timeout_seconds = 600,
	    .created_wall = created,
	    .deadline_wall = INT64_MAX,
	};
}

static struct exec_row exec_of(const struct sandbox_row *owner, uint64_t key)
{
	return (struct exec_row){
	    .id = id_new(),
	    .key = key,
	    .sandbox = owner->id,
	    .command = text_duplicate("echo 'x'; -- drop"),
	    .state = EXEC_RUNNING,
	    .out_total = UINT64_MAX,
	    .oom_killed = true,
	};
}

TEST(sandbox_round_trip)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	struct sandbox_row row = sandbox("default", "web", 10), back = {0};
	row.environment = malloc(8);
	memcpy(row.environment, "A=1\0B=2", 8);
	row.environment_size = 8;
	CHECK_INT(store_sandbox_insert(store, &row, &error), 0);
	row.state = SANDBOX_RUNNING;
	row.end_message = text_duplicate("ünïcode 'quoted'");
	CHECK_INT(store_sandbox_update(store, &row, &error), 0);
	CHECK_INT(store_sandbox_insert(store, &row, &error), -1);
	store_close(store);
	store = open_store();
	CHECK_INT(store_sandbox_get(store, &row.id, &back, &error), 1);
	CHECK_TEXT(back.workspace, "default");
	CHECK_TEXT(back.name, "web");
	CHECK_INT(back.state, SANDBOX_RUNNING);
	CHECK(memcmp(&back.limits, &row.limits, sizeof(row.limits)) == 0);
	CHECK(memcmp(back.limit_reasons, row.limit_reasons, sizeof(row.limit_reasons)) == 0);
	CHECK_INT(back.environment_size, 8);
	CHECK(memcmp(back.environment, "A=1\0B=2", 8) == 0);
	CHECK(back.metadata == NULL && back.metadata_size == 0);
	CHECK_INT(back.deadline_wall, INT64_MAX);
	CHECK_TEXT(back.end_message, "ünïcode 'quoted'");
	struct id other = id_new();
	struct sandbox_row none;
	CHECK_INT(store_sandbox_get(store, &other, &none, &error), 0);
	back.id = other;
	CHECK_INT(store_sandbox_update(store, &back, &error), -1);
	CHECK_INT(error.kind, ERROR_SANDBOX_NOT_FOUND);
	/* Packed data without its last NUL would be walked past its end. */
	back.id = row.id;
	back.environment_size = 4;
	CHECK_INT(store_sandbox_update(store, &back, &error), 0);
	back.environment_size = 7;
	CHECK_INT(store_sandbox_update(store, &back, &error), -1);
	sandbox_row_done(&back);
	sandbox_row_done(&row);
	store_close(store);
	remove_directory();
}

TEST(names_are_unique_among_the_living)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	struct sandbox_row first = sandbox("a", "web", 1), second = sandbox("a", "web", 2),
			   elsewhere = sandbox("b", "web", 3), nameless = sandbox("a", NULL, 4),
			   nameless_too = sandbox("a", NULL, 5);
	CHECK_INT(store_sandbox_insert(store, &first, &error), 0);
	CHECK_INT(store_sandbox_insert(store, &second, &error), -1);
	CHECK_INT(error.kind, ERROR_NAME_TAKEN);
	CHECK_INT(store_sandbox_insert(store, &elsewhere, &error), 0);
	CHECK_INT(store_sandbox_insert(store, &nameless, &error), 0);
	CHECK_INT(store_sandbox_insert(store, &nameless_too, &error), 0);
	first.state = SANDBOX_ENDED;
	CHECK_INT(store_sandbox_update(store, &first, &error), 0);
	CHECK_INT(store_sandbox_insert(store, &second, &error), 0);
	first.state = SANDBOX_RUNNING;
	CHECK_INT(store_sandbox_update(store, &first, &error), -1);
	CHECK_INT(error.kind, ERROR_NAME_TAKEN);
	sandbox_row_done(&first);
	sandbox_row_done(&second);
	sandbox_row_done(&elsewhere);
	sandbox_row_done(&nameless);
	sandbox_row_done(&nameless_too);
	store_close(store);
	remove_directory();
}

struct seen {
	int count, stop_after;
	int64_t last;
	uint64_t last_key;
};

static bool see_sandbox(void *data, const struct sandbox_row *row)
{
	struct seen *seen = data;
	CHECK(seen->count == 0 || row->created_wall < seen->last);
	seen->last = row->created_wall;
	return ++seen->count != seen->stop_after;
}

static bool see_exec(void *data, const struct exec_row *row)
{
	struct seen *seen = data;
	CHECK(seen->count == 0 || row->key < seen->last_key);
	seen->last_key = row->key;
	return ++seen->count != seen->stop_after;
}

TEST(lists_and_pruning)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	struct sandbox_row rows[6];
	for (int i = 0; i < 6; i++) {
		rows[i] = sandbox(i % 2 ? "odd" : "even", NULL, 100 + i);
		rows[i].state = i < 2 ? SANDBOX_ENDED : SANDBOX_RUNNING;
		rows[i].ended_wall = i < 2 ? 1000 + i : 0;
		CHECK_INT(store_sandbox_insert(store, &rows[i], &error), 0);
		struct exec_row exec = exec_of(&rows[i], (uint64_t)i + 50);
		CHECK_INT(store_exec_insert(store, &exec, &error), 0);
		exec_row_done(&exec);
	}
	struct seen all = {0}, live = {0}, odd = {0}, two = {.stop_after = 2};
	CHECK_INT(store_sandbox_each(store, NULL, false, see_sandbox, &all, &error), 0);
	CHECK_INT(store_sandbox_each(store, NULL, true, see_sandbox, &live, &error), 0);
	CHECK_INT(store_sandbox_each(store, "odd", true, see_sandbox, &odd, &error), 0);
	CHECK_INT(store_sandbox_each(store, NULL, false, see_sandbox, &two, &error), 0);
	CHECK_INT(all.count, 6);
	CHECK_INT(live.count, 4);
	CHECK_INT(odd.count, 2);
	CHECK_INT(two.count, 2);
	CHECK_INT(store_sandbox_prune(store, 1001, &error), 2); /* and its exec */
	CHECK_INT(store_sandbox_prune(store, 1001, &error), 0);
	struct seen gone = {0};
	CHECK_INT(store_exec_each(store, &rows[0].id, see_exec, &gone, &error), 0);
	CHECK_INT(gone.count, 0);
	CHECK_INT(store_exec_each(store, &rows[1].id, see_exec, &gone, &error), 0);
	CHECK_INT(gone.count, 1);
	for (int i = 0; i < 6; i++)
		sandbox_row_done(&rows[i]);
	store_close(store);
	remove_directory();
}

struct page {
	struct id ids[8];
	int64_t walls[8];
	int count;
};

static bool take_page(void *data, const struct sandbox_row *row)
{
	struct page *page = data;
	page->ids[page->count] = row->id;
	page->walls[page->count] = row->created_wall;
	return ++page->count < 8;
}

TEST(pages)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	for (int i = 0; i < 6; i++) {
		/* Two of each time: the id decides. */
		struct sandbox_row row = sandbox("a", i == 5 ? "named" : NULL, 100 + i / 2);
		row.state = i == 0 ? SANDBOX_ENDED : i == 1 ? SANDBOX_PAUSED : SANDBOX_RUNNING;
		CHECK_INT(store_sandbox_insert(store, &row, &error), 0);
		sandbox_row_done(&row);
	}
	struct sandbox_row other = sandbox("b", NULL, 200);
	CHECK_INT(store_sandbox_insert(store, &other, &error), 0);
	const char *const workspaces[] = {"a", NULL};
	for (int w = 0; w < 2; w++) {
		for (int live = 0; live < 2; live++) {
			struct page whole = {0}, piece = {0};
			CHECK_INT(store_sandbox_page(store, workspaces[w], live, 0, NULL, 0, NULL,
						     100, take_page, &whole, &error),
				  0);
			CHECK_INT(whole.count, 6 + w - live);
			for (int i = 1; i < whole.count; i++)
				CHECK(whole.walls[i] < whole.walls[i - 1] ||
				      (whole.walls[i] == whole.walls[i - 1] &&
				       strcmp(whole.ids[i].text, whole.ids[i - 1].text) < 0));
			/* In pieces of two it is the same. */
			for (int before = -1; piece.count > before;) {
				before = piece.count;
				int last = before - 1;
				CHECK_INT(store_sandbox_page(store, workspaces[w], live, 0, NULL,
							     before ? piece.walls[last] : 0,
							     before ? &piece.ids[last] : NULL, 2,
							     take_page, &piece, &error),
					  0);
			}
			CHECK_INT(piece.count, whole.count);
			CHECK(memcmp(piece.ids, whole.ids, sizeof(whole.ids)) == 0);
		}
	}
	struct page paused = {0}, ended = {0}, named = {0}, none = {0};
	CHECK_INT(store_sandbox_page(store, "a", false, SANDBOX_PAUSED, NULL, 0, NULL, 9, take_page,
				     &paused, &error),
		  0);
	CHECK_INT(store_sandbox_page(store, NULL, false, SANDBOX_ENDED, NULL, 0, NULL, 9, take_page,
				     &ended, &error),
		  0);
	CHECK_INT(store_sandbox_page(store, "a", false, 0, "named", 0, NULL, 9, take_page, &named,
				     &error),
		  0);
	CHECK_INT(
	    store_sandbox_page(store, "b", true, 0, "named", 0, NULL, 9, take_page, &none, &error),
	    0);
	CHECK_INT(paused.count, 1);
	CHECK_INT(ended.count, 1);
	CHECK_INT(named.count, 1);
	CHECK_INT(none.count, 0);
	sandbox_row_done(&other);
	store_close(store);
	remove_directory();
}

static bool count_rows(void *data, const struct sandbox_row *row)
{
	(void)row;
	++*(int *)data;
	return true;
}

/* Where no file can be made but the database's own: a sort that spills would fail here. */
TEST(many_tombstones)
{
	enum { MANY = 15000 };
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	CHECK_INT(sqlite3_exec(store->database, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
	for (int i = 0; i < MANY; i++) {
		struct sandbox_row row = sandbox(i % 2 ? "odd" : "even", NULL, 1 + i);
		row.state = SANDBOX_ENDED;
		row.ended_wall = 2 + i;
		CHECK_INT(store_sandbox_insert(store, &row, &error), 0);
		sandbox_row_done(&row);
	}
	CHECK_INT(sqlite3_exec(store->database, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	int all = 0, odd = 0, live = 0;
	static const char *const plans[] = {"odd", NULL};
	for (int i = 0; i < 2; i++) {
		int *count = i == 0 ? &odd : &all;
		CHECK_INT(store_sandbox_each(store, plans[i], false, count_rows, count, &error), 0);
		CHECK_INT(store_sandbox_each(store, plans[i], true, count_rows, &live, &error), 0);
	}
	CHECK_INT(all, MANY);
	CHECK_INT(odd, MANY / 2);
	CHECK_INT(live, 0);
	/* None of the lists sorts. */
	for (int i = STATEMENT_SANDBOX_PAGE; i <= STATEMENT_SANDBOX_PAGE_LAST; i++) {
		CHECK(store->statements[i] != NULL);
		CHECK_INT(sqlite3_stmt_status(store->statements[i], SQLITE_STMTSTATUS_SORT, 0), 0);
		CHECK_INT(
		    sqlite3_stmt_status(store->statements[i], SQLITE_STMTSTATUS_FULLSCAN_STEP, 0),
		    0);
	}
	int left = 0, calls = 0, gone;
	while ((gone = store_sandbox_prune(store, MANY - 1000, &error)) > 0) {
		CHECK(gone <= 500);
		calls++;
	}
	CHECK_INT(gone, 0);
	CHECK(calls >= (MANY - 1000) / 500 - 1);
	CHECK_INT(store_sandbox_each(store, NULL, false, count_rows, &left, &error), 0);
	CHECK_INT(left, 1002);
	store_close(store);
	remove_directory();
}

static bool take_key(void *data, const struct exec_row *row)
{
	*(uint64_t *)data = row->key;
	CHECK_TEXT(row->command, "ls");
	return true;
}

/* The first version said with active_wall since when a sandbox was paused, and its execs had keys
 * of the installation. */
TEST(migration_of_the_first_version)
{
	static const struct {
		enum sandbox_state state;
		int64_t paused;
	} cases[] = {{SANDBOX_RUNNING, 0}, {SANDBOX_PAUSED, 77}, {SANDBOX_RESUMING, 77}};
	struct error error = {0};
	struct id ids[ARRAY_SIZE(cases)];
	sqlite3 *old = NULL;
	char sql[1024];
	fresh_directory();
	mkdir(directory, 0700);
	CHECK_INT(sqlite3_open(database, &old), SQLITE_OK);
	CHECK_INT(sqlite3_exec(old, store_migrations[0], NULL, NULL, NULL), SQLITE_OK);
	snprintf(sql, sizeof(sql), "PRAGMA application_id = %d; PRAGMA user_version = 1",
		 STORE_APPLICATION_ID);
	CHECK_INT(sqlite3_exec(old, sql, NULL, NULL, NULL), SQLITE_OK);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ids[i] = id_new();
		snprintf(sql, sizeof(sql),
			 "INSERT INTO sandboxes VALUES ('%s', 'w', %zu, NULL, 'host', 1, %d, 1, 1,"
			 " 1, 1, 1, 1, x'', 0, 0, 0, 0, 0, 100, 77, NULL, NULL, NULL, 0, NULL)",
			 ids[i].text, i + 1, cases[i].state);
		CHECK_INT(sqlite3_exec(old, sql, NULL, NULL, NULL), SQLITE_OK);
		snprintf(sql, sizeof(sql),
			 "INSERT INTO execs VALUES (%zu, '%s', '%s', 'ls', 3, 0, 0, 0, 0, 0, 1, 0,"
			 " 0, 0, 0, 0, 0, 0, 0, 0, NULL)",
			 i + 40, id_new().text, ids[i].text);
		CHECK_INT(sqlite3_exec(old, sql, NULL, NULL, NULL), SQLITE_OK);
	}
	CHECK_INT(sqlite3_exec(old, "DELETE FROM execs WHERE key = 42", NULL, NULL, NULL),
		  SQLITE_OK);
	sqlite3_close(old);
	struct store *store = open_store();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sandbox_row row = {0};
		CHECK_INT(store_sandbox_get(store, &ids[i], &row, &error), 1);
		CHECK_INT(row.paused_wall, cases[i].paused);
		CHECK_INT(row.active_wall, 77);
		CHECK_INT(row.rootfs_kind, ROOTFS_HOST);
		CHECK_INT(row.last_exec_key, 42);
		uint64_t key = 0;
		CHECK_INT(store_exec_each(store, &ids[i], take_key, &key, &error), 0);
		CHECK_INT(key, i == 2 ? 0 : i + 40);
		sandbox_row_done(&row);
	}
	int count = 0;
	CHECK_INT(store_sandbox_each(store, "w", true, count_rows, &count, &error), 0);
	CHECK_INT(count, ARRAY_SIZE(cases));
	store_close(store);
	remove_directory();
}

TEST(execs_and_their_keys)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	struct sandbox_row owner = sandbox("a", NULL, 1), stranger = sandbox("a", NULL, 2);
	CHECK_INT(store_sandbox_insert(store, &owner, &error), 0);
	struct exec_row exec = exec_of(&owner, 7), back = {0}, orphan = exec_of(&stranger, 8);
	CHECK_INT(store_exec_insert(store, &exec, &error), 0);
	CHECK_INT(store_exec_insert(store, &orphan, &error), -1);
	exec.state = EXEC_ENDED;
	exec.code = 3;
	exec.error_message = text_duplicate("why");
	CHECK_INT(store_exec_update(store, &exec, &error), 0);
	CHECK_INT(store_exec_get(store, &stranger.id, &exec.id, &back, &error), 0);
	CHECK_INT(store_exec_delete(store, &stranger.id, &exec.id, &error), 0);
	CHECK_INT(store_exec_get(store, &owner.id, &exec.id, &back, &error), 1);
	CHECK_INT(back.key, 7);
	CHECK_INT(back.code, 3);
	CHECK(back.out_total == UINT64_MAX && back.oom_killed);
	CHECK_TEXT(back.command, "echo 'x'; -- drop");
	CHECK_TEXT(back.error_message, "why");
	CHECK_INT(store_exec_delete(store, &exec.sandbox, &exec.id, &error), 0);
	CHECK_INT(store_exec_delete(store, &exec.sandbox, &exec.id, &error), 0);
	CHECK_INT(store_exec_update(store, &exec, &error), -1);
	CHECK_INT(error.kind, ERROR_EXEC_NOT_FOUND);
	exec_row_done(&back);
	exec_row_done(&exec);
	exec_row_done(&orphan);
	sandbox_row_done(&owner);
	sandbox_row_done(&stranger);
	store_close(store);
	remove_directory();
}

static uint64_t last_key_of(struct store *store, const struct id *sandbox)
{
	struct error error = {0};
	struct sandbox_row row = {0};
	CHECK_INT(store_sandbox_get(store, sandbox, &row, &error), 1);
	uint64_t key = row.last_exec_key;
	sandbox_row_done(&row);
	return key;
}

/* Each sandbox counts for itself, and a key that was deleted is remembered. */
TEST(keys_belong_to_their_sandbox)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	struct sandbox_row owners[2] = {sandbox("a", NULL, 1), sandbox("a", NULL, 2)};
	struct exec_row execs[2][3];
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(store_sandbox_insert(store, &owners[i], &error), 0);
		for (size_t j = 0; j < 3; j++) {
			execs[i][j] = exec_of(&owners[i], j + 1);
			CHECK_INT(store_exec_insert(store, &execs[i][j], &error), 0);
		}
	}
	struct exec_row twice = exec_of(&owners[0], 3);
	CHECK_INT(store_exec_insert(store, &twice, &error), -1);
	CHECK_INT(last_key_of(store, &owners[0].id), 0);
	CHECK_INT(store_exec_delete(store, &owners[0].id, &execs[0][2].id, &error), 0);
	CHECK_INT(store_exec_delete(store, &owners[0].id, &execs[0][0].id, &error), 0);
	store_close(store);
	store = open_store();
	CHECK_INT(last_key_of(store, &owners[0].id), 3);
	CHECK_INT(last_key_of(store, &owners[1].id), 0);
	struct seen left = {0}, others = {0};
	CHECK_INT(store_exec_each(store, &owners[0].id, see_exec, &left, &error), 0);
	CHECK_INT(left.last_key, 2);
	CHECK_INT(left.count, 1);
	CHECK_INT(store_exec_each(store, &owners[1].id, see_exec, &others, &error), 0);
	CHECK_INT(others.count, 3);
	exec_row_done(&twice);
	for (size_t i = 0; i < 2; i++) {
		for (size_t j = 0; j < 3; j++)
			exec_row_done(&execs[i][j]);
		sandbox_row_done(&owners[i]);
	}
	store_close(store);
	remove_directory();
}

static bool see_token(void *data, const struct token_row *row)
{
	(void)row;
	++*(int *)data;
	return true;
}

TEST(tokens)
{
	struct error error = {0};
	fresh_directory();
	struct store *store = open_store();
	struct token_row row = {.id = id_new(),
				.hash = {1, 2, 0, 3},
				.scopes = SCOPE_READ,
				.workspace = text_duplicate("w"),
				.label = text_duplicate("run")},
			 back = {0};
	CHECK_INT(store_token_insert(store, &row, &error), 0);
	CHECK_INT(store_token_by_hash(store, row.hash, &back, &error), 1);
	CHECK(id_equal(&back.id, &row.id) && !id_is_set(&back.sandbox));
	token_row_done(&back);
	uint8_t other[32] = {1, 2, 0, 4};
	CHECK_INT(store_token_by_hash(store, other, &back, &error), 0);
	int count = 0;
	CHECK_INT(store_token_each(store, see_token, &count, &error), 0);
	CHECK_INT(count, 1);
	CHECK_INT(store_token_revoke_label(store, "run", 5, &error), 1);
	CHECK_INT(store_token_revoke_label(store, "run", 6, &error), 0);
	CHECK_INT(store_token_revoke(store, &row.id, 7, &error), 0);
	CHECK_INT(store_token_by_hash(store, row.hash, &back, &error), 1);
	CHECK_INT(back.revoked_wall, 5);
	struct id unknown = id_new();
	CHECK_INT(store_token_revoke(store, &unknown, 7, &error), -1);
	CHECK_INT(error.kind, ERROR_TOKEN_NOT_FOUND);
	token_row_done(&back);
	token_row_done(&row);
	store_close(store);
	remove_directory();
}

TEST(files_are_private)
{
	struct stat info;
	fresh_directory();
	mkdir(directory, 0755);
	chmod(directory, 0755);
	struct store *store = open_store();
	struct error error = {0};
	struct sandbox_row row = sandbox("a", NULL, 1);
	CHECK_INT(store_sandbox_insert(store, &row, &error), 0);
	sandbox_row_done(&row);
	CHECK(stat(directory, &info) == 0);
	CHECK_INT(info.st_mode & 07777, 0700);
	CHECK(stat(database, &info) == 0);
	CHECK_INT(info.st_mode & 07777, 0600);
	char name[128];
	snprintf(name, sizeof(name), "%s-wal", database);
	CHECK(stat(name, &info) == 0);
	CHECK_INT(info.st_mode & 07777, 0600);
	store_close(store);
	remove_directory();
}

/* The bytes of the database, to prove that a refusal changed none. */
static char *contents(size_t *ret_size)
{
	int fd = open(database, O_RDONLY | O_CLOEXEC);
	struct stat info;
	if (fd < 0 || fstat(fd, &info) < 0)
		return NULL;
	char *data = malloc((size_t)info.st_size + 1);
	*ret_size = (size_t)info.st_size;
	CHECK_INT(fd_read_full(fd, data, *ret_size), 0);
	close(fd);
	return data;
}

static void check_refused(enum error_kind kind)
{
	size_t before_size = 0, after_size = 0;
	char *before = contents(&before_size);
	struct store *store = NULL;
	struct error error = {0};
	CHECK_INT(store_open(directory, &store, &error), -1);
	if (error.kind != kind)
		test_fail(__FILE__, __LINE__, "kind %d: %s", error.kind, error.message);
	CHECK(store == NULL);
	char *after = contents(&after_size);
	CHECK(before && after && before_size == after_size &&
	      memcmp(before, after, before_size) == 0);
	free(before);
	free(after);
}

static void overwrite(off_t offset, const void *data, size_t size)
{
	int fd = open(database, O_WRONLY | O_CLOEXEC);
	CHECK(pwrite(fd, data, size, offset) == (ssize_t)size);
	close(fd);
}

TEST(corrupt_databases_are_refused_untouched)
{
	struct error error = {0};
	char rubbish[4096];
	memset(rubbish, 0x5a, sizeof(rubbish));
	fresh_directory();
	struct store *store = open_store();
	for (int i = 0; i < 200; i++) {
		struct sandbox_row row = sandbox("a", NULL, i);
		CHECK_INT(store_sandbox_insert(store, &row, &error), 0);
		sandbox_row_done(&row);
	}
	store_close(store);
	overwrite(4096, rubbish, sizeof(rubbish)); /* a page in the middle */
	check_refused(ERROR_STORE_CORRUPT);
	overwrite(0, rubbish, 100); /* the header */
	check_refused(ERROR_STORE_CORRUPT);
	CHECK_INT(truncate(database, 0), 0);
	check_refused(ERROR_STORE_CORRUPT);
	CHECK_INT(truncate(database, 10), 0);
	check_refused(ERROR_STORE_CORRUPT);
	remove_directory();
}

static void alter(const char *sql)
{
	sqlite3 *raw;
	CHECK_INT(sqlite3_open(database, &raw), SQLITE_OK);
	CHECK_INT(sqlite3_exec(raw, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(raw);
}

TEST(newer_and_foreign_databases_are_refused_untouched)
{
	fresh_directory();
	store_close(open_store());
	alter("PRAGMA user_version = 4711");
	check_refused(ERROR_STORE_NEWER);
	alter("PRAGMA user_version = 1; PRAGMA application_id = 5");
	check_refused(ERROR_STORE_CORRUPT);
	remove_directory();
}

TEST(log_without_database)
{
	char name[128];
	struct store *store = NULL;
	struct error error = {0};
	fresh_directory();
	mkdir(directory, 0700);
	snprintf(name, sizeof(name), "%s-wal", database);
	close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	CHECK_INT(store_open(directory, &store, &error), -1);
	CHECK_INT(error.kind, ERROR_STORE_CORRUPT);
	CHECK(access(database, F_OK) != 0);
	remove_directory();
}

/* What was committed is there although nobody closed the database. */
TEST(a_killed_writer_loses_nothing)
{
	struct error error = {0};
	struct sandbox_row row = sandbox("a", NULL, 1), back = {0};
	fresh_directory();
	pid_t child = fork();
	if (child == 0) {
		struct store *store = open_store();
		int result = store_sandbox_insert(store, &row, &error);
		_exit(result == 0 ? 0 : 1);
	}
	int status = -1;
	waitpid(child, &status, 0);
	CHECK_INT(status, 0);
	struct store *store = open_store();
	CHECK_INT(store_sandbox_get(store, &row.id, &back, &error), 1);
	sandbox_row_done(&back);
	sandbox_row_done(&row);
	store_close(store);
	remove_directory();
}

/* In a child with a mount namespace of its own: a file system of 512 KiB runs full. */
static int fill_small_disk(void)
{
	struct error error = {0};
	struct store *store = NULL;
	mkdir(directory, 0700);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", directory, "tmpfs", 0, "size=512k,mode=0700") < 0)
		return 10;
	if (store_open(directory, &store, &error) < 0)
		return 11;
	int result = 0, written = 0;
	struct sandbox_row last = {0};
	for (; result == 0 && written < 10000; written++) {
		struct sandbox_row row = sandbox("a", NULL, written);
		row.metadata = calloc(1, 4096);
		row.metadata_size = 4096;
		result = store_sandbox_insert(store, &row, &error);
		if (result == 0) {
			sandbox_row_done(&last);
			last = row;
		} else {
			sandbox_row_done(&row);
		}
	}
	if (result == 0 || error.kind != ERROR_NO_SPACE) {
		printf("# %d: %s\n", error.kind, error.message);
		return 12;
	}
	struct sandbox_row back = {0};
	if (store_sandbox_get(store, &last.id, &back, &error) != 1)
		return 13;
	sandbox_row_done(&back);
	sandbox_row_done(&last);
	store_close(store);
	return 0;
}

TEST(a_full_disk_is_said_so)
{
	fresh_directory();
	if (geteuid() != 0) {
		printf("# needs root to mount a small file system\n");
		return;
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(fill_small_disk());
	int status = -1;
	waitpid(child, &status, 0);
	CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
	remove_directory();
}

static int make_sevens(void *data, uint8_t *value, size_t size, struct error *error)
{
	(void)error;
	++*(int *)data;
	memset(value, 7, size);
	return 0;
}

static int make_nothing(void *data, uint8_t *value, size_t size, struct error *error)
{
	(void)data;
	(void)value;
	(void)size;
	return error_set(error, ERROR_INTERNAL, "no key today");
}

TEST(a_secret_is_made_once)
{
	fresh_directory();
	struct store *store = open_store();
	struct error error = {0};
	uint8_t first[32], again[32], other[32], made[16], none[16] = {0};
	int calls = 0;
	CHECK_INT(store_secret_get(store, "url", 32, first, &error), 0);
	CHECK_INT(store_secret_get(store, "other", 32, other, &error), 0);
	CHECK_INT(store_secret_get_or_make(store, "made", 16, make_sevens, &calls, made, &error),
		  0);
	CHECK_INT(store_secret_get_or_make(store, "none", 16, make_nothing, NULL, none, &error),
		  -1);
	CHECK_TEXT(error.message, "no key today");
	store_close(store);
	store = open_store();
	CHECK_INT(store_secret_get(store, "url", 32, again, &error), 0);
	CHECK(memcmp(first, again, 32) == 0);
	CHECK(memcmp(first, other, 32) != 0);
	CHECK_INT(store_secret_get_or_make(store, "made", 16, make_nothing, NULL, made, &error), 0);
	CHECK_INT(made[15], 7);
	CHECK_INT(calls, 1);
	/* Another size than it was made with is not served by halves. */
	CHECK_INT(store_secret_get(store, "url", 16, none, &error), -1);
	CHECK_INT(error.kind, ERROR_STORE_CORRUPT);
	CHECK_INT(store_secret_get(store, "large", SECRET_SIZE_MAX + 1, again, &error), -1);
	store_close(store);
	remove_directory();
}
