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

enum option_kind { OPTION_END = 0, OPTION_FLAG, OPTION_TEXT, OPTION_LIST };

struct option_spec {
	const char *name;
	char letter; /* 0 = none */
	enum option_kind kind;
	void *target;      /* bool, const char *, struct text_list */
	const char *value; /* the value's name in --help */
	const char *help;
};

/* Removes the options from argv (in place; argv[0] stays) and returns the new argc. With
 * stop_at_argument the first argument ends the options, because the rest is a command with options
 * of its own. "--" always ends them and is removed. */
NODISCARD int options_parse(const struct option_spec *options, int argc, char **argv,
			    bool stop_at_argument, struct error *error);
/* Every verb has --json and --help; they set these. */
extern bool cli_json, cli_help;
void options_print(const struct option_spec *options);
