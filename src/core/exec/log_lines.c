/* Lines of all execs of a sandbox, forward from a position (log_lines.h). log_lines_tail.c finds
 * the position of a tail. Called by the edges; reads logs from the page cache and rows from the
 * store, a bounded part per call. */
#include "core/exec/log_lines_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define ENTRIES_MAX (2 * EXEC_PER_SANDBOX_MAX)

struct log_reader *log_reader_new(struct sandbox *sandbox, const struct log_filter *filter,
				  bool whole_only)
{
	struct log_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		abort();
	reader->core = sandbox->core;
	reader->sandbox = sandbox->row.id;
	reader->filter = *filter;
	reader->whole_only = whole_only;
	reader->tail.key = UINT64_MAX;
	return reader;
}

void log_reader_rest(struct log_reader *reader)
{
	free(reader->window);
	reader->window = NULL;
	reader->window_size = 0;
}

void log_reader_free(struct log_reader *reader)
{
	if (!reader)
		return;
	log_reader_rest(reader);
	free(reader->entries);
	free(reader);
}

bool log_matches(const struct log_reader *reader, const char *text, size_t size)
{
	const char *grep = reader->filter.grep;
	return !*grep || memmem(text, size, grep, strlen(grep));
}

bool log_wants(const struct log_reader *reader, const struct exec_row *row)
{
	const struct log_filter *filter = &reader->filter;
	if (id_is_set(&filter->exec) && !id_equal(&filter->exec, &row->id))
		return false;
	/* An internal channel has no lines for clients, unless it is requested by its id. */
	if (!id_is_set(&filter->exec) && exec_internal(row))
		return false;
	if (filter->until && row->started_wall > filter->until)
		return false;
	return !filter->since || row->ended_wall == 0 || row->ended_wall >= filter->since;
}

size_t log_exec_text(const struct exec_row *row, bool end, char text[LOG_EXEC_TEXT_MAX])
{
	const struct exec_end_facts *facts = exec_end_facts(row->end);
	int size;
	if (!end)
		size = snprintf(text, LOG_EXEC_TEXT_MAX, "started: %s",
				row->command ? row->command : "");
	else if (row->state == EXEC_FAILED)
		size = snprintf(text, LOG_EXEC_TEXT_MAX, "failed: %s",
				row->error_message ? row->error_message : "");
	else if (!facts->log)
		size = snprintf(text, LOG_EXEC_TEXT_MAX, "ended: exit code %u", row->code);
	else
		size = snprintf(text, LOG_EXEC_TEXT_MAX, "ended: %s (signal %u)", facts->log,
				row->code);
	size_t length = MIN((size_t)MAX(size, 0), (size_t)LOG_EXEC_TEXT_MAX - 1);
	/* A command may contain line ends, but its line in the log is one line. */
	for (size_t i = 0; i < length; i++)
		if (text[i] == '\n')
			text[i] = ' ';
	return text_utf8_prefix(text, length);
}

struct log_entry *log_entry_add(struct log_reader *reader, const struct id *id)
{
	if (reader->entry_count == ENTRIES_MAX)
		return NULL;
	if (reader->entry_count == reader->entry_room) {
		reader->entry_room = reader->entry_room ? 2 * reader->entry_room : 4;
		reader->entries =
		    realloc(reader->entries, reader->entry_room * sizeof(*reader->entries));
		if (!reader->entries)
			abort();
	}
	struct log_entry *entry = &reader->entries[reader->entry_count++];
	*entry = (struct log_entry){.id = *id};
	return entry;
}

static void entry_drop(struct log_reader *reader, size_t at)
{
	reader->entry_count--;
	memmove(&reader->entries[at], &reader->entries[at + 1],
		(reader->entry_count - at) * sizeof(*reader->entries));
	reader->window_size = 0;
}

/* --- one stream --- */

