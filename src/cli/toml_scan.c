/* TOML by statements. See toml_scan.h; version 1.0 of the language. */
#include "cli/toml_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "cli/toml_names.h"
#include "cli/toml_scalar.h"

#define BARE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
#define DEPTH_MAX 64
#define NAME_MAX_BYTES 1024 /* of one name of a key */

static enum toml_kind problem(struct toml *scan, const char *what)
{
	scan->problem = what;
	scan->line = scan->next_line;
	return TOML_PROBLEM;
}

static bool is_end(const char *at)
{
	return *at == '\0' || *at == '\n' || (at[0] == '\r' && at[1] == '\n');
}

/* What neither a string nor a comment may hold as it is. */
static bool is_control(char byte)
{
	unsigned char c = (unsigned char)byte;
	return (c < 0x20 && c != '\t') || c == 0x7f;
}

static void pass_blanks(struct toml *scan)
{
	scan->at += strspn(scan->at, " \t");
}

static bool pass_newline(struct toml *scan)
{
	const char *at = scan->at + (*scan->at == '\r');
	if (*at != '\n')
		return false;
	scan->at = at + 1;
	scan->next_line++;
	return true;
}

static bool pass_comment(struct toml *scan)
{
	if (*scan->at != '#')
		return true;
	while (!is_end(scan->at) && !is_control(*scan->at))
		scan->at++;
	return is_end(scan->at);
}

/* To the next line, where only a comment may be left. */
static bool pass_end(struct toml *scan)
{
	pass_blanks(scan);
	if (!pass_comment(scan) || !is_end(scan->at))
		return false;
	(void)pass_newline(scan);
	return true;
}

/* --- strings --- */

