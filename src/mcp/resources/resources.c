/* resources/list, /templates/list, /read, /subscribe, /unsubscribe over the tables of a face, and
 * the form of their answers. The kinds are in the other files of this folder and in the fixtures
 * (tests/mcp/fixtures). Nothing blocks. */
#include "mcp/resources/resource.h"

#include <stdlib.h>
#include <string.h>

#include "mcp/resources/uri.h"
#include "mcp/transport/session.h"

static const struct resource_kind *const no_resource_kinds[] = {NULL};

static const struct resource_kind *const *view_resource_kinds(const struct mcp_face *face)
{
	return face->resources ? face->resources : no_resource_kinds;
}

const struct resource_kind *resource_find(const struct mcp_face *face, const char *uri,
					  struct uri_variables *ret_variables)
{
	for (const struct resource_kind *const *kind = view_resource_kinds(face); *kind; kind++)
		if (uri_match((*kind)->template, uri, ret_variables))
			return *kind;
	return NULL;
}

/* --- lists --- */

static void put_described(struct mcp_request *request, struct json_writer *writer,
			  const struct resource_kind *kind, const char *name,
			  const char *description)
{
	put_text(writer, "name", name);
	if (kind->title && request->revision >= MCP_2025_06_18)
		put_text(writer, "title", kind->title);
	if (description)
		put_text(writer, "description", description);
	if (kind->type)
		put_text(writer, "mimeType", kind->type);
}

void resource_put(struct mcp_request *request, struct page *page, const struct resource_kind *kind,
		  const char *uri, const char *name, const char *description)
{
	put_object(page->writer, NULL);
	put_text(page->writer, "uri", uri);
	put_described(request, page->writer, kind, name,
		      description ? description : kind->description);
	put_object_end(page->writer);
	page->room--;
}

/* One kind's part of the page; true: it has no more. */
static bool resources_list_kind(struct mcp_request *request, const struct resource_kind *kind,
				struct page *page)
{
	if (!uri_has_variables(kind->template))
		resource_put(request, page, kind, kind->template, kind->name, NULL);
	else if (kind->list)
		kind->list(request, page);
	return !page->more;
}

void resources_list(struct mcp_request *request)
{
	const struct resource_kind *const *kinds = view_resource_kinds(request->view.face);
	struct page page;
	uint32_t table, at = 0;
	if (!page_open(request, &table, &page))
		return;
	page.writer = mcp_result_begin(request);
	put_array(page.writer, "resources");
	for (; kinds[at]; at++) {
		if (at < table)
			continue;
		if (page.room == 0) {
			page.more = true;
			break;
		}
		if (!resources_list_kind(request, kinds[at], &page))
			break;
		page.position[0] = '\0';
	}
	put_array_end(page.writer);
	page_close(&page, at);
	mcp_put_cache(request, 0, false);
	mcp_result_end(request);
}

/* The tables are ours and short: one page. */
void resources_templates(struct mcp_request *request)
{
	struct page page;
	uint32_t table;
	if (!page_open(request, &table, &page))
		return;
	struct json_writer *writer = mcp_result_begin(request);
	put_array(writer, "resourceTemplates");
	for (const struct resource_kind *const *kind = view_resource_kinds(request->view.face);
	     *kind; kind++) {
		if (!uri_has_variables((*kind)->template))
			continue;
		put_object(writer, NULL);
		put_text(writer, "uriTemplate", (*kind)->template);
		put_described(request, writer, *kind, (*kind)->name, (*kind)->description);
		put_object_end(writer);
	}
	put_array_end(writer);
	mcp_put_cache(request, 3600 * 1000, false);
	mcp_result_end(request);
}

/* --- reading --- */

/* params.uri, or NULL after an error. */
static const char *request_uri(struct mcp_request *request)
{
	const char *uri = json_string_value(json_object_get(request->params, "uri"));
	if (!uri)
		mcp_error(request, MCP_INVALID_PARAMS, NULL, "`uri` must be a string");
	return uri;
}

