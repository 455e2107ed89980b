/* A file operation in the process that does it: a runner in the `work` cgroup that already runs
 * as the requested user, and may block, allocate and be killed. Its only connection is a
 * SOCK_SEQPACKET socket to PID 1. A message is a frame (header and payload; PID 1 fills in the
 * id); a message to PID 1 may be two frames. PID 1 checks their types and passes them on to the
 * daemon.
 *
 * Credit as in proto/init_messages.h: operation_send() waits for it. After CANCEL, or when PID 1
 * has closed the socket, every call returns -ECANCELED: the operation then removes its temporary
 * file and returns. */
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
	uint64_t
	    unreturned;   /* DATA bytes that were received and whose credit was not returned yet */
	bool cancelled;   /* CANCEL came, the socket closed, or the peer broke the protocol */
	bool stays;       /* its process stays for another operation; the answer says so */
	const void *last; /* DATA that is sent with the answer: operation_send_last() */
	size_t last_size;
	struct file_request request;
};

/* Sends one DATA frame (at most FILE_CHUNK_MAX); waits for credit. 0 or -ECANCELED. */
NODISCARD int operation_send(struct operation *operation, const void *data, size_t size);
/* The last DATA frame, within the credit that every operation starts with. It is sent in one
 * message with the result; `data` must stay valid until then. */
void operation_send_last(struct operation *operation, const void *data, size_t size);
/* Receives the next DATA frame into `data` (FILE_CHUNK_MAX bytes) and returns credit. Its size,
 * 0 at DATA_END, or -ECANCELED. */
NODISCARD ssize_t operation_receive(struct operation *operation, void *data);
/* Whether the client sends DATA for it. */
bool operation_takes_data(const struct operation *operation);
/* True after CANCEL, or when the socket is closed; does not wait. Long loops call it
 * periodically. */
bool operation_cancelled(struct operation *operation);
/* The id in the header of an answer, if the process stays for the next request. */
#define OPERATION_STAYS 1
/* Sends the answer; called once. */
void operation_result(struct operation *operation, const void *payload, size_t size);
void operation_failed(struct operation *operation, enum error_kind kind, int errnum,
		      const char *message);

/* Serves the request: calls the function for request.operation and sends exactly one answer. */
void operation_run(struct operation *operation);
