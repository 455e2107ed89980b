/* A directory as a tar archive, both ways, plain or zstd: GET and PUT .../files/archive. The init
 * packs and unpacks; zstd runs in between, in threads (core/file/compress.h). Everything is
 * streamed with credit: neither the archive's size nor a slow client or disk costs the daemon
 * memory. */
#include "api/file/call.h"

#include <string.h>

#include "api/file/files.h"

#define LEFT_MAX (1 * MIB)
/* How much of a body waits for its decompression; then the client must wait. */
#define COMPRESSED_HOLD (256 * KIB)

/* False after an error reply. */
static bool archive_query(struct file_call *file, bool *ret_compressed)
{
	struct error error;
	if (!file_query(file))
		return false;
	*ret_compressed = strcmp(file->format, "tar.zst") == 0;
	if (*ret_compressed || strcmp(file->format, "tar") == 0)
		return true;
	error_set(&error, ERROR_INVALID, "query parameter `format` must be \"tar\" or \"tar.zst\"");
	reply_error(file->call, &error);
	return false;
}

/* The bytes between the two ends are invalid: ends the operation. */
static void archive_fail(struct file_call *file, const struct error *error)
{
	struct error copy = *error;
	compression_free(TAKE_PTR(file->compression));
	file_body_failed(file, &copy);
}

/* --- out of the sandbox --- */

static void compressed_output(void *data, const void *bytes, size_t size)
{
	struct file_call *file = data;
	if (!file_emit_raw(file, bytes, size))
		compression_hold(file->compression, true);
}

static void compressed_consumed(void *data, size_t size)
{
	struct file_call *file = data;
	if (file->handle)
		file_credit(file->handle, (uint32_t)size);
}

static void compressed_done(void *data, const struct error *error)
{
	struct file_call *file = data;
	if (error)
		archive_fail(file, error);
	else
		file_finish(file);
}

static const struct compression_callbacks compress_callbacks = {
    .output = compressed_output, .consumed = compressed_consumed, .done = compressed_done};

static void pack_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct file_call *file = file_data(handle);
	struct error error;
	if (!file->compression)
		file_emit_bytes(file, data, size);
	else if (compression_feed(file->compression, data, size, &error) < 0)
		archive_fail(file, &error);
}

static void pack_done(struct file_operation_handle *handle, const void *result, size_t size,
		      const struct error *error)
{
	struct file_call *file = file_ended(handle, error);
	(void)result;
	(void)size;
	if (file && file->compression)
		compression_finish(file->compression);
	else if (file)
		file_finish(file);
}

static const struct file_callbacks pack_callbacks = {.on_data = pack_data, .on_done = pack_done};

void file_archive_get(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_PACK, &pack_callbacks);
	bool compressed = false;
	struct error error;
	if (!archive_query(file, &compressed))
		return;
	file->type = compressed ? "application/zstd" : "application/x-tar";
	if (compressed && compression_new(call->core->loop, COMPRESS, &compress_callbacks, file,
					  &file->compression, &error) < 0)
		reply_error(call, &error);
	else
		file_begin(file);
}

/* --- into the sandbox --- */

static void unpack_done(struct file_operation_handle *handle, const void *result, size_t size,
			const struct error *error)
{
	struct file_call *file = file_ended(handle, error);
	if (!file)
		return;
	struct reader reader = reader_on(result, size);
	uint64_t entries = read_u64(&reader), bytes = read_u64(&reader),
		 skipped = read_u64(&reader);
	if (reader_finish(&reader) < 0) {
		file_bad_answer(file);
		return;
	}
	put_object(&file->writer, NULL);
	put_bytes(&file->writer, "path", file->request.path.data, file->request.path.size);
	put_uint(&file->writer, "entries", entries);
	put_uint(&file->writer, "bytes", bytes);
	put_uint(&file->writer, "skipped", skipped);
	put_object_end(&file->writer);
	file_finish(file);
}

static const struct file_callbacks unpack_callbacks = {.on_credit = file_body_credit,
						       .on_done = unpack_done};

