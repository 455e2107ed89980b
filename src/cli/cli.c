/* The table of verbs, their help, and functions that several verbs share. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/suggestions.h"

const struct verb *const verbs[] = {
    &verb_run,    &verb_create,    &verb_exec,   &verb_shell,      &verb_code,   &verb_cp,
    &verb_sign,   &verb_ls,        &verb_logs,   &verb_jobs,       &verb_attach, &verb_stop,
    &verb_start,  &verb_pause,     &verb_resume, &verb_extend,     &verb_set,    &verb_wait,
    &verb_drain,  &verb_templates, &verb_rm,     &verb_inspect,    &verb_top,    &verb_activity,
    &verb_events, &verb_receipt,   &verb_verify, &verb_doctor,     &verb_state,  &verb_selftest,
    &verb_token,  &verb_limits,    &verb_budget, &verb_usage,      &verb_serve,  &verb_version,
    &verb_mcp,    &verb_wrap,      &verb_help,   &verb_completion, &verb_man,    &verb_welcome,
    NULL,
};

const char cli_pitch[] = "a safe Linux machine for any agent, in milliseconds";
const char cli_overview[] =
    "Try it:\n"
    "  caisson run -- uname -a           one command in a fresh sandbox\n"
    "  caisson run -v .:/workspace:cow -- make test\n"
    "  caisson shell mybox               a terminal in a running one\n"
    "\n"
    "`caisson VERB --help` explains a verb. With --json records, lists and errors are JSON.\n"
    "The daemon is found by CAISSON_RUNTIME, or by CAISSON_URL (http:// or https://; then\n"
    "CAISSON_CA_FILE may name its authority's certificate) and CAISSON_TOKEN. Otherwise it\n"
    "is this user's own, which is started if none runs (not with CAISSON_START=no); with\n"
    "CAISSON_TOKEN, root's if that runs.\n";

static void overview_print(void)
{
	printf("caisson: %s\n\nUsage: caisson VERB [options] ...\n\n", cli_pitch);
	for (const struct verb *const *verb = verbs; *verb; verb++)
		if (!(*verb)->hidden)
			printf("  %-11s %s\n", (*verb)->name, (*verb)->summary);
	printf("\n%s", cli_overview);
}

static void verb_help_print(const struct verb *verb)
{
	printf("%s\n\nUsage: caisson %s %s\n\n%s\n\nOptions:\n", verb->summary, verb->name,
	       verb->arguments, verb->help);
	options_print(verb->options);
	printf("      --json                      %s\n"
	       "      --help                      this text\n",
	       verb->json ? verb->json : CLI_JSON_USUAL);
}

static const struct verb *verb_find(const char *name)
{
	for (const struct verb *const *verb = verbs; *verb; verb++)
		if (strcmp((*verb)->name, name) == 0)
			return *verb;
	return NULL;
}

static int error_report(const char *verb, const struct error *error)
{
	const struct error_info *info = error_info(error->kind);
	if (cli_json) {
		json_t *json = json_pack("{s:s, s:s, s:b}", "error", error->message, "code",
					 info->code, "retryable", info->retryable);
		json_line_print(stderr, json, 0);
		json_decref(json);
	} else {
		error_print("caisson %s: %s", verb, error->message);
		if (*info->advice)
			fprintf(stderr, "  %s\n", info->advice);
		if (error->kind == ERROR_USAGE)
			fprintf(stderr, "  `caisson %s --help` explains it.\n", verb);
	}
	return info->exit_code;
}

static int help_run(struct client *client, int argc, char **argv, struct error *error)
{
	(void)client;
	const struct verb *verb = argc > 1 ? verb_find(argv[1]) : NULL;
	if (argc > 1 && !verb) {
		char hint[SUGGESTION_MAX];
		verb_suggest(argv[1], hint, sizeof(hint));
		return error_set(error, ERROR_USAGE, "there is no verb \"%.64s\"%s", argv[1], hint);
	}
	if (verb)
		verb_help_print(verb);
	else
		overview_print();
	return 0;
}

const struct verb verb_help = {
    .name = "help",
    .json = "errors as JSON",
    .arguments = "[VERB]",
    .summary = "Explain caisson, or one of its verbs",
    .help = "Lists the verbs, or explains one.",
    .configuration = CONFIGURATION_NEVER,
    .run = help_run,
};

/* Opens /dev/null for closed standard descriptors: otherwise the next file that we open would get
 * such a number. */
static void standard_descriptors_fill(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* Makes sure that the output was written: a full disk is not a success. */
static int output_flush(int result)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return result;
	if (errno == EPIPE)
		return 128 + SIGPIPE;
	fprintf(stderr, "caisson: standard output: %s\n", strerror(errno));
	return result == 0 ? error_info(ERROR_INTERNAL)->exit_code : result;
}

/* OpenSandbox's clients start their server by this name, so it selects the verb. */
#define MCP_ALIAS "opensandbox-mcp"

static bool name_is_mcp_alias(const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;
	return name && strcmp(slash ? slash + 1 : name, MCP_ALIAS) == 0;
}

