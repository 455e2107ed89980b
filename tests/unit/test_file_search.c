/* Glob and grep over a socketpair: what they find, and that width, size, long lines and bad
 * patterns neither blow them up nor keep them from being cancelled. */
#include "file_harness.h"

#include <sys/resource.h>

static struct answer answer;

static void make_tree(void)
{
	make_root();
	const char *directories[] = {"src", "src/lib", "src/.git", "src/lib/deep", "empty"};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		CHECK_INT(mkdir(in_root(directories[i]), 0755), 0);
	put_text("top.c", "one\nneedle here\nthree\n");
	put_text("src/a.c", "nothing\n");
	put_text("src/b.h", "a NEEDLE\n");
	put_text("src/lib/c.c", "x\ny\nneedle\nneedle again");
	put_text("src/lib/deep/d.c", "");
	put_text("src/.git/config.c", "needle\n");
	put_text("src/new\nline.c", "needle\n");
	put_text("src/\xff.c", "needle\n");
	put_file("src/binary", "ne\0edle\nneedle\n", 15);
	CHECK_INT(symlink("lib", in_root("src/link")), 0);
	CHECK_INT(symlink("..", in_root("src/lib/up")), 0);
	CHECK_INT(mkfifo(in_root("src/fifo"), 0600), 0);
}

static struct file_request glob_request(const char *base, const char *pattern)
{
	return (struct file_request){
	    .operation = FILE_GLOB, .path = text_bytes(base), .pattern = text_bytes(pattern)};
}

/* The names found, without the root, in order, with a space after each. */
static const char *glob(const char *pattern, uint32_t flags)
{
	static char text[4096];
	char *names[64];
	size_t count = 0;
	struct file_request request = glob_request(root, pattern);
	request.flags = flags;
	run(&request, &answer);
	CHECK_OK(answer);
	struct reader reader = reader_on(answer.data, answer.data_size);
	while (reader.at < reader.size && count < 64) {
		struct bytes name = read_bytes(&reader, GUEST_PATH_MAX);
		size_t skip = strlen(root) + 1;
		CHECK(name.size > skip && memcmp(name.data, root, skip - 1) == 0);
		names[count++] = strndup((const char *)name.data + skip, name.size - skip);
	}
	CHECK_INT(result_number(&answer), count);
	for (size_t i = 0; i < count; i++)
		for (size_t j = i + 1; j < count; j++)
			if (strcmp(names[i], names[j]) > 0) {
				char *swap = names[i];
				names[i] = names[j];
				names[j] = swap;
			}
	text[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(text);
		snprintf(text + used, sizeof(text) - used, "%s ", names[i]);
		free(names[i]);
	}
	free_answer(&answer);
	return text;
}

TEST(glob)
{
	make_tree();
	CHECK_TEXT(glob("*.c", 0), "top.c ");
	CHECK_TEXT(glob("**/*.c", 0),
		   "src/a.c src/lib/c.c src/lib/deep/d.c src/new\nline.c src/\xff.c top.c ");
	CHECK_TEXT(glob("**/c*.c", FILE_HIDDEN), "src/.git/config.c src/lib/c.c ");
	CHECK_TEXT(glob("src/*.{c,h}", 0), "src/a.c src/b.h src/new\nline.c src/\xff.c ");
	CHECK_TEXT(glob("src/lib/c.c", 0), "src/lib/c.c ");
	CHECK_TEXT(glob("nowhere/*.c", 0), "");
	CHECK_TEXT(glob("*/", 0), "empty src ");
	CHECK_TEXT(glob("src/l*/", 0), "src/lib src/link ");
	/* A link that the pattern names is gone through, "**" goes through none. */
	CHECK_TEXT(glob("src/link/*.c", 0), "src/link/c.c ");
	CHECK_TEXT(glob("src/li*/*.c", 0), "src/lib/c.c src/link/c.c ");
	CHECK_TEXT(glob("src/**/c.c", 0), "src/lib/c.c ");
	CHECK_TEXT(glob("src/lib/**", 0), "src/lib/c.c src/lib/deep src/lib/deep/d.c src/lib/up ");
	CHECK_TEXT(glob("src/[ab].?", 0), "src/a.c src/b.h ");
	struct file_request request = glob_request(root, "**");
	request.limit = 3;
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 3);
	CHECK_INT(answer.result[4], 1);
	free_answer(&answer);
	request = glob_request(in_root("missing"), "*");
	run(&request, &answer);
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	request = glob_request(in_root("top.c"), "*");
	run(&request, &answer);
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	request = glob_request(root, "");
	run(&request, &answer);
	CHECK_FAILS(answer, ERROR_PATTERN_INVALID);
	request = glob_request("/nowhere/at/all", "/etc/host?");
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 1);
	free_answer(&answer);
	remove_root();
}