/* Moves the window to `at`: returns how many bytes it has from there on, or -errno. */
static ssize_t window_at(struct log_reader *reader, struct exec *exec, enum exec_stream stream,
			 uint64_t at, const char **ret_data, uint64_t *ret_gap)
{
	uint64_t end = reader->window_offset + reader->window_size;
	bool same = id_equal(&reader->window_exec, &exec->row.id) &&
		    reader->window_stream == stream && reader->window_size > 0 &&
		    at >= reader->window_offset && at < end;
	*ret_gap = 0;
	if (same && (memchr(reader->window + (at - reader->window_offset), '\n', end - at) ||
		     end - at >= LOG_LINE_MAX)) {
		*ret_data = reader->window + (at - reader->window_offset);
		return (ssize_t)(end - at);
	}
	if (!reader->window)
		reader->window = malloc(LOG_WINDOW);
	if (!reader->window)
		abort();
	size_t size = 0;
	while (size < LOG_WINDOW) {
		uint64_t gap = 0;
		ssize_t got = exec_read(exec, stream, at + *ret_gap + size, reader->window + size,
					LOG_WINDOW - size, &gap);
		if (got < 0)
			return got;
		if (gap > 0 && size > 0)
			break;
		*ret_gap += gap;
		size += (size_t)got;
		if (got == 0)
			break;
	}
	reader->window_exec = exec->row.id;
	reader->window_stream = stream;
	reader->window_offset = at + *ret_gap;
	reader->window_size = size;
	*ret_data = reader->window;
	return (ssize_t)size;
}

/* The next matching line of a stream. */
static enum log_result log_stream_next(struct log_reader *reader, struct exec *exec,
				       enum exec_stream stream, uint64_t *at, struct log_line *line,
				       int64_t *work)
{
	uint64_t missing = 0;
	for (;;) {
		const char *data;
		uint64_t gap;
		if (*work <= 0)
			return LOG_AGAIN;
		ssize_t size = window_at(reader, exec, stream, *at, &data, &gap);
		if (size <= 0) {
			*at += gap;
			return LOG_NONE;
		}
		const char *newline = memchr(data, '\n', (size_t)size);
		size_t length = newline ? (size_t)(newline - data) : (size_t)size;
		bool part = !newline;
		if (length > LOG_LINE_MAX || (!newline && length == LOG_LINE_MAX)) {
			length = text_utf8_prefix(data, LOG_LINE_MAX);
			part = true;
		} else if (!newline && !exec_ended(exec) && reader->whole_only) {
			return LOG_NONE;
		} else if (!newline && exec_ended(exec)) {
			part = false; /* its last line has no end */
		}
		missing += gap;
		*line = (struct log_line){
		    .row = &exec->row,
		    .source = stream == EXEC_STDOUT ? LOG_STDOUT : LOG_STDERR,
		    .text = data,
		    .size = length,
		    .offset = *at + gap,
		    .gap = missing,
		    .partial = part,
		};
		*at += gap + length + (newline && length == (size_t)(newline - data));
		*work -= (int64_t)length + 64;
		if (log_matches(reader, data, length))
			return LOG_LINE;
	}
}

/* --- all of them --- */

static enum log_result exec_line_write(struct log_reader *reader, const struct exec *exec, bool end,
				       struct log_line *line)
{
	size_t size = log_exec_text(&exec->row, end, reader->text);
	*line = (struct log_line){
	    .row = &exec->row, .source = LOG_EXEC, .text = reader->text, .size = size};
	return log_matches(reader, reader->text, size) ? LOG_LINE : LOG_NONE;
}

static enum log_result log_entry_next(struct log_reader *reader, struct log_entry *entry,
				      struct exec *exec, struct log_line *line, int64_t *work)
{
	uint32_t sources = reader->filter.sources;
	enum log_result result = LOG_NONE;
	if (!entry->said_start) {
		entry->said_start = true;
		if (sources & LOG_EXEC)
			result = exec_line_write(reader, exec, false, line);
	}
	if (result == LOG_NONE && sources & LOG_STDOUT)
		result = log_stream_next(reader, exec, EXEC_STDOUT, &entry->at[0], line, work);
	if (result == LOG_NONE && sources & LOG_STDERR)
		result = log_stream_next(reader, exec, EXEC_STDERR, &entry->at[1], line, work);
	if (result == LOG_NONE && exec_ended(exec) && !entry->said_end) {
		entry->said_end = true;
		if (sources & LOG_EXEC)
			result = exec_line_write(reader, exec, true, line);
	}
	return result;
}

static bool log_exec_look(void *data, const struct exec_row *row)
{
	struct log_exec_search *search = data;
	search->key = row->key;
	search->id = row->id;
	search->found = log_wants(search->reader, row);
	return !search->found && ++search->looked < LOG_ROWS_PER_LOOK;
}

int log_exec_find(struct log_reader *reader, uint64_t key, bool older,
		  struct log_exec_search *search, int64_t *work, struct error *error)
{
	*search = (struct log_exec_search){.reader = reader};
	if (store_exec_from(reader->core->store, &reader->sandbox, key, older, log_exec_look,
			    search, error) < 0)
		return -1;
	*work -= LOG_EXEC_WORK;
	return 0;
}

