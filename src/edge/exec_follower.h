/* Follows what one exec prints: pulls it from the exec's log by offset, as fast as it is taken, and
 * hands it to an emitter, of which there is one per form (frames, events, WebSocket messages,
 * terminals). A taker that is slow holds up its own command, where that is lossless, and no memory.
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
	/* The exec runs or has ended, and something about it has changed; before its output is
	 * looked at. NULL, or may leave. */
	void (*running)(struct exec_follower *follower);
	/* follower->sent says where it begins. */
	void (*piece)(struct exec_follower *follower, enum exec_stream stream, const char *data,
		      size_t size);
	/* So many bytes are not kept. May be NULL. */
	void (*gap)(struct exec_follower *follower, enum exec_stream stream, uint64_t bytes);
	/* Once: the exec has ended, or the end was reached, and all of it is out. The follower may
	 * be freed in it. */
	void (*ended)(struct exec_follower *follower);
	/* It could not be started, or is forgotten: nothing is followed any more. The follower may
	 * be freed in it. */
	void (*failed)(struct exec_follower *follower, const struct error *error);
};

struct exec_follower {
	struct call *call;
	const struct exec_emitter *emitter;
	const bool *blocked; /* the connection's queue is full: exec_follower_pump() goes on */
	struct exec_watcher watcher; /* who begins says what it consumes */
	struct exec *exec;           /* NULL before and after */
	uint64_t sent[2];            /* of stdout, stderr */
	const uint64_t *end;         /* of the one stream that is followed; NULL: as it ends */
	bool ended;
};

/* call, emitter and blocked are set. The first changes come in a later turn, or by
 * exec_follower_changed(). */
void exec_follower_begin(struct exec_follower *follower, struct exec *exec);
/* Looks at the exec now. */
void exec_follower_changed(struct exec_follower *follower);
/* There is room again. */
void exec_follower_pump(struct exec_follower *follower);
/* Not interested any more; again does no harm. */
void exec_follower_leave(struct exec_follower *follower);
/* Does another follower of the same form follow the same exec? */
bool exec_follower_others(const struct exec_follower *follower);

/* One piece of one stream, up to `end` at most: true when something was sent. `last`: nothing
 * comes after `end`. For who knows by itself when to look. */
bool exec_follower_pull(struct exec_follower *follower, enum exec_stream stream, uint64_t end,
			bool last);