/* The names that were found must stand in their order: a directory before what is in it. Returns
 * their number. */
static size_t check_sorted(void)
{
	struct reader reader = reader_on(answer.data, answer.data_size);
	char before[GUEST_PATH_MAX] = "", name[GUEST_PATH_MAX];
	size_t count = 0;
	for (; reader.at < reader.size; count++) {
		struct bytes bytes = read_bytes(&reader, GUEST_PATH_MAX);
		CHECK(bytes.size < sizeof(name));
		memcpy(name, bytes.data, bytes.size);
		name[bytes.size] = '\0';
		for (char *at = name; *at; at++)
			*at = *at == '/' ? '\x01' : *at;
		CHECK(strcmp(before, name) < 0);
		memcpy(before, name, sizeof(before));
	}
	return count;
}

TEST(glob_sorted)
{
	make_root();
	struct file_request request = glob_request(root, "**");
	/* Deeper than there are directories open at once, with something on the way back. */
	int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 100; i++) {
		for (const char *name = "zbxya"; *name; name++)
			close(openat(at, (char[]){*name, '\0'}, O_CREAT | O_WRONLY | O_CLOEXEC,
				     0644));
		CHECK_INT(mkdirat(at, "m", 0755), 0);
		int below = openat(at, "m", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = below;
	}
	close(at);
	request.flags = FILE_SORTED;
	run(&request, &answer);
	CHECK_OK(answer);
	CHECK_INT(check_sorted(), 600);
	free_answer(&answer);
	remove_root();
	/* One that is read in several goes. */
	make_root();
	at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 5000; i++) {
		char name[32];
		snprintf(name, sizeof(name), "entry-%d", i);
		close(openat(at, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	close(at);
	run(&request, &answer);
	CHECK_OK(answer);
	CHECK_INT(check_sorted(), 5000);
	free_answer(&answer);
	remove_root();
}

TEST(glob_and_grep_skip)
{
	make_tree();
	CHECK_INT(mkdir(in_root("src/lib/node_modules"), 0755), 0);
	put_text("src/lib/node_modules/c.c", "needle\n");
	const uint32_t flags = FILE_SORTED | FILE_SKIP_GENERATED;
	CHECK_TEXT(glob("**/c*.c", FILE_HIDDEN),
		   "src/.git/config.c src/lib/c.c src/lib/node_modules/c.c ");
	CHECK_TEXT(glob("**/c*.c", FILE_HIDDEN | flags), "src/lib/c.c ");
	struct file_request request = {.operation = FILE_GREP,
				       .path = text_bytes(root),
				       .pattern = text_bytes("needle"),
				       .path2 = text_bytes("c*.c")};
	for (int i = 0; i < 2; i++) {
		request.flags = i ? flags : 0;
		run(&request, &answer);
		CHECK_OK(answer);
		CHECK_INT(result_number(&answer), i ? 2 : 4);
		free_answer(&answer);
	}
	/* Where the search begins in one of them, it is searched. */
	request.path = text_bytes(in_root("src/.git"));
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 1);
	free_answer(&answer);
	remove_root();
}

TEST(glob_of_many)
{
	make_root();
	int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 100000; i++) {
		char name[32];
		snprintf(name, sizeof(name), "entry-%06d%s", i, i % 1000 ? "" : ".c");
		close(openat(at, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	close(at);
	struct file_request request = glob_request(root, "*.c");
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 100);
	free_answer(&answer);
	request = glob_request(root, "**/entry*");
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 100000);
	CHECK_INT(answer.result[4], 0);
	CHECK(answer.seconds < 20);
	free_answer(&answer);
	struct rusage usage;
	getrusage(RUSAGE_CHILDREN, &usage);
	printf("# largest operation so far: %ld KiB\n", usage.ru_maxrss);
	remove_root();
}

struct match {
	char path[512];
	uint64_t line, offset;
	char text[GREP_LINE_MAX + 1];
};

static struct match matches[64];
static size_t match_count;

static void grep(const char *path, const char *pattern, uint32_t flags, const char *filter)
{
	struct file_request request = {.operation = FILE_GREP,
				       .flags = flags,
				       .path = text_bytes(path),
				       .path2 = text_bytes(filter),
				       .pattern = text_bytes(pattern)};
	run(&request, &answer);
	struct reader reader = reader_on(answer.data, answer.data_size);
	match_count = 0;
	while (reader.at < reader.size && match_count < ARRAY_SIZE(matches)) {
		struct match *match = &matches[match_count++];
		memset(match, 0, sizeof(*match));
		struct bytes name = read_bytes(&reader, sizeof(match->path) - 1);
		memcpy(match->path, name.data, name.size);
		match->line = read_u64(&reader);
		match->offset = read_u64(&reader);
		struct bytes text = read_bytes(&reader, GREP_LINE_MAX);
		if (text.size > 0)
			memcpy(match->text, text.data, text.size);
	}
	CHECK(match_count == ARRAY_SIZE(matches) || reader_finish(&reader) == 0);
	free_answer(&answer);
}

static uint64_t files_of_result(void)
{
	struct reader reader = reader_on(answer.result, answer.result_size);
	read_u64(&reader);
	return read_u64(&reader);
}

TEST(grep_literal)
{
	make_tree();
	grep(in_root("top.c"), "needle", 0, "");
	CHECK_OK(answer);
	CHECK_INT(match_count, 1);
	CHECK_TEXT(matches[0].path, in_root("top.c"));
	CHECK_INT(matches[0].line, 2);
	CHECK_INT(matches[0].offset, 4);
	CHECK_TEXT(matches[0].text, "needle here");
	grep(root, "needle", 0, "");
	CHECK_INT(match_count, 6);
	CHECK_INT(result_number(&answer), 6);
	CHECK_INT(files_of_result(), 5);
	grep(root, "needle", FILE_IGNORE_CASE, "");
	CHECK_INT(match_count, 7);
	grep(root, "NeeDLE", FILE_IGNORE_CASE, "*.h");
	CHECK_INT(match_count, 1);
	CHECK_TEXT(matches[0].text, "a NEEDLE");
	grep(root, "needle", 0, "src/lib/*");
	CHECK_INT(match_count, 2);
	CHECK_INT(matches[1].line, 4);
	CHECK_TEXT(matches[1].text, "needle again");
	/* Binary: passed over in a tree, searched when named. */
	grep(in_root("src/binary"), "needle", 0, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 2);
	CHECK_INT(matches[0].offset, 8);
	grep(in_root("src/fifo"), "x", 0, "");
	CHECK_FAILS(answer, ERROR_FILE_WRONG_TYPE);
	grep(in_root("missing"), "x", 0, "");
	CHECK_FAILS(answer, ERROR_FILE_NOT_FOUND);
	grep(root, "", 0, "");
	CHECK_FAILS(answer, ERROR_PATTERN_INVALID);
	grep(root, "a\nb", 0, "");
	CHECK_FAILS(answer, ERROR_PATTERN_INVALID);
	remove_root();
}

TEST(grep_regex)
{
	make_root();
	put_text("t", "alpha 12\nbeta\n\ngamma 345\nalpha");
	grep(in_root("t"), "^[a-z]+ [0-9]+$", FILE_REGEX, "");
	CHECK_INT(match_count, 2);
	CHECK_INT(matches[0].line, 1);
	CHECK_INT(matches[1].line, 4);
	CHECK_INT(matches[1].offset, 15);
	grep(in_root("t"), "^$", FILE_REGEX, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 3);
	grep(in_root("t"), "ALPHA$", FILE_REGEX | FILE_IGNORE_CASE, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 5);
	/* A class that holds the newline joins no lines. */
	grep(in_root("t"), "12[[:space:]]beta", FILE_REGEX, "");
	CHECK_OK(answer);
	CHECK_INT(match_count, 0);
	grep(in_root("t"), "x*", FILE_REGEX, "");
	CHECK_INT(match_count, 5);
	grep(in_root("t"), "(unclosed", FILE_REGEX, "");
	CHECK_FAILS(answer, ERROR_PATTERN_INVALID);
	put_file("nul", "a\0needle\0b\nneedle\n", 18);
	grep(in_root("nul"), "^needle", FILE_REGEX, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 2);
	grep(in_root("nul"), "needle", FILE_REGEX, "");
	CHECK_INT(match_count, 2);
	remove_root();
}

TEST(grep_limit)
{
	make_root();
	char text[5000];
	for (size_t i = 0; i < sizeof(text); i += 2)
		memcpy(text + i, "x\n", 2);
	put_file("t", text, sizeof(text));
	struct file_request request = {.operation = FILE_GREP,
				       .path = text_bytes(in_root("t")),
				       .pattern = text_bytes("x"),
				       .limit = 10};
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 10);
	CHECK_INT(answer.result[16], 1);
	free_answer(&answer);
	request.limit = 2500;
	run(&request, &answer);
	CHECK_INT(result_number(&answer), 2500);
	CHECK_INT(answer.result[16], 0);
	free_answer(&answer);
	remove_root();
}

