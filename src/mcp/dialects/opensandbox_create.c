/* sandbox_create of OpenSandbox: an image by name, limits as quantities, an entrypoint that runs
 * beside later commands. Waits through callbacks; nothing blocks. */
#include "mcp/dialects/opensandbox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/sandbox/create_queue.h"
#include "core/sandbox/ephemeral.h"

#define TIMEOUT_DEFAULT 600u /* as the schema says */
#define ENTRYPOINT_MAX 64
#define OWN_METADATA 2 /* image and entrypoint */

struct opensandbox_create_state {
	struct pending_operation pending;
	struct sandbox_spec spec;
	struct pair environment[EXEC_ENV_MAX];
	struct pair metadata[SANDBOX_METADATA_MAX + OWN_METADATA];
	struct ephemeral_labels labels;
	const char *entrypoint[ENTRYPOINT_MAX + 1];
	size_t entrypoint_count; /* 0: there is no entrypoint */
	char *entrypoint_text;
};

static void opensandbox_create_free(void *state)
{
	struct opensandbox_create_state *create = state;
	free(create->entrypoint_text);
	free(create);
}

/* --- arguments --- */

struct create_arguments {
	const char *image, *username, *password;
	double timeout, ready_timeout;
	uint64_t interval;
	bool skip_check;
	json_t *environment, *metadata, *resource, *policy, *extensions, *entrypoint;
};

static int create_take_pairs(const char *name, const json_t *object, struct pair *pairs, size_t max,
			     size_t *count, struct error *error)
{
	const char *key;
	json_t *value;
	if (json_object_size(object) > max)
		return error_set(error, ERROR_INVALID, "field `%s` has %zu entries; at most %zu",
				 name, json_object_size(object), max);
	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_string(value))
			return error_set(error, ERROR_INVALID,
					 "field `%s`: the value of `%.100s` must be a string", name,
					 key);
		if (text_starts(key, OPENSANDBOX_PREFIX))
			return error_set(error, ERROR_INVALID,
					 "field `%s`: keys that begin with `" OPENSANDBOX_PREFIX
					 "` are reserved",
					 name);
		pairs[(*count)++] = (struct pair){key, json_string_value(value)};
	}
	return 0;
}

static int create_take_entrypoint(struct opensandbox_create_state *create, const json_t *words,
				  struct error *error)
{
	static const char *const keep_alive[] = {"tail", "-f", "/dev/null"};
	size_t index, same = 0;
	json_t *word;
	if (!words)
		return 0;
	if (json_array_size(words) == 0)
		return error_set(error, ERROR_INVALID, "field `entrypoint` must not be empty");
	if (dialect_texts(words, "entrypoint", ENTRYPOINT_MAX, error) < 0)
		return -1;
	json_array_foreach(words, index, word)
	{
		create->entrypoint[index] = json_string_value(word);
		same += index < 3 && strcmp(json_string_value(word), keep_alive[index]) == 0;
	}
	/* An entrypoint that only keeps a container alive is not needed here. */
	if (index != 3 || same != 3)
		create->entrypoint_count = index;
	create->entrypoint_text = json_dumps(words, JSON_COMPACT);
	if (!create->entrypoint_text)
		abort();
	create->metadata[create->spec.metadata_count++] =
	    (struct pair){OPENSANDBOX_ENTRYPOINT, create->entrypoint_text};
	return 0;
}

static int create_check_unsupported(const struct create_arguments *given, struct error *error)
{
	if (given->policy)
		return error_set(error, ERROR_UNSUPPORTED,
				 "field `network_policy`: sandboxes have no network in this "
				 "version, so that nothing can be allowed or denied; leave it out");
	if (json_object_get(given->extensions, "poolRef"))
		return error_set(error, ERROR_UNSUPPORTED,
				 "field `extensions`: `poolRef` names a pool, and there are none "
				 "to be named here; leave it out");
	if (!given->username != !given->password)
		return error_set(error, ERROR_INVALID,
				 "give both `auth_username` and `auth_password`, or neither");
	return 0;
}

static int create_take_fields(struct mcp_request *request, struct opensandbox_create_state *create,
			      const struct create_arguments *given, struct error *error)
{
	struct sandbox_spec *spec = &create->spec;
	if (given->timeout <= 0 || given->timeout > SANDBOX_TIMEOUT_MAX)
		return error_set(error, ERROR_INVALID,
				 "field `timeout_seconds` must be more than 0 and at most %u",
				 SANDBOX_TIMEOUT_MAX);
	if (create_check_unsupported(given, error) < 0 ||
	    opensandbox_image(given->image, &spec->template, error) < 0 ||
	    opensandbox_resource(&request->core->config, given->resource, &spec->limits, error) <
		0 ||
	    create_take_pairs("env", given->environment, create->environment, EXEC_ENV_MAX,
			      &spec->environment_count, error) < 0 ||
	    create_take_pairs("metadata", given->metadata, create->metadata,
			      SANDBOX_METADATA_MAX - OWN_METADATA, &spec->metadata_count,
			      error) < 0 ||
	    create_take_entrypoint(create, given->entrypoint, error) < 0)
		return -1;
	create->metadata[spec->metadata_count++] = (struct pair){OPENSANDBOX_IMAGE, given->image};
	spec->environment = create->environment;
	spec->metadata = create->metadata;
	spec->allow_substitute = true;
	spec->timeout_set = true;
	spec->timeout_seconds = (uint32_t)ceil(given->timeout);
	spec->wait_ms = (uint32_t)MIN(given->ready_timeout * 1000, (double)WAIT_MS_MAX);
	if (request->view.ephemeral)
		ephemeral_mark(spec, &request->view.connection, &create->labels);
	return 0;
}

