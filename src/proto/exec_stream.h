/* The protocol after `101 Switching Protocols` with `Upgrade: caisson-exec/1`: `caisson run`,
 * `exec` and `shell` use it with the API for standard input, output, signals and the window's
 * size. Frames: u8 type, u32 little-endian size (at most EXEC_STREAM_MAX), payload. An unknown
 * type or a longer size ends the connection.
 *
 * Standard input is limited by credit: the client starts with FILE_WINDOW bytes and gets more
 * with STDIN_CREDIT. Output is limited by the connection's flow control: a client that stops
 * reading stops the process (the exec is lossless), never the daemon. The end of the connection
 * cancels the exec unless it was started with `detach`, or LEAVE came first. */
#pragma once

#include "base/limits.h"

#define EXEC_STREAM_PROTOCOL "caisson-exec/1"
#define EXEC_STREAM_HEADER 5
#define EXEC_STREAM_MAX FILE_CHUNK_MAX

enum exec_stream_type {
	/* client -> daemon */
	EXEC_STREAM_STDIN = 1,       /* bytes */
	EXEC_STREAM_STDIN_CLOSE = 2, /* empty */
	EXEC_STREAM_SIGNAL = 3,      /* u32 signal, u32 enum signal_scope */
	EXEC_STREAM_RESIZE = 4,      /* u16 rows, u16 columns */
	EXEC_STREAM_LEAVE = 5,       /* empty; the command continues, the daemon closes */
	/* daemon -> client */
	EXEC_STREAM_STARTED = 16,      /* JSON: the exec's record; of a run also `sandbox` */
	EXEC_STREAM_STDOUT = 17,       /* bytes */
	EXEC_STREAM_STDERR = 18,       /* bytes */
	EXEC_STREAM_GAP = 19,          /* u8 stream, u64 number of bytes that are lost */
	EXEC_STREAM_STDIN_CREDIT = 20, /* u32 bytes */
	EXEC_STREAM_EXIT = 21,         /* JSON: the exec's record, ended; last frame */
	EXEC_STREAM_ERROR = 22,        /* JSON: the error object; last frame */
};
