/* File operations over a socketpair against a directory of their own: every operation, and what a
 * hostile file system does to them. Searches are in test_file_search.c, watches in
 * test_file_watch.c. */
#include "file_harness.h"

#include <sys/mount.h>
#include <sys/xattr.h>

static struct file_request request_for(uint8_t operation, const char *path)
{
	return (struct file_request){.operation = operation, .path = text_bytes(path)};
}

static void run_path(uint8_t operation, const char *path, uint32_t flags, struct answer *answer)
{
	struct file_request request = request_for(operation, path);
	request.flags = flags;
	run(&request, answer);
}

static void run_two(uint8_t operation, const char *path, const char *path2, uint32_t flags,
		    struct answer *answer)
{
	struct file_request request = request_for(operation, path);
	request.flags = flags;
	request.path2 = text_bytes(path2);
	run(&request, answer);
}

struct entry {
	char name[512], target[GUEST_PATH_MAX];
	uint8_t type;
	uint32_t mode, uid, gid;
	uint64_t size, inode;
	int64_t mtime;
};

static struct entry read_entry(struct reader *reader)
{
	struct entry entry = {0};
	read_text(reader, entry.name, sizeof(entry.name));
	entry.type = read_u8(reader);
	entry.mode = read_u32(reader);
	entry.uid = read_u32(reader);
	entry.gid = read_u32(reader);
	entry.size = read_u64(reader);
	entry.mtime = read_i64(reader);
	entry.inode = read_u64(reader);
	read_text(reader, entry.target, sizeof(entry.target));
	return entry;
}

static struct entry stat_of(const char *path, uint32_t flags)
{
	static struct answer answer;
	run_path(FILE_STAT, path, flags, &answer);
	CHECK_OK(answer);
	struct reader reader = reader_on(answer.result, answer.result_size);
	struct entry entry = read_entry(&reader);
	CHECK_INT(reader_finish(&reader), 0);
	return entry;
}

static struct answer answer;

