/* A file operation as the process that does it sees it: one process per operation, forked for it,
 * inside the `work` cgroup, already running as the asked user; free to block, to allocate, to be
 * killed. Its one link to the world is a SOCK_SEQPACKET socket to PID 1, one message = one frame
 * (header and payload, id 0: PID 1 fills it in), which PID 1 passes on to the daemon after checking
 * its type.
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
	struct file_request request;
};

/* One DATA frame (at most FILE_CHUNK_MAX), waiting for credit. 0, -ECANCELED. */
NODISCARD int operation_send(struct operation *operation, const void *data, size_t size);
/* The next DATA frame into data (room FILE_CHUNK_MAX): its size, 0 at DATA_END, -ECANCELED. Returns
 * credit by itself. */
NODISCARD ssize_t operation_receive(struct operation *operation, void *data);
/* True once CANCEL came or the socket closed; looks without waiting. Long loops ask now and then.
 */
bool operation_cancelled(struct operation *operation);
/* The one answer. */
void operation_result(struct operation *operation, const void *payload, size_t size);
void operation_failed(struct operation *operation, enum error_kind kind, int errnum,
		      const char *message);

/* Does the request: dispatches on request.operation and sends exactly one answer. */
void operation_run(struct operation *operation);
