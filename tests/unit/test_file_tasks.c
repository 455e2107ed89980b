/* Whole file operations (core/file/tasks.h) and the records of files (core/file/records.h), against
 * an init that answers what the test says. */
#include "core/file/tasks.h"

#include <stdlib.h>
#include <string.h>

#include "core/activity/activity.h"
#include "core/file/records.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

static const struct file_place place = {.principal = &fake_principal, .path = "/workspace/a"};

struct setting {
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct file_task *task;
	/* What came. */
	bool done;
	struct error error;
	char data[4096];
	size_t size;
	uint64_t number;
	bool flag;
	char names[1024];
	unsigned records, enough; /* of which the last one is enough; 0: all are wanted */
	bool cancel;              /* at the first record */
};

static void begin(struct setting *setting)
{
	*setting = (struct setting){.host = fake_host_new()};
	fake_start(setting->host);
	setting->sandbox = fake_create(setting->host, NULL);
	setting->init = fake_init_of(setting->host, &setting->sandbox->row.id);
}

static void end(struct setting *setting)
{
	fake_host_free(setting->host);
}

static void over(struct setting *setting, const struct error *error)
{
	CHECK(!setting->done);
	setting->done = true;
	setting->task = NULL;
	setting->error = error ? *error : (struct error){0};
}

/* Until the init was asked to do that. */
static void until_asked(struct setting *setting, enum file_operation operation)
{
	for (int i = 0; i < 500 && setting->init->operation_kind != operation; i++)
		fake_turn(setting->host, 2);
	CHECK_INT(setting->init->operation_kind, operation);
}

static void send_data(struct setting *setting, const void *bytes, size_t size)
{
	fake_init_send(setting->init, FRAME_DATA, setting->init->operation, bytes, size);
}

static void send_result(struct setting *setting, const struct writer *writer)
{
	fake_init_send(setting->init, FRAME_RESULT, setting->init->operation, writer->data,
		       writer->size);
	setting->init->operation_kind = 0;
}

static void send_count(struct setting *setting, uint64_t count)
{
	uint8_t room[8];
	struct writer writer = writer_on(room, sizeof(room));
	write_u64(&writer, count);
	send_result(setting, &writer);
}

static void entry_write(struct writer *writer, const char *name, char type)
{
	write_text(writer, name);
	write_u8(writer, (uint8_t)type);
	write_u32(writer, 0644);
	write_u32(writer, 0);
	write_u32(writer, 0);
	write_u64(writer, 7);
	write_i64(writer, 1);
	write_u64(writer, 2);
	write_text(writer, "");
}

/* Entries of a list ("a b/": b is a directory); how many. */
static uint32_t send_entries(struct setting *setting, const char *names)
{
	uint8_t room[4096];
	struct writer writer = writer_on(room, sizeof(room));
	char name[64];
	uint32_t count = 0;
	for (const char *at = names; *at; count++) {
		size_t size = strcspn(at, " ");
		memcpy(name, at, size);
		bool directory = name[size - 1] == '/';
		name[directory ? size - 1 : size] = '\0';
		entry_write(&writer, name, directory ? 'd' : 'f');
		at += size + (at[size] == ' ');
	}
	send_data(setting, room, writer.size);
	return count;
}

static void send_list(struct setting *setting, const char *names, bool truncated)
{
	uint8_t room[8];
	uint32_t count = send_entries(setting, names);
	struct writer writer = writer_on(room, sizeof(room));
	write_u32(&writer, count);
	write_u8(&writer, truncated);
	send_result(setting, &writer);
}

/* --- reading --- */

static void on_content(void *data, const struct file_content *content, const struct error *error)
{
	struct setting *setting = data;
	over(setting, error);
	CHECK(!content == !!error);
	if (!content)
		return;
	setting->size = content->size;
	memcpy(setting->data, content->data, MIN(content->size, sizeof(setting->data)));
	setting->number = content->file_size;
	setting->flag = content->more;
}

