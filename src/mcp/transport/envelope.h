/* Which era a message is of, and what it says around its method: the revision, what its client can
 * do, how loud the log is. Over HTTP also that the headers say the same as the body. The order of
 * the checks is part of the protocol: the first that fails answers. */
#pragma once

#include "mcp/transport/message.h"

/* The headers of an HTTP request; get is NULL where there are none (lines). A header that was sent
 * twice is as good as none. */
struct mcp_headers {
	const char *(*get)(const void *data, const char *name); /* lower case */
	const void *data;
};

struct envelope {
	enum mcp_revision revision;
	uint32_t client; /* enum mcp_client_capability */
	enum mcp_log_level log_level;
};

/* Does it claim a modern revision, in its body or by the header (NULL: none)? */
bool envelope_modern(const struct message *message, const char *version_header);
/* A value of a batch that claims one. */
bool envelope_claims(const json_t *json);
/* The envelope of a modern message. */
NODISCARD int envelope_read(const struct message *message, const char *version_header,
			    struct envelope *ret_envelope, struct mcp_problem *problem);
/* The standard headers of a modern request: they name what the body does. */
NODISCARD int envelope_check_headers(const struct message *message,
				     const struct mcp_headers *headers,
				     struct mcp_problem *problem);
/* Mcp-Param-*: what a tool's schema wants as headers too (x-mcp-header). */
NODISCARD int envelope_check_parameters(const json_t *arguments, const char *schema,
					const struct mcp_headers *headers,
					struct mcp_problem *problem);
/* `clientCapabilities` or, of initialize, `capabilities`. */
uint32_t envelope_capabilities(const json_t *capabilities);
/* A progress token that can be echoed; NULL: none is wanted. */
json_t *envelope_progress_token(const json_t *params);