void resources_read(struct mcp_request *request)
{
	DONE_VARIABLES struct uri_variables variables = {0};
	const char *uri = request_uri(request);
	if (!uri)
		return;
	const struct resource_kind *kind = resource_find(request->view.face, uri, &variables);
	if (kind)
		kind->read(request, uri, variables.values);
	else
		resource_not_found(request, uri);
}

void resource_begin(struct mcp_request *request)
{
	put_array(mcp_result_begin(request), "contents");
}

static struct json_writer *put_content(struct mcp_request *request, const char *uri,
				       const char *type)
{
	struct json_writer *writer = &request->writer;
	put_object(writer, NULL);
	put_text(writer, "uri", uri);
	if (type)
		put_text(writer, "mimeType", type);
	return writer;
}

void resource_text(struct mcp_request *request, const char *uri, const char *type, const char *text,
		   size_t size)
{
	struct json_writer *writer = put_content(request, uri, type);
	put_text_size(writer, "text", text, size);
	put_object_end(writer);
}

void resource_blob(struct mcp_request *request, const char *uri, const char *type, const void *data,
		   size_t size)
{
	struct json_writer *writer = put_content(request, uri, type);
	put_base64(writer, "blob", data, size);
	put_object_end(writer);
}

void resource_end(struct mcp_request *request)
{
	put_array_end(&request->writer);
	mcp_put_cache(request, 0, false);
	mcp_result_end(request);
}

void resource_reply_text(struct mcp_request *request, const char *uri, const char *type,
			 const char *text, size_t size)
{
	resource_begin(request);
	resource_text(request, uri, type, text, size);
	resource_end(request);
}

void resource_reply_blob(struct mcp_request *request, const char *uri, const char *type,
			 const void *data, size_t size)
{
	resource_begin(request);
	resource_blob(request, uri, type, data, size);
	resource_end(request);
}

/* --- what is not there --- */

static void resource_refuse_unknown(struct mcp_request *request, const char *uri, const char *why)
{
	DONE_BUFFER struct buffer data = BUFFER(1 * MIB);
	struct json_writer writer = json_writer_on(&data);
	put_object(&writer, NULL);
	put_text(&writer, "uri", uri);
	put_object_end(&writer);
	mcp_error(request,
		  revision_modern(request->revision) ? MCP_INVALID_PARAMS : MCP_RESOURCE_NOT_FOUND,
		  writer.full ? NULL : buffer_text(&data), "there is no resource of that URI%s%s",
		  why ? ": " : "", why ? why : "");
}

void resource_not_found(struct mcp_request *request, const char *uri)
{
	resource_refuse_unknown(request, uri, NULL);
}

bool resource_missing(const struct error *error)
{
	switch ((int)error->kind) {
	case ERROR_NO_ROUTE:
	case ERROR_SANDBOX_NOT_FOUND:
	case ERROR_SANDBOX_ENDED:
	case ERROR_ID_MALFORMED:
	case ERROR_EXEC_NOT_FOUND:
	case ERROR_FILE_NOT_FOUND:
		return true;
	default:
		return false;
	}
}

void resource_fail(struct mcp_request *request, const char *uri, const struct error *error)
{
	if (resource_missing(error))
		resource_refuse_unknown(request, uri,
					error->kind == ERROR_NO_ROUTE ? NULL : error->message);
	else
		mcp_fail(request, error);
}

/* --- a legacy session's subscriptions --- */

void resources_subscribe(struct mcp_request *request)
{
	struct error error;
	const char *uri = request_uri(request);
	if (!uri)
		return;
	if (!request->session)
		mcp_error(request, MCP_INVALID_REQUEST, NULL,
			  "a subscription needs a session: begin with `initialize`");
	else if (session_subscribe(request->session, uri, &error) < 0)
		resource_fail(request, uri, &error);
	else
		mcp_result_empty(request);
}

/* Unsubscribing without a subscription is not an error. */
void resources_unsubscribe(struct mcp_request *request)
{
	const char *uri = request_uri(request);
	if (!uri)
		return;
	if (request->session)
		session_unsubscribe(request->session, uri);
	mcp_result_empty(request);
}