/* Adds the next matching exec. */
static enum log_result log_add_newer(struct log_reader *reader, const struct sandbox *sandbox,
				     int64_t *work, struct error *error)
{
	struct log_exec_search newer;
	uint64_t newest = sandbox->row.last_exec_key;
	/* No exec has begun since: a following reader asks often. */
	if (reader->newest >= newest)
		return LOG_NONE;
	if (log_exec_find(reader, reader->newest, false, &newer, work, error) < 0)
		return LOG_FAILED;
	if (newer.key == 0) {
		reader->newest = newest;
		return LOG_NONE;
	}
	reader->newest = newer.key;
	if (newer.found && !log_entry_add(reader, &newer.id)) {
		error_set(error, ERROR_BUSY, "too many commands are followed at once");
		return LOG_FAILED;
	}
	return newer.found ? LOG_LINE : LOG_AGAIN;
}

enum log_result log_reader_next(struct log_reader *reader, struct log_line *line, int64_t *work,
				struct error *error)
{
	struct sandbox *sandbox = sandbox_by_id(reader->core, &reader->sandbox);
	if (!sandbox)
		return LOG_NONE;
	size_t at = 0;
	for (;;) {
		struct exec *exec;
		enum log_result result;
		if (at == reader->entry_count) {
			result = log_add_newer(reader, sandbox, work, error);
			if (result == LOG_AGAIN && *work > 0)
				continue;
			if (result != LOG_LINE)
				return result;
			continue;
		}
		struct log_entry *entry = &reader->entries[at];
		if (exec_find(sandbox, entry->id.text, &exec, error) < 0) {
			entry_drop(reader, at); /* it was removed */
			continue;
		}
		if (!log_wants(reader, &exec->row)) {
			entry_drop(reader, at);
			continue;
		}
		result = log_entry_next(reader, entry, exec, line, work);
		if (result != LOG_NONE)
			return result;
		if (exec_ended(exec) && entry->said_end)
			entry_drop(reader, at);
		else
			at++;
	}
}

/* --- cursors: the newest key, then each open command --- */

int log_reader_cursor(const struct log_reader *reader, struct buffer *text)
{
	int result = buffer_printf(text, "%llx", (unsigned long long)reader->newest);
	for (size_t i = 0; i < reader->entry_count && result == 0; i++) {
		const struct log_entry *entry = &reader->entries[i];
		result = buffer_printf(
		    text, ".%s-%llx-%llx-%d", entry->id.text, (unsigned long long)entry->at[0],
		    (unsigned long long)entry->at[1], entry->said_start + 2 * entry->said_end);
	}
	return result < 0 || text->size > LOG_CURSOR_MAX ? -1 : 0;
}

/* Hexadecimal digits up to the character that ends them: returns the place after it, or NULL. */
static const char *cursor_take_hex(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t size = strspn(text, "0123456789abcdef");
	if (size == 0 || size > 15)
		return NULL;
	for (size_t i = 0; i < size; i++)
		value =
		    value << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
	*ret_value = value;
	return text + size;
}

static const char *log_take_entry(struct log_reader *reader, const char *text)
{
	char name[ID_LENGTH + 1] = "";
	struct id id;
	uint64_t out, err, said;
	if (strnlen(text, ID_LENGTH) < ID_LENGTH)
		return NULL;
	memcpy(name, text, ID_LENGTH);
	text += ID_LENGTH;
	if (id_parse(name, &id) < 0 || *text != '-' || !(text = cursor_take_hex(text + 1, &out)) ||
	    *text != '-' || !(text = cursor_take_hex(text + 1, &err)) || *text != '-' ||
	    !(text = cursor_take_hex(text + 1, &said)) || said > 3)
		return NULL;
	struct log_entry *entry = log_entry_add(reader, &id);
	if (!entry)
		return NULL;
	entry->at[0] = out;
	entry->at[1] = err;
	entry->said_start = said & 1;
	entry->said_end = said & 2;
	return text;
}

int log_reader_seek(struct log_reader *reader, const char *cursor, struct error *error)
{
	const char *text = cursor_take_hex(cursor, &reader->newest);
	while (text && *text == '.')
		text = log_take_entry(reader, text + 1);
	if (!text || *text)
		return error_set(error, ERROR_INVALID,
				 "`cursor` is not one that a page of logs gave");
	return 0;
}