/* Lines longer than any buffer, with matches at every place of the window. */
TEST(grep_long_lines)
{
	make_root();
	size_t size = 3 * 1024 * 1024;
	char *data = malloc(size);
	memset(data, 'x', size);
	memcpy(data + 262140, "needle", 6);
	memcpy(data + 600000, "needle", 6);
	data[1000000] = '\n';
	memcpy(data + 1000001, "needle at start", 15);
	data[1500000] = '\n';
	memcpy(data + size - 6, "needle", 6);
	put_file("t", data, size);
	const uint32_t flags[] = {0, FILE_REGEX, FILE_IGNORE_CASE};
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		grep(in_root("t"), "needle", flags[i], "");
		CHECK_OK(answer);
		CHECK_INT(match_count, 3);
		CHECK_INT(matches[0].line, 1);
		CHECK_INT(matches[0].offset, 262140);
		CHECK(strstr(matches[0].text, "needle") != NULL);
		CHECK_INT(matches[1].line, 2);
		CHECK_INT(matches[1].offset, 1000001);
		CHECK_INT(matches[2].line, 3);
		CHECK_INT(matches[2].offset, size - 6);
		CHECK(strstr(matches[2].text, "needle") != NULL);
	}
	grep(in_root("t"), "needle$", FILE_REGEX, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 3);
	grep(in_root("t"), "^needle", FILE_REGEX, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 2);
	free(data);
	remove_root();
}