static void decompressed_output(void *data, const void *bytes, size_t size)
{
	struct file_call *file = data;
	struct error error;
	if (buffer_append(&file->left, bytes, size) < 0) {
		error_set(&error, ERROR_INTERNAL, "an archive came faster than it was asked for");
		archive_fail(file, &error);
		return;
	}
	file_body_pump(file);
}

static void decompressed_consumed(void *data, size_t size)
{
	struct file_call *file = data;
	file->uncompressed -= size;
	if (file->handle && file->uncompressed < COMPRESSED_HOLD && file->call->exchange)
		http_body_resume(file->call->exchange);
}

static void decompressed_done(void *data, const struct error *error)
{
	struct file_call *file = data;
	if (error) {
		archive_fail(file, error);
		return;
	}
	file->whole = true;
	if (file->left.size == 0)
		file_body_pump(file);
}

static const struct compression_callbacks decompress_callbacks = {
    .output = decompressed_output, .consumed = decompressed_consumed, .done = decompressed_done};

/* Recognises the format by the first bytes if it is not the requested one. */
static int archive_check_magic(const char *data, size_t size, bool compressed, struct error *error)
{
	static const struct {
		const char *name, *bytes;
		size_t size;
	} others[] = {
	    {"gzip", "\x1f\x8b", 2},
	    {"xz", "\xfd\x37zXZ", 5},
	    {"bzip2", "BZh", 3},
	    {"zip", "PK\x03\x04", 4},
	};
	static const char zstd[] = "\x28\xb5\x2f\xfd", tar[] = "ustar";
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (size >= others[i].size && memcmp(data, others[i].bytes, others[i].size) == 0)
			return error_set(error, ERROR_ARCHIVE_INVALID,
					 "this is %s, which is not taken: send a plain tar, or one "
					 "of zstd with format=tar.zst",
					 others[i].name);
	if (!compressed && size >= 4 && memcmp(data, zstd, 4) == 0)
		return error_set(error, ERROR_ARCHIVE_INVALID,
				 "this is zstd: say so with format=tar.zst");
	if (compressed && size >= 262 && memcmp(data + 257, tar, 5) == 0)
		return error_set(error, ERROR_ARCHIVE_INVALID,
				 "this is a plain tar: leave format=tar.zst out");
	return 0;
}

static void plain_body(struct call *call, const char *data, size_t size)
{
	struct file_call *file = call->state;
	struct error error;
	if (!file->handle)
		return;
	if (file->received == 0 && archive_check_magic(data, size, false, &error) < 0) {
		file_body_failed(file, &error);
		return;
	}
	file->received += size;
	file_body_data(call, data, size);
}

static void compressed_body(struct call *call, const char *data, size_t size)
{
	struct file_call *file = call->state;
	struct error error;
	if (!file->handle || !file->compression)
		return;
	if (file->received == 0 && archive_check_magic(data, size, true, &error) < 0) {
		archive_fail(file, &error);
		return;
	}
	file->received += size;
	file->uncompressed += size;
	if (compression_feed(file->compression, data, size, &error) < 0)
		archive_fail(file, &error);
	else if (file->uncompressed >= COMPRESSED_HOLD)
		http_body_pause(call->exchange);
}

static void compressed_body_end(struct call *call)
{
	struct file_call *file = call->state;
	if (file->compression)
		compression_finish(file->compression);
}

static void unpack_start(struct call *call, struct sandbox *sandbox)
{
	struct file_call *file = call->state;
	struct error error;
	if (file_start(sandbox, &call->principal, &file->request, &unpack_callbacks, file,
		       &file->handle, &error) < 0) {
		file->handle = NULL;
		file_fail(file, &error);
		return;
	}
	call->stream.on_data = file->compression ? compressed_body : plain_body;
	call->stream.on_end = file->compression ? compressed_body_end : file_body_end;
	file_body_begin(file);
}

void file_archive_put(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_UNPACK, &unpack_callbacks);
	bool compressed = false;
	struct error error;
	file->left = BUFFER(LEFT_MAX);
	file->request.flags = FILE_PARENTS;
	if (!archive_query(file, &compressed))
		return;
	if (compressed && compression_new(call->core->loop, DECOMPRESS, &decompress_callbacks, file,
					  &file->compression, &error) < 0)
		reply_error(call, &error);
	else
		call_ready(call, unpack_start);
}
