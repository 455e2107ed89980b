/* The result of a tool: blocks of content, as the client's revision has them.
 *     content_begin -> content_text | content_image | content_link ... -> content_end
 * What a revision does not have is left out (a resource_link before 2025-06-18: the text names it
 * anyway), never sent wrong. */
#pragma once

#include "mcp/request.h"

void content_begin(struct mcp_request *request);
/* Bytes that are not UTF-8 become U+FFFD; an empty text is sent as one. */
void content_text(struct mcp_request *request, const char *text, size_t size);
void content_format(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
void content_image(struct mcp_request *request, const char *type, const void *data, size_t size);
void content_audio(struct mcp_request *request, const char *type, const void *data, size_t size);
/* An embedded resource with text. */
void content_resource(struct mcp_request *request, const char *uri, const char *type,
		      const char *text);
void content_link(struct mcp_request *request, const char *uri, const char *name, const char *type,
		  const char *description);
/* Closes the list of blocks; then one value may be put with key NULL as structuredContent (object
 * at its root). NULL where the revision has none: nothing is to be put. After it: content_end(). */
struct json_writer *content_structured(struct mcp_request *request);
void content_end(struct mcp_request *request, bool is_error);

/* What bytes are by how they begin, whatever anybody says they are; NULL: not known. image: one
 * that clients show to a model (png, jpeg, gif, webp). */
const char *content_type_of(const char *data, size_t size, bool *ret_image);

/* A whole result: one text. */
void content_reply(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* isError: what was wrong, what is accepted, and the tool's example where it has one. */
void content_refuse(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* The same, and for an example the call as it came, with that argument in it. */
void content_refuse_with(struct mcp_request *request, const char *key, const char *value,
			 const char *text);
/* The same for an error of the domain: with its advice, and for programs its code in _meta. What
 * mcp_fail() does for a tool. */
void content_fail(struct mcp_request *request, const struct error *error);
