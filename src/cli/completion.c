/* `caisson completion`: the shell's completion, made from the same tables as --help. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static void print_words(const char *separator)
{
	for (const struct verb *const *verb = verbs; *verb; verb++)
		if (!(*verb)->hidden)
			printf("%s%s", verb == verbs ? "" : separator, (*verb)->name);
}

static void print_options(const struct verb *verb)
{
	for (const struct option_spec *option = verb->options; option && option->kind != OPTION_END;
	     option++)
		printf("--%s ", option->name);
	printf("--json --help");
}

static void print_bash(void)
{
	printf("_caisson() {\n"
	       "  local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} options=\n"
	       "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
	       "    COMPREPLY=($(compgen -W \"");
	print_words(" ");
	printf("\" -- \"$cur\")); return\n  fi\n  case $verb in\n");
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		if ((*verb)->hidden)
			continue;
		printf("    %s) options=\"", (*verb)->name);
		print_options(*verb);
		printf("\" ;;\n");
	}
	printf("  esac\n"
	       "  case $cur in\n"
	       "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
	       "    *) COMPREPLY=($(compgen -W \"$(caisson ls -q 2>/dev/null)\" -- \"$cur\")"
	       " $(compgen -f -- \"$cur\")) ;;\n"
	       "  esac\n}\ncomplete -o filenames -F _caisson caisson\n");
}

static void print_zsh(void)
{
	printf("#compdef caisson\nautoload -U +X bashcompinit && bashcompinit\n");
	print_bash();
}

static void print_fish(void)
{
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		if ((*verb)->hidden)
			continue;
		printf("complete -c caisson -n __fish_use_subcommand -a %s -d '%s'\n",
		       (*verb)->name, (*verb)->summary);
		for (const struct option_spec *option = (*verb)->options;
		     option && option->kind != OPTION_END; option++) {
			printf("complete -c caisson -n '__fish_seen_subcommand_from %s' -l %s",
			       (*verb)->name, option->name);
			if (option->letter)
				printf(" -s %c", option->letter);
			printf("%s\n", option->kind == OPTION_FLAG ? "" : " -r");
		}
	}
}

static int run_completion(struct client *client, int argc, char **argv, struct error *error)
{
	(void)client;
	const char *shell = argc == 2 ? argv[1] : "";
	if (strcmp(shell, "bash") == 0)
		print_bash();
	else if (strcmp(shell, "zsh") == 0)
		print_zsh();
	else if (strcmp(shell, "fish") == 0)
		print_fish();
	else
		return error_set(error, ERROR_USAGE, "completion needs a shell: bash, zsh or fish");
	return 0;
}

const struct verb verb_completion = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "Print the shell's completion script",
    .help = "  source <(caisson completion bash)",
    .run = run_completion,
};
