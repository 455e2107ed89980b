/* Finds the function for a method, by era (dispatch.h). Called by the transports for every request
 * and notification; nothing blocks. */
#include "mcp/transport/dispatch.h"

#include <string.h>

#include "mcp/lifecycle.h"
#include "mcp/resources/listen.h"
#include "mcp/prompt.h"
#include "mcp/resources/resource.h"
#include "mcp/server.h"
#include "mcp/transport/session_private.h"
#include "mcp/tasks/task.h"
#include "mcp/tools/tool.h"

/* The part that a face must have for a method to exist. */
enum part {
	PART_NONE,
	PART_TOOLS,
	PART_RESOURCES,
	PART_PROMPTS,
	PART_SUBSCRIBE,
	PART_COMPLETIONS,
	PART_LOGGING,
	PART_TASKS,
};
enum { LEGACY = 1, MODERN = 2, BOTH = LEGACY | MODERN };

static const struct method {
	const char *name;
	int eras;
	enum part part;
	void (*handle)(struct mcp_request *request);
} methods[] = {
    {"tools/call", BOTH, PART_TOOLS, tools_call},
    {"tools/list", BOTH, PART_TOOLS, tools_list},
    {"initialize", LEGACY, PART_NONE, server_initialize},
    {"ping", LEGACY, PART_NONE, server_ping},
    {"server/discover", MODERN, PART_NONE, server_discover},
    {"subscriptions/listen", MODERN, PART_NONE, listen_begin},
    {"resources/list", BOTH, PART_RESOURCES, resources_list},
    {"resources/templates/list", BOTH, PART_RESOURCES, resources_templates},
    {"resources/read", BOTH, PART_RESOURCES, resources_read},
    {"resources/subscribe", LEGACY, PART_SUBSCRIBE, resources_subscribe},
    {"resources/unsubscribe", LEGACY, PART_SUBSCRIBE, resources_unsubscribe},
    {"prompts/list", BOTH, PART_PROMPTS, prompts_list},
    {"prompts/get", BOTH, PART_PROMPTS, prompts_get},
    {"completion/complete", BOTH, PART_COMPLETIONS, completion_complete},
    {"logging/setLevel", LEGACY, PART_LOGGING, logging_set_level},
    {"tasks/get", MODERN, PART_TASKS, tasks_get},
    {"tasks/update", MODERN, PART_TASKS, tasks_update},
    {"tasks/cancel", MODERN, PART_TASKS, tasks_cancel},
};

bool face_has_tools(const struct mcp_face *face)
{
	return face->tools && face->tools[0];
}

bool face_has_resources(const struct mcp_face *face)
{
	return face->resources && face->resources[0];
}

bool face_has_prompts(const struct mcp_face *face)
{
	return face->prompts && face->prompts[0];
}

static bool face_has_part(const struct mcp_face *face, enum part part)
{
	switch (part) {
	case PART_NONE:
		return true;
	case PART_TOOLS:
		return face_has_tools(face);
	case PART_RESOURCES:
		return face_has_resources(face);
	case PART_PROMPTS:
		return face_has_prompts(face);
	case PART_SUBSCRIBE:
		return face_has_resources(face) && (face->features & FACE_SUBSCRIBE);
	case PART_COMPLETIONS:
		return face->features & FACE_COMPLETIONS;
	case PART_LOGGING:
		return face->features & FACE_LOGGING;
	case PART_TASKS:
		return face->features & FACE_TASKS;
	}
	return false;
}

static const struct method *method_find(const struct mcp_request *request)
{
	int era = revision_modern(request->revision) ? MODERN : LEGACY;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strcmp(methods[i].name, request->method) == 0)
			return (methods[i].eras & era) &&
				       face_has_part(request->view.face, methods[i].part)
				   ? &methods[i]
				   : NULL;
	return NULL;
}

/* Two requests with the same id could not be told apart, nor cancelled. */
static bool request_is_acceptable(struct mcp_request *request)
{
	if (!request->among)
		return true;
	if (request->among->count > REQUESTS_MAX) {
		mcp_error(request, MCP_INTERNAL_ERROR, NULL,
			  "%d requests of this client are under way already", REQUESTS_MAX);
		return false;
	}
	list_each (&request->among->requests, node) {
		struct mcp_request *other = list_entry(node, struct mcp_request, link);
		if (other != request && message_id_equal(other->id, request->id)) {
			mcp_error(request, MCP_INVALID_REQUEST, NULL,
				  "a request with this id is under way already");
			return false;
		}
	}
	return true;
}

static bool request_parameters_agree(struct mcp_request *request, const struct mcp_headers *headers)
{
	struct mcp_problem problem;
	bool scope_missing;
	const char *name = json_string_value(json_object_get(request->params, "name"));
	if (!headers || !name || strcmp(request->method, "tools/call") != 0)
		return true;
	const struct mcp_tool *tool = tool_find(request, name, &scope_missing);
	if (!tool || envelope_check_parameters(json_object_get(request->params, "arguments"),
					       tool->input, headers, &problem) == 0)
		return true;
	mcp_refuse(request, &problem);
	return false;
}

void mcp_dispatch(struct mcp_request *request, const struct mcp_headers *headers)
{
	if (!request_is_acceptable(request))
		return;
	const struct method *method = method_find(request);
	if (!method) {
		mcp_error(request, MCP_METHOD_NOT_FOUND, NULL, "there is no method %.100s here",
			  request->method);
		return;
	}
	if (!request_parameters_agree(request, headers))
		return;
	/* A handler that answers at once may have to clean up after its answer. */
	mcp_hold(request);
	method->handle(request);
	mcp_release(request);
}

static void cancelled_notified(const struct message *message, struct request_set *among)
{
	const json_t *id = json_object_get(message->params, "requestId");
	list_each (&among->requests, node) {
		struct mcp_request *request = list_entry(node, struct mcp_request, link);
		if (!message_id_equal(request->id, id))
			continue;
		mcp_cancel(request);
		return;
	}
}

/* Other notifications are ignored: a client's news about its roots or its progress changes nothing
 * here. */
void mcp_notified(const struct message *message, struct mcp_session *session,
		  struct request_set *among)
{
	if (session)
		session_touch(session);
	if (among && strcmp(message->method, "notifications/cancelled") == 0)
		cancelled_notified(message, among);
}
