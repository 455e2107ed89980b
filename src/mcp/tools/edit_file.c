/* edit_file: replaces one exact text by another. In a file whose lines end with \r\n, texts of
 * several lines are taken to have the same line ends, unless they contain \r themselves. If the old
 * text does not occur exactly once, the file is read, and the answer says where it occurs, or which
 * lines are similar. Called by tools.c; nothing blocks. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/tools/file.h"

/* In a longer file no places are reported. */
#define EXPLAINED_MAX (1 * MIB)
/* The part in which lines are compared with the wanted one: in one turn of the loop. */
#define COMPARED_MAX (64 * KIB)
#define PLACES_TOLD 8
#define NEAR_TOLD 3
#define LINE_SHOWN 200
/* How much of a file is read to determine its line ends. */
#define LINE_ENDS_READ (64 * KIB)

struct edit {
	struct file_tool tool;
	const char *old_text, *new_text;
	const char *given_old, *given_new; /* the original texts, if the other two were converted */
	char *converted[2];
	bool all;
};

static void edit_free(void *state)
{
	struct edit *edit = state;
	free(edit->converted[0]);
	free(edit->converted[1]);
	free(edit);
}

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

static struct line line_trim(struct line line)
{
	while (line.size > 0 && isspace((unsigned char)line.text[0])) {
		line.text++;
		line.size--;
	}
	while (line.size > 0 && isspace((unsigned char)line.text[line.size - 1]))
		line.size--;
	return line;
}

/* The first line of the old text that is not blank. */
static struct line line_is_telling(const char *text)
{
	const char *end = text + strlen(text);
	struct line line = {text, 0};
	for (const char *at = text; at < end; at += line_at(at, end).size + 1) {
		line = line_trim(line_at(at, end));
		if (line.size > 0)
			break;
	}
	return line;
}

/* Pairs of adjacent bytes, ignoring case: a set of those in the wanted line. */
struct pairs {
	uint8_t set[65536 / 8];
	size_t count; /* in the line */
};

static unsigned pair_at(struct line line, size_t at)
{
	return (unsigned)tolower((unsigned char)line.text[at]) << 8 |
	       (unsigned)tolower((unsigned char)line.text[at + 1]);
}

static void pairs_collect(struct line line, struct pairs *pairs)
{
	pairs->count = line.size > 0 ? line.size - 1 : 0;
	for (size_t i = 0; i < pairs->count; i++)
		pairs->set[pair_at(line, i) / 8] |= (uint8_t)(1u << pair_at(line, i) % 8);
}

/* 0 to 1000: the share of common pairs in both lines. Takes time linear in the text. */
static size_t line_likeness(const struct pairs *pairs, struct line line)
{
	size_t count = line.size > 0 ? line.size - 1 : 0, shared = 0;
	for (size_t i = 0; i < count; i++) {
		unsigned pair = pair_at(line, i);
		shared += (pairs->set[pair / 8] >> pair % 8) & 1;
	}
	shared = MIN(shared, pairs->count);
	return count + pairs->count > 0 ? 2000 * shared / (count + pairs->count) : 0;
}

static bool line_begins_with(struct line line, struct line wanted)
{
	return line.size >= wanted.size && memcmp(line.text, wanted.text, wanted.size) == 0;
}

static void mismatch_say_line_ends(const struct edit *edit, const struct file_content *content,
				   struct buffer *to)
{
	bool carriage = false, plain = false;
	const char *begin = content->data, *end = begin + content->size, *newline = begin;
	for (; newline < end && (newline = memchr(newline, '\n', (size_t)(end - newline)));
	     newline++) {
		bool with = newline > begin && newline[-1] == '\r';
		carriage |= with;
		plain |= !with;
	}
	if (!carriage || strchr(edit->old_text, '\r'))
		return;
	(void)!buffer_append_text(
	    to, plain
		    ? "\nThis file has mixed line ends, \\r\\n and \\n: a text of several lines is "
		      "tried with the line end of the first line, then as it is. For lines of "
		      "both kinds write each line end as the file has it."
		    : "\nThe lines of this file end with \\r\\n.");
}

