/* A member put into a JSON text. See json_edit.h. The scanner here trusts the form of the text,
 * which jansson has read before, and knows no more of it than where strings and brackets end. */
#include "cli/json_edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/limits.h"
#include "base/text.h"

#define LOAD_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL)
#define INDENT_MAX 64 /* bytes of indentation that are taken over */
#define BLANK " \t\r\n"

/* --- what cannot be edited --- */

static const char *string_end(const char *at)
{
	for (at++; *at && *at != '"'; at++) {
		if (*at == '\\' && at[1])
			at++;
	}
	return *at ? at + 1 : at;
}

static const char *find_comment(const char *text)
{
	for (const char *at = text; *at;) {
		if (at[0] == '/' && (at[1] == '/' || at[1] == '*'))
			return at;
		at = *at == '"' ? string_end(at) : at + 1;
	}
	return NULL;
}

static int refuse_at(const char *text, const char *at, const char *what, struct error *error)
{
	unsigned line = 1, column = 1;
	for (; text < at; text++) {
		column = *text == '\n' ? 1 : column + 1;
		line += *text == '\n';
	}
	return error_set(error, ERROR_USAGE, "%s (line %u, column %u)", what, line, column);
}

static int refuse_text(const struct buffer *text, const json_error_t *wrong, struct error *error)
{
	const char *data = buffer_text(text);
	if (text_starts(data, "\xef\xbb\xbf"))
		return error_set(error, ERROR_USAGE, "begins with a byte order mark");
	if (text_starts(data, "\xff\xfe") || text_starts(data, "\xfe\xff"))
		return error_set(error, ERROR_USAGE, "is UTF-16, not UTF-8");
	const char *comment = find_comment(data);
	if (comment)
		return refuse_at(data, comment, "has a comment, and is no plain JSON", error);
	const char *what = "is not JSON";
	if (json_error_code(wrong) == json_error_duplicate_key)
		what = "has a key twice";
	else if (json_error_code(wrong) == json_error_invalid_utf8)
		what = "is not UTF-8";
	else if (json_error_code(wrong) == json_error_numeric_overflow)
		what = "has a number that is too large";
	/* What it is near to is the user's own, and may be a secret: not repeated. */
	int said = (int)strcspn(wrong->text, "'\"");
	const char *near = strstr(wrong->text, " near ");
	if (near)
		said = (int)(near - wrong->text);
	return error_set(error, ERROR_USAGE, "%s (line %d, column %d: %.*s)", what, wrong->line,
			 wrong->column, said, wrong->text);
}

int json_edit_load(const struct buffer *text, json_t **ret_json, struct error *error)
{
	json_error_t wrong;
	*ret_json = json_loadb(buffer_text(text), text->size, LOAD_FLAGS, &wrong);
	if (!*ret_json)
		return refuse_text(text, &wrong, error);
	if (json_is_object(*ret_json))
		return 0;
	json_decref(*ret_json);
	*ret_json = NULL;
	return error_set(error, ERROR_USAGE, "has something else than an object (line 1)");
}

/* --- where things are --- */

struct object {
	const char *begin;    /* its '{' */
	const char *end;      /* its '}' */
	const char *last;     /* its last member's first byte; NULL: it has none */
	const char *last_end; /* behind that member's value */
	const char *value,
	    *end_of_value;  /* of the member that was looked for; NULL: there is none */
	const char *member; /* its first byte */
};

static const char *value_end(const char *at)
{
	size_t depth = 0;
	do {
		if (*at == '"') {
			at = string_end(at);
			continue;
		}
		if (*at == '{' || *at == '[')
			depth++;
		else if (*at == '}' || *at == ']')
			depth--;
		at++;
		/* A number or a word. */
		if (depth == 0 && !strchr("{}[]", at[-1]))
			at += strcspn(at, ",}]" BLANK);
	} while (depth > 0 && *at);
	return at;
}

static bool is_key(const char *quoted, const char *end, const char *name)
{
	json_t *key =
	    json_loadb(quoted, (size_t)(end - quoted), LOAD_FLAGS | JSON_DECODE_ANY, NULL);
	bool same = key && json_string_length(key) == strlen(name) &&
		    memcmp(json_string_value(key), name, strlen(name)) == 0;
	json_decref(key);
	return same;
}

static struct object read_object(const char *begin, const char *name)
{
	struct object object = {.begin = begin};
	const char *at = begin + 1;
	for (at += strspn(at, BLANK); *at == '"'; at += strspn(at, BLANK)) {
		const char *key_end = string_end(at);
		const char *value = key_end + strspn(key_end, BLANK ":");
		object.last = at;
		object.last_end = value_end(value);
		if (is_key(at, key_end, name)) {
			object.member = at;
			object.value = value;
			object.end_of_value = object.last_end;
		}
		at = object.last_end + strspn(object.last_end, BLANK);
		if (*at == ',')
			at++;
	}
	object.end = at;
	return object;
}

/* --- how it is laid out --- */

struct layout {
	const char *newline; /* NULL: all on one line */
	char unit[INDENT_MAX + 1];
	bool spaced; /* on one line: behind colons and commas */
};

