/* edit_file: one exact text in the place of another. Where the old text is not there once, the file
 * is read, and the answer says where it is, or what comes near it. Called by tools.c; nothing
 * blocks. */
#include <ctype.h>
#include <string.h>

#include "base/text.h"
#include "mcp/tool_file.h"

/* Of a longer file no places are told. */
#define EXPLAINED_MAX (1 * MIB)
#define PLACES_TOLD 8
#define NEAR_TOLD 3
#define LINE_SHOWN 200

struct edit {
	struct file_tool tool;
	const char *old_text, *new_text;
	bool all;
};

/* --- what comes near --- */

struct line {
	const char *text;
	size_t size;
};

static struct line line_at(const char *at, const char *end)
{
	const char *newline = memchr(at, '\n', (size_t)(end - at));
	return (struct line){at, (size_t)((newline ? newline : end) - at)};
}

static struct line trimmed(struct line line)
{
	while (line.size > 0 && isspace((unsigned char)line.text[0])) {
		line.text++;
		line.size--;
	}
	while (line.size > 0 && isspace((unsigned char)line.text[line.size - 1]))
		line.size--;
	return line;
}

/* The first line of the old text that says anything. */
static struct line telling_line(const char *text)
{
	const char *end = text + strlen(text);
	struct line line = {text, 0};
	for (const char *at = text; at < end; at += line_at(at, end).size + 1) {
		line = trimmed(line_at(at, end));
		if (line.size > 0)
			break;
	}
	return line;
}

/* How much of `a` both begin with. */
static size_t common(struct line a, struct line b)
{
	size_t size = 0;
	while (size < a.size && size < b.size && a.text[size] == b.text[size])
		size++;
	return size;
}

/* Lines that are the telling one but for white space; else the one that begins most like it. */
static void say_near(const struct edit *edit, const struct file_content *content, struct buffer *to)
{
	struct line wanted = telling_line(edit->old_text), best = {0};
	const char *end = content->data + content->size;
	uint64_t number = 0, best_number = 0;
	size_t told = 0, best_common = wanted.size / 2;
	for (const char *at = content->data; at < end && wanted.size > 0;) {
		struct line line = line_at(at, end), inner = trimmed(line);
		size_t alike = common(wanted, inner);
		number++;
		at += line.size + 1;
		if (alike == wanted.size && told < NEAR_TOLD) {
			(void)!buffer_printf(
			    to, "\n%s line %llu: %.*s",
			    told++ ? "and" : "Like its first line, but for white space, is",
			    (unsigned long long)number,
			    (int)text_utf8_prefix(line.text, MIN(line.size, (size_t)LINE_SHOWN)),
			    line.text);
		} else if (alike > best_common) {
			best_common = alike;
			best = line;
			best_number = number;
		}
	}
	if (told == 0 && best_number > 0)
		(void)!buffer_printf(
		    to, "\nThe most like its first line is line %llu: %.*s",
		    (unsigned long long)best_number,
		    (int)text_utf8_prefix(best.text, MIN(best.size, (size_t)LINE_SHOWN)),
		    best.text);
	if (memmem(content->data, content->size, "\r\n", 2) && !strchr(edit->old_text, '\r'))
		(void)!buffer_append_text(to, "\nThe lines of this file end with \\r\\n.");
}

/* --- answers --- */

static void say_places(const struct edit *edit, const struct file_content *content,
		       struct buffer *to)
{
	size_t size = strlen(edit->old_text), told = 0;
	const char *at = content->data, *end = content->data + content->size, *found;
	const char *counted = at;
	uint64_t line = 1;
	(void)!buffer_append_text(to, " It begins at line");
	while (told <= PLACES_TOLD && at < end &&
	       (found = memmem(at, (size_t)(end - at), edit->old_text, size))) {
		for (; counted < found; counted++)
			line += *counted == '\n';
		if (told++ < PLACES_TOLD)
			(void)!buffer_printf(to, "%s %llu", told > 1 ? "," : "",
					     (unsigned long long)line);
		at = found + size;
	}
	(void)!buffer_printf(to,
			     "%s. Say more of what is around the one that is meant, or set "
			     "replace_all.",
			     told > PLACES_TOLD ? ", ..." : "");
}

static void explained(void *data, const struct file_content *content, const struct error *error)
{
	struct mcp_request *request = data;
	const struct edit *edit = request->state;
	struct buffer text DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	if (!pending_back(request))
		return;
	if (error) {
		file_tool_fail(request, edit->tool.path, error);
	} else {
		bool there =
		    memmem(content->data, content->size, edit->old_text, strlen(edit->old_text));
		(void)!buffer_printf(&text, "old_text is %s in ",
				     there           ? "more than once"
				     : content->more ? "not once"
						     : "not");
		file_tool_path(&text, edit->tool.path);
		(void)!buffer_append_text(&text, "; nothing was changed.");
		if (there)
			say_places(edit, content, &text);
		else
			say_near(edit, content, &text);
		file_tool_refuse(request, "%s", buffer_text(&text));
	}
	tool_done(request);
}

/* Reads the file to say why it did not fit. */
static void explain(struct mcp_request *request)
{
	struct edit *edit = request->state;
	struct file_place place = {.path = edit->tool.path};
	struct error error;
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	if (file_read_whole(sandbox, &place, 0, EXPLAINED_MAX, explained, request,
			    &edit->tool.pending.task, &error) < 0)
		file_tool_fail(request, edit->tool.path, &error);
	else
		pending_begin(request);
}

static void replaced(void *data, uint64_t count, const struct error *error)
{
	struct mcp_request *request = data;
	const struct edit *edit = request->state;
	struct buffer path DONE_BUFFER = BUFFER(2 * GUEST_PATH_MAX);
	if (!pending_back(request))
		return;
	if (error ? error->kind == ERROR_INVALID : count == 0) {
		explain(request);
	} else if (error) {
		file_tool_fail(request, edit->tool.path, error);
	} else {
		file_tool_path(&path, edit->tool.path);
		file_tool_reply(request, "replaced %llu place%s in %s", (unsigned long long)count,
				count == 1 ? "" : "s", buffer_text(&path));
	}
	tool_done(request);
}

static void act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct edit *edit = request->state;
	struct file_place place = {.path = edit->tool.path};
	struct error error;
	if (file_replace(sandbox, &place, edit->old_text, edit->new_text, edit->all ? 0 : 1,
			 replaced, request, &edit->tool.pending.task, &error) < 0)
		file_tool_fail(request, edit->tool.path, &error);
	else
		pending_begin(request);
}

void edit_file_tool(struct mcp_request *request, const json_t *arguments)
{
	struct edit *edit = pending_state(request, sizeof(*edit), NULL);
	struct field fields[] = {
	    FILE_TOOL_PATH(&edit->tool.path),
	    {"old_text", FIELD_TEXT, &edit->old_text, true, 1, FILE_CHUNK_MAX - 1},
	    {"new_text", FIELD_TEXT, &edit->new_text, true, 0, FILE_CHUNK_MAX - 1},
	    {"replace_all", FIELD_BOOL, &edit->all},
	    FILE_TOOL_SANDBOX(&edit->tool.sandbox),
	};
	if (!tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (strcmp(edit->old_text, edit->new_text) == 0) {
		content_refuse(request, "`old_text` and `new_text` are the same.");
		return;
	}
	target_ready(request, edit->tool.sandbox, 0, act);
}