/* Many lines against a plain loop, across all borders of the window. */
TEST(grep_line_numbers)
{
	make_root();
	size_t size = 2 * 1024 * 1024, used = 0;
	char *data = malloc(size + 64);
	uint64_t line = 0, expected[64], count = 0;
	while (used < size) {
		line++;
		bool hit = line % 997 == 0;
		used += (size_t)snprintf(data + used, size + 64 - used, "%s%.*s\n",
					 hit ? "needle" : "", (int)(line % 41),
					 "padpadpadpadpadpadpadpadpadpadpadpadpadpad");
		if (hit && count < 64)
			expected[count++] = line;
	}
	put_file("t", data, used);
	for (uint32_t flags = 0; flags <= FILE_REGEX; flags += FILE_REGEX) {
		grep(in_root("t"), "needle", flags, "");
		CHECK_INT(match_count, MIN(count, (uint64_t)64));
		for (size_t i = 0; i < match_count; i++)
			CHECK_INT(matches[i].line, expected[i]);
	}
	free(data);
	remove_root();
}

TEST(grep_of_five_gigabytes)
{
	make_root();
	int fd = open(in_root("sparse"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	CHECK_INT(ftruncate(fd, 5LL << 30), 0);
	CHECK_INT(pwrite(fd, "\nneedle\n", 8, 4LL << 30), 8);
	close(fd);
	grep(in_root("sparse"), "needle", 0, "");
	CHECK_OK(answer);
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 2);
	CHECK_INT(matches[0].offset, (4LL << 30) + 1);
	CHECK_TEXT(matches[0].text, "needle");
	CHECK(answer.seconds < 20);
	grep(in_root("sparse"), "^need.e$", FILE_REGEX, "");
	CHECK_INT(match_count, 1);
	CHECK_INT(matches[0].line, 2);
	struct rusage usage;
	getrusage(RUSAGE_CHILDREN, &usage);
	printf("# largest operation so far: %ld KiB\n", usage.ru_maxrss);
	remove_root();
}

static double processor_seconds_of_children(void)
{
	struct rusage usage;
	getrusage(RUSAGE_CHILDREN, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double processor_seconds_of(pid_t pid)
{
	clockid_t clock;
	struct timespec time;
	CHECK_INT(clock_getcpuclockid(pid, &clock), 0);
	CHECK_INT(clock_gettime(clock, &time), 0);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The processor time that it takes from the moment that it is cancelled until it ends: a machine
 * that stands still adds nothing to that. 0: it ends by itself soon, or just then. */
static double processor_seconds_to_cancel(const struct file_request *request)
{
	double before = processor_seconds_of_children();
	struct tool_exec running = start(request);
	struct frame frame;
	double began = now_seconds();
	int type = next_frame(&running, &frame, 2000);
	if (type != 0) {
		printf("# %s: %.3f s\n", (const char *)request->pattern.data,
		       now_seconds() - began);
		CHECK_INT(type, FRAME_RESULT);
		end(&running);
		return 0;
	}
	printf("# %s: cancelled\n", (const char *)request->pattern.data);
	before += processor_seconds_of(running.pid);
	send_frame_to(&running, FRAME_CANCEL, NULL, 0);
	finish(&running, &answer);
	if (answer.type == FRAME_RESULT)
		return 0;
	CHECK_FAILS(answer, ERROR_CANCELLED);
	return processor_seconds_of_children() - before;
}

/* Patterns that are exponential for a backtracking matcher; each ends, or is ended within a second.
 */
TEST(grep_catastrophic)
{
	make_root();
	size_t size = 200000;
	char *data = malloc(size);
	memset(data, 'a', size);
	data[size - 1] = '!';
	put_file("t", data, size);
	free(data);
	const char *patterns[] = {"(a+)+$", "(a|aa)+$", "(a*)*b", "(.*a){20}b"};
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		struct file_request request = {.operation = FILE_GREP,
					       .flags = FILE_REGEX,
					       .path = text_bytes(in_root("t")),
					       .pattern = text_bytes(patterns[i])};
		CHECK(processor_seconds_to_cancel(&request) < 1);
	}
	/* One that would take all memory is refused, or found too large; it does not get it. */
	struct file_request request = {.operation = FILE_GREP,
				       .flags = FILE_REGEX,
				       .path = text_bytes(in_root("t")),
				       .pattern =
					   text_bytes("(((a{1,200}){1,200}){1,200}){1,200}b")};
	struct tool_exec running = start(&request);
	struct frame frame;
	if (next_frame(&running, &frame, 3000) == 0) {
		send_frame_to(&running, FRAME_CANCEL, NULL, 0);
		finish(&running, &answer);
		/* It may have been through just then. */
		CHECK_INT(answer.type, FRAME_FAILED);
	} else {
		CHECK_INT(frame.type, FRAME_FAILED);
		end(&running);
	}
	remove_root();
}

TEST_MAIN
