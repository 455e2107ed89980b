/* The dialect of PandaStack: each sandbox is a server of its own, at POST /v1/sandboxes/{id}/mcp,
 * with four tools. There are no sessions: every request is independent, and the answer to
 * `initialize` includes the tools. PandaStack's documentation and its server have different names
 * for some arguments; both are accepted. pandastack.json describes each tool to clients. Waits
 * through callbacks; nothing blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/account/access.h"
#include "mcp/dialects/dialect.h"
#include "mcp/dialects/pandastack_tools.h"
#include "mcp/lifecycle.h"
#include "mcp/tools/output.h"

#define REQUEST_MAX (1 * MIB)
#define ANSWER_MAX (4 * MIB)
/* An answer contains it twice, as text and as data; base64 adds a third. */
#define CONTENT_MAX (ANSWER_MAX / 10 * 3)
#define TIMEOUT_DEFAULT_MS 30000
#define TIMEOUT_MAX_MS (24ull * 3600 * 1000)
#define ENTRIES_MAX 5000
#define NAME_SHOWN 64
#define BINARY "[binary; base64]\n"

/* --- shell --- */

/* A stream as text; binary data is marked and sent in base64, never changed. */
static void shell_append_stream(struct buffer *to, const struct buffer *bytes)
{
	uint64_t strange = 0;
	if (!output_is_binary(bytes->data, bytes->size)) {
		output_visible(to, bytes->data, bytes->size, &strange);
		return;
	}
	dialect_base64(to, BINARY, bytes->data, bytes->size);
}

static int shell_read_stream(struct exec *exec, enum exec_stream stream, struct buffer *to)
{
	struct output_cut cut;
	struct error error;
	if (output_cut(exec, stream, 0, exec_total(exec, stream), CONTENT_MAX, 0, &cut, &error) < 0)
		return buffer_append_text(to, error.message);
	shell_append_stream(to, &cut.head);
	output_cut_done(&cut);
	return 0;
}

/* The unchanged output; errors and the exit code only if there are any. */
static void shell_reply_output(struct mcp_request *request, const struct exec_row *row,
			       const struct buffer *out, const struct buffer *err)
{
	DONE_BUFFER struct buffer text = BUFFER(ANSWER_MAX);
	int code = exec_exit_code(row), result = 0;
	if (out->size > 0)
		result |= buffer_append(&text, out->data, out->size);
	if (err->size > 0)
		result |= buffer_printf(&text, "\n[stderr]\n%s", err->data);
	if (row->end == EXEC_END_TIMED_OUT)
		result |= buffer_printf(&text, "\n[timed out after %g s and was killed]",
					row->timeout_ms / 1000.0);
	if (row->end == EXEC_END_LOST)
		result |= buffer_append_text(&text, "\n[" COMMAND_LOST "]");
	if (row->end == EXEC_END_TOO_MANY_PROCESSES)
		result |= buffer_append_text(&text, "\n[killed: " EXEC_TOO_MANY_PROCESSES "]");
	if (row->oom_killed)
		result |= buffer_append_text(&text, "\n[a process ran out of memory]");
	if (code != 0)
		result |= buffer_printf(&text, "\n[exit code %d]", code);
	content_begin(request);
	if (result == 0)
		content_text(request, buffer_text(&text), text.size);
	struct json_writer *writer = content_structured(request);
	if (writer) {
		put_object(writer, NULL);
		put_text_size(writer, "stdout", buffer_text(out), out->size);
		put_text_size(writer, "stderr", buffer_text(err), err->size);
		put_int(writer, "exit_code", code);
		put_object_end(writer);
	}
	content_end(request, code != 0);
}

static void shell_finished(struct mcp_request *request, struct exec *exec)
{
	uint64_t total = exec_total(exec, EXEC_STDOUT) + exec_total(exec, EXEC_STDERR);
	DONE_BUFFER struct buffer out = BUFFER(ANSWER_MAX);
	DONE_BUFFER struct buffer err = BUFFER(ANSWER_MAX);
	bool fits = total <= CONTENT_MAX && shell_read_stream(exec, EXEC_STDOUT, &out) == 0 &&
		    shell_read_stream(exec, EXEC_STDERR, &err) == 0;
	if (!fits) {
		content_refuse(request,
			       "the command ended with exit code %d; its output of %llu bytes does "
			       "not fit into an answer of %llu MiB. Send it to a file (`COMMAND > "
			       "out.txt`) and read parts of that (`head -c`, `tail -c`, `grep`).",
			       exec_exit_code(&exec->row), (unsigned long long)total,
			       ANSWER_MAX / MIB);
		return;
	}
	shell_reply_output(request, &exec->row, &out, &err);
}

