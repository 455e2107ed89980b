/* Watches over a socketpair: what is reported, and that nothing is missed or piles up. */
#include "file_harness.h"

#include <sched.h>

#define PATIENCE_MS 20000

static struct answer answer;

static struct tool_exec start_watch(const char *path, uint32_t flags)
{
	struct file_request request = {
	    .operation = FILE_WATCH, .flags = flags, .path = text_bytes(path)};
	return start(&request);
}

static char event_path[GUEST_PATH_MAX];

/* The next event: its kind, or -1. Its path, without the root, is in event_path. */
static int next_event(struct tool_exec *running, int wait_ms)
{
	struct frame frame;
	if (next_frame(running, &frame, wait_ms) != FRAME_DATA)
		return -1;
	struct reader reader = reader_on(frame.payload, frame.size);
	uint8_t kind = read_u8(&reader);
	char path[GUEST_PATH_MAX];
	read_text(&reader, path, sizeof(path));
	CHECK_INT(reader_finish(&reader), 0);
	CHECK(strncmp(path, root, strlen(root)) == 0);
	size_t skip = strlen(root) + (path[strlen(root)] == '/');
	snprintf(event_path, sizeof(event_path), "%s", path + skip);
	give_credit(running, frame.size);
	return kind;
}

static void expect(struct tool_exec *running, int kind, const char *path)
{
	int got = next_event(running, PATIENCE_MS);
	CHECK_INT(got, kind);
	if (got >= 0)
		CHECK_TEXT(event_path, path);
}

static void cancel(struct tool_exec *running)
{
	send_frame_to(running, FRAME_CANCEL, NULL, 0);
	finish(running, &answer);
	CHECK_FAILS(answer, ERROR_CANCELLED);
	free_answer(&answer);
}

TEST(one_directory)
{
	make_root();
	CHECK_INT(mkdir(in_root("sub"), 0755), 0);
	struct tool_exec running = start_watch(root, 0);
	expect(&running, WATCH_READY, "");
	put_text("file", "x");
	expect(&running, WATCH_CREATED, "file");
	expect(&running, WATCH_MODIFIED, "file");
	CHECK_INT(chmod(in_root("file"), 0600), 0);
	expect(&running, WATCH_ATTRIBUTES, "file");
	CHECK_INT(rename(in_root("file"), in_root("moved")), 0);
	expect(&running, WATCH_RENAMED_FROM, "file");
	expect(&running, WATCH_RENAMED_TO, "moved");
	CHECK_INT(unlink(in_root("moved")), 0);
	expect(&running, WATCH_REMOVED, "moved");
	put_text("new\n\xff", "");
	expect(&running, WATCH_CREATED, "new\n\xff");
	/* Not recursive: nothing of what happens below. */
	put_text("sub/file", "x");
	CHECK_INT(next_event(&running, 200), -1);
	cancel(&running);
	remove_root();
}

TEST(nested_directories)
{
	make_root();
	CHECK_INT(mkdir(in_root("old"), 0755), 0);
	struct tool_exec running = start_watch(root, FILE_RECURSIVE);
	expect(&running, WATCH_READY, "");
	put_text("old/file", "");
	expect(&running, WATCH_CREATED, "old/file");
	/* All of it before the watch has heard of the first: each name once, none missing. */
	CHECK_INT(mkdir(in_root("a"), 0755), 0);
	CHECK_INT(mkdir(in_root("a/b"), 0755), 0);
	CHECK_INT(mkdir(in_root("a/b/c"), 0755), 0);
	put_text("a/b/c/1", "");
	put_text("a/b/c/2", "");
	put_text("a/3", "");
	const char *names[] = {"a", "a/b", "a/b/c", "a/b/c/1", "a/b/c/2", "a/3"};
	int seen[6] = {0}, others = 0, all = 0;
	while (next_event(&running, all < 6 ? PATIENCE_MS : 500) == WATCH_CREATED) {
		int which = -1;
		for (int i = 0; i < 6; i++)
			which = strcmp(event_path, names[i]) == 0 ? i : which;
		if (which >= 0)
			all += seen[which]++ == 0;
		else
			others++;
	}
	for (int i = 0; i < 6; i++)
		CHECK_INT(seen[i], 1);
	CHECK_INT(others, 0);
	put_text("a/b/c/later", "");
	expect(&running, WATCH_CREATED, "a/b/c/later");
	/* A directory that moves takes its watches along. */
	CHECK_INT(rename(in_root("a/b"), in_root("z")), 0);
	expect(&running, WATCH_RENAMED_FROM, "a/b");
	expect(&running, WATCH_RENAMED_TO, "z");
	CHECK_INT(next_event(&running, 300), -1);
	put_text("z/c/after", "");
	expect(&running, WATCH_CREATED, "z/c/after");
	cancel(&running);
	remove_root();
}

