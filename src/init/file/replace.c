/* Replaces an exact text by another, everywhere in a file or only the first matches. Called by
 * operation_run(); blocks on the disk. The file is read through a window, so memory does not
 * limit its size; the new file replaces it as a whole, with its mode and owner. A file without a
 * match is not touched: the new file is begun at the first match. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

#define WINDOW (256 * 1024)
/* The largest result: a replacement of 100 KB for every 'a' would fill any disk. */
#define RESULT_MAX (4 * GIB)

struct replacing {
	struct operation *operation;
	struct file_target target;
	struct file_new new_file;
	int source;
	uint8_t *buffer;
	size_t room, size;
	uint64_t base; /* offset of the buffer in the source */
	uint64_t count, limit;
	uint64_t written;
};

static void replacing_done(struct replacing *replacing)
{
	file_new_done(&replacing->new_file);
	file_target_done(&replacing->target);
	fd_close(&replacing->source);
	free(replacing->buffer);
}

static int replacing_put(struct replacing *replacing, const void *data, size_t size)
{
	replacing->written += size;
	if (replacing->written > RESULT_MAX)
		return -EFBIG;
	return file_write_all(replacing->new_file.fd, data, size);
}

/* At the first match: copies everything before the window into the new file. */
static int replacing_begin_file(struct replacing *replacing)
{
	int result = file_new_open(&replacing->new_file, replacing->target.directory);
	uint8_t *chunk CLEANUP(file_free) = malloc(FILE_CHUNK_MAX);
	if (!chunk)
		return -ENOMEM;
	for (uint64_t at = 0; result == 0 && at < replacing->base;) {
		size_t want = (size_t)MIN(replacing->base - at, (uint64_t)FILE_CHUNK_MAX);
		ssize_t got = pread(replacing->source, chunk, want, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ESTALE;
		if (operation_cancelled(replacing->operation))
			return -ECANCELED;
		result = replacing_put(replacing, chunk, (size_t)got);
		at += (uint64_t)got;
	}
	return result;
}

static int replacing_fill_window(struct replacing *replacing, bool *ret_end)
{
	while (replacing->size < replacing->room && !*ret_end) {
		ssize_t got = pread(replacing->source, replacing->buffer + replacing->size,
				    replacing->room - replacing->size,
				    (off_t)(replacing->base + replacing->size));
		if (got < 0 && errno != EINTR)
			return -errno;
		*ret_end = got == 0;
		replacing->size += (size_t)MAX(got, 0);
	}
	return 0;
}

/* Replaces in the window, and writes all of it except its end, in which a match could begin. */
static int replacing_replace_in_window(struct replacing *replacing, bool end)
{
	const struct file_request *request = &replacing->operation->request;
	struct bytes pattern = request->pattern, text = request->replacement;
	size_t at = 0;
	int result = 0;
	while (replacing->count < replacing->limit && result == 0) {
		uint8_t *hit = memmem(replacing->buffer + at, replacing->size - at, pattern.data,
				      pattern.size);
		if (!hit)
			break;
		if (replacing->count++ == 0)
			result = replacing_begin_file(replacing);
		if (result == 0)
			result = replacing_put(replacing, replacing->buffer + at,
					       (size_t)(hit - replacing->buffer) - at);
		if (result == 0)
			result = replacing_put(replacing, text.data, text.size);
		at = (size_t)(hit - replacing->buffer) + pattern.size;
	}
	size_t keep = end || replacing->count == replacing->limit
			  ? 0
			  : MIN(pattern.size - 1, replacing->size - at);
	size_t pass = replacing->size - at - keep;
	if (result == 0 && replacing->count > 0)
		result = replacing_put(replacing, replacing->buffer + at, pass);
	memmove(replacing->buffer, replacing->buffer + at + pass, keep);
	replacing->base += at + pass;
	replacing->size = keep;
	return result;
}

static int replacing_replace_all(struct replacing *replacing)
{
	bool end = false;
	while (!end) {
		if (operation_cancelled(replacing->operation))
			return -ECANCELED;
		int result = replacing_fill_window(replacing, &end);
		if (result == 0)
			result = replacing_replace_in_window(replacing, end);
		if (result < 0)
			return result;
	}
	if (replacing->count == 0)
		return 0;
	int result = file_new_set_attributes(&replacing->new_file, &replacing->target, 0);
	return result < 0 ? result
			  : file_new_commit(&replacing->new_file, &replacing->target, false);
}

int file_replace(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct file_path path;
	if (file_path_of(request->path, &path, failure) < 0)
		return -1;
	if (request->pattern.size == 0)
		return file_refused(failure, ERROR_PATTERN_INVALID, path.text,
				    "the text to be replaced is empty");
	struct replacing replacing CLEANUP(replacing_done) = {
	    .operation = operation,
	    .target = FILE_TARGET,
	    .new_file = FILE_NEW,
	    .source = -1,
	    .room = WINDOW + request->pattern.size,
	    .limit = request->limit > 0 ? request->limit : UINT64_MAX,
	};
	int result = file_target_find(path.text, 0, &replacing.target);
	if (result == 0 && !replacing.target.exists)
		result = -ENOENT;
	if (result < 0)
		return file_failed(failure, result, path.text);
	struct stat stat;
	replacing.source = file_open_regular(replacing.target.directory, replacing.target.base,
					     O_RDONLY | O_NOFOLLOW, &stat);
	if (replacing.source == -EMEDIUMTYPE)
		return file_wrong_type(failure, path.text, stat.st_mode, "a regular file");
	replacing.buffer = malloc(replacing.room);
	result = replacing.source < 0 ? replacing.source
		 : !replacing.buffer  ? -ENOMEM
				      : replacing_replace_all(&replacing);
	if (result < 0)
		return file_failed(failure, result, path.text);
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, replacing.count);
	operation_result(operation, payload, writer.size);
	return 0;
}
