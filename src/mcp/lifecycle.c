/* The methods with which client and server introduce themselves: initialize and ping of the legacy
 * era, server/discover of the modern one, the level of the log. Called by mcp/transport/dispatch.c;
 * nothing blocks. */
#include "mcp/lifecycle.h"

#include <string.h>

#include "mcp/transport/dispatch.h"
#include "mcp/transport/session_private.h"

#define INSTRUCTIONS_MAX (2 * KIB)
#define DISCOVER_TTL_MS (3600u * 1000)

static void put_list_capability(struct json_writer *writer, const char *key,
				const struct mcp_face *face, bool subscribe)
{
	put_object(writer, key);
	if (subscribe && (face->features & FACE_SUBSCRIBE))
		put_bool(writer, "subscribe", true);
	if (face->features & FACE_LIST_CHANGED)
		put_bool(writer, "listChanged", true);
	put_object_end(writer);
}

static void put_capabilities(struct json_writer *writer, const struct mcp_face *face,
			     enum mcp_revision revision)
{
	put_object(writer, "capabilities");
	if (face_has_tools(face))
		put_list_capability(writer, "tools", face, false);
	if (face_has_resources(face))
		put_list_capability(writer, "resources", face, true);
	if (face_has_prompts(face))
		put_list_capability(writer, "prompts", face, false);
	if (face->features & FACE_LOGGING)
		put_json(writer, "logging", "{}", 2);
	if ((face->features & FACE_COMPLETIONS) && revision >= MCP_2025_03_26)
		put_json(writer, "completions", "{}", 2);
	if ((face->features & FACE_TASKS) && revision_modern(revision)) {
		put_object(writer, "extensions");
		put_json(writer, "io.modelcontextprotocol/tasks", "{}", 2);
		put_object_end(writer);
	}
	put_object_end(writer);
}

static void put_instructions(struct json_writer *writer, const struct mcp_view *view)
{
	struct buffer text DONE_BUFFER = BUFFER(INSTRUCTIONS_MAX);
	if (view->face->instructions)
		view->face->instructions(view, &text);
	if (text.size > 0)
		put_text_size(writer, "instructions", text.data, text.size);
}

void server_discover(struct mcp_request *request)
{
	struct json_writer *writer = mcp_result_begin(request);
	put_array(writer, "supportedVersions");
	put_text(writer, NULL, revision_name(MCP_2026_07_28));
	put_array_end(writer);
	put_capabilities(writer, request->view.face, request->revision);
	put_instructions(writer, &request->view);
	mcp_put_cache(request, DISCOVER_TTL_MS, true);
	mcp_result_end(request);
}

void put_initialized(struct mcp_request *request, struct json_writer *writer)
{
	const struct mcp_face *face = request->view.face;
	put_text(writer, "protocolVersion", revision_name(request->revision));
	put_capabilities(writer, face, request->revision);
	put_object(writer, "serverInfo");
	put_text(writer, "name", face->name);
	if (face->title && request->revision >= MCP_2025_06_18)
		put_text(writer, "title", face->title);
	put_text(writer, "version", CAISSON_VERSION);
	put_object_end(writer);
	put_instructions(writer, &request->view);
}

/* A stateless face has no session; a connection of lines has one from the beginning. */
static bool initialize_settle_session(struct mcp_request *request)
{
	struct error error;
	if (!request->session && !(request->view.face->features & FACE_STATELESS)) {
		struct mcp_session *session =
		    session_new(request->server, &request->principal, &request->view);
		if (session_open(session, &error) < 0) {
			session_release(session);
			mcp_fail(request, &error);
			return false;
		}
		request->session = session_hold(session);
	}
	if (request->session) {
		request->session->revision = request->revision;
		request->session->client = request->client;
	}
	return true;
}

void server_initialize(struct mcp_request *request)
{
	const char *wanted = json_string_value(json_object_get(request->params, "protocolVersion"));
	/* A stateless face records no revision, so the client need not name one. */
	if (!wanted && (request->view.face->features & FACE_STATELESS))
		wanted = revision_name(MCP_2024_11_05);
	if (!wanted) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`protocolVersion` is missing: a revision of the protocol, a string");
		return;
	}
	int revision = revision_parse(wanted);
	if (revision < 0 || revision_modern((enum mcp_revision)revision))
		revision = MCP_NEWEST_LEGACY;
	request->revision = (enum mcp_revision)revision;
	request->client =
	    envelope_capabilities(json_object_get(request->params, "capabilities")) & ~CLIENT_TASKS;
	if (!initialize_settle_session(request))
		return;
	if (request->view.face->initialize) {
		request->view.face->initialize(request);
		return;
	}
	put_initialized(request, mcp_result_begin(request));
	mcp_result_end(request);
}

void server_ping(struct mcp_request *request)
{
	mcp_result_empty(request);
}

void logging_set_level(struct mcp_request *request)
{
	const char *name = json_string_value(json_object_get(request->params, "level"));
	int level = name ? mcp_level_parse(name) : -1;
	if (level < 0) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`level` must be debug, info, notice, warning, error, critical, alert or "
			  "emergency");
		return;
	}
	if (request->session)
		session_set_log_level(request->session, (enum mcp_log_level)level);
	mcp_result_empty(request);
}
