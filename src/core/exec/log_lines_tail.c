/* Finds where the last N lines of a sandbox's log begin (log_lines.h): walks backwards over the
 * execs, newest first, and in each over its streams, block by block, counting the lines that pass
 * the filter. The result is a position; log_lines.c reads on from there. Called by the edges; a
 * bounded part per call. */
#include <stdlib.h>
#include <string.h>

#include "core/exec/log_lines_private.h"

/* The parts of an exec in the order of reading; the search goes the other way. */
enum slot { SLOT_START, SLOT_STDOUT, SLOT_STDERR, SLOT_END, SLOTS };

/* Reads the kept part of [*from, end) into the window; *from moves to its first byte. */
static ssize_t log_read_block_before(struct log_reader *reader, struct exec *exec,
				     enum exec_stream stream, uint64_t end, uint64_t *from)
{
	size_t size = 0;
	*from = end - MIN(end, (uint64_t)LOG_WINDOW);
	if (!reader->window)
		reader->window = malloc(LOG_WINDOW);
	if (!reader->window)
		abort();
	reader->window_size = 0; /* the window no longer has what log_lines.c expects */
	while (*from + size < end) {
		uint64_t gap = 0;
		ssize_t got = exec_read(exec, stream, *from + size, reader->window + size,
					(size_t)(end - *from) - size, &gap);
		if (got < 0)
			return got;
		if (gap > 0) {
			/* The data before the gap belongs to another block: read again from the end
			 * of the gap. */
			*from += size + gap;
			size = 0;
			if (*from >= end)
				return 0;
			continue;
		}
		if (got == 0)
			break;
		size += (size_t)got;
	}
	return (ssize_t)size;
}

/* Counts the lines of a stream before `end` backwards until `count` is 0: true with *end at the
 * start of the last counted line; false: the stream has no more (end is 0), or the work is used up
 * (end is not). */
static bool log_tail_count_stream(struct log_reader *reader, struct exec *exec,
				  enum exec_stream stream, uint64_t *end, uint64_t *count,
				  int64_t *work)
{
	while (*end > 0 && *work > 0) {
		uint64_t from;
		ssize_t size = log_read_block_before(reader, exec, stream, *end, &from);
		if (size <= 0) {
			/* A gap: only the stream's head, if any, is kept before it. */
			*end = *end > exec->row.head ? exec->row.head : 0;
			*work -= LOG_WINDOW / 16;
			continue;
		}
		*work -= size;
		const char *data = reader->window;
		size_t last = (size_t)size;
		bool first_block = from == 0;
		/* A line begins after the previous line end and extends to its own. */
		while (last > 0) {
			size_t stop = data[last - 1] == '\n' ? last - 1 : last;
			const char *newline = memrchr(data, '\n', stop);
			size_t start = newline ? (size_t)(newline - data) + 1 : 0;
			/* A line that begins before this block is checked with the block before,
			 * unless it is longer than a block. */
			if (!newline && !first_block && last < (size_t)size)
				break;
			last = start;
			if (!log_matches(reader, data + start, stop - start))
				continue;
			if (--*count == 0) {
				*end = from + start;
				return true;
			}
		}
		*end = from + last;
	}
	return false;
}

/* One part of an exec. True: the last of `count` was found, and the entry is at its position. */
static bool log_tail_count_slot(struct log_reader *reader, struct exec *exec, enum slot slot,
				struct log_entry *entry, uint64_t *count, int64_t *work)
{
	uint32_t sources = reader->filter.sources;
	bool out = slot == SLOT_STDOUT;
	if (slot == SLOT_START || slot == SLOT_END) {
		bool said = slot == SLOT_START || exec_ended(exec);
		reader->tail.end = 0;
		if (sources & LOG_EXEC && said) {
			size_t size = log_exec_text(&exec->row, slot == SLOT_END, reader->text);
			*count -= log_matches(reader, reader->text, size);
		}
		if (*count > 0)
			return false;
		entry->said_start = slot == SLOT_END;
		if (slot == SLOT_END) {
			entry->at[0] = exec_total(exec, EXEC_STDOUT);
			entry->at[1] = exec_total(exec, EXEC_STDERR);
		}
		return true;
	}
	if (!(sources & (out ? LOG_STDOUT : LOG_STDERR))) {
		reader->tail.end = 0;
		return false;
	}
	bool found = log_tail_count_stream(reader, exec, out ? EXEC_STDOUT : EXEC_STDERR,
					   &reader->tail.end, count, work);
	if (!found)
		return false;
	entry->said_start = true;
	entry->at[0] = out ? reader->tail.end : exec_total(exec, EXEC_STDOUT);
	entry->at[1] = out ? 0 : reader->tail.end;
	return true;
}

