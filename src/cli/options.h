/* Parses options from a table: long and short, in any order, before "--" or before the first
 * argument of a command. The same table makes --help and the shell completion. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define TEXT_LIST_MAX 128
struct text_list {
	const char *items[TEXT_LIST_MAX];
	size_t count;
};

enum option_kind {
	OPTION_END = 0,
	OPTION_FLAG,        /* bool */
	OPTION_TEXT,        /* const char * */
	OPTION_NUMBER,      /* the same: a number in a request */
	OPTION_WORDS,       /* the same: "a,b", in a request an array */
	OPTION_LIST,        /* struct text_list: may be given again */
	OPTION_PAIRS,       /* the same, of K=V: in a request an object */
	OPTION_ENVIRONMENT, /* the same; the value of K alone is that of our own environment */
	OPTION_CHANGES,     /* the same; "K-" is K with null, which removes it */
	OPTION_ROWS,        /* the rows of the table that is the target stand here */
};

struct option_spec {
	const char *name;
	char letter; /* 0 = none */
	enum option_kind kind;
	void *target;
	const char *value; /* the value's name in --help */
	const char *help;
	const char *field; /* of a request, which it sets; NULL: none */
	const char *words; /* "a,b": the values that it accepts, or "$(command)" that prints them */
	const char *sends; /* what a flag sets the field to: null, false or a word; NULL: true */
};
#define OPTION_ROWS_OF(rows)                                                                       \
	{                                                                                          \
		"", .kind = OPTION_ROWS, .target = (void *)(rows)                                  \
	}

/* Goes over a table, also over the rows that stand in another one:
 *     for (struct option_walk walk = {options}; (option = option_next(&walk));) */
struct option_walk {
	const struct option_spec *next;     /* NULL: that was all */
	const struct option_spec *after[2]; /* where it continues after the rows of a table */
	size_t depth;
};
const struct option_spec *option_next(struct option_walk *walk);

/* Removes the options from argv (in place; argv[0] stays) and returns the new argc. With
 * stop_at_argument the first argument ends the options, because the rest is a command with options
 * of its own. "--" always ends them and is removed. */
NODISCARD int options_parse(const struct option_spec *options, int argc, char **argv,
			    bool stop_at_argument, struct error *error);
/* Every verb has --json and --help; they set these. */
extern bool cli_json, cli_help;
void options_print(const struct option_spec *options);
