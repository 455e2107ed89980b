/* One JSON-RPC message: reads its text strictly and checks its shape. Knows nothing of eras,
 * methods or transports. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/message_id.h"
#include "edge/json/json_thread.h"
#include "mcp/request.h"
#include "proto/mcp_lines.h"

#define MESSAGE_MAX MCP_LINE_MAX /* over HTTP too */
#define MESSAGE_DEPTH_MAX 32
/* Members and elements of a whole message: bounds the cost of making and freeing them. */
#define MESSAGE_VALUES_MAX 20000
/* Messages up to this size are read in the loop: at worst half a millisecond, for tiny values.
 * Longer ones are read in a thread. */
#define MESSAGE_INLINE_MAX (4 * KIB)

/* Why a message is not served: a JSON-RPC error, and the status for HTTP. */
struct mcp_problem {
	enum mcp_code code;
	int status;
	char text[256];
	char data[256];              /* a JSON value, or "" */
	char id[MESSAGE_ID_MAX + 1]; /* of an unreadable message: a JSON value, or "" */
};
/* Returns -1. */
int problem_set(struct mcp_problem *problem, enum mcp_code code, int status, const char *format,
		...) PRINTF_LIKE(4, 5);

enum message_kind { MESSAGE_REQUEST, MESSAGE_NOTIFICATION, MESSAGE_RESPONSE };

/* Borrows from the value from which it was read. */
struct message {
	enum message_kind kind;
	json_t *id;         /* NULL: missing or unreadable */
	const char *method; /* NULL for a response */
	json_t *params;     /* NULL, or an object */
};

/* Parses the text of one message or batch to a value that the caller owns: UTF-8, no duplicate
 * keys, no NUL, bounded depth. May be called in a thread. */
NODISCARD int message_parse(const char *data, size_t size, json_t **ret_json,
			    struct mcp_problem *problem);
/* The same in a thread; the problem is a struct mcp_problem. */
extern const struct json_parser message_parser;
/* Sets *ret_message->id if it can be read, even on failure. */
NODISCARD int message_read(json_t *json, struct message *ret_message, struct mcp_problem *problem);

/* The id of an unreadable message, so that its client need not wait for a time-out. */
void problem_set_id(struct mcp_problem *problem, const struct message_id *id);

/* The same type and value. */
bool message_id_equal(const json_t *a, const json_t *b);
/* `id` is a string or an integer. */
void put_message_id(struct json_writer *writer, const char *key, const json_t *id);
/* A complete error message; id may be NULL: then the id of the problem, if it has one. */
void put_problem(struct buffer *to, const json_t *id, const struct mcp_problem *problem);
/* Adds an answer of a batch; the caller writes the closing ']'. */
void batch_collect(struct buffer *answers, const json_t *id, const struct buffer *message);
