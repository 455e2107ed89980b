/* The toolset `files`: changes or inspects files without their contents. Called by tools.c. Each
 * tool is one operation inside the sandbox, except a copy into another sandbox, which goes through
 * the daemon at the speed of the slower one. Nothing blocks. */
#include <string.h>

#include "base/clock.h"
#include "core/file/sandbox_copy.h"
#include "mcp/tools/output.h"
#include "mcp/tools/file.h"

struct change_file_state {
	struct file_tool tool; /* path: the file to change */
	const char *to, *mode, *to_sandbox;
	bool recursive, replace;
	const char *what; /* "made", "removed": the answer's verb */
	struct file_request request;
	struct id from_sandbox;
	struct sandbox_copy *copy;
	struct file_entry *entry;
};

static void change_file_free(void *state)
{
	struct change_file_state *change = state;
	free(change->entry);
	free(change);
}

static struct change_file_state *change_file_new(struct mcp_request *request,
						 enum file_operation operation, const char *what)
{
	struct change_file_state *change =
	    pending_state(request, sizeof(*change), change_file_free);
	change->request.operation = (uint8_t)operation;
	change->what = what;
	return change;
}

static void file_change_reply(struct mcp_request *request, const char *extra)
{
	const struct change_file_state *change = request->state;
	struct buffer text DONE_BUFFER = BUFFER(4 * GUEST_PATH_MAX);
	(void)!buffer_printf(&text, "%s ", change->what);
	file_tool_path(&text, change->tool.path);
	if (change->to) {
		(void)!buffer_append_text(&text, " to ");
		file_tool_path(&text, change->to);
	}
	file_tool_reply(request, "%s%s", buffer_text(&text), extra);
}

static void file_changed(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	const struct change_file_state *change = request->state;
	if (!pending_back(request))
		return;
	if (error)
		file_tool_fail(request, change->tool.path, error);
	else
		file_change_reply(request, "");
	mcp_release(request);
}

static struct bytes bytes_of_text(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

static void change_file_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct change_file_state *change = request->state;
	struct error error;
	change->request.path = bytes_of_text(change->tool.path);
	if (change->to)
		change->request.path2 = bytes_of_text(change->to);
	if (change->recursive)
		change->request.flags |= FILE_RECURSIVE;
	if (file_change(sandbox, &request->principal, &change->request, file_changed, request,
			&change->tool.pending.task, &error) < 0)
		file_tool_fail(request, change->tool.path, &error);
	else
		pending_begin(request);
}

/* --- make_directory, remove_file, move_file --- */

static const struct field path_fields[] = {
    FILE_TOOL_PATH,
    FILE_TOOL_SANDBOX,
    {0},
};

static void make_directory(struct mcp_request *request, const json_t *arguments)
{
	struct change_file_state *change = change_file_new(request, FILE_MKDIR, "made");
	change->request.flags = FILE_PARENTS;
	change->request.mode = 0755;
	if (tool_arguments(request, arguments, change))
		target_ready(request, change->tool.sandbox, 0, change_file_act);
}

static const struct field remove_file_fields[] = {
    FILE_TOOL_PATH,
    {"recursive", FIELD_BOOL_AT(struct change_file_state, recursive)},
    FILE_TOOL_SANDBOX,
    {0},
};

static void remove_file(struct mcp_request *request, const json_t *arguments)
{
	struct change_file_state *change = change_file_new(request, FILE_REMOVE, "removed");
	if (tool_arguments(request, arguments, change))
		target_ready(request, change->tool.sandbox, 0, change_file_act);
}

static const struct field move_file_fields[] = {
    {"from", FIELD_TEXT_AT(struct change_file_state, tool.path), FIELD_REQUIRED, 1,
     GUEST_PATH_MAX - 1},
    {"to", FIELD_TEXT_AT(struct change_file_state, to), FIELD_REQUIRED, 1, GUEST_PATH_MAX - 1},
    {"replace", FIELD_BOOL_AT(struct change_file_state, replace)},
    FILE_TOOL_SANDBOX,
    {0},
};

static void move_file(struct mcp_request *request, const json_t *arguments)
{
	struct change_file_state *change = change_file_new(request, FILE_RENAME, "moved");
	if (!tool_arguments(request, arguments, change))
		return;
	change->request.flags = FILE_PARENTS | (change->replace ? 0 : FILE_NO_REPLACE);
	target_ready(request, change->tool.sandbox, 0, change_file_act);
}

/* --- set_file_mode --- */