static int mcp_alias_run(int argc, char **argv)
{
	char **words = calloc((size_t)argc + 4, sizeof(*words));
	if (!words)
		abort();
	int count = 0;
	words[count++] = "caisson";
	words[count++] = "mcp";
	words[count++] = "--dialect=opensandbox";
	for (int i = 1; i < argc; i++)
		words[count++] = argv[i];
	int result = cli_main(count, words);
	free(words);
	return result;
}

int cli_main(int argc, char **argv)
{
	if (name_is_mcp_alias(argv[0]))
		return mcp_alias_run(argc, argv);
	standard_descriptors_fill();
	struct error error = {0};
	struct client client;
	const char *name = argc > 1 ? argv[1] : "help";
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	const struct verb *verb = verb_find(name);
	if (!verb) {
		char hint[SUGGESTION_MAX];
		verb_suggest(name, hint, sizeof(hint));
		error_print("caisson: there is no verb \"%s\"%s", name, hint);
		return error_info(ERROR_USAGE)->exit_code;
	}
	int count = argc > 1 ? argc - 1 : 1;
	char **words = argc > 1 ? argv + 1 : argv;
	count = options_parse(verb->options, count, words, verb->command_follows, &error);
	if (cli_help) {
		verb_help_print(verb);
		return 0;
	}
	if (count < 0)
		return error_report(verb->name, &error);
	client = (struct client){0};
	if (verb->configuration != CONFIGURATION_NEVER &&
	    client_setup(&client, verb->configuration == CONFIGURATION_ALWAYS, &error) < 0)
		return error_report(verb->name, &error);
	int result = verb->run(&client, count, words, &error);
	if (result < 0) {
		client_explain_lost_connection(&client, &error);
		error_name_flags(verb->options, &error);
		error_name_verb(verb, &error);
	}
	return output_flush(result < 0 ? error_report(verb->name, &error) : result);
}

void json_print(const json_t *json)
{
	json_line_print(stdout, json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}

void json_line_print(FILE *file, const json_t *json, size_t flags)
{
	FREE_TEXT char *dumped = json ? json_dumps(json, flags) : NULL;
	for (const char *text = dumped ? dumped : "null"; *text;) {
		size_t length = *text == '\n' ? 0 : text_control_length(text);
		if (length > 0)
			fprintf(file, "\\u%04x", text_control_code(text, length));
		else
			putc(*text, file);
		text += length > 0 ? length : 1;
	}
	putc('\n', file);
}

static void safe_text_write(FILE *file, const char *text)
{
	while (*text) {
		size_t length = text_control_length(text);
		if (length == 0)
			putc(*text++, file);
		for (; length > 0; length--)
			fprintf(file, "\\x%02x", (unsigned char)*text++);
	}
}

void safe_text_print(const char *text)
{
	safe_text_write(stdout, text);
}

PRINTF_LIKE(2, 0)
static void safe_line_write(FILE *file, const char *format, va_list arguments)
{
	FREE_TEXT char *text = NULL;
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	safe_text_write(file, text ? text : format);
	putc('\n', file);
}

void line_print(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	safe_line_write(stdout, format, arguments);
	va_end(arguments);
}

void error_print(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	safe_line_write(stderr, format, arguments);
	va_end(arguments);
}

int sandbox_path(struct buffer *path, const char *sandbox, const char *rest, struct error *error)
{
	if (!*sandbox || strchr(sandbox, '/'))
		return error_set(error, ERROR_ID_MALFORMED,
				 "\"%.64s\" is neither the id nor the name of a sandbox; "
				 "`caisson ls` lists them",
				 sandbox);
	if (buffer_append_text(path, "/v1/sandboxes/") < 0 ||
	    buffer_append_encoded(path, sandbox) < 0 || buffer_append_text(path, rest) < 0)
		return error_set(error, ERROR_ID_MALFORMED, "that id or name is too long");
	return 0;
}

int client_sandbox_call(struct client *client, const char *method, const char *sandbox,
			const char *rest, json_t *body, json_t **ret_json, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (sandbox_path(&path, sandbox, rest, error) < 0)
		return -1;
	return client_call(client, method, path.data, body, NULL, 0, ret_json, error);
}

void bytes_to_text(uint64_t bytes, char text[32])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;
	while (value >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 32, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void age_to_text(int64_t seconds, char text[32])
{
	static const struct {
		int64_t seconds;
		char letter;
	} units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
	size_t at = 0;
	while (at < ARRAY_SIZE(units) - 1 && seconds < units[at].seconds)
		at++;
	int64_t most = seconds / units[at].seconds, rest = seconds % units[at].seconds;
	rest /= at + 1 < ARRAY_SIZE(units) ? units[at + 1].seconds : 1;
	if (seconds < 0)
		snprintf(text, 32, "-");
	else if (rest > 0)
		snprintf(text, 32, "%" PRId64 "%c%" PRId64 "%c", most, units[at].letter, rest,
			 units[at + 1].letter);
	else
		snprintf(text, 32, "%" PRId64 "%c", most, units[at].letter);
}

int64_t member_time(const json_t *object, const char *name)
{
	struct tm parts = {0};
	const char *text = member_text(object, name);
	if (!*text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &parts))
		return -1;
	return (int64_t)timegm(&parts);
}

const char *member_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "";
}

int64_t member_integer(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}