/* The blanks before `at` on its line; false: it is not the first thing there, or too deep. */
static bool indentation(const char *text, const char *at, char indent[INDENT_MAX + 1])
{
	const char *begin = at;
	while (begin > text && (begin[-1] == ' ' || begin[-1] == '\t'))
		begin--;
	indent[0] = '\0';
	if ((begin > text && begin[-1] != '\n') || at - begin > INDENT_MAX)
		return false;
	memcpy(indent, begin, (size_t)(at - begin));
	indent[at - begin] = '\0';
	return true;
}

static struct layout layout_of(const char *text, const struct object *root)
{
	struct layout layout = {.newline = "\n", .unit = "  "};
	const char *newline = strchr(text, '\n');
	if (newline && newline > text && newline[-1] == '\r')
		layout.newline = "\r\n";
	if (!root->last)
		return layout;
	char indent[INDENT_MAX + 1];
	const char *first = root->begin + 1 + strspn(root->begin + 1, BLANK);
	const char *colon = string_end(first);
	layout.spaced = colon[strcspn(colon, ":")] && colon[strcspn(colon, ":") + 1] == ' ';
	if (!indentation(text, first, indent))
		layout.newline = NULL;
	else if (indent[0])
		memcpy(layout.unit, indent, sizeof(indent));
	return layout;
}

/* `json` with every line but the first behind `indent`. */
static int put_value(struct buffer *to, const struct layout *layout, const char *indent,
		     const json_t *json)
{
	size_t flags = layout->newline ? JSON_INDENT(1) : layout->spaced ? 0 : JSON_COMPACT;
	FREE_TEXT char *text = json_dumps(json, flags | JSON_ENCODE_ANY);
	int result = text ? 0 : -ENOMEM;
	for (const char *at = text; at && *at;) {
		size_t size = strcspn(at, "\n");
		result |= buffer_append(to, at, size);
		at += size;
		if (*at != '\n')
			continue;
		size_t depth = strspn(++at, " ");
		at += depth;
		result |= buffer_printf(to, "%s%s", layout->newline, indent);
		while (depth-- > 0)
			result |= buffer_append_text(to, layout->unit);
	}
	return result;
}

/* "name": value, as a further member of `object`, whose members (or itself, where it has none)
 * stand at `indent`. */
static int put_member(struct buffer *to, const char *text, const struct layout *whole,
		      const struct object *object, const char *name, const json_t *value)
{
	char indent[INDENT_MAX + 1], outer[INDENT_MAX + 1] = "", inner[2 * INDENT_MAX + 1];
	struct layout layout = *whole;
	int result = 0;
	if (object->last) {
		if (!indentation(text, object->last, indent))
			layout.newline = NULL;
		result |= buffer_append_text(to, ",");
		snprintf(inner, sizeof(inner), "%s", indent);
	} else {
		/* The line that the object begins in has its indentation. */
		const char *line = object->begin;
		while (line > text && line[-1] != '\n')
			line--;
		if (!indentation(text, line + strspn(line, " \t"), outer))
			layout.newline = NULL;
		snprintf(inner, sizeof(inner), "%s%s", outer, layout.unit);
	}
	if (layout.newline)
		result |= buffer_printf(to, "%s%s", layout.newline, inner);
	else if (object->last && layout.spaced)
		result |= buffer_append_text(to, " ");
	result |= buffer_printf(to, layout.newline || layout.spaced ? "\"%s\": " : "\"%s\":", name);
	result |= put_value(to, &layout, inner, value);
	if (!object->last && layout.newline)
		result |= buffer_printf(to, "%s%s", layout.newline, outer);
	return result;
}

static int put_between(struct buffer *result, const struct buffer *text, const char *begin,
		       const char *end, const struct buffer *what)
{
	const char *data = buffer_text(text);
	if (buffer_append(result, data, (size_t)(begin - data)) < 0 ||
	    buffer_append(result, buffer_text(what), what->size) < 0 ||
	    buffer_append(result, end, text->size - (size_t)(end - data)) < 0)
		return -EMSGSIZE;
	return 0;
}

int json_edit_set(const struct buffer *text, const char *outer, const char *name,
		  const json_t *value, struct buffer *result)
{
	const char *data = buffer_text(text);
	struct object root = read_object(data + strspn(data, BLANK), outer);
	struct layout layout = layout_of(data, &root);
	DONE_BUFFER struct buffer what = BUFFER(MIB);
	struct object at = root;
	const char *key = outer;
	json_t *member = NULL;
	if (root.value) {
		at = read_object(root.value, name);
		key = name;
		member = json_incref((json_t *)value);
	} else {
		member = json_pack("{s:O}", name, value);
	}
	int failed;
	const char *begin, *end;
	if (at.value) {
		char indent[INDENT_MAX + 1];
		if (!indentation(data, at.member, indent))
			layout.newline = NULL;
		failed = put_value(&what, &layout, indent, member);
		begin = at.value;
		end = at.end_of_value;
	} else {
		failed = put_member(&what, data, &layout, &at, key, member);
		begin = at.last ? at.last_end : at.begin + 1;
		end = at.last ? at.last_end : at.end;
	}
	json_decref(member);
	return failed ? -EMSGSIZE : put_between(result, text, begin, end, &what);
}
