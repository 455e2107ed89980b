/* OpenSandbox's tools that change files without their contents: delete, make and delete
 * directories, move; and set the owner of written files. A call is a list of operations, done one
 * after the other; the first failure ends it, and the answer says which were done. Waits through
 * callbacks; nothing blocks. */
#include "mcp/dialects/opensandbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct change_step {
	struct file_request request; /* its texts are the message's, or `owner` */
	bool may_be_missing;
	char owner[OPENSANDBOX_OWNER_SIZE];
};

struct steps {
	struct pending_operation pending;
	struct change_step *steps;
	size_t count, at, room;
	const char *status; /* the answer when all are done */
};

static void steps_free(void *state)
{
	struct steps *steps = state;
	free(steps->steps);
	free(steps);
}

static struct bytes bytes_from_text(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

/* --- shared with the other file tools --- */

#define HOME "/root"

/* The text with its `~` replaced; NULL: it has none. */
static json_t *path_expand(const json_t *value)
{
	const char *text = json_string_value(value);
	if (!text || text[0] != '~' || (text[1] != '\0' && text[1] != '/'))
		return NULL;
	json_t *path = json_sprintf("%s%s", HOME, text + 1);
	if (!path)
		abort();
	return path;
}

/* The members are part of the request's own message. */
static void expand_members(json_t *object)
{
	static const char *const members[] = {"path", "source", "destination", "src", "dest"};
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		json_t *path = path_expand(json_object_get(object, members[i]));
		if (path && json_object_set_new(object, members[i], path) < 0)
			abort();
	}
}

void opensandbox_expand_home(const json_t *arguments)
{
	json_t *paths = json_object_get(arguments, "paths"), *value;
	size_t index;
	expand_members((json_t *)arguments);
	json_array_foreach(json_object_get(arguments, "entries"), index, value)
	{
		if (json_is_object(value))
			expand_members(value);
	}
	json_array_foreach(paths, index, value)
	{
		json_t *path = path_expand(value);
		if (path && json_array_set_new(paths, index, path) < 0)
			abort();
	}
}

int opensandbox_mode(uint64_t digits, uint32_t *ret_mode, struct error *error)
{
	uint32_t mode = 0;
	unsigned shift = 0;
	for (uint64_t rest = digits; rest > 0; rest /= 10, shift += 3) {
		if (rest % 10 > 7 || shift > 9)
			return error_set(error, ERROR_INVALID,
					 "field `mode` is %llu; it must be octal digits like 644 "
					 "or 755",
					 (unsigned long long)digits);
		mode |= (uint32_t)(rest % 10) << shift;
	}
	*ret_mode = mode;
	return 0;
}

int opensandbox_owner(const char *owner, const char *group, char to[OPENSANDBOX_OWNER_SIZE],
		      struct error *error)
{
	if (text_format(to, OPENSANDBOX_OWNER_SIZE, "%s%s%s", owner ? owner : "", group ? ":" : "",
			group ? group : "") < 0)
		return error_set(error, ERROR_INVALID,
				 "`owner` and `group` are together longer than %d bytes",
				 OPENSANDBOX_OWNER_SIZE - 2);
	return 0;
}

/* --- one after the other --- */

static void steps_go_on(struct mcp_request *request, struct sandbox *sandbox);

static void change_step_done(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	struct steps *steps = request->state;
	if (pending_over(request)) {
		const struct change_step *step = &steps->steps[steps->at];
		bool missing = error && error->kind == ERROR_FILE_NOT_FOUND && step->may_be_missing;
		if (error && !missing) {
			struct error told = *error;
			if (steps->count > 1)
				(void)error_prepend(&told,
						    "operation %zu of %zu (those before it "
						    "are done): ",
						    steps->at + 1, steps->count);
			mcp_fail(request, &told);
		} else {
			struct sandbox *sandbox = target_again(request);
			steps->at++;
			if (sandbox)
				steps_go_on(request, sandbox);
		}
	}
	mcp_release(request);
}

static void steps_go_on(struct mcp_request *request, struct sandbox *sandbox)
{
	struct steps *steps = request->state;
	struct error error;
	if (steps->at == steps->count) {
		dialect_reply_status(request, steps->status);
		return;
	}
	pending_begin(request);
	if (file_change(sandbox, &request->principal, &steps->steps[steps->at].request,
			change_step_done, request, &steps->pending.task, &error) < 0)
		pending_refused(request, &error);
}

static struct steps *steps_new(struct mcp_request *request, const char *status)
{
	struct steps *steps = pending_state(request, sizeof(*steps), steps_free);
	steps->status = status;
	return steps;
}

/* Valid until the next one is made. */
static struct change_step *change_step_new(struct steps *steps, enum file_operation operation,
					   const char *path)
{
	if (steps->count == steps->room) {
		steps->room = MAX(steps->room * 2, (size_t)8);
		steps->steps = reallocarray(steps->steps, steps->room, sizeof(*steps->steps));
		if (!steps->steps)
			abort();
	}
	struct change_step *step = &steps->steps[steps->count++];
	*step = (struct change_step){
	    .request = {.operation = (uint8_t)operation, .path = bytes_from_text(path)}};
	return step;
}

