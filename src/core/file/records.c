/* See records.h. Called by the file handlers of REST and by tasks.c. */
#include "core/file/records.h"

#include <string.h>

#include "base/text.h"

static bool record_read_entry(struct reader *reader, const struct file_sink *sink, void *data)
{
	static struct file_entry entry; /* large; one loop */
	file_entry_read(reader, &entry);
	return reader->bad || sink->entry(data, &entry);
}

static bool record_read_match(struct reader *reader, bool grep, const struct file_sink *sink,
			      void *data)
{
	static char path[GUEST_PATH_MAX + 1];
	struct file_match match = {.path = path};
	read_text(reader, path, sizeof(path));
	if (grep) {
		match.line = read_u64(reader);
		match.offset = read_u64(reader);
		struct bytes text = read_bytes(reader, GREP_LINE_MAX);
		match.text = (const char *)text.data;
		/* A line may be cut inside a character; that alone does not make it binary. */
		match.text_size = reader->bad ? 0 : text_utf8_prefix(match.text, text.size);
	}
	match.path_size = strlen(path);
	return reader->bad || sink->match(data, &match);
}

int file_records_read(uint8_t operation, const void *bytes, size_t size,
		      const struct file_sink *sink, void *data)
{
	struct reader reader = reader_on(bytes, size);
	bool more = true;
	while (more && reader.at < reader.size && !reader.bad)
		more = operation == FILE_LIST
			   ? record_read_entry(&reader, sink, data)
			   : record_read_match(&reader, operation == FILE_GREP, sink, data);
	return reader.bad ? -1 : !more;
}

const char *file_event_name(uint8_t kind)
{
	switch ((enum watch_kind)kind) {
	case WATCH_READY:
		return "ready";
	case WATCH_CREATED:
		return "created";
	case WATCH_MODIFIED:
		return "modified";
	case WATCH_REMOVED:
		return "removed";
	case WATCH_RENAMED_FROM:
		return "renamed_from";
	case WATCH_RENAMED_TO:
		return "renamed_to";
	case WATCH_ATTRIBUTES:
		return "attributes";
	case WATCH_OVERFLOW:
		return "overflow";
	}
	return NULL;
}

int file_event_read(const void *bytes, size_t size, struct file_event *ret_event)
{
	struct reader reader = reader_on(bytes, size);
	uint8_t kind = read_u8(&reader);
	struct bytes path = read_bytes(&reader, GUEST_PATH_MAX);
	if (reader_finish(&reader) < 0 || !file_event_name(kind))
		return -1;
	const char *text = (const char *)path.data;
	const char *slash = path.size ? memrchr(text, '/', path.size) : NULL;
	const char *base = slash ? slash + 1 : text;
	*ret_event = (struct file_event){.kind = (enum watch_kind)kind,
					 .path = path,
					 .base = base,
					 .base_size = path.size - (size_t)(base - text)};
	return 0;
}

int file_outcome_read(uint8_t operation, const void *result, size_t size,
		      struct file_outcome *ret_outcome, struct error *error)
{
	static struct file_entry entry; /* large; one loop */
	struct reader reader = reader_on(result, size);
	struct file_outcome outcome = {0};
	switch ((enum file_operation)operation) {
	case FILE_STAT:
		file_entry_read(&reader, &entry);
		outcome.entry = &entry;
		break;
	case FILE_LIST:
	case FILE_GLOB:
		outcome.count = read_u32(&reader);
		outcome.truncated = read_u8(&reader);
		break;
	case FILE_GREP:
		outcome.count = read_u64(&reader);
		outcome.files = read_u64(&reader);
		outcome.truncated = read_u8(&reader);
		break;
	case FILE_READ:
	case FILE_WRITE:
	case FILE_APPEND:
	case FILE_REMOVE:
	case FILE_COPY:
	case FILE_REPLACE:
		outcome.count = read_u64(&reader);
		break;
	case FILE_READLINK:
		outcome.target = read_bytes(&reader, GUEST_PATH_MAX);
		break;
	case FILE_MKDIR:
	case FILE_RENAME:
	case FILE_SYMLINK:
	case FILE_CHMOD:
	case FILE_CHOWN:
	case FILE_WATCH:
	case FILE_PACK:
	case FILE_UNPACK:
		reader.at = reader.size; /* nothing that is reported */
		break;
	}
	if (reader_finish(&reader) < 0)
		return error_set(error, ERROR_GUEST_PROTOCOL,
				 "the sandbox's init gave an answer without sense");
	*ret_outcome = outcome;
	return 0;
}