TEST(read_whole)
{
	struct setting setting;
	struct error error;
	begin(&setting);
	CHECK_INT(file_read_whole(setting.sandbox, &place, 2, 5, on_content, &setting,
				  &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	CHECK(!setting.done);
	send_data(&setting, "hel", 3);
	send_data(&setting, "lo!", 3);
	send_count(&setting, 100);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_NONE);
	CHECK_INT(setting.size, 5);
	CHECK(memcmp(setting.data, "hello", 5) == 0);
	CHECK(setting.flag);
	CHECK_INT(setting.number, 100);
	end(&setting);
}

TEST(read_of_what_has_no_size_and_is_empty)
{
	struct setting setting;
	struct error error;
	begin(&setting);
	CHECK_INT(file_read_whole(setting.sandbox, &place, 0, 0, on_content, &setting,
				  &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	send_data(&setting, "x", 1);
	send_count(&setting, 0);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.size, 0);
	CHECK(setting.flag);
	CHECK_INT(setting.number, 1);
	end(&setting);
}

TEST(read_refused_and_lied_to)
{
	struct setting setting;
	struct error error;
	begin(&setting);
	CHECK_INT(file_read_whole(setting.sandbox, &place, 0, FILE_WHOLE_MAX + 1, on_content,
				  &setting, &setting.task, &error),
		  -1);
	CHECK_INT(error.kind, ERROR_FILE_TOO_LARGE);
	/* More than was asked for. */
	CHECK_INT(file_read_whole(setting.sandbox, &place, 0, 1, on_content, &setting,
				  &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	send_data(&setting, "abc", 3);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_GUEST_PROTOCOL);
	/* A result that is none. */
	setting.done = false;
	setting.init->operation_kind = 0;
	CHECK_INT(file_read_whole(setting.sandbox, &place, 0, 1, on_content, &setting,
				  &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	fake_init_send(setting.init, FRAME_RESULT, setting.init->operation, "abc", 3);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_GUEST_PROTOCOL);
	end(&setting);
}

TEST(cancelled_and_lost)
{
	struct setting setting;
	struct error error;
	begin(&setting);
	CHECK_INT(file_read_whole(setting.sandbox, &place, 0, 10, on_content, &setting,
				  &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	file_task_cancel(setting.task);
	fake_turn(setting.host, 20);
	CHECK(!setting.done);
	CHECK_INT(setting.init->frames[FRAME_CANCEL], 1);
	CHECK(list_empty(&setting.sandbox->operations));
	setting.init->operation_kind = 0;
	CHECK_INT(file_read_whole(setting.sandbox, &place, 0, 10, on_content, &setting,
				  &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	fake_init_disconnect(setting.init);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_GUEST_GONE);
	end(&setting);
}

/* --- writing --- */

static void on_written(void *data, uint64_t written, bool created, const struct error *error)
{
	struct setting *setting = data;
	over(setting, error);
	setting->number = written;
	setting->flag = created;
}

TEST(write_whole)
{
	struct setting setting;
	struct error error;
	size_t size = 3 * FILE_WINDOW;
	char *bytes = malloc(size), actor[ACTIVITY_ACTOR_MAX];
	begin(&setting);
	CHECK(bytes != NULL);
	memset(bytes, 'x', size);
	/* The fake says of everything that it is not there. */
	CHECK_INT(file_write_whole(setting.sandbox, &place, bytes, size, 0600, false, on_written,
				   &setting, &setting.task, &error),
		  0);
	free(bytes);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_NONE);
	CHECK_INT(setting.number, size);
	CHECK(setting.flag);
	CHECK_INT(setting.init->operation_kind, FILE_WRITE);
	CHECK_INT(setting.init->written.size, size);
	/* Its second operation is in the same name. */
	fake_actor(setting.sandbox, ACTIVITY_FILE_WRITTEN, actor);
	CHECK_TEXT(actor, "local:0");
	setting.done = false;
	CHECK_INT(file_write_whole(setting.sandbox, &place, NULL, 0, 0, true, on_written, &setting,
				   &setting.task, &error),
		  0);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_NONE);
	CHECK_INT(setting.init->operation_kind, FILE_APPEND);
	CHECK_INT(file_write_whole(setting.sandbox, &place, "", FILE_WHOLE_MAX + 1, 0, false,
				   on_written, &setting, &setting.task, &error),
		  -1);
	CHECK_INT(error.kind, ERROR_FILE_TOO_LARGE);
	end(&setting);
}

/* --- replacing --- */

static void on_count(void *data, uint64_t count, const struct error *error)
{
	struct setting *setting = data;
	over(setting, error);
	setting->number = count;
}

static void replace(struct setting *setting, uint32_t expected)
{
	struct error error;
	setting->done = false;
	CHECK_INT(file_replace(setting->sandbox, &place, "aa", "b", expected, on_count, setting,
			       &setting->task, &error),
		  0);
	if (expected == 0)
		return;
	until_asked(setting, FILE_READ);
	/* Across two pieces, and not the same letter twice. */
	send_data(setting, "aaa\0a", 5);
	send_data(setting, "ab", 2);
	send_count(setting, 7);
}

TEST(replace_counts_first)
{
	struct setting setting;
	begin(&setting);
	replace(&setting, 1);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_INVALID);
	CHECK(strstr(setting.error.message, "2 times") != NULL);
	replace(&setting, 2);
	until_asked(&setting, FILE_REPLACE);
	send_count(&setting, 2);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_NONE);
	CHECK_INT(setting.number, 2);
	/* It was another one by then. */
	replace(&setting, 2);
	until_asked(&setting, FILE_REPLACE);
	send_count(&setting, 1);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_CONFLICT);
	/* So many that they are not all counted. */
	char many[4096];
	struct error error;
	memset(many, 'a', sizeof(many));
	setting.done = false;
	CHECK_INT(file_replace(setting.sandbox, &place, "aa", "b", 3, on_count, &setting,
			       &setting.task, &error),
		  0);
	until_asked(&setting, FILE_READ);
	send_data(&setting, many, sizeof(many));
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_INVALID);
	CHECK(strstr(setting.error.message, "more than 1003 times") != NULL);
	fake_turn(setting.host, 20);
	setting.init->operation_kind = 0;
	replace(&setting, 0);
	until_asked(&setting, FILE_REPLACE);
	send_count(&setting, 9);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.number, 9);
	end(&setting);
}