static void shell_call(struct mcp_request *request, const json_t *arguments)
{
	struct command_state *state = command_new(request);
	const char *command = NULL, *cmd = NULL;
	double milliseconds = 0, seconds = 0;
	const struct field_to fields[] = {
	    {"command", FIELD_TEXT, &command, false, 1, EXEC_REQUEST_BYTES_MAX / 2},
	    {"cmd", FIELD_TEXT, &cmd, false, 1, EXEC_REQUEST_BYTES_MAX / 2},
	    {"timeout_ms", FIELD_NUMBER, &milliseconds},
	    {"timeout_seconds", FIELD_NUMBER, &seconds},
	};
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	state->fields.command = command ? command : cmd;
	if (!state->fields.command) {
		content_refuse(request, "command is required: a command for the shell, a string");
		return;
	}
	if (milliseconds == 0)
		milliseconds = seconds > 0 ? seconds * 1000 : TIMEOUT_DEFAULT_MS;
	if (milliseconds > TIMEOUT_MAX_MS) {
		content_refuse(request, "the time-out must be at most %llu seconds",
			       TIMEOUT_MAX_MS / 1000);
		return;
	}
	state->fields.timeout_ms = (uint32_t)ceil(milliseconds);
	state->finish = shell_finished;
	target_ready(request, NULL, 0, command_begin);
}

/* --- files --- */

struct file {
	struct pending_operation pending;
	const char *path, *content;
	struct buffer json;
	struct json_writer writer;
};

static void pandastack_file_free(void *state)
{
	struct file *file = state;
	buffer_done(&file->json);
	free(file);
}

/* Read by hand, so that a missing argument gets PandaStack's message. */
static bool file_arguments(struct mcp_request *request, const json_t *arguments, bool path_needed,
			   bool content_needed)
{
	struct file *file = pending_state(request, sizeof(*file), pandastack_file_free);
	const struct field_to fields[] = {
	    {"path", FIELD_TEXT, &file->path, path_needed, 1, GUEST_PATH_MAX - 1},
	    {"content", FIELD_TEXT, &file->content, content_needed},
	};
	return dialect_arguments(request, arguments, fields, content_needed ? 2 : 1);
}

static void read_file_reply(struct mcp_request *request, const struct file_content *content)
{
	const struct file *file = request->state;
	const char *data = content->data;
	bool binary = !text_is_utf8(data, content->size) || memchr(data, '\0', content->size);
	DONE_BUFFER struct buffer coded = BUFFER(ANSWER_MAX);
	if (content->more) {
		content_refuse(request,
			       "%s has %llu bytes; at most %llu fit into an answer. Read parts of "
			       "it with shell (`head -c`, `tail -c`, `grep`).",
			       file->path, (unsigned long long)content->file_size, CONTENT_MAX);
		return;
	}
	if (binary)
		dialect_base64(&coded, BINARY, data, content->size);
	content_begin(request);
	if (binary)
		content_text(request, coded.data, coded.size);
	else
		content_text(request, data, content->size);
	struct json_writer *writer = content_structured(request);
	if (writer) {
		put_object(writer, NULL);
		if (binary) {
			put_base64(writer, "content", data, content->size);
			put_text(writer, "encoding", "base64");
		} else {
			put_text_size(writer, "content", data, content->size);
		}
		put_object_end(writer);
	}
	content_end(request, false);
}

static void read_file_came(void *data, const struct file_content *content,
			   const struct error *error)
{
	struct mcp_request *request = data;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else
			read_file_reply(request, content);
	}
	mcp_release(request);
}

static void pandastack_read_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct file *file = request->state;
	const struct file_place place = {.principal = &request->principal, .path = file->path};
	struct error error;
	pending_begin(request);
	if (file_read_whole(sandbox, &place, 0, CONTENT_MAX, read_file_came, request,
			    &file->pending.task, &error) < 0)
		pending_refused(request, &error);
}

static void read_file(struct mcp_request *request, const json_t *arguments)
{
	if (file_arguments(request, arguments, true, false))
		target_ready(request, NULL, 0, pandastack_read_act);
}

static void pandastack_file_written(void *data, uint64_t bytes, bool created,
				    const struct error *error)
{
	struct mcp_request *request = data;
	const struct file *file = request->state;
	(void)created;
	if (pending_over(request)) {
		if (error) {
			mcp_fail(request, error);
		} else {
			content_begin(request);
			content_format(request, "wrote %llu bytes to %s", (unsigned long long)bytes,
				       file->path);
			struct json_writer *writer = content_structured(request);
			if (writer) {
				put_object(writer, NULL);
				put_bool(writer, "ok", true);
				put_uint(writer, "bytes", bytes);
				put_object_end(writer);
			}
			content_end(request, false);
		}
	}
	mcp_release(request);
}

static void pandastack_write_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct file *file = request->state;
	const struct file_place place = {.principal = &request->principal, .path = file->path};
	struct error error;
	pending_begin(request);
	if (file_write_whole(sandbox, &place, file->content, strlen(file->content), 0, false,
			     pandastack_file_written, request, &file->pending.task, &error) < 0)
		pending_refused(request, &error);
}

