/* read_file: a part of a text by lines or by bytes, a whole image, for any other file a
 * description. Called by tools.c. A line is found by reading up to it, a piece at a time; nothing
 * blocks. */
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/activity/activity.h"
#include "core/exec/exec.h"
#include "core/account/signed_url.h"
#include "mcp/tools/output.h"
#include "mcp/tools/file.h"

#define LIMIT_MAX (1 * MIB)
#define IMAGE_MAX (2 * MIB)
#define SCAN_PIECE (256 * KIB)
/* A line further in the file must be searched with a program inside the sandbox. */
#define SCAN_MAX (256 * MIB)
#define SCAN_MAX_TEXT "256 MiB"

struct read_file_state {
	struct file_tool tool;
	uint64_t offset, limit, line, lines;
	bool offset_set, line_set, lines_set, limit_set;
	uint64_t scanned;    /* bytes before the piece that is read */
	uint64_t lines_seen; /* line ends in them */
};

static uint64_t text_count_lines(const char *data, size_t size)
{
	uint64_t count = 0;
	for (const char *at = data; (at = memchr(at, '\n', size - (size_t)(at - data))); at++)
		count++;
	return count;
}

/* --- answers --- */

/* A URL for people to fetch the file; without a TCP listener, the command for it. */
static bool file_url_sign(struct mcp_request *request, struct buffer *to)
{
	const struct read_file_state *reading = request->state;
	struct signed_url url = {.sandbox = request->sandbox,
				 .path = reading->tool.path,
				 .user = "",
				 .token = request->principal.token,
				 .expires = (uint64_t)(clock_wall() / NSEC_PER_SEC) +
					    SIGNED_SECONDS_DEFAULT};
	char signature[SIGNATURE_SIZE], until[CLOCK_TEXT_SIZE], socket[512];
	struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
	struct error error;
	if (!sandbox ||
	    signed_url_sign(request->core, sandbox->row.workspace, &url, signature, &error) < 0)
		return false;
	const char *base = request->view.base;
	if (!base[0] && config_socket_path(&request->core->config, socket, sizeof(socket)) < 0)
		return false;
	int result =
	    base[0] ? buffer_append_text(to, base) : buffer_append_text(to, "curl --unix-socket ");
	if (result == 0 && !base[0])
		result = buffer_append_shell_word(to, socket);
	if (result == 0 && !base[0])
		result = buffer_append_text(to, " -OJ 'http://localhost");
	if (result < 0)
		return false;
	signed_url_append(&url, signature, to);
	if (!base[0] && buffer_append_text(to, "'") < 0)
		return false;
	clock_text((int64_t)url.expires * NSEC_PER_SEC, until);
	ACTIVITY(sandbox, ACTIVITY_FILE_URL_SIGNED, &request->principal, NULL, {"path", url.path},
		 {"method", "GET"}, {"expires_at", until});
	return true;
}

static void read_file_reply_binary(struct mcp_request *request, const struct file_content *content,
				   const char *type)
{
	const struct read_file_state *reading = request->state;
	struct buffer path DONE_BUFFER = BUFFER(2 * GUEST_PATH_MAX);
	struct buffer link DONE_BUFFER = BUFFER(2 * SIGNED_TEXT_MAX);
	bool linked = file_url_sign(request, &link);
	file_tool_path(&path, reading->tool.path);
	content_begin(request);
	content_format(request,
		       "%s is not text: %llu bytes of %s. It is not shown; look at it with a "
		       "program inside (file, xxd, python).%s%s",
		       buffer_text(&path), (unsigned long long)content->file_size,
		       type ? type : "an unknown type, or text that is not UTF-8",
		       linked ? " For people, good for an hour: " : "",
		       linked ? buffer_text(&link) : "");
	if (linked && request->view.base[0])
		content_link(request, buffer_text(&link), buffer_text(&path), type, NULL);
	file_tool_note(request, "");
	content_end(request, false);
}

/* The end of the shown text: at a line's end, or at least at a character's end. */
static size_t shown_text_end(const struct read_file_state *reading,
			     const struct file_content *content)
{
	size_t size = content->size, lines = 0;
	if (reading->lines_set) {
		for (size_t at = 0; at < size; at++)
			if (content->data[at] == '\n' && ++lines == reading->lines)
				return at + 1;
	}
	if (!content->more)
		return size;
	const char *end = memrchr(content->data, '\n', size);
	if (end && (size_t)(end - content->data) >= size / 2)
		return (size_t)(end - content->data) + 1;
	return text_utf8_prefix(content->data, size);
}

