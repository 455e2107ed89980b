/* `caisson completion`: the shell's completion, made from the same tables as --help. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* Pressing a key must not start a daemon. */
#define SANDBOXES "CAISSON_START=no caisson ls --names 2>/dev/null"
#define SANDBOX_IDS "CAISSON_START=no caisson ls -q 2>/dev/null"
#define JOBS "CAISSON_START=no caisson jobs -q $box 2>/dev/null"

static void verb_names_print(const char *separator)
{
	for (const struct verb *const *verb = verbs; *verb; verb++)
		if (!(*verb)->hidden)
			printf("%s%s", verb == verbs ? "" : separator, (*verb)->name);
}

/* Possible words after a verb's first argument. */
static const struct {
	const char *verb, *word, *words;
} followers[] = {
    {"mcp", "config", "claude-code claude-desktop cursor vscode windsurf zed codex gemini generic"},
};

/* The values of an option, separated by spaces. */
static void option_words_print(const struct option_spec *option)
{
	for (const char *at = option->words; *at; at++)
		putchar(*at == ',' ? ' ' : *at);
}

/* Prints one shell case per option whose values are known: "--state|-s". */
static void option_values_print(const struct verb *verb)
{
	const struct option_spec *option;
	for (struct option_walk walk = {verb->options}; (option = option_next(&walk));) {
		if (!option->words)
			continue;
		printf("    %s:--%s", verb->name, option->name);
		if (option->letter)
			printf("|%s:-%c", verb->name, option->letter);
		printf(") COMPREPLY=($(compgen -W \"");
		option_words_print(option);
		printf("\" -- \"$cur\")); return ;;\n");
	}
}

static void option_names_print(const struct verb *verb)
{
	const struct option_spec *option;
	for (struct option_walk walk = {verb->options}; (option = option_next(&walk));)
		printf("--%s ", option->name);
	printf("--json --help");
}

static const char bash_helpers[] =
    "_caisson_sandbox() {\n"
    "  local at names=\" $(" SANDBOXES " | tr '\\n' ' ')\"\n"
    "  for ((at = 2; at < ${#COMP_WORDS[@]}; at++)); do\n"
    "    [ \"$at\" = \"$COMP_CWORD\" ] || [ -z \"${COMP_WORDS[at]}\" ] && continue\n"
    "    case $names in *\" ${COMP_WORDS[at]} \"*) echo \"${COMP_WORDS[at]}\"; return 0 ;; esac\n"
    "  done\n"
    "  return 1\n}\n"
    "_caisson_execs() {\n"
    "  local box\n"
    "  for box in $(_caisson_sandbox || " SANDBOX_IDS "); do " JOBS "; done\n}\n"
    "_caisson_sandbox_then_execs() {\n"
    "  if _caisson_sandbox >/dev/null; then _caisson_execs; else " SANDBOXES "; fi\n}\n";

static void bash_completion_print(void)
{
	printf("%s", bash_helpers);
	printf("_caisson_words() {\n"
	       "  local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} options= words=\n"
	       "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
	       "    COMPREPLY=($(compgen -W \"");
	verb_names_print(" ");
	printf("\" -- \"$cur\")); return\n  fi\n  case $verb:${COMP_WORDS[COMP_CWORD-1]} in\n");
	for (const struct verb *const *verb = verbs; *verb; verb++)
		if (!(*verb)->hidden)
			option_values_print(*verb);
	for (size_t i = 0; i < ARRAY_SIZE(followers); i++)
		printf("    %s:%s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n",
		       followers[i].verb, followers[i].word, followers[i].words);
	printf("  esac\n  case $verb in\n");
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		if ((*verb)->hidden)
			continue;
		printf("    %s) options=\"", (*verb)->name);
		option_names_print(*verb);
		printf("\"");
		if ((*verb)->words)
			printf("; [ \"$COMP_CWORD\" = 2 ] && words=\"%s\"", (*verb)->words);
		if ((*verb)->sandboxes)
			printf("; words=\" $(%s)\"",
			       (*verb)->execs ? "_caisson_sandbox_then_execs" : SANDBOXES);
		printf(" ;;\n");
	}
	printf("  esac\n"
	       "  case $cur in\n"
	       "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
	       "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
	       "       [ -n \"$words\" ] || COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
	       "  esac\n}\ncomplete -o filenames -F _caisson_words caisson\n");
}