static bool change_file_parse_mode(const char *text, uint32_t *ret_mode)
{
	uint32_t mode = 0;
	size_t size = strspn(text, "01234567");
	if (size == 0 || size > 5 || text[size] != '\0')
		return false;
	for (size_t i = 0; i < size; i++)
		mode = mode << 3 | (uint32_t)(text[i] - '0');
	*ret_mode = mode;
	return mode <= 07777;
}

static const struct field set_file_mode_fields[] = {
    FILE_TOOL_PATH,
    {"mode", FIELD_TEXT_AT(struct change_file_state, mode), FIELD_REQUIRED, 1, 5,
     .mcp = "like 0755"},
    {"recursive", FIELD_BOOL_AT(struct change_file_state, recursive)},
    FILE_TOOL_SANDBOX,
    {0},
};

static void set_file_mode(struct mcp_request *request, const json_t *arguments)
{
	struct change_file_state *change =
	    change_file_new(request, FILE_CHMOD, "changed the mode of");
	if (!tool_arguments(request, arguments, change))
		return;
	if (!change_file_parse_mode(change->mode, &change->request.mode)) {
		content_refuse(request,
			       "field `mode` must be octal digits like \"0644\", at most 7777.");
		return;
	}
	target_ready(request, change->tool.sandbox, 0, change_file_act);
}

/* --- copy_file --- */

static void file_copied(void *data, uint64_t bytes, const struct error *error)
{
	struct mcp_request *request = data;
	struct change_file_state *change = request->state;
	char extra[64];
	change->copy = NULL;
	if (!tool_back(request))
		return;
	snprintf(extra, sizeof(extra), " in sandbox %s, %llu bytes", request->sandbox.text,
		 (unsigned long long)bytes);
	if (error)
		file_tool_fail(request, change->tool.path, error);
	else
		file_change_reply(request, extra);
	mcp_release(request);
}

static void copy_file_cancelled(struct mcp_request *request)
{
	struct change_file_state *change = request->state;
	sandbox_copy_cancel(TAKE_PTR(change->copy));
	mcp_release(request);
}

static void sandbox_copy_act(struct mcp_request *request, struct sandbox *to)
{
	struct change_file_state *change = request->state;
	struct error error;
	struct sandbox *from = sandbox_by_id(request->core, &change->from_sandbox);
	if (!from || !from->guest || !from->guest_ready) {
		error_set(&error, ERROR_SANDBOX_STATE,
			  "sandbox %s does not run any more: nothing was copied",
			  change->from_sandbox.text);
		mcp_fail(request, &error);
		return;
	}
	struct sandbox_copy_spec spec = {.principal = &request->principal,
					 .from = from,
					 .to = to,
					 .from_path = change->tool.path,
					 .to_path = change->to,
					 .user = "",
					 .recursive = change->recursive,
					 .no_replace = !change->replace,
					 .parents = true};
	if (sandbox_copy_start(&spec, file_copied, request, &change->copy, &error) < 0)
		file_tool_fail(request, change->tool.path, &error);
	else
		tool_wait(request, copy_file_cancelled);
}

static void copy_file_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct change_file_state *change = request->state;
	if (!change->to_sandbox) {
		change_file_act(request, sandbox);
		return;
	}
	change->from_sandbox = sandbox->row.id;
	target_ready(request, change->to_sandbox, 0, sandbox_copy_act);
}

static const struct field copy_file_fields[] = {
    {"from", FIELD_TEXT_AT(struct change_file_state, tool.path), FIELD_REQUIRED, 1,
     GUEST_PATH_MAX - 1},
    {"to", FIELD_TEXT_AT(struct change_file_state, to), FIELD_REQUIRED, 1, GUEST_PATH_MAX - 1},
    {"recursive", FIELD_BOOL_AT(struct change_file_state, recursive)},
    {"replace", FIELD_BOOL_AT(struct change_file_state, replace)},
    FILE_TOOL_SANDBOX,
    {"to_sandbox_id", FIELD_TEXT_AT(struct change_file_state, to_sandbox)},
    {0},
};

static void copy_file(struct mcp_request *request, const json_t *arguments)
{
	struct change_file_state *change = change_file_new(request, FILE_COPY, "copied");
	if (!tool_arguments(request, arguments, change))
		return;
	change->request.flags = FILE_PARENTS | (change->replace ? 0 : FILE_NO_REPLACE);
	target_ready(request, change->tool.sandbox, 0, copy_file_act);
}

/* --- stat_file --- */

static bool stat_file_entry(void *data, const struct file_entry *entry)
{
	struct mcp_request *request = data;
	struct change_file_state *change = request->state;
	if (!change->entry)
		change->entry = malloc(sizeof(*entry));
	if (!change->entry)
		abort();
	*change->entry = *entry;
	return true;
}