/* --- records --- */

static bool on_entry(void *data, const struct file_entry *entry)
{
	struct setting *setting = data;
	size_t at = strlen(setting->names);
	snprintf(setting->names + at, sizeof(setting->names) - at, "%s%s ", entry->name,
		 entry->type == 'd' ? "/" : "");
	if (setting->cancel)
		file_task_cancel(setting->task);
	return ++setting->records != setting->enough;
}

static bool on_match(void *data, const struct file_match *match)
{
	struct setting *setting = data;
	size_t at = strlen(setting->names);
	CHECK_INT(strlen(match->path), match->path_size);
	snprintf(setting->names + at, sizeof(setting->names) - at, "%s:%llu:%.*s ", match->path,
		 (unsigned long long)match->line, (int)match->text_size,
		 match->text ? match->text : "");
	return ++setting->records != setting->enough;
}

static void on_total(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct setting *setting = data;
	over(setting, error);
	CHECK_INT(total, setting->records);
	setting->flag = cut;
}

static const struct file_records records = {on_entry, on_match, on_total};

static void list_files(struct setting *setting, uint32_t depth, uint32_t max)
{
	struct error error;
	setting->done = false;
	setting->names[0] = '\0';
	setting->records = 0;
	setting->init->operation_kind = 0;
	CHECK_INT(file_list(setting->sandbox, &place, depth, max, &records, setting, &setting->task,
			    &error),
		  0);
	until_asked(setting, FILE_LIST);
}

TEST(walk)
{
	struct setting setting;
	begin(&setting);
	list_files(&setting, 1, 0);
	send_list(&setting, "x d/", false);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_TEXT(setting.names, "x d/ ");
	CHECK(!setting.flag);
	list_files(&setting, 3, 100);
	send_list(&setting, "x d/ e/", false);
	until_asked(&setting, FILE_LIST);
	send_list(&setting, "f/ y", false);
	/* e cannot be looked into. */
	until_asked(&setting, FILE_LIST);
	uint8_t room[256];
	struct writer writer = writer_on(room, sizeof(room));
	struct failure failure = {.kind = ERROR_FILE_DENIED, .message = "no"};
	failure_write(&writer, &failure);
	fake_init_send(setting.init, FRAME_FAILED, setting.init->operation, room, writer.size);
	setting.init->operation_kind = 0;
	until_asked(&setting, FILE_LIST);
	send_list(&setting, "g/", false);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_NONE);
	CHECK_TEXT(setting.names, "x d/ e/ d/f/ d/y d/f/g/ ");
	CHECK(setting.flag);
	end(&setting);
}

