/* zstd streams in the loop's threads. While a piece is processed, the thread owns the contexts,
 * the working input and the output; the loop owns everything else. Called by the edges; never
 * blocks. */
#include "core/file/compress.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buffer.h"
#include "base/loop_threads.h"

#define LEVEL 3
#define WINDOW_LOG_MAX 23 /* 8 MiB: what `zstd -19` uses */
#define OUTPUT_SIZE (256 * KIB)

struct compression {
	struct loop_job job;
	uv_loop_t *loop;
	struct compression_callbacks callbacks;
	void *data;
	ZSTD_CCtx *compressor; /* one of the two is set */
	ZSTD_DCtx *decompressor;
	struct buffer fed;     /* input that waits */
	struct buffer working; /* input in work, from working_at on */
	size_t working_at;
	char *output; /* OUTPUT_SIZE */
	size_t output_size;
	bool ending; /* there is no further input */
	bool last;   /* `working` has the end */
	bool more;   /* there may be output without further input */
	bool in_frame;
	bool running, held, done, freed;
	const char *broken; /* what is wrong with the stream */
};

static int streams;

static void compression_destroy(struct compression *compression)
{
	ZSTD_freeCCtx(compression->compressor);
	ZSTD_freeDCtx(compression->decompressor);
	buffer_done(&compression->fed);
	buffer_done(&compression->working);
	free(compression->output);
	free(compression);
	streams--;
}

int compression_new(uv_loop_t *loop, enum compression_direction direction,
		    const struct compression_callbacks *callbacks, void *data,
		    struct compression **ret_compression, struct error *error)
{
	if (streams >= COMPRESSIONS_MAX)
		return error_set(error, ERROR_BUSY,
				 "%d archives are compressed or decompressed already, the most "
				 "there may be at once",
				 COMPRESSIONS_MAX);
	struct compression *compression = calloc(1, sizeof(*compression));
	if (!compression)
		abort();
	*compression = (struct compression){
	    .loop = loop,
	    .callbacks = *callbacks,
	    .data = data,
	    .compressor = direction == COMPRESS ? ZSTD_createCCtx() : NULL,
	    .decompressor = direction == DECOMPRESS ? ZSTD_createDCtx() : NULL,
	    .fed = BUFFER(COMPRESSION_INPUT_MAX),
	    .working = BUFFER(COMPRESSION_INPUT_MAX),
	    .output = malloc(OUTPUT_SIZE),
	    /* An empty stream is not a valid zstd stream. */
	    .in_frame = true,
	};
	streams++;
	bool good = compression->output != NULL;
	if (good && direction == COMPRESS)
		good = compression->compressor &&
		       !ZSTD_isError(ZSTD_CCtx_setParameter(compression->compressor,
							    ZSTD_c_compressionLevel, LEVEL)) &&
		       !ZSTD_isError(
			   ZSTD_CCtx_setParameter(compression->compressor, ZSTD_c_checksumFlag, 1));
	else if (good)
		good = compression->decompressor &&
		       !ZSTD_isError(ZSTD_DCtx_setParameter(compression->decompressor,
							    ZSTD_d_windowLogMax, WINDOW_LOG_MAX));
	if (!good) {
		compression_destroy(compression);
		return error_set(error, ERROR_NO_MEMORY, "no memory to compress or decompress");
	}
	*ret_compression = compression;
	return 0;
}

/* --- in a thread --- */