/* A hundred trees made at full speed: every file is heard of. */
TEST(race)
{
	make_root();
	struct tool_exec running = start_watch(root, FILE_RECURSIVE);
	expect(&running, WATCH_READY, "");
	for (int i = 0; i < 100; i++) {
		char path[64];
		snprintf(path, sizeof(path), "d%d", i);
		CHECK_INT(mkdir(in_root(path), 0755), 0);
		snprintf(path, sizeof(path), "d%d/e", i);
		CHECK_INT(mkdir(in_root(path), 0755), 0);
		snprintf(path, sizeof(path), "d%d/e/f", i);
		put_text(path, "");
	}
	bool seen[100] = {false};
	int files = 0, index, length;
	while (files < 100 && next_event(&running, PATIENCE_MS) >= 0) {
		length = 0;
		if (sscanf(event_path, "d%d/e/f%n", &index, &length) == 1 &&
		    length == (int)strlen(event_path) && index < 100 && !seen[index]) {
			seen[index] = true;
			files++;
		}
	}
	CHECK_INT(files, 100);
	cancel(&running);
	remove_root();
}

TEST(root_goes)
{
	make_root();
	CHECK_INT(mkdir(in_root("w"), 0755), 0);
	struct tool_exec running = start_watch(in_root("w"), FILE_RECURSIVE);
	expect(&running, WATCH_READY, "w");
	CHECK_INT(rmdir(in_root("w")), 0);
	expect(&running, WATCH_REMOVED, "w");
	finish(&running, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	put_text("file", "");
	running = start_watch(in_root("file"), 0);
	expect(&running, WATCH_READY, "file");
	put_text("file", "x");
	expect(&running, WATCH_MODIFIED, "file");
	cancel(&running);
	running = start_watch(in_root("missing"), 0);
	finish(&running, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	remove_root();
}

/* Nobody takes the events: the sender stops at its credit, and later there is an overflow event. */
TEST(slow_consumer)
{
	make_root();
	struct tool_exec running = start_watch(root, FILE_RECURSIVE);
	struct frame frame;
	CHECK_INT(next_frame(&running, &frame, PATIENCE_MS), FRAME_DATA);
	char path[300];
	for (int i = 0; i < 12000; i++) {
		snprintf(path, sizeof(path), "%s/%0200d", root, i);
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
		unlink(path);
	}
	uint64_t got = frame.size;
	while (next_frame(&running, &frame, got > FILE_WINDOW - 1024 ? 300 : PATIENCE_MS) ==
	       FRAME_DATA)
		got += frame.size;
	CHECK(got <= FILE_WINDOW);
	CHECK(got > FILE_WINDOW - 1024);
	give_credit(&running, FILE_WINDOW / 2);
	bool overflow = false;
	int kind;
	while (!overflow && (kind = next_event(&running, PATIENCE_MS)) >= 0)
		overflow = kind == WATCH_OVERFLOW;
	CHECK(overflow);
	/* And it goes on. */
	while (next_event(&running, 300) >= 0)
		;
	CHECK_INT(mkdir(in_root("after"), 0755), 0);
	/* A silence may have been the machine's. */
	do
		kind = next_event(&running, PATIENCE_MS);
	while (kind >= 0 && strcmp(event_path, "after") != 0);
	CHECK_INT(kind, WATCH_CREATED);
	cancel(&running);
	remove_root();
}

static bool write_knob(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool wrote = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return wrote;
}

/* The kernel's limit of watches is told as such. The limits of a user namespace are its own, so
 * that no other process of the host notices. */
TEST(watch_limit)
{
	make_root();
	for (int i = 0; i < 10; i++) {
		char name[8];
		snprintf(name, sizeof(name), "%d", i);
		CHECK_INT(mkdir(in_root(name), 0755), 0);
	}
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) < 0 || !write_knob("/proc/self/setgroups", "deny") ||
		    !write_knob("/proc/self/uid_map", "0 0 1") ||
		    !write_knob("/proc/self/gid_map", "0 0 1") ||
		    !write_knob("/proc/sys/user/max_inotify_watches", "5"))
			_exit(2);
		struct tool_exec running = start_watch(root, FILE_RECURSIVE);
		finish(&running, &answer);
		CHECK_FAILS(answer, ERROR_RESOURCE_LIMIT);
		CHECK(strstr(answer.failure.message, "too many directories") != NULL);
		fflush(stdout);
		_exit(test_failures > 0);
	}
	int status;
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
		printf("# skipped: no user namespace can be made here\n");
	else
		CHECK_INT(status, 0);
	remove_root();
}

TEST_MAIN
