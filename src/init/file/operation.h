/* A file operation as the process that does it sees it: one process per operation, forked for it,
 * inside the `work` cgroup, already running as the asked user; free to block, to allocate, to be
 * killed. Its one link to the world is a SOCK_SEQPACKET socket to PID 1. A message is a frame
 * (header and payload, id 0: PID 1 fills it in), from here to there sometimes two, which PID 1
 * passes on to the daemon after checking their types.
 *
 * Credit as in proto/init_messages.h: operation_send() waits for it. PID 1 closing the socket, or a
 * CANCEL frame, makes every call return -ECANCELED: the operation then cleans up (its temporary
 * file) and returns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "proto/init_messages.h"

struct operation {
	int socket;
	uint64_t send_credit; /* DATA bytes we may send */
	uint64_t unreturned;  /* DATA bytes received whose credit was not returned yet */
	bool cancelled;       /* CANCEL came, the socket closed, or the peer broke the protocol */
	bool stays;           /* its process serves another one after it, and says so */
	const void *last; /* DATA that goes out right before the answer: operation_send_last() */
	size_t last_size;
	struct file_request request;
};

/* One DATA frame (at most FILE_CHUNK_MAX), waiting for credit. 0, -ECANCELED. */
NODISCARD int operation_send(struct operation *operation, const void *data, size_t size);
/* The last DATA frame, within the credit that every operation starts with: it goes out with the
 * result, which must follow while the data is there. */
void operation_send_last(struct operation *operation, const void *data, size_t size);
/* The next DATA frame into data (room FILE_CHUNK_MAX): its size, 0 at DATA_END, -ECANCELED. Returns
 * credit by itself. */
NODISCARD ssize_t operation_receive(struct operation *operation, void *data);
/* Whether it is one that is sent DATA. */
bool operation_takes_data(const struct operation *operation);
/* True once CANCEL came or the socket closed; looks without waiting. Long loops ask now and then.
 */
bool operation_cancelled(struct operation *operation);
/* The id in an answer's header of a process that waits for the next request. */
#define OPERATION_STAYS 1
/* The one answer. */
void operation_result(struct operation *operation, const void *payload, size_t size);
void operation_failed(struct operation *operation, enum error_kind kind, int errnum,
		      const char *message);

/* Does the request: dispatches on request.operation and sends exactly one answer. */
void operation_run(struct operation *operation);