static size_t work_compress(struct compression *compression, ZSTD_inBuffer *in, ZSTD_outBuffer *out)
{
	size_t left = 0;
	do {
		left = ZSTD_compressStream2(compression->compressor, out, in,
					    compression->last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return left;
	} while (out->pos < out->size && (in->pos < in->size || (compression->last && left > 0)));
	compression->more = compression->last ? left > 0 : out->pos == out->size;
	return 0;
}

static size_t work_decompress(struct compression *compression, ZSTD_inBuffer *in,
			      ZSTD_outBuffer *out)
{
	compression->more = false;
	do {
		size_t output = out->pos, input = in->pos;
		size_t left = ZSTD_decompressStream(compression->decompressor, out, in);
		if (ZSTD_isError(left))
			return left;
		/* A call without input or output says nothing about the position in the frame. */
		if (in->pos > input || out->pos > output)
			compression->in_frame = left > 0;
		compression->more = out->pos == out->size;
	} while (out->pos < out->size && in->pos < in->size);
	return 0;
}

static void compression_work(struct loop_job *job)
{
	struct compression *compression = container_of(job, struct compression, job);
	ZSTD_inBuffer in = {compression->working.data, compression->working.size,
			    compression->working_at};
	ZSTD_outBuffer out = {compression->output, OUTPUT_SIZE, 0};
	size_t result = compression->compressor ? work_compress(compression, &in, &out)
						: work_decompress(compression, &in, &out);
	if (ZSTD_isError(result))
		compression->broken = ZSTD_getErrorName(result);
	compression->working_at = in.pos;
	compression->output_size = out.pos;
}

/* --- on the loop --- */

static void compression_tell_done(struct compression *compression)
{
	struct error error;
	compression->done = true;
	if (compression->broken)
		error_set(&error, ERROR_ARCHIVE_INVALID, "the zstd stream is damaged: %s",
			  compression->broken);
	else if (compression->decompressor && compression->in_frame)
		error_set(&error, ERROR_ARCHIVE_INVALID, "the zstd stream is cut short");
	else
		error.kind = ERROR_NONE;
	compression->callbacks.done(compression->data, error.kind == ERROR_NONE ? NULL : &error);
}

static void compression_work_queue(struct compression *compression);

static void compression_worked(struct loop_job *job)
{
	struct compression *compression = container_of(job, struct compression, job);
	size_t consumed = 0;
	/* A callback may free it: the free is delayed until all callbacks are done. */
	if (!compression->freed && compression->output_size > 0)
		compression->callbacks.output(compression->data, compression->output,
					      compression->output_size);
	compression->output_size = 0;
	if (compression->working_at == compression->working.size) {
		consumed = compression->working.size;
		buffer_clear(&compression->working);
		compression->working_at = 0;
	}
	if (!compression->freed && consumed > 0 && !compression->broken)
		compression->callbacks.consumed(compression->data, consumed);
	bool over = compression->broken ||
		    (compression->last && compression->working.size == 0 && !compression->more);
	if (!compression->freed && over)
		compression_tell_done(compression);
	compression->running = false;
	if (compression->freed)
		compression_destroy(compression);
	else
		compression_work_queue(compression);
}

static void compression_work_queue(struct compression *compression)
{
	if (compression->running || compression->held || compression->done)
		return;
	if (compression->working.size == 0 && compression->fed.size > 0) {
		struct buffer empty = compression->working;
		compression->working = compression->fed;
		compression->fed = empty;
	}
	if (compression->ending && compression->fed.size == 0)
		compression->last = true;
	if (compression->working.size == 0 && !compression->more && !compression->last)
		return;
	compression->running = true;
	compression->job.in_thread = compression_work;
	compression->job.done = compression_worked;
	loop_job_run(compression->loop, &compression->job);
}

int compression_feed(struct compression *compression, const void *data, size_t size,
		     struct error *error)
{
	if (buffer_append(&compression->fed, data, size) < 0)
		return error_set(error, ERROR_INTERNAL,
				 "more was fed to a compression than it may hold");
	compression_work_queue(compression);
	return 0;
}

void compression_finish(struct compression *compression)
{
	compression->ending = true;
	compression_work_queue(compression);
}

void compression_hold(struct compression *compression, bool hold)
{
	compression->held = hold;
	compression_work_queue(compression);
}

void compression_free(struct compression *compression)
{
	if (!compression)
		return;
	compression->freed = true;
	if (!compression->running)
		compression_destroy(compression);
}
