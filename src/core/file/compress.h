/* zstd, one stream in one direction, processed in the loop's threads: the loop only passes bytes
 * in and takes the output. Bounded: a stream holds its unprocessed input (the feeder waits for
 * `consumed`), and one piece of output.
 *
 * Input for decompression is hostile: a frame whose window is larger than 8 MiB is refused. The
 * total size of the output is not bounded here, since none of it is kept: the consumer limits its
 * speed.
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

/* The maximum of unconsumed input. */
#define COMPRESSION_INPUT_MAX (2 * MIB)
/* Streams at once, in one daemon. */
#define COMPRESSIONS_MAX 16

enum compression_direction { COMPRESS, DECOMPRESS };

struct compression_callbacks {
	/* The bytes are only valid during the call. */
	void (*output)(void *data, const void *bytes, size_t size);
	/* So many of the fed bytes were processed. */
	void (*consumed)(void *data, size_t size);
	/* Once: the end was processed, or the stream is damaged or truncated (ARCHIVE_INVALID). */
	void (*done)(void *data, const struct error *error);
};

/* BUSY if there are too many. */
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
/* hold: no new output is made until it is lifted; output in work still comes. */
void compression_hold(struct compression *compression, bool hold);