TEST(walk_ends_when_there_is_enough)
{
	struct setting setting;
	begin(&setting);
	list_files(&setting, 5, 2);
	send_list(&setting, "d/ e/", true);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK(setting.flag);
	CHECK_INT(setting.records, 2);
	setting.enough = 1;
	list_files(&setting, 5, 0);
	send_entries(&setting, "d/ e/");
	CHECK(fake_until(setting.host, &setting.done));
	CHECK(setting.flag);
	CHECK_TEXT(setting.names, "d/ ");
	fake_turn(setting.host, 20);
	CHECK(list_empty(&setting.sandbox->operations));
	/* More than was asked for is not told. */
	setting.enough = 0;
	list_files(&setting, 1, 1);
	send_entries(&setting, "d/ e/");
	CHECK(fake_until(setting.host, &setting.done));
	CHECK(setting.flag);
	CHECK_TEXT(setting.names, "d/ ");
	fake_turn(setting.host, 20);
	/* Cancelled by the one who is told. */
	setting.enough = 0;
	setting.cancel = true;
	list_files(&setting, 5, 0);
	send_entries(&setting, "d/ e/");
	fake_turn(setting.host, 20);
	CHECK(!setting.done);
	CHECK_TEXT(setting.names, "d/ ");
	CHECK(list_empty(&setting.sandbox->operations));
	end(&setting);
}

TEST(grep_and_glob)
{
	struct setting setting;
	struct error error;
	uint8_t room[512];
	struct grep_query query = {.pattern = "a.b", .max = 10};
	begin(&setting);
	CHECK_INT(
	    file_grep(setting.sandbox, &place, &query, &records, &setting, &setting.task, &error),
	    0);
	until_asked(&setting, FILE_GREP);
	struct writer writer = writer_on(room, sizeof(room));
	write_text(&writer, "src/a.c");
	write_u64(&writer, 3);
	write_u64(&writer, 40);
	write_text(&writer, "axb \xc3"); /* half a character */
	send_data(&setting, room, writer.size);
	writer = writer_on(room, sizeof(room));
	write_u64(&writer, 1);
	write_u64(&writer, 1);
	write_u8(&writer, 1);
	send_result(&setting, &writer);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_TEXT(setting.names, "src/a.c:3:axb  ");
	CHECK(setting.flag);
	setting.records = 0;
	setting.done = false;
	CHECK_INT(file_glob(setting.sandbox, &place,
			    &(struct glob_query){.pattern = "*.c", .max = 1}, &records, &setting,
			    &setting.task, &error),
		  0);
	until_asked(&setting, FILE_GLOB);
	/* A path with a NUL is none. */
	writer = writer_on(room, sizeof(room));
	write_u32(&writer, 3);
	memcpy(room + 4, "a\0b", 3);
	send_data(&setting, room, 7);
	CHECK(fake_until(setting.host, &setting.done));
	CHECK_INT(setting.error.kind, ERROR_GUEST_PROTOCOL);
	end(&setting);
}

TEST(events_of_watches)
{
	uint8_t frame[64];
	struct file_event event;
	struct writer writer = writer_on(frame, sizeof(frame));
	write_u8(&writer, WATCH_RENAMED_TO);
	write_bytes(&writer, "/a/bc", 5);
	size_t size = (size_t)writer_finish(&writer);
	CHECK_INT(file_event_read(frame, size, &event), 0);
	CHECK_INT(event.kind, WATCH_RENAMED_TO);
	CHECK(event.base_size == 2 && memcmp(event.base, "bc", 2) == 0);
	CHECK_TEXT(file_event_name(event.kind), "renamed_to");
	/* What is cut, has more than it should, or is of a kind that nobody knows. */
	CHECK_INT(file_event_read(frame, size - 1, &event), -1);
	CHECK_INT(file_event_read(frame, size + 1, &event), -1);
	CHECK_INT(file_event_read(frame, 0, &event), -1);
	frame[0] = 200;
	CHECK_INT(file_event_read(frame, size, &event), -1);
	CHECK(!file_event_name(200));
	/* Without a path: it is about all of them. */
	writer = writer_on(frame, sizeof(frame));
	write_u8(&writer, WATCH_OVERFLOW);
	write_bytes(&writer, "", 0);
	CHECK_INT(file_event_read(frame, (size_t)writer_finish(&writer), &event), 0);
	CHECK_INT((int64_t)event.base_size, 0);
}
