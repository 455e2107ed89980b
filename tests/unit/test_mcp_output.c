/* What a model reads of a command's output (mcp/tools/output.h): what is text, where it is cut,
 * what is said about the rest; and the search of a job's lines (mcp/tools/job_search.h). */
#include "mcp/tools/output.h"

#include <string.h>

#include "base/limits.h"
#include "fake_host.h"
#include "mcp/tools/job_search.h"
#include "test.h"

TEST_MAIN

struct setting {
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct exec *exec;
};

static void begin(struct setting *setting)
{
	const char *argv[] = {"cat"};
	struct exec_spec spec = {.argv = argv, .argc = 1, .flags = EXEC_STDIN};
	struct error error;
	*setting = (struct setting){.host = fake_host_new()};
	fake_start(setting->host);
	setting->sandbox = fake_create(setting->host, NULL);
	setting->init = fake_init_of(setting->host, &setting->sandbox->row.id);
	CHECK_INT(exec_start(setting->sandbox, &spec, &setting->exec, &error), 0);
	fake_turn(setting->host, 20);
}

static void print(struct setting *setting, int stream, const char *data, size_t size)
{
	fake_print(setting->init, setting->exec->row.key, stream, data, size);
	fake_turn(setting->host, 20);
}

static void expect_view(struct setting *setting, uint64_t max, const char *expected, bool left_out)
{
	DONE_BUFFER struct buffer text = BUFFER(64 * KIB);
	struct output_view view = {
	    .out_end = exec_total(setting->exec, EXEC_STDOUT),
	    .err_end = exec_total(setting->exec, EXEC_STDERR),
	    .max = max,
	};
	CHECK_INT(output_append(&text, setting->exec, &view), left_out);
	CHECK_TEXT(buffer_text(&text), expected);
}

static void expect_visible(const char *data, size_t size, const char *expected, uint64_t binary)
{
	DONE_BUFFER struct buffer text = BUFFER(1024);
	uint64_t count = 0;
	output_visible(&text, data, size, &count);
	CHECK_TEXT(buffer_text(&text), expected);
	CHECK_INT(count, binary);
}

TEST(what_is_text)
{
	expect_visible("", 0, "", 0);
	expect_visible("a\tb\r\n\x1b[1m", 9, "a\tb\r\n\x1b[1m", 0);
	expect_visible("gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f", 0);
	expect_visible("\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80", 0);
	expect_visible("a\0b\x01\x7f", 5, "a\\x00b\\x01\\x7f", 3);
	/* Overlong, a surrogate, beyond the last character, cut off, alone. */
	expect_visible("\xc0\xaf", 2, "\\xc0\\xaf", 2);
	expect_visible("\xed\xa0\x80", 3, "\\xed\\xa0\\x80", 3);
	expect_visible("\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80", 4);
	expect_visible("x\xe2\x82", 3, "x\\xe2\\x82", 2);
	expect_visible("\x80", 1, "\\x80", 1);
	CHECK(!output_is_binary("caf\xe9\n", 5));
	CHECK(!output_is_binary("", 0));
	/* A few strange bytes are shown; many, where they are more than a quarter, are not. */
	char strange[17] = {0};
	CHECK(!output_is_binary(strange, 16));
	CHECK(output_is_binary(strange, 17));
	char mixed[80];
	memset(mixed, 'a', sizeof(mixed));
	memset(mixed, '\xff', 20);
	CHECK(!output_is_binary(mixed, 80));
	CHECK(output_is_binary(mixed, 79));
}

static void expect_name(const char *name, const char *expected)
{
	DONE_BUFFER struct buffer text = BUFFER(1024);
	output_name(&text, name, strlen(name));
	CHECK_TEXT(buffer_text(&text), expected);
}

