/* subscriptions/listen: a request that stays open and carries the notifications of its filter. The
 * first message says which part of the filter is accepted (unknown and unsupported parts are
 * omitted); every message carries the request's id. A client ends it with a cancel, and gets no
 * further message; the server ends it with a result, so that the client knows that it may try
 * again. The carrier keeps the connection alive. Nothing blocks. */
#include "mcp/resources/listen.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/transport/message.h"
#include "mcp/resources/resource.h"
#include "mcp/tasks/task.h"

/* A URI, an id of a client and the envelope, with all escapes. */
#define LISTEN_MESSAGE_MAX (1 * MIB)
#define SUBSCRIPTION_ID "io.modelcontextprotocol/subscriptionId"

enum list_kind { LIST_TOOLS, LIST_PROMPTS, LIST_RESOURCES, LIST_COUNT };
static const struct {
	const char *name, *filter, *method;
} lists[LIST_COUNT] = {
    [LIST_TOOLS] = {"tools", "toolsListChanged", "notifications/tools/list_changed"},
    [LIST_PROMPTS] = {"prompts", "promptsListChanged", "notifications/prompts/list_changed"},
    [LIST_RESOURCES] = {"resources", "resourcesListChanged",
			"notifications/resources/list_changed"},
};

struct listen {
	struct list link; /* in the list of all */
	struct mcp_request *request;
	bool lists[LIST_COUNT];
	struct list resources; /* struct listened_resource */
	struct list tasks;     /* struct listened_task */
};

struct listened_resource {
	struct list link;
	struct resource_watch *watch; /* NULL: the resource cannot change any more */
};

struct listened_task {
	struct list link;
	struct task_watch watch;
	char *id;
};

static struct list listens = {&listens, &listens};

/* --- messages --- */

static void put_subscription(struct json_writer *writer, const struct mcp_request *request)
{
	put_object(writer, "_meta");
	put_message_id(writer, SUBSCRIPTION_ID, request->id);
	put_object_end(writer);
}

/* Opens `params`, for the caller's members. */
static struct json_writer notice_begin(struct listen *listen, struct buffer *to, const char *method)
{
	struct json_writer writer = json_writer_on(to);
	put_object(&writer, NULL);
	put_text(&writer, "jsonrpc", "2.0");
	put_text(&writer, "method", method);
	put_object(&writer, "params");
	put_subscription(&writer, listen->request);
	return writer;
}

static void notice_end(struct listen *listen, struct json_writer *writer)
{
	put_object_end(writer);
	put_object_end(writer);
	if (!writer->full && listen->request->open)
		listen->request->carrier->notify(listen->request, writer->buffer);
}

static void resource_updated(struct resource_watch *watch)
{
	DONE_BUFFER struct buffer message = BUFFER(LISTEN_MESSAGE_MAX);
	struct listen *listen = watch->data;
	struct json_writer writer =
	    notice_begin(listen, &message, "notifications/resources/updated");
	put_text(&writer, "uri", watch->uri);
	notice_end(listen, &writer);
}

/* Its watch does not count for the workspace any more. */
static void resource_ended(struct resource_watch *watch)
{
	struct listen *listen = watch->data;
	list_each (&listen->resources, node) {
		struct listened_resource *resource =
		    list_entry(node, struct listened_resource, link);
		if (resource->watch != watch)
			continue;
		list_remove(&resource->link);
		free(resource);
	}
	resource_watch_free(watch);
}

static void listen_task_changed(struct task_watch *watch, struct mcp_task *task)
{
	DONE_BUFFER struct buffer message = BUFFER(TASK_RESULT_MAX + LISTEN_MESSAGE_MAX);
	struct listen *listen = watch->data;
	struct json_writer writer = notice_begin(listen, &message, "notifications/tasks");
	task_put(&writer, task);
	notice_end(listen, &writer);
}