static uint64_t log_slot_end(const struct exec *exec, int slot)
{
	return slot == SLOT_STDOUT   ? exec_total(exec, EXEC_STDOUT)
	       : slot == SLOT_STDERR ? exec_total(exec, EXEC_STDERR)
				     : 0;
}

/* Continues in the current exec of the search. LOG_LINE: found; LOG_NONE: all of it was counted. */
static enum log_result log_tail_count_exec(struct log_reader *reader, struct sandbox *sandbox,
					   uint64_t *count, int64_t *work)
{
	struct exec *exec;
	struct error error;
	if (exec_find(sandbox, reader->tail.exec.text, &exec, &error) < 0)
		return LOG_NONE; /* it was removed meanwhile */
	for (; reader->tail.slot >= 0; reader->tail.slot--) {
		struct log_entry place = {.id = exec->row.id};
		bool found = log_tail_count_slot(reader, exec, (enum slot)reader->tail.slot, &place,
						 count, work);
		if (found) {
			struct log_entry *entry = log_entry_add(reader, &exec->row.id);
			if (entry)
				*entry = place;
			reader->newest = exec->row.key;
			return LOG_LINE;
		}
		if (reader->tail.end > 0)
			return LOG_AGAIN;
		if (reader->tail.slot > 0)
			reader->tail.end = log_slot_end(exec, reader->tail.slot - 1);
	}
	return LOG_NONE;
}

/* Enters the next older exec. LOG_LINE: there is one; LOG_NONE: there is none. */
static enum log_result log_tail_enter_older(struct log_reader *reader, struct sandbox *sandbox,
					    int64_t *work, struct error *error)
{
	struct log_exec_search older;
	struct exec *exec;
	if (log_exec_find(reader, reader->tail.key, true, &older, work, error) < 0)
		return LOG_FAILED;
	if (older.key == 0)
		return LOG_NONE;
	reader->tail.key = older.key;
	if (!older.found || exec_find(sandbox, older.id.text, &exec, error) < 0)
		return LOG_AGAIN;
	reader->tail.inside = true;
	reader->tail.exec = older.id;
	reader->tail.slot = SLOT_END;
	reader->tail.end = 0;
	return LOG_LINE;
}

/* The start of the line in which a running stream's position is, if it is near. */
static uint64_t line_start(struct log_reader *reader, struct exec *exec, enum exec_stream stream)
{
	uint64_t total = exec_total(exec, stream), from;
	ssize_t size = total > 0 ? log_read_block_before(reader, exec, stream, total, &from) : 0;
	const char *newline = size > 0 ? memrchr(reader->window, '\n', (size_t)size) : NULL;
	if (newline)
		return from + (uint64_t)(newline - reader->window) + 1;
	return size > 0 && from == 0 ? 0 : total;
}

/* Commands up to the newest one that still run: their further output belongs to the log. The newest
 * one has a place of its own if there is a place. */
static void log_tail_add_running(struct log_reader *reader, struct sandbox *sandbox)
{
	struct log_entry found = {0};
	bool place = reader->entry_count > 0;
	if (place)
		found = reader->entries[--reader->entry_count];
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (exec_ended(exec) || exec->row.key >= reader->newest + !place ||
		    !log_wants(reader, &exec->row))
			continue;
		struct log_entry *entry = log_entry_add(reader, &exec->row.id);
		if (!entry)
			break;
		entry->said_start = true;
		entry->at[0] = line_start(reader, exec, EXEC_STDOUT);
		entry->at[1] = line_start(reader, exec, EXEC_STDERR);
	}
	struct log_entry *entry = place ? log_entry_add(reader, &found.id) : NULL;
	if (entry)
		*entry = found;
}

enum log_result log_reader_tail(struct log_reader *reader, uint64_t *count, int64_t *work,
				struct error *error)
{
	struct sandbox *sandbox = sandbox_by_id(reader->core, &reader->sandbox);
	if (!sandbox)
		return LOG_NONE;
	if (*count == 0) {
		/* Nothing that exists, everything that comes. */
		reader->newest = sandbox->row.last_exec_key;
		log_tail_add_running(reader, sandbox);
		return LOG_NONE;
	}
	for (;;) {
		enum log_result result;
		if (*work <= 0)
			return LOG_AGAIN;
		if (!reader->tail.inside) {
			result = log_tail_enter_older(reader, sandbox, work, error);
			if (result == LOG_NONE || result == LOG_FAILED)
				return result; /* there are fewer lines: begin at the start */
			continue;
		}
		result = log_tail_count_exec(reader, sandbox, count, work);
		if (result == LOG_LINE) {
			log_tail_add_running(reader, sandbox);
			return LOG_NONE;
		}
		if (result == LOG_NONE)
			reader->tail.inside = false;
	}
}