/* Reports lines that equal the wanted one except for white space; else the most similar one. */
static void mismatch_say_near(const struct edit *edit, const struct file_content *content,
			      struct buffer *to)
{
	struct line wanted = line_is_telling(edit->old_text), best = {0};
	const char *end = content->data + MIN(content->size, (size_t)COMPARED_MAX);
	uint64_t number = 0, best_number = 0;
	size_t told = 0, best_likeness = 0;
	struct pairs pairs = {0};
	pairs_collect(wanted, &pairs);
	for (const char *at = content->data; at < end && wanted.size > 0;) {
		struct line line = line_at(at, end), inner = line_trim(line);
		size_t alike = line_likeness(&pairs, inner);
		number++;
		at += line.size + 1;
		if (line_begins_with(inner, wanted) && told < NEAR_TOLD) {
			(void)!buffer_printf(
			    to, "\n%s line %llu: %.*s",
			    told++ ? "and" : "Like its first line, but for white space, is",
			    (unsigned long long)number,
			    (int)text_utf8_prefix(line.text, MIN(line.size, (size_t)LINE_SHOWN)),
			    line.text);
		} else if (alike > best_likeness) {
			best_likeness = alike;
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
	mismatch_say_line_ends(edit, content, to);
}

/* --- answers --- */

static void mismatch_say_places(const struct edit *edit, const struct file_content *content,
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

static void mismatch_explained(void *data, const struct file_content *content,
			       const struct error *error)
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
			mismatch_say_places(edit, content, &text);
		else
			mismatch_say_near(edit, content, &text);
		file_tool_refuse(request, "%s", buffer_text(&text));
	}
	mcp_release(request);
}

/* Reads the file to explain the mismatch. */
static void mismatch_explain(struct mcp_request *request)
{
	struct edit *edit = request->state;
	struct file_place place = {.principal = &request->principal, .path = edit->tool.path};
	struct error error;
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	if (file_read_whole(sandbox, &place, 0, EXPLAINED_MAX, mismatch_explained, request,
			    &edit->tool.pending.task, &error) < 0)
		file_tool_fail(request, edit->tool.path, &error);
	else
		pending_begin(request);
}

static void edit_replace(struct mcp_request *request);

static void edit_replaced(void *data, uint64_t count, const struct error *error)
{
	struct mcp_request *request = data;
	struct edit *edit = request->state;
	struct buffer path DONE_BUFFER = BUFFER(2 * GUEST_PATH_MAX);
	if (!pending_back(request))
		return;
	bool unfit = error ? error->kind == ERROR_INVALID : count == 0;
	if (unfit && edit->given_old) {
		/* The file has mixed line ends, or the text occurs more than once. */
		edit->old_text = TAKE_PTR(edit->given_old);
		edit->new_text = TAKE_PTR(edit->given_new);
		edit_replace(request);
	} else if (unfit) {
		mismatch_explain(request);
	} else if (error) {
		file_tool_fail(request, edit->tool.path, error);
	} else {
		file_tool_path(&path, edit->tool.path);
		file_tool_reply(request, "replaced %llu place%s in %s", (unsigned long long)count,
				count == 1 ? "" : "s", buffer_text(&path));
	}
	mcp_release(request);
}

static void edit_replace(struct mcp_request *request)
{
	struct edit *edit = request->state;
	struct file_place place = {.principal = &request->principal, .path = edit->tool.path};
	struct error error;
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	if (file_replace(sandbox, &place, edit->old_text, edit->new_text, edit->all ? 0 : 1,
			 edit_replaced, request, &edit->tool.pending.task, &error) < 0)
		file_tool_fail(request, edit->tool.path, &error);
	else
		pending_begin(request);
}

/* Replaces each \n by \r\n; NULL: the result would be too long. */
static char *line_ends_convert(const char *text)
{
	struct buffer converted = BUFFER(FILE_CHUNK_MAX - 1);
	for (const char *end; *text; text = end + (*end == '\n')) {
		end = strchrnul(text, '\n');
		if (buffer_append(&converted, text, (size_t)(end - text)) < 0 ||
		    (*end == '\n' && buffer_append(&converted, "\r\n", 2) < 0)) {
			buffer_done(&converted);
			return NULL;
		}
	}
	return converted.data ? converted.data : text_duplicate("");
}

static void line_ends_read(void *data, const struct file_content *content,
			   const struct error *error)
{
	struct mcp_request *request = data;
	struct edit *edit = request->state;
	if (!pending_back(request))
		return;
	const char *end =
	    error || content->size == 0 ? NULL : memchr(content->data, '\n', content->size);
	if (end && end > content->data && end[-1] == '\r') {
		edit->converted[0] = line_ends_convert(edit->old_text);
		edit->converted[1] = line_ends_convert(edit->new_text);
	}
	if (edit->converted[0] && edit->converted[1]) {
		edit->given_old = edit->old_text;
		edit->given_new = edit->new_text;
		edit->old_text = edit->converted[0];
		edit->new_text = edit->converted[1];
	}
	if (error)
		file_tool_fail(request, edit->tool.path, error);
	else
		edit_replace(request);
	mcp_release(request);
}

static void edit_file_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct edit *edit = request->state;
	struct file_place place = {.principal = &request->principal, .path = edit->tool.path};
	struct error error;
	bool says_itself = strchr(edit->old_text, '\r') || strchr(edit->new_text, '\r');
	if (says_itself || !(strchr(edit->old_text, '\n') || strchr(edit->new_text, '\n')))
		edit_replace(request);
	else if (file_read_whole(sandbox, &place, 0, LINE_ENDS_READ, line_ends_read, request,
				 &edit->tool.pending.task, &error) < 0)
		file_tool_fail(request, edit->tool.path, &error);
	else
		pending_begin(request);
}

const struct field edit_file_fields[] = {
    FILE_TOOL_PATH,
    {"old_text", FIELD_TEXT_AT(struct edit, old_text), FIELD_REQUIRED, 1, FILE_CHUNK_MAX - 1},
    {"new_text", FIELD_TEXT_AT(struct edit, new_text), FIELD_REQUIRED, 0, FILE_CHUNK_MAX - 1},
    {"replace_all", FIELD_BOOL_AT(struct edit, all)},
    FILE_TOOL_SANDBOX,
    {0},
};

void edit_file_tool(struct mcp_request *request, const json_t *arguments)
{
	struct edit *edit = pending_state(request, sizeof(*edit), edit_free);
	if (!tool_arguments(request, arguments, edit))
		return;
	if (strcmp(edit->old_text, edit->new_text) == 0) {
		content_refuse(request, "`old_text` and `new_text` are the same.");
		return;
	}
	target_ready(request, edit->tool.sandbox, 0, edit_file_act);
}
