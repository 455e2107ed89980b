/* A TOML text statement by statement: where tables begin, and that it is no broken one; of values
 * nothing is kept. Used by mcp_config_file.c. Does not block. */
#pragma once

#include <stddef.h>

struct toml_names;

enum toml_kind {
	TOML_END,
	TOML_TABLE,   /* [name] or [[name]] */
	TOML_VALUE,   /* key = value, over as many lines as it takes */
	TOML_PROBLEM, /* `problem` says which, at `line` */
};

struct toml {
	const char *at;     /* what is read next; at first the whole text, which is UTF-8 */
	const char *begin;  /* of the statement's first line */
	const char *first;  /* its first byte that is no blank */
	unsigned line;      /* its first line's number, or the problem's */
	unsigned next_line; /* at first 1 */
	const char *problem;
	struct toml_names *names; /* borrowed: what is named twice is a problem; NULL: no matter */
};

#define TOML(text) ((struct toml){.at = (text), .next_line = 1})
/* The next one; behind it, `at` is the next line's first byte. */
enum toml_kind toml_next(struct toml *scan);
