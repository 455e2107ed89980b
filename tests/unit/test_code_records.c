/* What a language driver says: records that are good, and everything that is none. And the
 * contexts' table, since that is all they keep. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/code/code.h"
#include "store/contexts.h"
#include "test.h"
#include "tier/remove_tree.h"

static int parse(const char *text, struct code_record *record)
{
	return code_record_parse(text, strlen(text), record);
}

TEST(records)
{
	struct code_record record;
	CHECK_INT(parse("ready 0 0 - 6\nPython\n", &record), 14);
	CHECK_INT(record.kind, CODE_RECORD_READY);
	CHECK_INT(record.size, 6);
	CHECK_INT(parse("data 7 63 image/svg+xml 8388608\n", &record), 32);
	CHECK_INT(record.kind, CODE_RECORD_DATA);
	CHECK_INT(record.cell, 7);
	CHECK_INT(record.index, 63);
	CHECK_TEXT(record.key, "image/svg+xml");
	CHECK_INT(record.size, 8388608);
	CHECK_INT(parse("end 1 255 drained 0\n\n", &record), 20);
	CHECK_INT(record.index, 255);
	CHECK_INT(parse("error 1 0 traceback 5\n", &record), 22);
	CHECK_INT(parse("left 1 64 results 1\n", &record), 20);
	CHECK_INT(parse("whole 1 63 - 0\n", &record), 15);
	CHECK_INT(record.kind, CODE_RECORD_WHOLE);
	CHECK_INT(parse("whole 1 64 - 0\n", &record), -EBADMSG);
	CHECK_INT(parse("whole 1 0 - 1\n", &record), -EBADMSG);
	CHECK_INT(parse("begin 9223372036854775807 0 - 0\n", &record), 32);
}

TEST(half_a_record)
{
	const char *whole = "data 7 0 text/plain 3\n";
	struct code_record record;
	for (size_t size = 0; size < strlen(whole); size++)
		CHECK_INT(code_record_parse(whole, size, &record), 0);
	char endless[CODE_HEADER_MAX];
	memset(endless, 'a', sizeof(endless));
	CHECK_INT(code_record_parse(endless, sizeof(endless) - 1, &record), 0);
	CHECK_INT(code_record_parse(endless, sizeof(endless), &record), -EBADMSG);
}

TEST(no_records)
{
	static const char *const bad[] = {
	    "\n",
	    " \n",
	    "nonsense\n",
	    "ready\n",
	    "ready 0 0 -\n",
	    "ready 0 0 - 201\n",
	    "ready 0 0 - 0 \n",
	    "ready 0 0 - 0 0\n",
	    "ready  0 0 - 0\n",
	    "Ready 0 0 - 0\n",
	    "begin -1 0 - 0\n",
	    "begin 9223372036854775808 0 - 0\n",
	    "begin 1 0 - 1\n",
	    "begin 1 4294967296 - 0\n",
	    "data 1 64 text/plain 1\n",
	    "data 1 0 text 1\n",
	    "data 1 0 text/pl\"ain 1\n",
	    "data 1 0 text/\xc3\xa9 1\n",
	    "data 1 0 text/plain 8388609\n",
	    "data 1 0 text/plain 0x1\n",
	    "data 1 0 text/plain +1\n",
	    "left 1 65 text/plain 1\n",
	    "left 1 0 text/plain 0\n",
	    "error 1 0 other 1\n",
	    "error 1 0 name 524289\n",
	    "end 1 256 - 0\n",
	    "end 1 0 - 1\n",
	};
	struct code_record record;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (parse(bad[i], &record) != -EBADMSG)
			test_fail(__FILE__, __LINE__, "taken: %s", bad[i]);
	CHECK_INT(code_record_parse("begin 1 0\0- 0\n", 14, &record), -EBADMSG);
	char key[160];
	snprintf(key, sizeof(key), "data 1 0 t/%0100d 1\n", 0);
	CHECK_INT(parse(key, &record), -EBADMSG);
}

TEST(requests)
{
	struct buffer line = BUFFER(200);
	CHECK_INT(code_request_write(&line, "cell", 5, "a b\n%\xc3\xa9'", 8), 0);
	CHECK_TEXT(buffer_text(&line), "cell 5 8 a%20b%0A%25%C3%A9%27\n");
	buffer_clear(&line);
	CHECK_INT(code_request_write(&line, "cell", 5, "", 0), 0);
	CHECK_TEXT(buffer_text(&line), "cell 5 0 \n");
	char large[100];
	memset(large, '\n', sizeof(large));
	CHECK_INT(code_request_write(&line, "cell", 6, large, sizeof(large)), -EMSGSIZE);
	buffer_done(&line);
}

TEST(languages)
{
	CHECK_INT(code_language_parse("python"), CODE_PYTHON);
	CHECK_INT(code_language_parse("Py"), CODE_PYTHON);
	CHECK_INT(code_language_parse("javascript"), CODE_NODE);
	CHECK_INT(code_language_parse("sh"), CODE_BASH);
	CHECK_INT(code_language_parse("shell"), CODE_BASH);
	CHECK_INT(code_language_parse("ruby"), 0);
	CHECK_INT(code_language_parse(""), 0);
	CHECK_INT(code_language_parse("py,python3"), 0);
	CHECK_INT(code_language_parse(","), 0);
}

static bool copy(void *data, const struct context_row *row)
{
	struct context_row *to = data;
	*to = *row;
	to->reason = row->reason ? strdup(row->reason) : NULL;
	to->cwd = to->user = to->environment = NULL;
	to->timeout_ms += row->environment_size; /* what could not be copied was there */
	return true;
}

TEST(rows)
{
	char directory[] = "/tmp/caisson-code-XXXXXX";
	struct store *store = NULL;
	struct error error = {0};
	CHECK(mkdtemp(directory) != NULL);
	CHECK_INT(store_open(directory, &store, &error), 0);
	struct sandbox_row sandbox = {
	    .id = id_new(), .workspace = (char *)"w", .template = (char *)"host", .state = 2};
	CHECK_INT(store_sandbox_insert(store, &sandbox, &error), 0);
	struct context_row row = {
	    .id = id_new(),
	    .sandbox = sandbox.id,
	    .exec = id_new(),
	    .control = id_new(),
	    .language = CODE_NODE,
	    .created_wall = 5,
	    .environment = (char *)"A=b",
	    .environment_size = 4,
	};
	CHECK_INT(store_context_insert(store, &row, &error), 0);
	row.cells = 3;
	row.ended_wall = 7;
	row.reason = (char *)"why";
	CHECK_INT(store_context_update(store, &row, &error), 0);
	struct context_row found = {0};
	CHECK_INT(store_context_each(store, &sandbox.id, copy, &found, &error), 0);
	CHECK(id_equal(&found.id, &row.id) && id_equal(&found.control, &row.control));
	CHECK_INT(found.cells, 3);
	CHECK_INT(found.timeout_ms, 4);
	CHECK_TEXT(found.reason, "why");
	context_row_done(&found);
	CHECK_INT(store_context_delete(store, &row.id, &error), 0);
	CHECK_INT(store_context_each(store, &sandbox.id, copy, &found, &error), 0);
	CHECK(!id_is_set(&found.id));
	store_close(store);
	CHECK_INT(remove_tree(AT_FDCWD, directory), 0);
}

TEST_MAIN
