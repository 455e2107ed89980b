/* zstd, one stream in one direction, worked in libuv's thread pool: the loop only hands bytes over
 * and takes what came of them. Bounded: a stream holds what it was fed and not yet worked through
 * (the feeder waits for `consumed`), and one piece of output.
 *
 * What is decompressed is hostile: a frame whose window is larger than 8 MiB is refused. How much a
 * little input may become is not bounded here, since nothing of it is kept: the consumer paces it.
 *
 * Callbacks come from the loop, never from within a function below. Each may free the stream. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/macros.h"

struct compression;

/* So much may be fed before it is consumed. */
#define COMPRESSION_INPUT_MAX (2 * MIB)
/* Streams at once, in one daemon. */
#define COMPRESSIONS_MAX 16

enum compression_direction { COMPRESS, DECOMPRESS };

struct compression_callbacks {
	/* The bytes are gone when it returns. */
	void (*output)(void *data, const void *bytes, size_t size);
	/* So many of the fed bytes are held no more. */
	void (*consumed)(void *data, size_t size);
	/* Once: the end was worked through, or the stream is damaged or cut short
	 * (ARCHIVE_INVALID).
	 */
	void (*done)(void *data, const struct error *error);
};

/* BUSY when there are too many. */
NODISCARD int compression_new(uv_loop_t *loop, enum compression_direction direction,
			      const struct compression_callbacks *callbacks, void *data,
			      struct compression **ret_compression, struct error *error);
/* Takes NULL. Nothing is called back any more. */
void compression_free(struct compression *compression);
/* Copies them. */
NODISCARD int compression_feed(struct compression *compression, const void *data, size_t size,
			       struct error *error);
/* No more input comes. */
void compression_finish(struct compression *compression);
/* While it is held no more output comes than what is under way. */
void compression_hold(struct compression *compression, bool hold);