/* --- making it --- */

static void removal_ignore(void *data, const struct error *error)
{
	(void)data, (void)error;
}

/* The client has not heard of it, or it is not what was requested: removes it. */
static void sandbox_remove_again(struct mcp_request *request, const char *why)
{
	struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
	struct error ignored;
	if (sandbox)
		(void)!sandbox_delete(sandbox, &request->principal, END_REASON_USER, why,
				      removal_ignore, NULL, &ignored);
}

static void create_reply(struct mcp_request *request)
{
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	mcp_progress_of(request, 1.0, 1.0, "Sandbox is ready");
	opensandbox_reply_info(request, sandbox);
}

static void entrypoint_cancelled(struct mcp_request *request)
{
	struct opensandbox_create_state *create = request->state;
	foreground_abandon(TAKE_PTR(create->pending.foreground), true);
	sandbox_remove_again(request, "the client that created it went away first");
	mcp_release(request);
}

static void entrypoint_changed(struct foreground *foreground, struct exec *exec)
{
	struct mcp_request *request = foreground_data(foreground);
	if (exec->row.state != EXEC_RUNNING)
		return;
	foreground_abandon(foreground, false);
	if (pending_over(request))
		create_reply(request);
	mcp_release(request);
}

static void entrypoint_done(void *data, struct exec *exec, const struct left_process *left,
			    size_t count, const struct error *error)
{
	struct mcp_request *request = data;
	(void)exec, (void)left, (void)count;
	if (pending_over(request)) {
		if (error) {
			struct error told = *error;
			sandbox_remove_again(request, "its entrypoint could not be started");
			(void)error_prepend(&told, "the entrypoint could not be started: ");
			mcp_fail(request, &told);
		} else {
			create_reply(request);
		}
	}
	mcp_release(request);
}

static void create_run_entrypoint(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct foreground_callbacks callbacks = {.changed = entrypoint_changed,
							      .done = entrypoint_done};
	struct opensandbox_create_state *create = request->state;
	struct exec_spec spec = {.argv = create->entrypoint,
				 .argc = create->entrypoint_count,
				 .principal = &request->principal};
	struct error error;
	tool_wait(request, entrypoint_cancelled);
	if (foreground_start(sandbox, &spec, NULL, 0, &callbacks, request,
			     &create->pending.foreground, &error) < 0) {
		sandbox_remove_again(request, "its entrypoint could not be started");
		pending_refused(request, &error);
	}
}

static void opensandbox_created(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct mcp_request *request = data;
	struct opensandbox_create_state *create = request->state;
	if (sandbox)
		request->sandbox = sandbox->row.id;
	if (!pending_over(request)) {
		sandbox_remove_again(request, "the client that created it went away first");
	} else if (error) {
		mcp_fail(request, error);
	} else if (create->entrypoint_count == 0) {
		mcp_progress_of(request, 0.8, 1.0, "Sandbox created");
		create_reply(request);
	} else {
		mcp_progress_of(request, 0.8, 1.0, "Starting the entrypoint");
		create_run_entrypoint(request, sandbox);
	}
	mcp_release(request);
}

/* If it waits for room, it leaves the queue; if it is being made, it is removed afterwards. */
static void opensandbox_create_cancelled(struct mcp_request *request)
{
	if (create_queue_leave(request->core, request))
		mcp_release(request);
}

void opensandbox_create(struct mcp_request *request, const json_t *arguments)
{
	uint32_t longest = request->core->config.timeout_seconds_max;
	struct create_arguments given = {.timeout = MIN(TIMEOUT_DEFAULT, longest),
					 .ready_timeout = 30};
	struct opensandbox_create_state *create =
	    pending_state(request, sizeof(*create), opensandbox_create_free);
	struct error error;
	const struct field_to fields[] = {
	    {"image", FIELD_TEXT, &given.image, true, 1, 255},
	    {"auth_username", FIELD_TEXT, &given.username},
	    {"auth_password", FIELD_TEXT, &given.password},
	    {"timeout_seconds", FIELD_NUMBER, &given.timeout},
	    {"ready_timeout_seconds", FIELD_NUMBER, &given.ready_timeout},
	    {"health_check_polling_interval_ms", FIELD_UINT, &given.interval},
	    {"skip_health_check", FIELD_BOOL, &given.skip_check},
	    {"env", FIELD_OBJECT, &given.environment},
	    {"metadata", FIELD_OBJECT, &given.metadata},
	    {"resource", FIELD_OBJECT, &given.resource},
	    {"network_policy", FIELD_OBJECT, &given.policy},
	    {"extensions", FIELD_OBJECT, &given.extensions},
	    {"entrypoint", FIELD_ARRAY, &given.entrypoint},
	};
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	mcp_progress_of(request, 0.1, 1.0, "Preparing the sandbox");
	if (create_take_fields(request, create, &given, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	mcp_progress_of(request, 0.3, 1.0, "Creating the sandbox");
	tool_wait(request, opensandbox_create_cancelled);
	pending_deadline(request, given.ready_timeout,
			 "the sandbox was not ready within `ready_timeout_seconds`");
	if (sandbox_create(request->core, &request->principal, &create->spec, opensandbox_created,
			   request, &error) < 0)
		pending_refused(request, &error);
}
