/* Checkpoints of the database in a thread (store/checkpoint.h): commits on the loop do not wait for
 * the disk, the log stays bounded under continuous load, and nothing is lost. */
#include "store/checkpoint.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "store/sqlite.h"
#include "test.h"

TEST_MAIN

#define PAGE 4096
#define LOG_BYTES_MAX (64 * MIB)

static pthread_t loop_thread;
static unsigned synced_on_loop, synced_elsewhere;

/* SQLite's calls come here. */
int fdatasync(int fd)
{
	if (pthread_equal(pthread_self(), loop_thread))
		synced_on_loop++;
	else
		synced_elsewhere++;
	return (int)syscall(SYS_fdatasync, fd);
}

static char directory[64];

static struct store *store_open_fresh(uv_loop_t *loop)
{
	static int count;
	struct store *store = NULL;
	struct error error = {0};
	snprintf(directory, sizeof(directory), "/tmp/caisson-test-checkpoint-%d-%d", (int)getpid(),
		 count++);
	CHECK_INT(store_open(directory, &store, &error), 0);
	CHECK_INT(store_checkpoint_in_thread(store, loop, &error), 0);
	CHECK_INT(sqlite3_exec(store->database, "CREATE TABLE load (id INTEGER PRIMARY KEY, data)",
			       NULL, NULL, NULL),
		  SQLITE_OK);
	loop_thread = pthread_self();
	synced_on_loop = synced_elsewhere = 0;
	return store;
}

static void directory_remove(void)
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

static size_t log_size(void)
{
	char path[128];
	struct stat info;
	snprintf(path, sizeof(path), "%s/caisson.db-wal", directory);
	return stat(path, &info) == 0 ? (size_t)info.st_size : 0;
}

/* A transaction of so many pages. */
static void pages_write(struct store *store, int pages)
{
	char sql[128];
	snprintf(sql, sizeof(sql), "INSERT INTO load (data) VALUES (zeroblob(%d))", pages * PAGE);
	CHECK_INT(sqlite3_exec(store->database, sql, NULL, NULL, NULL), SQLITE_OK);
}

static int rows_count(sqlite3 *database)
{
	sqlite3_stmt *statement = NULL;
	CHECK_INT(sqlite3_prepare_v2(database, "SELECT count(*) FROM load", -1, &statement, NULL),
		  SQLITE_OK);
	CHECK_INT(sqlite3_step(statement), SQLITE_ROW);
	int count = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	return count;
}

/* Closes it, opens it again, and counts what is there. */
static void store_check_rows(struct store *store, uv_loop_t *loop, int rows)
{
	struct error error = {0};
	store_close(store);
	CHECK_INT(uv_run(loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(uv_loop_close(loop), 0);
	CHECK_INT(store_open(directory, &store, &error), 0);
	CHECK_INT(rows_count(store->database), rows);
	store_close(store);
	directory_remove();
}

TEST(a_commit_does_not_wait_for_the_disk)
{
	uv_loop_t loop;
	CHECK_INT(uv_loop_init(&loop), 0);
	struct store *store = store_open_fresh(&loop);
	pages_write(store, LOG_PAGES_CHECKPOINT + 10);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(synced_on_loop, 0);
	CHECK(synced_elsewhere >= 2); /* the log, the database */
	/* The whole log was moved: it begins anew, which makes its header durable. */
	size_t size = log_size();
	pages_write(store, LOG_PAGES_CHECKPOINT - 100);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(synced_on_loop, 1);
	CHECK(log_size() <= size);
	store_check_rows(store, &loop, 2);
}

/* As commands do it: small transactions that change the same pages again and again. */
TEST(the_log_stays_bounded_under_continuous_load)
{
	uv_loop_t loop;
	size_t largest = 0;
	CHECK_INT(uv_loop_init(&loop), 0);
	struct store *store = store_open_fresh(&loop);
	for (int i = 0; i < 10; i++)
		pages_write(store, 8);
	for (int i = 0; i < 5000; i++) {
		CHECK_INT(sqlite3_exec(store->database,
				       "UPDATE load SET data = randomblob(32000) WHERE id = 1 + "
				       "abs(random()) % 10",
				       NULL, NULL, NULL),
			  SQLITE_OK);
		usleep(100);
		uv_run(&loop, UV_RUN_NOWAIT);
		largest = MAX(largest, log_size());
	}
	CHECK(largest > LOG_PAGES_CHECKPOINT * PAGE);
	CHECK(largest < LOG_BYTES_MAX);
	store_check_rows(store, &loop, 10);
}

TEST(it_is_closed_during_a_checkpoint)
{
	uv_loop_t loop;
	CHECK_INT(uv_loop_init(&loop), 0);
	struct store *store = store_open_fresh(&loop);
	pages_write(store, LOG_PAGES_CHECKPOINT + 10);
	store_check_rows(store, &loop, 1);
}