/* Walks over a snapshot of the list, since a notification may end other listens. */
void listen_list_changed(struct mcp_server *server, const char *what)
{
	struct mcp_request *told[LISTENS_MAX];
	size_t count = 0, kind = 0;
	while (kind < LIST_COUNT && strcmp(lists[kind].name, what) != 0)
		kind++;
	list_each (&listens, node) {
		struct listen *listen = list_entry(node, struct listen, link);
		if (kind < LIST_COUNT && listen->lists[kind] && count < LISTENS_MAX &&
		    listen->request->server == server)
			told[count++] = mcp_hold(listen->request);
	}
	for (size_t i = 0; i < count; i++) {
		if (told[i]->open) {
			DONE_BUFFER struct buffer message = BUFFER(LISTEN_MESSAGE_MAX);
			struct json_writer writer =
			    notice_begin(told[i]->state, &message, lists[kind].method);
			notice_end(told[i]->state, &writer);
		}
		mcp_release(told[i]);
	}
}

/* --- its end --- */

static void listen_free(void *state)
{
	struct listen *listen = state;
	list_remove(&listen->link);
	list_each (&listen->resources, node) {
		struct listened_resource *resource =
		    list_entry(node, struct listened_resource, link);
		resource_watch_free(resource->watch);
		free(resource);
	}
	list_each (&listen->tasks, node) {
		struct listened_task *task = list_entry(node, struct listened_task, link);
		task_unwatch(&task->watch);
		free(task->id);
		free(task);
	}
	free(listen);
}

static void listen_cancelled(struct mcp_request *request)
{
	listen_free(TAKE_PTR(request->state));
	request->state_free = NULL;
}

static struct mcp_request *listen_find_open(const struct mcp_server *server)
{
	list_each (&listens, node) {
		struct mcp_request *request = list_entry(node, struct listen, link)->request;
		if (request->server == server && request->open)
			return request;
	}
	return NULL;
}

void listen_end_all(struct mcp_server *server)
{
	struct mcp_request *request;
	while ((request = listen_find_open(server))) {
		mcp_result_begin(request);
		put_message_id(mcp_meta_begin(request), SUBSCRIPTION_ID, request->id);
		mcp_meta_end(request);
		/* Its data is freed with the request. */
		mcp_result_end(request);
	}
}

/* --- its beginning --- */

static bool array_holds_strings(const json_t *array, size_t max)
{
	size_t index;
	json_t *value;
	if (!array)
		return true;
	if (!json_is_array(array) || json_array_size(array) > max)
		return false;
	json_array_foreach((json_t *)array, index, value) if (!json_is_string(value)) return false;
	return true;
}

/* false: the request was answered with the error. */
static bool listen_filter_is_good(struct mcp_request *request, const json_t *filter)
{
	if (!json_is_object(filter)) {
		mcp_error(request, MCP_INVALID_PARAMS, NULL,
			  "`notifications` must be an object that says what to listen for");
		return false;
	}
	for (size_t i = 0; i < LIST_COUNT; i++) {
		const json_t *value = json_object_get(filter, lists[i].filter);
		if (value && !json_is_boolean(value)) {
			mcp_error(request, MCP_INVALID_PARAMS, NULL,
				  "`notifications.%s` must be true or false", lists[i].filter);
			return false;
		}
	}
	if (array_holds_strings(json_object_get(filter, "resourceSubscriptions"),
				LISTEN_RESOURCES_MAX) &&
	    array_holds_strings(json_object_get(filter, "taskIds"), LISTEN_TASKS_MAX))
		return true;
	mcp_error(request, MCP_INVALID_PARAMS, NULL,
		  "`notifications.resourceSubscriptions` and `notifications.taskIds` must be "
		  "arrays of strings, at most %d and %d",
		  LISTEN_RESOURCES_MAX, LISTEN_TASKS_MAX);
	return false;
}

static bool listens_too_many(const struct mcp_request *request)
{
	unsigned all = 0, own = 0;
	list_each (&listens, node) {
		const struct listen *other = list_entry(node, struct listen, link);
		all++;
		own +=
		    strcmp(other->request->principal.workspace, request->principal.workspace) == 0;
	}
	return all >= LISTENS_MAX || own >= LISTENS_PER_WORKSPACE_MAX;
}

static void listen_take_lists(struct listen *listen, const json_t *filter)
{
	const struct mcp_face *face = listen->request->view.face;
	const bool there[LIST_COUNT] = {[LIST_TOOLS] = true,
					[LIST_PROMPTS] = face->prompts != NULL,
					[LIST_RESOURCES] = face->resources != NULL};
	for (size_t i = 0; i < LIST_COUNT; i++)
		listen->lists[i] = (face->features & FACE_LIST_CHANGED) && there[i] &&
				   json_is_true(json_object_get(filter, lists[i].filter));
}