/* zsh runs bash's function. In a file of a $fpath directory this code is called as `_caisson` and
 * must complete at once; when it is sourced it only registers. */
static void zsh_completion_print(void)
{
	printf("#compdef caisson\nautoload -U +X bashcompinit && bashcompinit\n");
	bash_completion_print();
	printf("[ \"$funcstack[1]\" = _caisson ] && _bash_complete -o filenames -F _caisson_words\n"
	       "true\n");
}

/* Escapes text for single quotes. */
static void quoted_text_print(const char *text)
{
	for (; *text; text++)
		printf(*text == '\'' ? "\\'" : "%c", *text);
}

static void fish_arguments_print(const struct verb *verb)
{
	if (verb->words)
		printf("complete -c caisson -f -n '__fish_seen_subcommand_from %s; and not "
		       "__fish_seen_subcommand_from %s' -a '%s'\n",
		       verb->name, verb->words, verb->words);
	for (size_t i = 0; i < ARRAY_SIZE(followers); i++)
		if (strcmp(followers[i].verb, verb->name) == 0)
			printf("complete -c caisson -f -n '__fish_seen_subcommand_from %s; and "
			       "__fish_seen_subcommand_from %s' -a '%s'\n",
			       verb->name, followers[i].word, followers[i].words);
	if (verb->sandboxes)
		printf("complete -c caisson -f -n '__fish_seen_subcommand_from %s' -a '(%s)'\n",
		       verb->name, verb->execs ? "__caisson_sandbox_then_execs" : "env " SANDBOXES);
}

static const char fish_helpers[] =
    "function __caisson_sandbox\n"
    "  set -l names (env " SANDBOXES ")\n"
    "  for word in (commandline -opc)\n"
    "    if contains -- $word $names; echo $word; return 0; end\n"
    "  end\n"
    "  return 1\nend\n"
    "function __caisson_execs\n"
    "  set -l boxes (__caisson_sandbox; or env " SANDBOX_IDS ")\n"
    "  for box in $boxes; env " JOBS "; end\nend\n"
    "function __caisson_sandbox_then_execs\n"
    "  if __caisson_sandbox >/dev/null; __caisson_execs; else; env " SANDBOXES "; end\nend\n";

static void fish_completion_print(void)
{
	printf("%s", fish_helpers);
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		if ((*verb)->hidden)
			continue;
		printf("complete -c caisson -n __fish_use_subcommand -a %s -d '", (*verb)->name);
		quoted_text_print((*verb)->summary);
		printf("'\n");
		fish_arguments_print(*verb);
		const struct option_spec *option;
		for (struct option_walk walk = {(*verb)->options}; (option = option_next(&walk));) {
			printf("complete -c caisson -n '__fish_seen_subcommand_from %s' -l %s",
			       (*verb)->name, option->name);
			if (option->letter)
				printf(" -s %c", option->letter);
			printf("%s", option->kind == OPTION_FLAG ? "" : " -r");
			if (option->words && strcmp(option->words, WORDS_EXECS) == 0) {
				printf(" -f -a '(__caisson_execs)'");
			} else if (option->words && option->words[0] != '$') {
				printf(" -f -a '");
				option_words_print(option);
				putchar('\'');
			}
			putchar('\n');
		}
	}
}

static int completion_run(struct client *client, int argc, char **argv, struct error *error)
{
	(void)client;
	const char *shell = argc == 2 ? argv[1] : "";
	if (strcmp(shell, "bash") == 0)
		bash_completion_print();
	else if (strcmp(shell, "zsh") == 0)
		zsh_completion_print();
	else if (strcmp(shell, "fish") == 0)
		fish_completion_print();
	else
		return error_set(error, ERROR_USAGE, "completion needs a shell: bash, zsh or fish");
	return 0;
}

const struct verb verb_completion = {
    .name = "completion",
    .json = "errors as JSON",
    .words = "bash zsh fish",
    .arguments = "bash|zsh|fish",
    .summary = "Print the shell's completion script",
    .help = "  source <(caisson completion bash)",
    .configuration = CONFIGURATION_NEVER,
    .run = completion_run,
};