TEST(names_are_one_line)
{
	expect_name("", "");
	expect_name("a b\\c/gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80",
		    "a b\\c/gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
	expect_name("a\nb\tc\rd", "a\\nb\\tc\\rd");
	expect_name("\x1b[31m\a\b\v\f\x7f\x01", "\\x1b[31m\\x07\\x08\\x0b\\x0c\\x7f\\x01");
	expect_name("\xff\xe2\x82", "\\xff\\xe2\\x82");
	/* Those beyond ASCII: next line, a control sequence's beginning, a separator of lines. */
	expect_name("\xc2\x85\xc2\x9b\xe2\x80\xa8", "\\xc2\\x85\\xc2\\x9b\\xe2\\x80\\xa8");
	expect_name("\xc2\xa0\xe2\x80\xa6", "\xc2\xa0\xe2\x80\xa6");
}

TEST(streams_one_below_the_other)
{
	struct setting setting;
	begin(&setting);
	expect_view(&setting, 0, "", false);
	print(&setting, 0, "out", 3);
	expect_view(&setting, 0, "out\n", false);
	print(&setting, 1, "err\n", 4);
	expect_view(&setting, 0, "out\n[stderr]\nerr\n", false);
	fake_host_free(setting.host);
}

TEST(long_output_is_cut_at_lines)
{
	static const char lines[] = "aaaaaaaaa\nbbbbbbbbb\nccccccccc\nddddddddd\neeeeeeeee\n";
	struct setting setting;
	begin(&setting);
	print(&setting, 0, lines, sizeof(lines) - 1);
	/* Of 32 bytes 12 are the head's. */
	expect_view(&setting, 32,
		    "aaaaaaaaa\n[... 20 bytes, 2 lines left out ...]\n"
		    "ddddddddd\neeeeeeeee\n",
		    true);
	uint64_t bytes, count;
	CHECK(output_count(setting.exec, EXEC_STDOUT, 5, 25, &bytes, &count));
	CHECK_INT(bytes, 20);
	CHECK_INT(count, 3);
	CHECK(output_count(setting.exec, EXEC_STDOUT, 9, 9, &bytes, &count));
	CHECK_INT(bytes + count, 0);
	fake_host_free(setting.host);
}

TEST(both_streams_have_room)
{
	char long_line[400];
	struct setting setting;
	DONE_BUFFER struct buffer text = BUFFER(64 * KIB);
	memset(long_line, 'x', sizeof(long_line));
	begin(&setting);
	print(&setting, 0, long_line, sizeof(long_line));
	memset(long_line, 'z', sizeof(long_line));
	print(&setting, 1, long_line, sizeof(long_line));
	struct output_view view = {.out_end = 400, .err_end = 400, .max = 200};
	CHECK(output_append(&text, setting.exec, &view));
	size_t x = 0, z = 0;
	for (size_t i = 0; i < text.size; i++) {
		x += text.data[i] == 'x';
		z += text.data[i] == 'z';
	}
	CHECK_INT(x, 100);
	CHECK_INT(z, 100);
	fake_host_free(setting.host);
}

TEST(binary_is_told)
{
	struct setting setting;
	DONE_BUFFER struct buffer text = BUFFER(64 * KIB);
	begin(&setting);
	static const char zeros[32];
	print(&setting, 0, zeros, sizeof(zeros));
	struct output_view view = {.out_end = sizeof(zeros)};
	CHECK(output_append(&text, setting.exec, &view));
	CHECK(strstr(buffer_text(&text), "[binary output on stdout, 32 bytes, not shown"));
	fake_host_free(setting.host);
}

TEST(half_a_character_waits)
{
	struct setting setting;
	begin(&setting);
	print(&setting, 0, "a\xe2\x82", 3);
	CHECK_INT(output_end(setting.exec, EXEC_STDOUT), 1);
	print(&setting, 0, "\xac", 1);
	CHECK_INT(output_end(setting.exec, EXEC_STDOUT), 4);
	fake_host_free(setting.host);
}

static uint64_t expect_page(struct setting *setting, uint64_t from, uint64_t max,
			    const char *expected)
{
	DONE_BUFFER struct buffer text = BUFFER(64 * KIB);
	uint64_t next = output_page(&text, setting->exec, EXEC_STDOUT, from, max);
	CHECK_TEXT(buffer_text(&text), expected);
	return next;
}

TEST(pages)
{
	struct setting setting;
	begin(&setting);
	print(&setting, 0, "one\ntwo\n\xe2\x82\xac\xe2\x82\xac", 14);
	CHECK_INT(expect_page(&setting, 0, 6, "one\n"), 4);
	CHECK_INT(expect_page(&setting, 4, 100, "two\n\xe2\x82\xac\xe2\x82\xac\n"), 14);
	CHECK_INT(expect_page(&setting, 8, 4, "\xe2\x82\xac\n"), 11);
	CHECK_INT(expect_page(&setting, 9, 100, "\xe2\x82\xac\n"), 14);
	CHECK_INT(expect_page(&setting, 14, 100, ""), 14);
	CHECK_INT(expect_page(&setting, 1000, 100, ""), 14);
	fake_host_free(setting.host);
}

TEST(lines_that_match)
{
	const char *reason;
	struct setting setting;
	struct job_search search = {.wanted = {true, true}};
	begin(&setting);
	print(&setting, 0, "one\ntwo\nthree\nhal", 17);
	print(&setting, 1, "two too\n", 8);
	CHECK_INT(search_begin(&search, "^t(wo|h)|^hal", 1000, &reason), 0);
	enum search_state state;
	for (int i = 0; (state = search_step(&search, setting.exec)) == SEARCH_MORE && i < 10; i++)
		;
	CHECK_INT(state, SEARCH_CAUGHT_UP);
	CHECK_TEXT(buffer_text(&search.lines), "4:two\n8:three\n[stderr]\n0:two too\n");
	CHECK_INT(search.matches, 3);
	/* Half a line waits for its end. */
	CHECK_INT(search.at[0], 14);
	print(&setting, 0, "f\n", 2);
	while (search_step(&search, setting.exec) == SEARCH_MORE)
		;
	CHECK(strstr(buffer_text(&search.lines), "14:half\n"));
	search_done(&search);
	search = (struct job_search){.wanted = {true, true}};
	CHECK_INT(search_begin(&search, "(", 1000, &reason), -1);
	search_done(&search);
	fake_host_free(setting.host);
}