static void write_file(struct mcp_request *request, const json_t *arguments)
{
	if (file_arguments(request, arguments, true, true))
		target_ready(request, NULL, 0, pandastack_write_act);
}

/* --- list_dir --- */

static bool list_dir_entry_came(void *data, const struct file_entry *entry)
{
	struct mcp_request *request = data;
	struct file *file = request->state;
	put_object(&file->writer, NULL);
	put_text(&file->writer, "name", entry->name);
	put_bool(&file->writer, "is_dir", entry->type == 'd');
	put_uint(&file->writer, "size", entry->size);
	put_object_end(&file->writer);
	return true;
}

static void put_listing(struct json_writer *writer, const struct file *file, const char *path,
			bool cut)
{
	put_object(writer, NULL);
	if (path)
		put_text(writer, "path", path);
	put_json(writer, "entries", file->json.data, file->json.size);
	if (cut)
		put_bool(writer, "truncated", true);
	put_object_end(writer);
}

static void list_dir_reply(struct mcp_request *request, bool cut)
{
	struct file *file = request->state;
	DONE_BUFFER struct buffer json = BUFFER(ANSWER_MAX);
	DONE_BUFFER struct buffer text = BUFFER(ANSWER_MAX);
	struct json_writer writer = json_writer_on(&json);
	put_array_end(&file->writer);
	put_listing(&writer, file, file->path, cut);
	if (file->writer.full || writer.full || json_indent(&text, json.data, json.size) < 0) {
		content_refuse(request, "the list is larger than %llu MiB", ANSWER_MAX / MIB);
		return;
	}
	content_begin(request);
	content_text(request, text.data, text.size);
	struct json_writer *structured = content_structured(request);
	if (structured)
		put_listing(structured, file, NULL, cut);
	content_end(request, false);
}

static void list_dir_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	(void)total;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else
			list_dir_reply(request, cut);
	}
	mcp_release(request);
}

static void pandastack_list_act(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.entry = list_dir_entry_came,
						    .done = list_dir_done};
	struct file *file = request->state;
	const struct file_place place = {.principal = &request->principal, .path = file->path};
	struct error error;
	file->json = BUFFER(ANSWER_MAX);
	file->writer = json_writer_on(&file->json);
	put_array(&file->writer, NULL);
	pending_begin(request);
	if (file_list(sandbox, &place, 1, ENTRIES_MAX, &records, request, &file->pending.task,
		      &error) < 0)
		pending_refused(request, &error);
}

static void list_dir(struct mcp_request *request, const json_t *arguments)
{
	if (!file_arguments(request, arguments, false, false))
		return;
	struct file *file = request->state;
	if (!file->path)
		file->path = "/workspace";
	target_ready(request, NULL, 0, pandastack_list_act);
}

/* --- the face --- */

static const struct mcp_tool tools[] = {
    DIALECT_TOOL(shell, SCOPE_WRITE, 0, shell_call),
    DIALECT_TOOL(read_file, SCOPE_READ, 0, read_file),
    DIALECT_TOOL(write_file, SCOPE_WRITE, 0, write_file),
    DIALECT_TOOL(list_dir, SCOPE_READ, 0, list_dir),
    {0},
};
DIALECT_TOOLS_COMPLETE(tools);
static const struct mcp_tool *const tables[] = {tools, NULL};

/* With the catalogue, so that clients need no second request. */
static void initialize_with_tools(struct mcp_request *request)
{
	struct json_writer *writer = mcp_result_begin(request);
	put_initialized(request, writer);
	tools_put(request, writer);
	mcp_result_end(request);
}

/* It is a failed call, not a bad request; a client of the modern protocol gets the usual error. */
static bool tool_is_unknown(struct mcp_request *request, const char *name)
{
	if (revision_modern(request->revision))
		return false;
	struct buffer names DONE_BUFFER = BUFFER(TOOLS_NAMES_MAX);
	tools_names(request, &names);
	content_refuse(request, "unknown tool: %.*s; there are: %s",
		       (int)text_utf8_prefix(name, MIN(strlen(name), (size_t)NAME_SHOWN)), name,
		       buffer_text(&names));
	return true;
}

static void pandastack_instructions(const struct mcp_view *view, struct buffer *to)
{
	(void)!buffer_printf(
	    to,
	    "One Linux sandbox (%s): run commands with shell, read and write files "
	    "with read_file and write_file, look around with list_dir. Its working "
	    "directory is /workspace; it has no network.",
	    view->sandbox.text);
}

const struct mcp_face pandastack_face = {.name = "pandastack-sandbox",
					 .features = FACE_SANDBOX_EACH | FACE_STATELESS,
					 .scope = SCOPE_READ,
					 .tools = tables,
					 .request_max = REQUEST_MAX,
					 .answer_max = ANSWER_MAX,
					 .initialize = initialize_with_tools,
					 .unknown_tool = tool_is_unknown,
					 .instructions = pandastack_instructions};