/* \u0041, behind the backslash; how long it is, or 0. */
static size_t pass_unicode(const char *at, struct buffer *to)
{
	size_t digits = *at == 'u' ? 4 : 8;
	uint32_t point = 0;
	if (strspn(at + 1, "0123456789abcdefABCDEF") < digits)
		return 0;
	for (size_t i = 1; i <= digits; i++) {
		uint32_t c = (uint32_t)(unsigned char)at[i];
		point = point << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
		return 0;
	char utf8[4];
	size_t size = 0;
	if (point < 0x80) {
		utf8[size++] = (char)point;
	} else {
		size_t more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
		utf8[size++] = (char)((0xf00u >> more & 0xff) | point >> 6 * more);
		for (; more > 0; more--)
			utf8[size++] = (char)(0x80 | (point >> 6 * (more - 1) & 0x3f));
	}
	(void)!buffer_append(to, utf8, size);
	return 1 + digits;
}

/* Behind a backslash. A string of many lines may go on in the next one. */
static bool pass_escape(struct toml *scan, bool is_long, struct buffer *to)
{
	static const char from[] = "btnfr\"\\", bytes[] = "\b\t\n\f\r\"\\";
	if (*scan->at == 'u' || *scan->at == 'U') {
		size_t size = pass_unicode(scan->at, to);
		scan->at += size;
		return size > 0;
	}
	const char *found = *scan->at ? strchr(from, *scan->at) : NULL;
	if (found) {
		(void)!buffer_append(to, &bytes[found - from], 1);
		scan->at++;
		return true;
	}
	if (!is_long)
		return false;
	pass_blanks(scan);
	return pass_newline(scan);
}

/* A string of either kind, of one line or of many; `to` gets what it means, as far as there is
 * room.
 */
static const char *pass_string(struct toml *scan, bool may_be_long, struct buffer *to)
{
	char quote = *scan->at++;
	bool is_long = may_be_long && scan->at[0] == quote && scan->at[1] == quote;
	if (is_long)
		scan->at += 2;
	for (;;) {
		const char *at = scan->at;
		if (*at == quote && (!is_long || (at[1] == quote && at[2] == quote))) {
			scan->at += is_long ? 3 : 1;
			/* Up to two quotes more are the string's last bytes. */
			for (int i = 0; i < 2 && is_long && *scan->at == quote; i++)
				scan->at++;
			return NULL;
		}
		if (*at == '\0' || (is_end(at) && !is_long))
			return "a string that does not end";
		if (*at == '\\' && quote == '"') {
			scan->at++;
			if (!pass_escape(scan, is_long, to))
				return "a string with an escape that is none";
		} else if (is_end(at)) {
			(void)pass_newline(scan);
		} else if (is_control(*at)) {
			return "a string with a control character";
		} else {
			(void)!buffer_append(to, at, 1);
			scan->at++;
		}
	}
}

/* --- keys --- */

static const char *name_passed(struct toml *scan, enum toml_end end, const struct buffer *name)
{
	if (!scan->names)
		return NULL;
	/* A buffer that is full may have lost its end. */
	if (name->size >= NAME_MAX_BYTES)
		return "a key that is too long";
	return (*scan->at == '.' ? toml_names_pass : toml_names_end)(scan->names, end,
								     buffer_text(name), name->size);
}

/* a."b".c */
static const char *pass_key(struct toml *scan, enum toml_end end)
{
	DONE_BUFFER struct buffer name = BUFFER(NAME_MAX_BYTES);
	for (;;) {
		const char *wrong = NULL;
		pass_blanks(scan);
		buffer_clear(&name);
		size_t size = strspn(scan->at, BARE);
		if (*scan->at == '"' || *scan->at == '\'')
			wrong = pass_string(scan, false, &name);
		else if (size == 0)
			wrong = "a key is missing, or has a character that needs quotes";
		else if (buffer_append(&name, scan->at, size) < 0)
			wrong = "a key that is too long";
		if (wrong)
			return wrong;
		scan->at += size;
		pass_blanks(scan);
		wrong = name_passed(scan, end, &name);
		if (wrong || *scan->at != '.')
			return wrong;
		scan->at++;
	}
}

static enum toml_kind pass_table(struct toml *scan)
{
	size_t depth = scan->at[1] == '[' ? 2 : 1;
	enum toml_end end = depth == 2 ? TOML_IS_ARRAY : TOML_IS_TABLE;
	scan->at += depth;
	if (scan->names)
		toml_names_begin(scan->names, end);
	const char *wrong = pass_key(scan, end);
	if (wrong)
		return problem(scan, wrong);
	if (strncmp(scan->at, "]]", depth) != 0)
		return problem(scan, "a table's head that does not end");
	scan->at += depth;
	return pass_end(scan) ? TOML_TABLE : problem(scan, "something behind a table's head");
}

/* key =, of the table or between braces. */
static const char *pass_name(struct toml *scan)
{
	const char *wrong = pass_key(scan, TOML_IS_VALUE);
	if (wrong)
		return wrong;
	if (*scan->at != '=')
		return "a key without a value";
	scan->at++;
	pass_blanks(scan);
	return NULL;
}

/* --- values --- */

/* The brackets around a value that are still open. */
struct nest {
	struct {
		char close;
		unsigned place; /* of the names between braces */
	} levels[DEPTH_MAX];
	size_t depth;
};

/* Within [] lines may end and comments stand anywhere. */
static bool pass_lines(struct toml *scan)
{
	do {
		pass_blanks(scan);
		if (!pass_comment(scan))
			return false;
	} while (pass_newline(scan));
	return true;
}

static bool pass_between(struct toml *scan, const struct nest *nest)
{
	if (nest->levels[nest->depth - 1].close == ']')
		return pass_lines(scan);
	pass_blanks(scan);
	return true;
}

static const char *pass_member(struct toml *scan, const struct nest *nest)
{
	if (nest->levels[nest->depth - 1].close != '}')
		return NULL;
	if (scan->names)
		toml_names_in(scan->names, nest->levels[nest->depth - 1].place);
	return pass_name(scan);
}

/* Behind a value: out of the brackets that end there, and to the next value of those that do not.
 */
static const char *pass_behind(struct toml *scan, struct nest *nest)
{
	while (nest->depth > 0) {
		char close = nest->levels[nest->depth - 1].close;
		if (!pass_between(scan, nest))
			return "a comment with a control character";
		if (*scan->at == ',') {
			scan->at++;
			if (!pass_between(scan, nest))
				return "a comment with a control character";
			/* Only in [] the last may have a comma too. */
			if (close == '}' || *scan->at != ']')
				return pass_member(scan, nest);
		}
		if (*scan->at == '\0' || (close == '}' && is_end(scan->at)))
			return "a bracket that is not closed";
		if (*scan->at != close)
			return strchr("]}", *scan->at) ? "a bracket that was not opened"
						       : "something behind a value";
		scan->at++;
		nest->depth--;
	}
	return NULL;
}

static const char *pass_open(struct toml *scan, struct nest *nest)
{
	bool braces = *scan->at == '{';
	if (nest->depth == DEPTH_MAX)
		return "brackets that are too deep";
	unsigned place = braces && scan->names ? toml_names_inline(scan->names) : 0;
	if (braces && scan->names && place == 0)
		return "more keys than are looked at here";
	nest->levels[nest->depth].close = braces ? '}' : ']';
	nest->levels[nest->depth++].place = place;
	scan->at++;
	if (!pass_between(scan, nest))
		return "a comment with a control character";
	if (*scan->at != nest->levels[nest->depth - 1].close)
		return pass_member(scan, nest);
	nest->depth--;
	scan->at++;
	return pass_behind(scan, nest);
}

/* A value of one word, or a string. */
static const char *pass_plain(struct toml *scan, bool inside)
{
	const char *at = scan->at;
	if (*at == '"' || *at == '\'') {
		DONE_BUFFER struct buffer nothing = BUFFER(0);
		return pass_string(scan, true, &nothing);
	}
	scan->at += toml_scalar(at);
	if (scan->at > at)
		return NULL;
	if (*at == '\0' && inside)
		return "a bracket that is not closed";
	return is_end(at) || *at == '#' ? "a value is missing" : "a value that is none";
}

/* With everything that is in its brackets. */
static const char *pass_value(struct toml *scan)
{
	struct nest nest = {.depth = 0};
	do {
		const char *wrong;
		if (*scan->at == '[' || *scan->at == '{') {
			wrong = pass_open(scan, &nest);
		} else {
			wrong = pass_plain(scan, nest.depth > 0);
			if (!wrong)
				wrong = pass_behind(scan, &nest);
		}
		if (wrong)
			return wrong;
	} while (nest.depth > 0);
	return NULL;
}

enum toml_kind toml_next(struct toml *scan)
{
	for (;;) {
		scan->begin = scan->at;
		scan->line = scan->next_line;
		pass_blanks(scan);
		if (*scan->at == '\0')
			return TOML_END;
		if (*scan->at != '#' && !is_end(scan->at))
			break;
		if (!pass_end(scan))
			return problem(scan, "a comment with a control character");
	}
	scan->first = scan->at;
	if (*scan->at == '[')
		return pass_table(scan);
	if (scan->names)
		toml_names_begin(scan->names, TOML_IS_VALUE);
	const char *wrong = pass_name(scan);
	if (!wrong)
		wrong = pass_value(scan);
	if (wrong)
		return problem(scan, wrong);
	return pass_end(scan) ? TOML_VALUE : problem(scan, "something behind a value");
}
