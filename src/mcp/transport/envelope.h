/* The era of a message, and the data around its method: the revision, the client's capabilities,
 * the log level. Over HTTP also that the headers agree with the body. The order of the checks is
 * part of the protocol: the first failing check determines the answer. */
#pragma once

#include "mcp/transport/message.h"

/* The headers of an HTTP request; get is NULL without headers (lines). A header that was sent twice
 * counts as missing. */
struct mcp_headers {
	const char *(*get)(const void *data, const char *name); /* lower case */
	const void *data;
};

struct envelope {
	enum mcp_revision revision;
	uint32_t client; /* enum mcp_client_capability */
	enum mcp_log_level log_level;
};

/* Does it claim a modern revision, in its body or in the header (NULL: none)? */
bool envelope_modern(const struct message *message, const char *version_header);
/* Does an element of a batch claim one? */
bool envelope_claims(const json_t *json);
/* The envelope of a modern message. */
NODISCARD int envelope_read(const struct message *message, const char *version_header,
			    struct envelope *ret_envelope, struct mcp_problem *problem);
/* Checks the standard headers of a modern request: they must agree with the body. */
NODISCARD int envelope_check_headers(const struct message *message,
				     const struct mcp_headers *headers,
				     struct mcp_problem *problem);
/* Mcp-Param-*: arguments that a tool's schema also requires as headers (x-mcp-header). */
NODISCARD int envelope_check_parameters(const json_t *arguments, const char *schema,
					const struct mcp_headers *headers,
					struct mcp_problem *problem);
/* `clientCapabilities`, or for initialize `capabilities`. */
uint32_t envelope_capabilities(const json_t *capabilities);
/* A progress token that can be repeated; NULL: none requested. */
json_t *envelope_progress_token(const json_t *params);
