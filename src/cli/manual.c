/* `caisson _man DIRECTORY`: the manual pages, made from the same tables as --help. Called by `make
 * install`. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/cli.h"

/* Escapes text for troff: backslashes, hyphens, and lines that would be requests. */
static void page_put_text(FILE *page, const char *text)
{
	for (bool begins = true; *text; text++) {
		if (begins && (*text == '.' || *text == '\''))
			fputs("\\&", page);
		if (*text == '\\')
			fputs("\\e", page);
		else if (*text == '-')
			fputs("\\-", page);
		else
			putc(*text, page);
		begins = *text == '\n';
	}
}

/* Keeps lines and columns as --help has them. */
static void page_put_lines(FILE *page, const char *text)
{
	fputs(".nf\n", page);
	page_put_text(page, text);
	fputs("\n.fi\n", page);
}

static void page_put_option(FILE *page, const struct option_spec *option)
{
	fputs(".TP\n", page);
	if (option->letter)
		fprintf(page, "\\fB\\-%c\\fR, ", option->letter);
	fputs("\\fB\\-\\-", page);
	page_put_text(page, option->name);
	fputs("\\fR", page);
	if (option->value) {
		fputs(" \\fI", page);
		page_put_text(page, option->value);
		fputs("\\fR", page);
	}
	putc('\n', page);
	page_put_text(page, option->help);
	putc('\n', page);
}

static void page_put_head(FILE *page, const char *name, const char *summary, const char *synopsis)
{
	fputs(".TH ", page);
	page_put_text(page, name);
	fprintf(page, " 1 \"\" \"caisson %s\" \"Caisson\"\n.SH NAME\n", CAISSON_VERSION);
	page_put_text(page, name);
	fputs(" \\- ", page);
	page_put_text(page, summary);
	fputs("\n.SH SYNOPSIS\n\\fBcaisson\\fR ", page);
	page_put_text(page, synopsis);
	putc('\n', page);
}

static void page_put_overview(FILE *page)
{
	page_put_head(page, "caisson", cli_pitch, "VERB [options] ...");
	fputs(".SH DESCRIPTION\n", page);
	page_put_lines(page, cli_overview);
	fputs(".SH VERBS\n", page);
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		if ((*verb)->hidden)
			continue;
		fprintf(page, ".TP\n\\fBcaisson\\-%s\\fR(1)\n", (*verb)->name);
		page_put_text(page, (*verb)->summary);
		putc('\n', page);
	}
}

static void page_put_verb(FILE *page, const struct verb *verb)
{
	const struct option_spec usual[] = {
	    {.name = "json", .help = verb->json ? verb->json : CLI_JSON_USUAL},
	    {.name = "help", .help = "explains it"},
	};
	char name[64], synopsis[256];
	snprintf(name, sizeof(name), "caisson-%s", verb->name);
	snprintf(synopsis, sizeof(synopsis), "%s %s", verb->name, verb->arguments);
	page_put_head(page, name, verb->summary, synopsis);
	fputs(".SH DESCRIPTION\n", page);
	page_put_lines(page, verb->help);
	fputs(".SH OPTIONS\n", page);
	const struct option_spec *option;
	for (struct option_walk walk = {verb->options}; (option = option_next(&walk));)
		page_put_option(page, option);
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		page_put_option(page, &usual[i]);
	fputs(".SH SEE ALSO\n\\fBcaisson\\fR(1)\n", page);
}

/* verb: NULL for the whole program's page. */
static int page_write(const char *directory, const struct verb *verb, struct error *error)
{
	char path[512];
	if (text_format(path, sizeof(path), "%s/caisson%s%s.1", directory, verb ? "-" : "",
			verb ? verb->name : "") < 0)
		return error_set(error, ERROR_USAGE, "the directory's path is too long");
	FILE *page = fopen(path, "we");
	if (!page)
		return error_set_errno(error,
				       errno == ENOENT ? ERROR_FILE_NOT_FOUND : ERROR_FILE_DENIED,
				       errno, "%s", path);
	if (verb)
		page_put_verb(page, verb);
	else
		page_put_overview(page);
	bool failed = ferror(page);
	if (fclose(page) != 0 || failed)
		return error_set_errno(error, ERROR_FILE_INVALID, errno, "%s", path);
	return 0;
}

static int man_run(struct client *client, int argc, char **argv, struct error *error)
{
	(void)client;
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "it takes a directory");
	int result = page_write(argv[1], NULL, error);
	for (const struct verb *const *verb = verbs; *verb && result == 0; verb++)
		if (!(*verb)->hidden)
			result = page_write(argv[1], *verb, error);
	return result;
}

const struct verb verb_man = {
    .name = "_man",
    .json = "errors as JSON",
    .arguments = "DIRECTORY",
    .summary = "Write the manual's pages",
    .help = "Writes caisson.1 and one page for each verb.",
    .configuration = CONFIGURATION_NEVER,
    .run = man_run,
    .hidden = true,
};