static const char *file_type_name(char type)
{
	static const char types[] = "fdlpscb";
	static const char *const names[] = {"file",   "directory",        "symlink",     "fifo",
					    "socket", "character device", "block device"};
	const char *found = type ? strchr(types, type) : NULL;
	return found ? names[found - types] : "unknown";
}

static void stat_file_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	const struct change_file_state *change = request->state;
	const struct file_entry *entry = change->entry;
	struct buffer text DONE_BUFFER = BUFFER(8 * GUEST_PATH_MAX + KIB);
	char when[CLOCK_TEXT_SIZE];
	(void)total;
	(void)cut;
	if (!pending_back(request))
		return;
	if (error || !entry) {
		struct error none;
		error_set(&none, ERROR_FILE_NOT_FOUND, "%s is not there", change->tool.path);
		file_tool_fail(request, change->tool.path, error ? error : &none);
	} else {
		clock_text(entry->mtime_ns, when);
		file_tool_path(&text, change->tool.path);
		(void)!buffer_printf(&text, ": %s, %llu bytes, mode %04o, owner %u:%u, changed %s",
				     file_type_name(entry->type), (unsigned long long)entry->size,
				     entry->mode & 07777, entry->uid, entry->gid, when);
		if (entry->type == 'l') {
			(void)!buffer_append_text(&text, ", to ");
			output_name(&text, entry->target, strlen(entry->target));
		}
		file_tool_reply(request, "%s", buffer_text(&text));
	}
	mcp_release(request);
}

static void stat_file_act(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.entry = stat_file_entry,
						    .done = stat_file_done};
	struct change_file_state *change = request->state;
	struct file_place place = {.principal = &request->principal, .path = change->tool.path};
	struct error error;
	if (file_stat(sandbox, &place, false, &records, request, &change->tool.pending.task,
		      &error) < 0)
		file_tool_fail(request, change->tool.path, &error);
	else
		pending_begin(request);
}

static void stat_file(struct mcp_request *request, const json_t *arguments)
{
	struct change_file_state *change = change_file_new(request, FILE_STAT, "");
	if (tool_arguments(request, arguments, change))
		target_ready(request, change->tool.sandbox, 0, stat_file_act);
}

/* --- the table --- */

const struct mcp_tool more_file_tools[] = {
    {
	.name = "make_directory",
	.title = "Make a directory",
	.description = "Make a directory and those above it. Succeeds if the directory exists.",
	.fields = path_fields,
	.example = "{\"path\": \"/workspace/out\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_FILES,
	.hints = TOOL_REPEATABLE,
	.call = make_directory,
    },
    {
	.name = "move_file",
	.title = "Move a file",
	.description = "Move or rename a file or directory. Refused where `to` is there, unless "
		       "replace is set.",
	.fields = move_file_fields,
	.example = "{\"from\": \"draft.txt\", \"to\": \"docs/final.txt\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_FILES,
	.hints = TOOL_DESTROYS,
	.call = move_file,
    },
    {
	.name = "copy_file",
	.title = "Copy a file",
	.description =
	    "Copy a file, or with recursive a directory; with to_sandbox_id into another "
	    "sandbox. Refused where `to` is there, unless replace is set.",
	.fields = copy_file_fields,
	.example = "{\"from\": \"src\", \"to\": \"backup\", \"recursive\": true}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_FILES,
	.hints = TOOL_DESTROYS | TOOL_REPEATABLE,
	.call = copy_file,
    },
    {
	.name = "remove_file",
	.title = "Remove a file",
	.description = "Remove a file, or with recursive a directory and all in it.",
	.fields = remove_file_fields,
	.example = "{\"path\": \"build\", \"recursive\": true}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_FILES,
	.hints = TOOL_DESTROYS,
	.call = remove_file,
    },
    {
	.name = "set_file_mode",
	.title = "Set permissions",
	.description = "Change the permissions of a file, as chmod with octal digits.",
	.fields = set_file_mode_fields,
	.example = "{\"path\": \"run.sh\", \"mode\": \"0755\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_FILES,
	.hints = TOOL_REPEATABLE,
	.call = set_file_mode,
    },
    {
	.name = "stat_file",
	.title = "Inspect a file",
	.description = "Type, size, permissions, owner and time of one file, without following a "
		       "link.",
	.fields = path_fields,
	.example = "{\"path\": \"run.sh\"}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_FILES,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = stat_file,
    },
    {0},
};