static void read_file_say_rest(struct mcp_request *request, const struct file_content *content,
			       size_t begin, size_t end, struct buffer *note)
{
	const struct read_file_state *reading = request->state;
	char extra[96], lines[48] = "", limit[48] = "";
	struct buffer where DONE_BUFFER = BUFFER(KIB);
	uint64_t first = reading->lines_seen + 1;
	uint64_t count = text_count_lines(content->data + begin, end - begin);
	uint64_t next = reading->offset + end;
	bool by_line = reading->line_set && content->data[end - 1] == '\n';
	if (!content->more && end == content->size) {
		if (reading->offset + begin > 0)
			(void)!buffer_printf(note, "to the end, byte %llu",
					     (unsigned long long)next);
		return;
	}
	if (by_line) {
		(void)!buffer_printf(note, "lines %llu to %llu", (unsigned long long)first,
				     (unsigned long long)(first + count - 1));
		if (reading->lines_set)
			(void)!text_format(lines, sizeof(lines), ", \"lines\": %llu",
					   (unsigned long long)reading->lines);
		(void)!text_format(extra, sizeof(extra), ", \"line\": %llu",
				   (unsigned long long)(first + count));
	} else {
		(void)!buffer_printf(note, "bytes %llu to %llu",
				     (unsigned long long)(reading->offset + begin),
				     (unsigned long long)next);
		(void)!text_format(extra, sizeof(extra), ", \"offset\": %llu",
				   (unsigned long long)next);
	}
	(void)!buffer_printf(note, " of %llu bytes; go on with ",
			     (unsigned long long)content->file_size);
	if (reading->limit_set)
		(void)!text_format(limit, sizeof(limit), ", \"limit\": %llu",
				   (unsigned long long)reading->limit);
	(void)!buffer_printf(&where, "%s%s%s", extra, lines, limit);
	file_tool_call(request, note, "read_file", reading->tool.path, buffer_text(&where));
}

/* Text in another encoding, or with a few bytes that are not text: shown like output. The note
 * describes the original bytes, since edit_file needs them unchanged. */
static void read_file_show_strange(struct mcp_request *request, const char *data, size_t size,
				   struct buffer *note)
{
	struct buffer shown DONE_BUFFER = BUFFER(4 * size + 1);
	uint64_t binary = 0;
	output_visible(&shown, data, size, &binary);
	content_text(request, shown.data, shown.size);
	(void)!buffer_printf(note, "%s%llu byte%s not UTF-8: shown as \\xNN",
			     note->size > 0 ? "; " : "", (unsigned long long)binary,
			     binary == 1 ? " is" : "s are");
}

static void read_file_reply_text(struct mcp_request *request, const struct file_content *content)
{
	const struct read_file_state *reading = request->state;
	struct buffer note DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	bool image;
	/* A piece may begin inside a character. */
	size_t begin = reading->offset > 0 ? utf8_rest(content->data, content->size) : 0;
	size_t end = MAX(shown_text_end(reading, content), begin);
	const char *text = content->data + begin;
	if (memchr(content->data, '\0', content->size) ||
	    (!text_is_utf8(text, end - begin) && output_is_binary(text, end - begin))) {
		const char *type = reading->offset == 0
				       ? content_type_of(content->data, content->size, &image)
				       : NULL;
		read_file_reply_binary(request, content, type);
		return;
	}
	if (end > begin)
		read_file_say_rest(request, content, begin, end, &note);
	else if (content->file_size == 0)
		(void)!buffer_append_text(&note, "the file is empty");
	else
		(void)!buffer_printf(&note, "nothing there: the file has %llu bytes",
				     (unsigned long long)content->file_size);
	content_begin(request);
	if (text_is_utf8(text, end - begin))
		content_text(request, text, end - begin);
	else
		read_file_show_strange(request, text, end - begin, &note);
	file_tool_note(request, buffer_text(&note));
	content_end(request, false);
}

static void read_file_reply_image(struct mcp_request *request, const struct file_content *content,
				  const char *type)
{
	const struct read_file_state *reading = request->state;
	struct buffer path DONE_BUFFER = BUFFER(2 * GUEST_PATH_MAX);
	file_tool_path(&path, reading->tool.path);
	content_begin(request);
	content_format(request, "%s: %s, %llu bytes", buffer_text(&path), type,
		       (unsigned long long)content->size);
	content_image(request, type, content->data, content->size);
	file_tool_note(request, "");
	content_end(request, false);
}

/* --- reading --- */

static void read_file_fail(struct mcp_request *request, const struct error *error)
{
	const struct read_file_state *reading = request->state;
	struct buffer call DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	if (error->kind != ERROR_FILE_WRONG_TYPE) {
		file_tool_fail(request, reading->tool.path, error);
		return;
	}
	/* A FIFO, a socket or a device cannot be read here. */
	if (!strstr(error->message, "is a directory")) {
		file_tool_refuse(request, "%s: use it with a program inside (run_shell).",
				 error->message);
		return;
	}
	file_tool_call(request, &call, "list_files", reading->tool.path, "");
	file_tool_refuse(request, "%s. To list a directory: %s", error->message,
			 buffer_text(&call));
}

