/* Follows the output of one exec: pulls it from the exec's log by offset, as fast as the client
 * reads, and passes it to an emitter. There is one emitter per form (frames, events, WebSocket
 * messages, terminals). A slow client slows down its own command, if that is lossless, and costs no
 * memory.
 *
 *     exec_follower_begin -> running -> piece, gap... -> ended
 *                         \-> failed, at any time      \-> or exec_follower_leave
 *
 * Part of the state of its call, which is held while the emitter is called. */
#pragma once

#include "core/exec/exec.h"
#include "edge/call.h"

struct exec_follower;

struct exec_emitter {
	size_t piece_max; /* at most FILE_CHUNK_MAX */
	bool characters;  /* pieces are cut between characters */
	/* The exec runs or has ended, and has changed; called before its output is read. NULL, or
	 * may leave. */
	void (*running)(struct exec_follower *follower);
	/* follower->sent is its offset. */
	void (*piece)(struct exec_follower *follower, enum exec_stream stream, const char *data,
		      size_t size);
	/* So many bytes are not kept. May be NULL. */
	void (*gap)(struct exec_follower *follower, enum exec_stream stream, uint64_t bytes);
	/* Once: the exec has ended, or the end was reached, and all of it is out. The follower may
	 * be freed in it. */
	void (*ended)(struct exec_follower *follower);
	/* It could not be started, or is forgotten: nothing is followed any more. May free the
	 * follower. */
	void (*failed)(struct exec_follower *follower, const struct error *error);
	/* May be NULL. The output cannot be read; the follower may be left. */
	void (*unreadable)(struct exec_follower *follower);
};

struct exec_follower {
	struct call *call;
	const struct exec_emitter *emitter;
	const bool *blocked; /* the connection's queue is full: call exec_follower_pump() later */
	struct exec_watcher watcher; /* the caller of exec_follower_begin() sets what it consumes */
	struct exec *exec;           /* NULL before and after */
	uint64_t sent[2];            /* of stdout, stderr */
	const uint64_t *end;         /* of the one stream that is followed; NULL: as it ends */
	bool ended;
};

/* call, emitter and blocked are set. The first notification comes in a later turn, or by
 * exec_follower_changed(). */
void exec_follower_begin(struct exec_follower *follower, struct exec *exec);
/* Checks the exec now. */
void exec_follower_changed(struct exec_follower *follower);
/* There is room again. */
void exec_follower_pump(struct exec_follower *follower);
/* Stops following; calling it again is harmless. */
void exec_follower_leave(struct exec_follower *follower);
/* Does another follower of the same form follow the same exec? */
bool exec_follower_others(const struct exec_follower *follower);

/* Sends one piece of one stream, up to `end` at most: true if something was sent. `last`: nothing
 * comes after `end`. For callers that know themselves when to read. */
bool exec_follower_pull(struct exec_follower *follower, enum exec_stream stream, uint64_t end,
			bool last);