/* The steps do not move in memory from here on, so pointers into them are set now. */
static void steps_begin(struct mcp_request *request, const char *id)
{
	struct steps *steps = request->state;
	for (size_t i = 0; i < steps->count; i++)
		if (steps->steps[i].request.operation == FILE_CHOWN)
			steps->steps[i].request.path2 = bytes_from_text(steps->steps[i].owner);
	target_ready(request, id, TARGET_NAMED, steps_go_on);
}

/* --- the tools --- */

static void paths_remove(struct mcp_request *request, const json_t *arguments, uint32_t flags)
{
	const char *id = NULL;
	json_t *paths = NULL, *path;
	bool connect;
	size_t index;
	struct error error;
	struct steps *steps = steps_new(request, "deleted");
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    {"paths", FIELD_ARRAY, &paths, true},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	opensandbox_expand_home(arguments);
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (dialect_texts(paths, "paths", OPENSANDBOX_ENTRIES_MAX, &error) < 0) {
		content_refuse(request, "%s", error.message);
		return;
	}
	json_array_foreach(paths, index, path)
	{
		struct change_step *step =
		    change_step_new(steps, FILE_REMOVE, json_string_value(path));
		step->request.flags = flags;
		step->may_be_missing = true;
	}
	steps_begin(request, id);
}

void opensandbox_delete(struct mcp_request *request, const json_t *arguments)
{
	paths_remove(request, arguments, 0);
}

void opensandbox_delete_directories(struct mcp_request *request, const json_t *arguments)
{
	paths_remove(request, arguments, FILE_RECURSIVE);
}

/* Reads one entry of `entries` and makes its steps. */
static void change_entries(struct mcp_request *request, const json_t *arguments,
			   struct steps *steps,
			   int (*read)(struct steps *steps, const json_t *entry, const char *where,
				       struct error *error))
{
	const char *id = NULL;
	json_t *entries = NULL, *entry;
	bool connect;
	size_t index;
	struct error error;
	char where[32];
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    {"entries", FIELD_ARRAY, &entries, true},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	opensandbox_expand_home(arguments);
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (json_array_size(entries) > OPENSANDBOX_ENTRIES_MAX) {
		content_refuse(request, "field `entries` has %zu entries; at most %d",
			       json_array_size(entries), OPENSANDBOX_ENTRIES_MAX);
		return;
	}
	json_array_foreach(entries, index, entry)
	{
		if (text_format(where, sizeof(where), "entries[%zu]", index) < 0 ||
		    read(steps, entry, where, &error) < 0) {
			content_refuse(request, "%s", error.message);
			return;
		}
	}
	steps_begin(request, id);
}

static int entries_read_directory(struct steps *steps, const json_t *entry, const char *where,
				  struct error *error)
{
	const char *path = NULL, *owner = NULL, *group = NULL;
	uint64_t digits = 755;
	uint32_t mode;
	const struct field_to fields[] = {
	    {"path", FIELD_TEXT, &path, true, 1, GUEST_PATH_MAX - 1},
	    {"mode", FIELD_UINT, &digits},
	    {"owner", FIELD_TEXT, &owner},
	    {"group", FIELD_TEXT, &group},
	};
	if (dialect_entry(entry, where, fields, ARRAY_SIZE(fields), error) < 0 ||
	    opensandbox_mode(digits, &mode, error) < 0)
		return -1;
	struct change_step *step = change_step_new(steps, FILE_MKDIR, path);
	step->request.flags = FILE_PARENTS;
	step->request.mode = mode;
	if (!owner && !group)
		return 0;
	step = change_step_new(steps, FILE_CHOWN, path);
	return opensandbox_owner(owner, group, step->owner, error);
}

void opensandbox_make_directories(struct mcp_request *request, const json_t *arguments)
{
	change_entries(request, arguments, steps_new(request, "created"), entries_read_directory);
}

/* The schema says source and destination; src and dest are accepted too. */
static int entries_read_move(struct steps *steps, const json_t *entry, const char *where,
			     struct error *error)
{
	const char *source = NULL, *destination = NULL, *src = NULL, *dest = NULL;
	const struct field_to fields[] = {
	    {"source", FIELD_TEXT, &source, false, 1, GUEST_PATH_MAX - 1},
	    {"destination", FIELD_TEXT, &destination, false, 1, GUEST_PATH_MAX - 1},
	    {"src", FIELD_TEXT, &src, false, 1, GUEST_PATH_MAX - 1},
	    {"dest", FIELD_TEXT, &dest, false, 1, GUEST_PATH_MAX - 1},
	};
	if (dialect_entry(entry, where, fields, ARRAY_SIZE(fields), error) < 0)
		return -1;
	source = source ? source : src;
	destination = destination ? destination : dest;
	if (!source || !destination)
		return error_set(error, ERROR_INVALID, "%s: field `%s` is missing", where,
				 source ? "destination" : "source");
	struct change_step *step = change_step_new(steps, FILE_RENAME, source);
	step->request.path2 = bytes_from_text(destination);
	step->request.flags = FILE_PARENTS | FILE_NO_REPLACE;
	return 0;
}

void opensandbox_move(struct mcp_request *request, const json_t *arguments)
{
	change_entries(request, arguments, steps_new(request, "moved"), entries_read_move);
}
