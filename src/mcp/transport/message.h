/* One JSON-RPC message: its text read strictly, its shape checked. Knows nothing of eras, methods
 * or transports. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/message_id.h"
#include "edge/json_thread.h"
#include "mcp/request.h"
#include "proto/mcp_lines.h"

#define MESSAGE_MAX MCP_LINE_MAX /* over HTTP too */
#define MESSAGE_DEPTH_MAX 32
/* Members and elements of a whole message: what it costs to make and to free them is bounded. */
#define MESSAGE_VALUES_MAX 20000
/* Read in the loop up to here: half a millisecond at worst, of tiny values. Longer ones are read in
 * a thread. */
#define MESSAGE_INLINE_MAX (4 * KIB)

/* Why a message is not served: a JSON-RPC error, and the status that HTTP answers with. */
struct mcp_problem {
	enum mcp_code code;
	int status;
	char text[256];
	char data[256];              /* a JSON value, or "" */
	char id[MESSAGE_ID_MAX + 1]; /* of a message that could not be read: a JSON value, or "" */
};
/* Returns -1. */
int problem_set(struct mcp_problem *problem, enum mcp_code code, int status, const char *format,
		...) PRINTF_LIKE(4, 5);

enum message_kind { MESSAGE_REQUEST, MESSAGE_NOTIFICATION, MESSAGE_RESPONSE };

/* Borrows from the value it was read of. */
struct message {
	enum message_kind kind;
	json_t *id;         /* NULL: there is none, or it could not be read */
	const char *method; /* NULL of a response */
	json_t *params;     /* NULL, or an object */
};

/* The text of one message or batch to a value that the caller owns: UTF-8, no duplicate keys, no
 * NUL, bounded depth. May be called in a thread. */
NODISCARD int message_parse(const char *data, size_t size, json_t **ret_json,
			    struct mcp_problem *problem);
/* The same in a thread; the problem is a struct mcp_problem. */
extern const struct json_parser message_parser;
/* Sets *ret_message->id as far as it can be read even when it fails. */
NODISCARD int message_read(json_t *json, struct message *ret_message, struct mcp_problem *problem);

/* The id of what could not be read, so that its client need not wait until it gives up. */
void problem_set_id(struct mcp_problem *problem, const struct message_id *id);

/* The same type and value. */
bool message_id_equal(const json_t *a, const json_t *b);
/* `id` is a string or an integer. */
void put_message_id(struct json_writer *writer, const char *key, const json_t *id);
/* A whole message that says what is wrong; id may be NULL: that of the problem, if it has one. */
void put_problem(struct buffer *to, const json_t *id, const struct mcp_problem *problem);
/* One more answer of a batch, whose end (']') is the caller's to write. */
void batch_collect(struct buffer *answers, const json_t *id, const struct buffer *message);