TEST(stat)
{
	make_root();
	put_text("file", "hello");
	CHECK_INT(symlink("file", in_root("link")), 0);
	struct entry entry = stat_of(in_root("file"), 0);
	CHECK_TEXT(entry.name, "file");
	CHECK_INT(entry.type, 'f');
	CHECK_INT(entry.size, 5);
	CHECK_INT(entry.mode, 0644);
	entry = stat_of(in_root("link"), FILE_NO_FOLLOW);
	CHECK_INT(entry.type, 'l');
	CHECK_TEXT(entry.target, "file");
	CHECK_INT(stat_of(in_root("link"), 0).type, 'f');
	CHECK_TEXT(stat_of("/", 0).name, "/");
	run_path(FILE_STAT, in_root("missing"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	char expected[300];
	snprintf(expected, sizeof(expected), "%s/missing: no such file or directory", root);
	CHECK_TEXT(answer.failure.message, expected);
	run_path(FILE_STAT, "", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	run_path(FILE_STAT, "surely/not/there", 0, &answer);
	CHECK_TEXT(answer.failure.message,
		   "/workspace/surely/not/there: no such file or directory");
	remove_root();
}

TEST(loops_and_long_names)
{
	make_root();
	CHECK_INT(symlink("b", in_root("a")), 0);
	CHECK_INT(symlink("a", in_root("b")), 0);
	run_path(FILE_STAT, in_root("a"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_LOOP);
	run_path(FILE_READ, in_root("a"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_LOOP);
	struct file_request request = request_for(FILE_WRITE, in_root("a"));
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_LOOP);
	char path[5000];
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	run_path(FILE_STAT, path, 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	path[300] = '\0';
	run_path(FILE_STAT, path, 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	CHECK(strlen(answer.failure.message) < 256);
	CHECK(strstr(answer.failure.message, "...") && strstr(answer.failure.message, "too long"));
	remove_root();
}

TEST(list)
{
	make_root();
	put_text("plain", "1");
	put_text("new\nline", "22");
	put_text("\xff\xfe", "333");
	CHECK_INT(mkfifo(in_root("fifo"), 0600), 0);
	CHECK_INT(symlink("/nowhere", in_root("link")), 0);
	CHECK_INT(mkdir(in_root("dir"), 0700), 0);
	run_path(FILE_LIST, root, 0, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 6);
	struct reader reader = reader_on(answer.data, answer.data_size);
	int found = 0;
	for (int i = 0; i < 6; i++) {
		struct entry entry = read_entry(&reader);
		found += strcmp(entry.name, "new\nline") == 0 && entry.size == 2;
		found += strcmp(entry.name, "\xff\xfe") == 0 && entry.size == 3;
		found += strcmp(entry.name, "fifo") == 0 && entry.type == 'p';
		found += strcmp(entry.name, "dir") == 0 && entry.type == 'd' && entry.mode == 0700;
		found += strcmp(entry.name, "link") == 0 && strcmp(entry.target, "/nowhere") == 0;
	}
	CHECK_INT(found, 5);
	CHECK_INT(reader_finish(&reader), 0);
	free_answer(&answer);
	struct file_request request = request_for(FILE_LIST, root);
	request.limit = 2;
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 2);
	CHECK_INT(answer.result[4], 1);
	free_answer(&answer);
	run_path(FILE_LIST, in_root("plain"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	run_path(FILE_LIST, in_root("fifo"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	remove_root();
}

TEST(read)
{
	make_root();
	size_t size = 3 * 1024 * 1024 + 17;
	uint8_t *data = malloc(size);
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	put_file("large", data, size);
	run_path(FILE_READ, in_root("large"), 0, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), size);
	CHECK_INT(answer.data_size, size);
	CHECK(answer.data_size == size && memcmp(answer.data, data, size) == 0);
	free_answer(&answer);
	struct file_request request = request_for(FILE_READ, in_root("large"));
	request.offset = 1000;
	request.length = 100000;
	run(&request, &answer);
	CHECK_INT(answer.data_size, 100000);
	CHECK(answer.data_size == 100000 && memcmp(answer.data, data + 1000, 100000) == 0);
	free_answer(&answer);
	request.offset = size + 5;
	run(&request, &answer);
	CHECK_OK(answer);
	CHECK_INT(answer.data_size, 0);
	request.offset = UINT64_MAX;
	run(&request, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	free(data);
	remove_root();
}

TEST(read_of_what_is_no_file)
{
	make_root();
	CHECK_INT(mkfifo(in_root("fifo"), 0600), 0);
	run_path(FILE_READ, in_root("fifo"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	CHECK(strstr(answer.failure.message, "is a FIFO") != NULL);
	CHECK(answer.seconds < 20); /* nobody would ever have opened its other end */
	run_path(FILE_READ, root, 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	run_path(FILE_READ, "/dev/zero", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	struct file_request request = request_for(FILE_WRITE, in_root("fifo"));
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	request.operation = FILE_APPEND;
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	/* A file of the kernel's: says it is empty, and is not. */
	run_path(FILE_READ, "/proc/self/status", 0, &answer);
	CHECK_OK(answer);
	CHECK(answer.data_size > 100);
	CHECK_INT(result_number(&answer), answer.data_size);
	free_answer(&answer);
	remove_root();
}

/* A reader that takes nothing stops the sender at the window, and can still cancel. */
TEST(read_honours_credit)
{
	make_root();
	size_t size = 4 * 1024 * 1024;
	void *data = calloc(1, size);
	put_file("large", data, size);
	free(data);
	struct file_request request = request_for(FILE_READ, in_root("large"));
	struct tool_exec running = start(&request);
	struct frame frame;
	uint64_t got = 0;
	while (next_frame(&running, &frame, got < FILE_WINDOW ? 20000 : 300) == FRAME_DATA)
		got += frame.size;
	CHECK_INT(got, FILE_WINDOW);
	give_credit(&running, 1000);
	/* Less than a frame: it waits for more. */
	CHECK_INT(next_frame(&running, &frame, 100), 0);
	send_frame_to(&running, FRAME_CANCEL, NULL, 0);
	finish(&running, &answer);
	CHECK_FAILS(answer, ERROR_CANCELLED);
	remove_root();
}

TEST(write)
{
	make_root();
	struct file_request request = request_for(FILE_WRITE, in_root("new"));
	run_with_data(&request, "hello", 5, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 5);
	CHECK_TEXT(get_text("new"), "hello");
	CHECK_INT(stat_of(in_root("new"), 0).mode, 0644);
	CHECK_INT(count_entries("."), 1);
	size_t size = 5 * 1024 * 1024 + 3;
	uint8_t *data = malloc(size);
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)(i * 31 + i / 1009);
	request.mode = 0600;
	run_with_data(&request, data, size, &answer);
	CHECK_INT(result_number(&answer), size);
	CHECK_INT(stat_of(in_root("new"), 0).mode, 0600);
	run_path(FILE_READ, in_root("new"), 0, &answer);
	CHECK(answer.data_size == size && memcmp(answer.data, data, size) == 0);
	free_answer(&answer);
	free(data);
	request.flags = FILE_NO_REPLACE;
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	request = request_for(FILE_WRITE, in_root("a/b/c/file"));
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	request.flags = FILE_PARENTS;
	run_with_data(&request, "deep", 4, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("a/b/c/file"), "deep");
	request = request_for(FILE_WRITE, in_root("a"));
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	request = request_for(FILE_WRITE, in_root("new/x"));
	run_with_data(&request, "x", 1, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	request = request_for(FILE_WRITE, in_root("odd\n\xff"));
	request.flags = FILE_NO_REPLACE;
	run_with_data(&request, "", 0, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("odd\n\xff"), "");
	remove_root();
}

TEST(write_keeps_mode_and_owner)
{
	make_root();
	put_text("script", "old");
	CHECK_INT(chown(in_root("script"), 1234, 4321), 0);
	CHECK_INT(chmod(in_root("script"), 04751), 0);
	struct file_request request = request_for(FILE_WRITE, in_root("script"));
	run_with_data(&request, "new", 3, &answer);
	CHECK_OK(answer);
	struct entry entry = stat_of(in_root("script"), 0);
	CHECK_INT(entry.mode, 04751);
	CHECK_INT(entry.uid, 1234);
	CHECK_INT(entry.gid, 4321);
	remove_root();
}

TEST(write_through_links)
{
	make_root();
	CHECK_INT(mkdir(in_root("dir"), 0755), 0);
	put_text("dir/target", "old");
	CHECK_INT(symlink("dir/target", in_root("link")), 0);
	CHECK_INT(symlink("link", in_root("second")), 0);
	CHECK_INT(symlink("dir/made", in_root("dangling")), 0);
	CHECK_INT(symlink("nodir/made", in_root("lost")), 0);
	struct file_request request = request_for(FILE_WRITE, in_root("second"));
	run_with_data(&request, "new", 3, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("dir/target"), "new");
	CHECK_INT(stat_of(in_root("second"), FILE_NO_FOLLOW).type, 'l');
	request = request_for(FILE_WRITE, in_root("dangling"));
	run_with_data(&request, "made", 4, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("dir/made"), "made");
	request = request_for(FILE_WRITE, in_root("lost"));
	run_with_data(&request, "made", 4, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	request = request_for(FILE_WRITE, in_root("link"));
	request.flags = FILE_NO_FOLLOW;
	run_with_data(&request, "own", 3, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("link"), FILE_NO_FOLLOW).type, 'f');
	CHECK_TEXT(get_text("dir/target"), "new");
	/* Somebody else's link in a sticky directory is not followed, as by the kernel. */
	CHECK_INT(mkdir(in_root("tmp"), 0700), 0);
	CHECK_INT(chmod(in_root("tmp"), 01777), 0);
	CHECK_INT(symlink(in_root("dir/target"), in_root("tmp/trap")), 0);
	CHECK_INT(lchown(in_root("tmp/trap"), 1234, 1234), 0);
	request = request_for(FILE_WRITE, in_root("tmp/trap"));
	run_with_data(&request, "bad", 3, &answer);
	CHECK_FAILS(answer, ERROR_FILE_DENIED);
	CHECK_TEXT(get_text("dir/target"), "new");
	remove_root();
}

TEST(write_is_cancelled)
{
	make_root();
	put_text("kept", "old");
	struct file_request request = request_for(FILE_WRITE, in_root("kept"));
	char *data = calloc(1, 200000);
	struct tool_exec running = start(&request);
	send_data(&running, data, 200000);
	send_frame_to(&running, FRAME_CANCEL, NULL, 0);
	finish(&running, &answer);
	CHECK_FAILS(answer, ERROR_CANCELLED);
	CHECK_TEXT(get_text("kept"), "old");
	CHECK_INT(count_entries("."), 1);
	/* PID 1 gone, in the middle of it. */
	running = start(&request);
	send_data(&running, data, 200000);
	end(&running);
	CHECK_TEXT(get_text("kept"), "old");
	CHECK_INT(count_entries("."), 1);
	/* Killed. */
	running = start(&request);
	send_data(&running, data, 200000);
	kill(running.pid, SIGKILL);
	waitpid(running.pid, NULL, 0);
	close(running.socket);
	CHECK_TEXT(get_text("kept"), "old");
	CHECK_INT(count_entries("."), 1);
	free(data);
	remove_root();
}

TEST(append)
{
	make_root();
	struct file_request request = request_for(FILE_APPEND, in_root("log"));
	run_with_data(&request, "one\n", 4, &answer);
	CHECK_OK(answer);
	run_with_data(&request, "two\n", 4, &answer);
	CHECK_INT(result_number(&answer), 4);
	CHECK_TEXT(get_text("log"), "one\ntwo\n");
	CHECK_INT(symlink("made", in_root("dangling")), 0);
	request = request_for(FILE_APPEND, in_root("dangling"));
	run_with_data(&request, "x", 1, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("made"), "x");
	run_path(FILE_APPEND, root, 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	remove_root();
}

TEST(no_space)
{
	make_root();
	if (mount("none", root, "tmpfs", 0, "size=65536") < 0) {
		printf("# skipped: no tmpfs can be mounted here\n");
		remove_root();
		return;
	}
	char *data = calloc(1, 300000);
	struct file_request request = request_for(FILE_WRITE, in_root("large"));
	run_with_data(&request, data, 300000, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NO_SPACE);
	CHECK_INT(count_entries("."), 0);
	free(data);
	CHECK_INT(umount(root), 0);
	remove_root();
}

TEST(mkdir)
{
	make_root();
	run_path(FILE_MKDIR, in_root("a"), 0, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("a"), 0).mode, 0755);
	run_path(FILE_MKDIR, in_root("a"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	run_path(FILE_MKDIR, in_root("a/"), FILE_PARENTS, &answer);
	CHECK_OK(answer);
	run_path(FILE_MKDIR, in_root("x/y/z"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	struct file_request request = request_for(FILE_MKDIR, in_root("x//y/./z/"));
	request.flags = FILE_PARENTS;
	request.mode = 01777;
	run(&request, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("x/y/z"), 0).mode, 01777);
	CHECK_INT(stat_of(in_root("x/y"), 0).mode, 0755);
	put_text("file", "");
	run_path(FILE_MKDIR, in_root("file/d"), FILE_PARENTS, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	run_path(FILE_MKDIR, in_root("file"), FILE_PARENTS, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	remove_root();
}

TEST(remove)
{
	make_root();
	put_text("outside", "safe");
	CHECK_INT(mkdir(in_root("tree"), 0755), 0);
	CHECK_INT(mkdir(in_root("tree/sub"), 0755), 0);
	put_text("tree/sub/file", "x");
	CHECK_INT(symlink(in_root("outside"), in_root("tree/link")), 0);
	CHECK_INT(symlink(root, in_root("tree/sub/up")), 0);
	CHECK_INT(mkfifo(in_root("tree/fifo"), 0600), 0);
	run_path(FILE_REMOVE, in_root("tree"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	run_path(FILE_REMOVE, in_root("tree/"), FILE_RECURSIVE, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 6);
	CHECK_TEXT(get_text("outside"), "safe");
	CHECK_INT(symlink(root, in_root("self")), 0);
	run_path(FILE_REMOVE, in_root("self"), FILE_RECURSIVE, &answer);
	CHECK_INT(result_number(&answer), 1);
	run_path(FILE_REMOVE, in_root("outside"), 0, &answer);
	CHECK_OK(answer);
	run_path(FILE_REMOVE, in_root("outside"), FILE_RECURSIVE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	run_path(FILE_REMOVE, "/", FILE_RECURSIVE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	CHECK_INT(mkdir(in_root("d"), 0755), 0);
	run_path(FILE_REMOVE, in_root("d/.."), FILE_RECURSIVE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	remove_root();
}

/* Deeper than any path is long, and wider than any buffer. */
static void make_deep(const char *name, int depth)
{
	CHECK_INT(mkdir(in_root(name), 0755), 0);
	int at = open(in_root(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < depth; i++) {
		char part[] = "a-directory-with-a-name-of-some-length";
		int file = openat(at, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		close(file);
		mkdirat(at, part, 0755);
		int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	CHECK(at >= 0);
	close(at);
}

TEST(remove_deep_and_wide)
{
	make_root();
	make_deep("deep", 10000);
	run_path(FILE_REMOVE, in_root("deep"), FILE_RECURSIVE, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 20001);
	CHECK_INT(mkdir(in_root("wide"), 0755), 0);
	int at = open(in_root("wide"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 20000; i++) {
		char name[32];
		snprintf(name, sizeof(name), "%d", i);
		if (i % 2)
			mkdirat(at, name, 0755);
		else
			close(openat(at, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	close(at);
	run_path(FILE_REMOVE, in_root("wide"), FILE_RECURSIVE, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 20001);
	remove_root();
}

TEST(remove_stays_on_its_mount)
{
	make_root();
	CHECK_INT(mkdir(in_root("tree"), 0755), 0);
	CHECK_INT(mkdir(in_root("tree/mount"), 0755), 0);
	CHECK_INT(mkdir(in_root("source"), 0755), 0);
	put_text("source/precious", "x");
	put_text("tree/file", "x");
	/* A bind mount of the same file system: the device number does not give it away. */
	if (mount(in_root("source"), in_root("tree/mount"), NULL, MS_BIND, NULL) < 0) {
		printf("# skipped: no bind mount can be made here\n");
		remove_root();
		return;
	}
	run_path(FILE_REMOVE, in_root("tree"), FILE_RECURSIVE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	CHECK(strstr(answer.failure.message, "tree/mount: something is mounted there") != NULL);
	CHECK_TEXT(get_text("source/precious"), "x");
	CHECK(get_text("tree/file") == NULL);
	CHECK_INT(umount(in_root("tree/mount")), 0);
	remove_root();
}

TEST(rename)
{
	make_root();
	put_text("a", "a");
	put_text("b", "b");
	CHECK_INT(mkdir(in_root("d"), 0755), 0);
	run_two(FILE_RENAME, in_root("a"), in_root("b"), FILE_NO_REPLACE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	run_two(FILE_RENAME, in_root("a"), in_root("b"), 0, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("b"), "a");
	run_two(FILE_RENAME, in_root("missing"), in_root("b"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	run_two(FILE_RENAME, in_root("b"), in_root("d"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	run_two(FILE_RENAME, in_root("d"), in_root("d/e"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	run_two(FILE_RENAME, in_root("b"), in_root("x/y/b"), FILE_PARENTS, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("x/y/b"), "a");
	remove_root();
}

TEST(rename_across_file_systems)
{
	make_root();
	CHECK_INT(mkdir(in_root("other"), 0755), 0);
	if (mount("none", in_root("other"), "tmpfs", 0, NULL) < 0) {
		printf("# skipped: no tmpfs can be mounted here\n");
		remove_root();
		return;
	}
	CHECK_INT(mkdir(in_root("tree"), 0750), 0);
	put_text("tree/file", "content");
	CHECK_INT(symlink("file", in_root("tree/link")), 0);
	run_two(FILE_RENAME, in_root("tree"), in_root("other/tree"), 0, &answer);
	CHECK_OK(answer);
	CHECK_TEXT(get_text("other/tree/file"), "content");
	CHECK_INT(stat_of(in_root("other/tree/link"), FILE_NO_FOLLOW).type, 'l');
	CHECK_INT(stat_of(in_root("other/tree"), 0).mode, 0750);
	CHECK_INT(access(in_root("tree"), F_OK), -1);
	CHECK_INT(count_entries("other"), 1);
	CHECK_INT(umount(in_root("other")), 0);
	remove_root();
}

TEST(copy_file)
{
	make_root();
	put_text("a", "content");
	CHECK_INT(chmod(in_root("a"), 0751), 0);
	const struct timespec times[2] = {{1000, 0}, {2000, 5}};
	CHECK_INT(utimensat(AT_FDCWD, in_root("a"), times, 0), 0);
	run_two(FILE_COPY, in_root("a"), in_root("b"), 0, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 7);
	CHECK_TEXT(get_text("b"), "content");
	struct entry entry = stat_of(in_root("b"), 0);
	CHECK_INT(entry.mode, 0751);
	CHECK_INT(entry.mtime, 2000000000005);
	run_two(FILE_COPY, in_root("a"), in_root("b"), FILE_NO_REPLACE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	run_two(FILE_COPY, in_root("a"), in_root("a"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	CHECK_TEXT(get_text("a"), "content");
	run_two(FILE_COPY, "/proc/self/status", in_root("status"), 0, &answer);
	CHECK_OK(answer);
	CHECK(result_number(&answer) > 100);
	run_two(FILE_COPY, "/dev/zero", in_root("zero"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	/* 1 GiB with one byte in its middle stays sparse. */
	int fd = open(in_root("sparse"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	CHECK_INT(pwrite(fd, "x", 1, 512 << 20), 1);
	CHECK_INT(ftruncate(fd, 1 << 30), 0);
	close(fd);
	run_two(FILE_COPY, in_root("sparse"), in_root("sparse2"), 0, &answer);
	CHECK_OK(answer);
	struct stat stat;
	CHECK_INT(lstat(in_root("sparse2"), &stat), 0);
	CHECK_INT(stat.st_size, 1 << 30);
	CHECK(stat.st_blocks < 1024);
	remove_root();
}

TEST(copy_tree)
{
	make_root();
	CHECK_INT(mkdir(in_root("t"), 0750), 0);
	CHECK_INT(mkdir(in_root("t/ro"), 0755), 0);
	put_text("t/ro/file", "12345");
	put_text("t/\xff\n", "678");
	CHECK_INT(symlink("ro/file", in_root("t/link")), 0);
	CHECK_INT(symlink("nowhere", in_root("t/lost")), 0);
	CHECK_INT(mkfifo(in_root("t/fifo"), 0600), 0);
	CHECK_INT(chmod(in_root("t/ro"), 0555), 0);
	run_two(FILE_COPY, in_root("t"), in_root("u"), 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	run_two(FILE_COPY, in_root("t"), in_root("u"), FILE_RECURSIVE, &answer);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 8);
	CHECK_TEXT(get_text("u/ro/file"), "12345");
	CHECK_TEXT(get_text("u/\xff\n"), "678");
	CHECK_TEXT(stat_of(in_root("u/lost"), FILE_NO_FOLLOW).target, "nowhere");
	CHECK_INT(stat_of(in_root("u/ro"), 0).mode, 0555);
	CHECK_INT(stat_of(in_root("u"), 0).mode, 0750);
	CHECK_INT(stat_of(in_root("u/fifo"), 0).type, 'p');
	run_two(FILE_COPY, in_root("t"), in_root("t/ro/again"), FILE_RECURSIVE, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	make_deep("deep", 3000);
	run_two(FILE_COPY, in_root("deep"), in_root("deep2"), FILE_RECURSIVE, &answer);
	CHECK_OK(answer);
	run_path(FILE_REMOVE, in_root("deep2"), FILE_RECURSIVE, &answer);
	CHECK_INT(result_number(&answer), 6001);
	run_path(FILE_REMOVE, in_root("deep"), FILE_RECURSIVE, &answer);
	CHECK_INT(result_number(&answer), 6001);
	remove_root();
}

TEST(links)
{
	make_root();
	run_two(FILE_SYMLINK, in_root("link"), "some/where\n", 0, &answer);
	CHECK_OK(answer);
	run_path(FILE_READLINK, in_root("link"), 0, &answer);
	CHECK_OK(answer);
	char target[64];
	struct reader reader = reader_on(answer.result, answer.result_size);
	read_text(&reader, target, sizeof(target));
	CHECK_TEXT(target, "some/where\n");
	run_two(FILE_SYMLINK, in_root("link"), "x", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_EXISTS);
	run_two(FILE_SYMLINK, in_root("link2"), "", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	run_path(FILE_READLINK, root, 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	remove_root();
}

TEST(chmod_and_chown)
{
	make_root();
	CHECK_INT(mkdir(in_root("d"), 0755), 0);
	put_text("d/file", "x");
	CHECK_INT(symlink("/etc/hosts", in_root("d/link")), 0);
	struct file_request request = request_for(FILE_CHMOD, in_root("d/file"));
	request.mode = 0640;
	run(&request, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("d/file"), 0).mode, 0640);
	struct stat before, after;
	stat("/etc/hosts", &before);
	request = request_for(FILE_CHMOD, in_root("d"));
	request.mode = 0700;
	request.flags = FILE_RECURSIVE;
	run(&request, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("d/file"), 0).mode, 0700);
	run_two(FILE_CHOWN, in_root("d"), "1001:1002", FILE_RECURSIVE, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("d/file"), 0).uid, 1001);
	CHECK_INT(stat_of(in_root("d/file"), 0).gid, 1002);
	CHECK_INT(stat_of(in_root("d/link"), FILE_NO_FOLLOW).uid, 1001);
	stat("/etc/hosts", &after);
	CHECK_INT(after.st_uid, before.st_uid);
	CHECK_INT(after.st_mode, before.st_mode);
	run_two(FILE_CHOWN, in_root("d"), "root", 0, &answer);
	CHECK_OK(answer);
	CHECK_INT(stat_of(in_root("d"), 0).uid, 0);
	CHECK_INT(stat_of(in_root("d"), 0).gid, 1002);
	run_two(FILE_CHOWN, in_root("d"), "root:", 0, &answer);
	CHECK_INT(stat_of(in_root("d"), 0).gid, 0);
	run_two(FILE_CHOWN, in_root("d"), ":77", 0, &answer);
	CHECK_INT(stat_of(in_root("d"), 0).gid, 77);
	run_two(FILE_CHOWN, in_root("d"), "nobody-of-that-name", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	run_two(FILE_CHOWN, in_root("d"), ":", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	run_two(FILE_CHOWN, in_root("d"), "-1", 0, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	remove_root();
}

static void replace(const char *name, const char *from, const char *to, uint32_t limit)
{
	struct file_request request = request_for(FILE_REPLACE, in_root(name));
	request.pattern = text_bytes(from);
	request.replacement = text_bytes(to);
	request.limit = limit;
	run(&request, &answer);
}

TEST(replace)
{
	make_root();
	put_text("file", "one two one two one");
	CHECK_INT(chmod(in_root("file"), 0751), 0);
	ino_t inode = stat_of(in_root("file"), 0).inode;
	replace("file", "three", "x", 0);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), 0);
	CHECK_INT(stat_of(in_root("file"), 0).inode, inode);
	replace("file", "one", "1", 0);
	CHECK_INT(result_number(&answer), 3);
	CHECK_TEXT(get_text("file"), "1 two 1 two 1");
	CHECK_INT(stat_of(in_root("file"), 0).mode, 0751);
	replace("file", "two", "", 1);
	CHECK_INT(result_number(&answer), 1);
	CHECK_TEXT(get_text("file"), "1  1 two 1");
	replace("file", "", "x", 0);
	CHECK_FAILS(answer, ERROR_PATTERN_INVALID);
	replace("missing", "a", "x", 0);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	put_text("aaa", "aaaaa");
	replace("aaa", "aa", "b", 0);
	CHECK_INT(result_number(&answer), 2);
	CHECK_TEXT(get_text("aaa"), "bba");
	CHECK_INT(symlink("aaa", in_root("link")), 0);
	replace("link", "b", "c", 0);
	CHECK_TEXT(get_text("aaa"), "cca");
	CHECK_INT(stat_of(in_root("link"), FILE_NO_FOLLOW).type, 'l');
	CHECK_INT(count_entries("."), 3);
	remove_root();
}

/* Matches across every border of the window, against a plain loop over it all. */
TEST(replace_large)
{
	make_root();
	size_t size = 3 * 1024 * 1024;
	char *data = malloc(size);
	for (size_t i = 0; i < size; i++)
		data[i] = (char)('a' + (i * 7 + i / 13) % 5);
	const char *needle = "needle-that-is-looked-for";
	size_t count = 0;
	for (size_t at = 100; at + 64 < size; at += 4093 + count) {
		memcpy(data + at, needle, strlen(needle));
		count++;
	}
	put_file("large", data, size);
	replace("large", needle, "<>", 0);
	CHECK_OK(answer);
	CHECK_INT(result_number(&answer), count);
	run_path(FILE_READ, in_root("large"), 0, &answer);
	CHECK_INT(answer.data_size, size - count * (strlen(needle) - 2));
	size_t at = 0;
	bool same = true;
	for (size_t i = 0; i < size && same; at++) {
		bool hit =
		    size - i >= strlen(needle) && memcmp(data + i, needle, strlen(needle)) == 0;
		same = at < answer.data_size && answer.data[at] == (hit ? '<' : data[i]);
		at += hit;
		i += hit ? strlen(needle) : 1;
	}
	CHECK(same);
	free_answer(&answer);
	free(data);
	remove_root();
}

/* What the program says as it ends; ETXTBSY's 126 while somebody can still write to it. */
static int exit_code_of(const char *path)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		execl(path, path, NULL);
		_exit(errno == ETXTBSY ? 126 : 125);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs the operation, which cannot deliver its answer, and then what it has written. */
static int execute_before_the_answer(struct file_request *request, const char *data)
{
	struct tool_exec running = start_as(request, true);
	if (data)
		send_data(&running, data, strlen(data));
	send_frame_to(&running, FRAME_DATA_END, NULL, 0);
	int code = -1;
	for (int tries = 0; tries < 200 && code != 7; tries++) {
		usleep(10000);
		code = exit_code_of(in_root("program"));
	}
	end(&running);
	return code;
}

TEST(nobody_writes_when_the_answer_comes)
{
	make_root();
	struct file_request request = request_for(FILE_WRITE, in_root("program"));
	request.mode = 0755;
	CHECK_INT(execute_before_the_answer(&request, "#!/bin/sh\nexit 7\n"), 7);
	CHECK_INT(execute_before_the_answer(&request, "#!/bin/sh\nexit 7\n"), 7);
	request = request_for(FILE_APPEND, in_root("program"));
	put_text("program", "#!/bin/sh\n");
	CHECK_INT(execute_before_the_answer(&request, "exit 7\n"), 7);
	request = request_for(FILE_REPLACE, in_root("program"));
	request.pattern = text_bytes("8");
	request.replacement = text_bytes("7");
	put_text("program", "#!/bin/sh\nexit 8\n");
	CHECK_INT(execute_before_the_answer(&request, NULL), 7);
	remove_root();
}

/* What no honest PID 1 sends. */
TEST(broken_peer)
{
	make_root();
	put_text("file", "x");
	struct file_request request = request_for(FILE_WRITE, in_root("file"));
	struct tool_exec running = start(&request);
	CHECK_INT(send(running.socket, "abc", 3, MSG_NOSIGNAL), 3);
	finish(&running, &answer);
	CHECK_FAILS(answer, ERROR_CANCELLED);
	running = start(&request);
	send_frame_to(&running, FRAME_PING, "12345678", 8);
	finish(&running, &answer);
	CHECK_FAILS(answer, ERROR_CANCELLED);
	CHECK_TEXT(get_text("file"), "x");
	request = request_for(99, in_root("file"));
	run(&request, &answer);
	CHECK_FAILS(answer, ERROR_INVALID);
	request = request_for(FILE_READ, "a\0b");
	request.path.size = 3;
	run(&request, &answer);
	CHECK_FAILS(answer, ERROR_FILE_INVALID);
	remove_root();
}

TEST_MAIN
