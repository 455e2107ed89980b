/* The result of a tool: blocks of content, in the form of the client's revision.
 *     content_begin -> content_text | content_image | content_link ... -> content_end
 * A block that the revision does not support is omitted (a resource_link before 2025-06-18: the
 * text names it anyway). */
#pragma once

#include "mcp/request.h"

void content_begin(struct mcp_request *request);
/* Bytes that are not UTF-8 become U+FFFD; an empty text is sent too. */
void content_text(struct mcp_request *request, const char *text, size_t size);
void content_format(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
void content_image(struct mcp_request *request, const char *type, const void *data, size_t size);
void content_audio(struct mcp_request *request, const char *type, const void *data, size_t size);
/* An embedded resource with text. */
void content_resource(struct mcp_request *request, const char *uri, const char *type,
		      const char *text);
void content_link(struct mcp_request *request, const char *uri, const char *name, const char *type,
		  const char *description);
/* Closes the list of blocks; then the caller may write one value with key NULL as structuredContent
 * (an object at its root). NULL if the revision does not support it: then write nothing. Call
 * content_end() after it. */
struct json_writer *content_structured(struct mcp_request *request);
void content_end(struct mcp_request *request, bool is_error);

/* The type of bytes by their beginning, whatever they claim to be; NULL: unknown. image: a type
 * that clients show to a model (png, jpeg, gif, webp). */
const char *content_type_of(const char *data, size_t size, bool *ret_image);

/* A whole result: one text. */
void content_reply(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* isError: the mistake, what is accepted, and the tool's example if it has one. */
void content_refuse(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* The same; the example is the received call with that argument added. */
void content_refuse_with(struct mcp_request *request, const char *key, const char *value,
			 const char *text);
/* The same for an error of the domain: with its advice, and for programs its code in _meta.
 * mcp_fail() uses it for a tool. */
void content_fail(struct mcp_request *request, const struct error *error);
