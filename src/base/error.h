/* Errors of the domain: a value on the caller's stack, filled only on failure.
 *
 * A function of the domain is `int f(..., struct error *error)`: 0 (or a useful value >= 0) on
 * success, -1 with *error filled on failure. Each layer that knows more prepends its part, so that
 * the text reads from the outside in: "template host: layer: No space left on device".
 * Functions of base/ return 0 or -errno instead and never log. Edges (HTTP, command line, spawner
 * message) map the kind through the table in error_kinds.def and log once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum error_kind {
#define KIND(name, code, http, rpc, exit_code, retryable, advice) ERROR_##name,
#include "base/error_kinds.def"
#undef KIND
	ERROR_KIND_COUNT
};

#define ERROR_MESSAGE_MAX 512

struct error {
	enum error_kind kind;
	int errnum; /* the errno behind it, or 0 */
	char message[ERROR_MESSAGE_MAX];
	/* For a refusal because of a limit: when a retry makes sense (0: unknown), which limit
	 * ("creates/minute", or ""), the position in a queue (0: none). */
	uint32_t retry_after_ms;
	uint32_t queue_position;
	char limit[28];
};

struct error_info {
	const char *code;
	int http_status;
	int rpc_code;
	int exit_code;
	bool retryable;
	const char *advice;
};

/* All three return -1, so that a failing function can end in `return error_set(...)`. */
int error_set(struct error *error, enum error_kind kind, const char *format, ...) PRINTF_LIKE(3, 4);
/* Appends ": strerror(errnum)" and stores errnum (either sign). */
int error_set_errno(struct error *error, enum error_kind kind, int errnum, const char *format, ...)
    PRINTF_LIKE(4, 5);
int error_prepend(struct error *error, const char *format, ...) PRINTF_LIKE(2, 3);

/* The row of the table; INTERNAL's for an invalid kind, which a peer may send. */
const struct error_info *error_info(enum error_kind kind);
/* The kind with this code; INTERNAL if unknown (a peer may be newer). */
enum error_kind error_kind_of_code(const char *code);
/* The kind for an errno of the host, when nothing else is known. */
enum error_kind error_kind_of_errno(int errnum);
/* The kind for an errno of a file operation inside a sandbox. */
enum error_kind error_kind_of_file_errno(int errnum);
