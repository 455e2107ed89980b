/* Options from a table. See options.h. */
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/suggestions.h"

bool cli_json, cli_help;

const struct option_spec *option_next(struct option_walk *walk)
{
	while (walk->next) {
		const struct option_spec *option = walk->next++;
		if (option->kind == OPTION_ROWS) {
			if (walk->depth == ARRAY_SIZE(walk->after))
				abort();
			walk->after[walk->depth++] = walk->next;
			walk->next = option->target;
		} else if (option->kind == OPTION_END) {
			walk->next = walk->depth > 0 ? walk->after[--walk->depth] : NULL;
		} else {
			return option;
		}
	}
	return NULL;
}

static const struct option_spec *option_find_long(const struct option_spec *options,
						  const char *name, size_t length)
{
	const struct option_spec *option;
	for (struct option_walk walk = {options}; (option = option_next(&walk));)
		if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
			break;
	return option;
}

static const struct option_spec *option_find_letter(const struct option_spec *options, char letter)
{
	const struct option_spec *option;
	for (struct option_walk walk = {options}; (option = option_next(&walk));)
		if (option->letter && option->letter == letter)
			break;
	return option;
}

static int option_store(const struct option_spec *option, const char *value, struct error *error)
{
	switch (option->kind) {
	case OPTION_FLAG:
		if (value)
			return error_set(error, ERROR_USAGE, "--%s takes no value", option->name);
		*(bool *)option->target = true;
		return 0;
	case OPTION_TEXT:
	case OPTION_NUMBER:
	case OPTION_WORDS:
		*(const char **)option->target = value;
		return 0;
	case OPTION_LIST:
	case OPTION_PAIRS:
	case OPTION_ENVIRONMENT:
	case OPTION_CHANGES: {
		struct text_list *list = option->target;
		if (list->count == TEXT_LIST_MAX)
			return error_set(error, ERROR_USAGE, "--%s is given more than %d times",
					 option->name, TEXT_LIST_MAX);
		list->items[list->count++] = value;
		return 0;
	}
	case OPTION_ROWS:
	case OPTION_END:
		break;
	}
	return error_set(error, ERROR_INTERNAL, "option table");
}

/* Parses one word that starts with '-'. *ret_used: words taken, 1 or 2. */
static int option_parse_word(const struct option_spec *options, char **words, int count,
			     int *ret_used, struct error *error)
{
	static const struct option_spec common[] = {
	    {"json", 0, OPTION_FLAG, &cli_json, NULL, NULL},
	    {"help", 'h', OPTION_FLAG, &cli_help, NULL, NULL},
	    {0},
	};
	const char *word = words[0], *value = NULL;
	const struct option_spec *option;
	*ret_used = 1;
	if (word[1] == '-') {
		size_t length = strcspn(word + 2, "=");
		option = option_find_long(options, word + 2, length);
		if (!option)
			option = option_find_long(common, word + 2, length);
		if (word[2 + length] == '=')
			value = word + 2 + length + 1;
	} else {
		option = option_find_letter(options, word[1]);
		if (!option)
			option = option_find_letter(common, word[1]);
		if (option && word[2]) {
			if (option->kind == OPTION_FLAG) {
				/* "-it" is "-i -t". */
				if (option_store(option, NULL, error) < 0)
					return -1;
				words[0]++;
				words[0][0] = '-';
				*ret_used = 0;
				return 0;
			}
			value = word + 2;
		}
	}
	if (!option) {
		char hint[SUGGESTION_MAX];
		option_suggest(options, word, hint, sizeof(hint));
		return error_set(error, ERROR_USAGE, "there is no option %.*s%s",
				 (int)strcspn(word, "="), word, hint);
	}
	if (option->kind != OPTION_FLAG && !value) {
		if (count < 2)
			return error_set(error, ERROR_USAGE, "--%s needs a value: %s", option->name,
					 option->value);
		value = words[1];
		*ret_used = 2;
	}
	return option_store(option, value, error);
}

int options_parse(const struct option_spec *options, int argc, char **argv, bool stop_at_argument,
		  struct error *error)
{
	int kept = 1, at = 1;
	while (at < argc) {
		if (strcmp(argv[at], "--") == 0) {
			at++;
			break;
		}
		if (argv[at][0] == '-' && argv[at][1]) {
			int used = 1;
			if (option_parse_word(options, argv + at, argc - at, &used, error) < 0)
				return -1;
			at += used;
			continue;
		}
		if (stop_at_argument)
			break;
		argv[kept++] = argv[at++];
	}
	while (at < argc)
		argv[kept++] = argv[at++];
	argv[kept] = NULL;
	return kept;
}

void options_print(const struct option_spec *options)
{
	const struct option_spec *option;
	for (struct option_walk walk = {options}; (option = option_next(&walk));) {
		char left[64], letter[8] = "    ";
		if (option->letter)
			snprintf(letter, sizeof(letter), "-%c, ", option->letter);
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, option->name,
			 option->value ? " " : "", option->value ? option->value : "");
		if (strlen(left) > 30)
			printf("  %s\n  %-30s  %s\n", left, "", option->help);
		else
			printf("  %-30s  %s\n", left, option->help);
	}
}