/* Reads the next piece. */
static void file_read_piece(struct mcp_request *request, uint64_t offset, uint64_t max,
			    void (*done)(void *data, const struct file_content *content,
					 const struct error *error))
{
	struct read_file_state *reading = request->state;
	struct file_place place = {.principal = &request->principal, .path = reading->tool.path};
	struct error error;
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	if (file_read_whole(sandbox, &place, offset, max, done, request,
			    &reading->tool.pending.task, &error) < 0)
		read_file_fail(request, &error);
	else
		pending_begin(request);
}

static void image_read(void *data, const struct file_content *content, const struct error *error)
{
	struct mcp_request *request = data;
	bool image = false;
	if (!pending_back(request))
		return;
	const char *type = error ? NULL : content_type_of(content->data, content->size, &image);
	if (error)
		read_file_fail(request, error);
	else if (image && !content->more)
		read_file_reply_image(request, content, type);
	else /* it has changed meanwhile */
		read_file_reply_binary(request, content, type);
	mcp_release(request);
}

static void text_read(void *data, const struct file_content *content, const struct error *error)
{
	struct mcp_request *request = data;
	const struct read_file_state *reading = request->state;
	bool image = false;
	if (!pending_back(request))
		return;
	const char *type = error || reading->offset > 0
			       ? NULL
			       : content_type_of(content->data, content->size, &image);
	if (error)
		read_file_fail(request, error);
	else if (image && !content->more)
		read_file_reply_image(request, content, type);
	else if (image && content->file_size <= IMAGE_MAX)
		file_read_piece(request, 0, IMAGE_MAX, image_read);
	else
		read_file_reply_text(request, content);
	mcp_release(request);
}

/* Finds the beginning of the wanted line in this piece; false: it is further on. */
static bool text_find_line(struct read_file_state *reading, const struct file_content *content)
{
	const char *at = content->data, *end = content->data + content->size;
	while (reading->lines_seen + 1 < reading->line) {
		const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
		if (!newline)
			return false;
		at = newline + 1;
		reading->lines_seen++;
	}
	reading->offset = reading->scanned + (uint64_t)(at - content->data);
	return true;
}

static void read_file_lines_scanned(void *data, const struct file_content *content,
				    const struct error *error)
{
	struct mcp_request *request = data;
	struct read_file_state *reading = request->state;
	if (!pending_back(request))
		return;
	if (error) {
		read_file_fail(request, error);
	} else if (text_find_line(reading, content)) {
		file_read_piece(request, reading->offset, reading->limit, text_read);
	} else if (!content->more) {
		content_refuse(request, "There is no line %llu: the file has %llu line ends.",
			       (unsigned long long)reading->line,
			       (unsigned long long)reading->lines_seen);
	} else if (reading->scanned >= SCAN_MAX) {
		content_refuse(request,
			       "Line %llu is further than " SCAN_MAX_TEXT
			       " into the file: read it by `offset`, or find it with a program "
			       "inside (sed -n 'Np').",
			       (unsigned long long)reading->line);
	} else {
		reading->scanned += content->size;
		file_read_piece(request, reading->scanned, SCAN_PIECE, read_file_lines_scanned);
	}
	mcp_release(request);
}

static void read_file_act(struct mcp_request *request, struct sandbox *sandbox)
{
	const struct read_file_state *reading = request->state;
	(void)sandbox;
	if (reading->line_set && reading->line > 1)
		file_read_piece(request, 0, SCAN_PIECE, read_file_lines_scanned);
	else
		file_read_piece(request, reading->offset, reading->limit, text_read);
}

const struct field read_file_fields[] = {
    FILE_TOOL_PATH,
    {"line", FIELD_UINT_AT(struct read_file_state, line), .min = 1, .max = INT64_MAX,
     .given = FIELD_GIVEN(struct read_file_state, line_set), .mcp = "first line, from 1"},
    {"lines", FIELD_UINT_AT(struct read_file_state, lines), .min = 1, .max = INT64_MAX,
     .given = FIELD_GIVEN(struct read_file_state, lines_set)},
    {"offset", FIELD_UINT_AT(struct read_file_state, offset), .max = INT64_MAX,
     .given = FIELD_GIVEN(struct read_file_state, offset_set),
     .mcp = "first byte, instead of line"},
    {"limit", FIELD_UINT_AT(struct read_file_state, limit), .min = 1, .max = LIMIT_MAX,
     .given = FIELD_GIVEN(struct read_file_state, limit_set), .fallback = FILE_TOOL_TEXT_MAX,
     .mcp = "bytes"},
    FILE_TOOL_SANDBOX_TOLD,
    {0},
};

void read_file_tool(struct mcp_request *request, const json_t *arguments)
{
	struct read_file_state *reading = pending_state(request, sizeof(*reading), NULL);
	if (!tool_arguments(request, arguments, reading))
		return;
	if (reading->line_set && reading->offset_set) {
		content_refuse(request, "Give `line` or `offset`, not both.");
		return;
	}
	/* Begins at the first line. */
	reading->line_set = reading->line_set || (reading->lines_set && !reading->offset_set);
	reading->line = MAX(reading->line, 1u);
	target_ready(request, reading->tool.sandbox, 0, read_file_act);
}