/* An item that is named twice is notified once. */
static bool element_is_repeated(const json_t *array, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (json_equal(json_array_get(array, i), json_array_get(array, index)))
			return true;
	return false;
}

static void listen_take_resources(struct listen *listen, const json_t *filter)
{
	struct mcp_request *request = listen->request;
	size_t index;
	json_t *value;
	struct error error;
	if (!(request->view.face->features & FACE_SUBSCRIBE))
		return;
	const json_t *uris = json_object_get(filter, "resourceSubscriptions");
	json_array_foreach((json_t *)uris, index, value)
	{
		if (element_is_repeated(uris, index))
			continue;
		struct resource_watch *watch =
		    resource_watch_new(request->core, request->view.face, &request->principal,
				       json_string_value(value), resource_updated, listen, &error);
		if (!watch)
			continue;
		watch->ended = resource_ended;
		struct listened_resource *resource = calloc(1, sizeof(*resource));
		if (!resource)
			abort();
		resource->watch = watch;
		list_append(&listen->resources, &resource->link);
	}
}

static void listen_take_tasks(struct listen *listen, const json_t *filter)
{
	struct mcp_request *request = listen->request;
	size_t index;
	json_t *value;
	if (!(request->client & CLIENT_TASKS))
		return;
	const json_t *ids = json_object_get(filter, "taskIds");
	json_array_foreach((json_t *)ids, index, value)
	{
		if (element_is_repeated(ids, index))
			continue;
		struct listened_task *task = calloc(1, sizeof(*task));
		if (!task)
			abort();
		task->watch.changed = listen_task_changed;
		task->watch.data = listen;
		if (task_watch(request, json_string_value(value), &task->watch) < 0) {
			free(task);
			continue;
		}
		task->id = text_duplicate(json_string_value(value));
		list_append(&listen->tasks, &task->link);
	}
}

static void listen_acknowledge(struct listen *listen)
{
	DONE_BUFFER struct buffer message = BUFFER(4 * LISTEN_MESSAGE_MAX);
	struct json_writer writer =
	    notice_begin(listen, &message, "notifications/subscriptions/acknowledged");
	put_object(&writer, "notifications");
	for (size_t i = 0; i < LIST_COUNT; i++)
		if (listen->lists[i])
			put_bool(&writer, lists[i].filter, true);
	if (!list_empty(&listen->resources)) {
		put_array(&writer, "resourceSubscriptions");
		list_each (&listen->resources, node)
			put_text(&writer, NULL,
				 list_entry(node, struct listened_resource, link)->watch->uri);
		put_array_end(&writer);
	}
	if (!list_empty(&listen->tasks)) {
		put_array(&writer, "taskIds");
		list_each (&listen->tasks, node)
			put_text(&writer, NULL, list_entry(node, struct listened_task, link)->id);
		put_array_end(&writer);
	}
	put_object_end(&writer);
	notice_end(listen, &writer);
}

void listen_begin(struct mcp_request *request)
{
	const json_t *filter = json_object_get(request->params, "notifications");
	if (!listen_filter_is_good(request, filter))
		return;
	if (request->silent) {
		mcp_error(request, MCP_INVALID_REQUEST, NULL,
			  "subscriptions/listen answers with a stream: accept text/event-stream");
		return;
	}
	if (listens_too_many(request)) {
		mcp_error(
		    request, MCP_INTERNAL_ERROR, NULL,
		    "Subscription limit reached: there may be %d at once, %d of one workspace",
		    LISTENS_MAX, LISTENS_PER_WORKSPACE_MAX);
		return;
	}
	struct listen *listen = calloc(1, sizeof(*listen));
	if (!listen)
		abort();
	listen->request = request;
	list_init(&listen->resources);
	list_init(&listen->tasks);
	list_append(&listens, &listen->link);
	request->state = listen;
	request->state_free = listen_free;
	request->on_cancel = listen_cancelled;
	listen_take_lists(listen, filter);
	listen_take_resources(listen, filter);
	listen_take_tasks(listen, filter);
	listen_acknowledge(listen);
}
