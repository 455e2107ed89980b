/* `caisson logs`: the output of an exec from an offset, followed if requested; or the lines of all
 * execs of a sandbox, filtered. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"

static struct {
	bool follow, standard_error, all;
	const char *exec, *from;
	const char *tail, *since, *until, *source, *grep;
} options;

static bool lines_are_wanted(void)
{
	return options.all || options.tail || options.since || options.until || options.source ||
	       options.grep;
}

/* Finds the newest exec of the sandbox. */
static int newest_exec_find(struct client *client, const char *sandbox, char *id, size_t room,
			    struct error *error)
{
	json_t *answer = NULL;
	if (client_sandbox_call(client, "GET", sandbox, "/execs?limit=1", NULL, &answer, error) < 0)
		return -1;
	json_t *first = json_array_get(json_object_get(answer, "execs"), 0);
	snprintf(id, room, "%s", member_text(first, "exec_id"));
	json_decref(answer);
	if (!*id)
		return error_set(error, ERROR_EXEC_NOT_FOUND, "%s has not run anything yet",
				 sandbox);
	return 0;
}

static int output_copy(struct exchange *exchange, struct error *error)
{
	char data[65536];
	if (exchange->gap > 0)
		fprintf(stderr, "caisson: %lld bytes are no longer kept\n",
			(long long)exchange->gap);
	for (;;) {
		ssize_t got = exchange_read(exchange, data, sizeof(data), error);
		if (got <= 0)
			return (int)got;
		int result = fd_write_full(STDOUT_FILENO, data, (size_t)got);
		if (result < 0)
			return error_set_errno(error, ERROR_CANCELLED, result, "standard output");
	}
}

/* --- the sandbox's log, line by line --- */

/* For bytes of one command, or (by `field`) for lines. */
static const struct option_spec logs_specs[] = {
    {"follow", 'f', OPTION_FLAG, &options.follow, NULL, "keep printing until the command ends",
     "follow"},
    {"exec", 'x', OPTION_TEXT, &options.exec, "ID",
     "which command, like EXEC (default: the newest)", "exec", WORDS_EXECS},
    {"stderr", 0, OPTION_FLAG, &options.standard_error, NULL, "its standard error instead",
     "stream", NULL, "stderr"},
    {"from", 0, OPTION_TEXT, &options.from, "OFFSET", "begin at this byte (default: 0)", "from"},
    {"all", 'a', OPTION_FLAG, &options.all, NULL,
     "lines of all commands (implied by the following)"},
    {"tail", 'n', OPTION_TEXT, &options.tail, "N", "the last N lines (default: 1000)", "tail"},
    {"since", 0, OPTION_TEXT, &options.since, "TIME",
     "of commands that ran after this time: 10m, or 2026-01-31T12:00:00Z", "since"},
    {"until", 0, OPTION_TEXT, &options.until, "TIME", "of commands that began before this time",
     "until"},
    {"source", 0, OPTION_TEXT, &options.source, "WHICH",
     "stdout, stderr, both, exec (starts and ends) or all", "source",
     "stdout,stderr,both,exec,all"},
    {"grep", 'g', OPTION_TEXT, &options.grep, "TEXT", "only lines with this text in them", "grep"},
    {0},
};

/* Prints a line unchanged, like `cat`: the user chose the terminal. */
static void log_line_print(const json_t *line)
{
	const char *text = member_text(line, "line");
	size_t size = strlen(text);
	if (cli_json) {
		json_line_print(stdout, line, JSON_COMPACT);
	} else {
		printf("%s%s", text, size > 0 && text[size - 1] == '\n' ? "" : "\n");
	}
	fflush(stdout);
}

/* Handles complete lines of the event stream and keeps the rest. */
static int events_take(struct buffer *input, struct error *error)
{
	char *end;
	while (input->size > 0 && (end = memchr(input->data, '\n', input->size))) {
		size_t size = (size_t)(end - input->data);
		if (size > 6 && memcmp(input->data, "data: ", 6) == 0) {
			json_t *line = json_loadb(input->data + 6, size - 6, 0, NULL);
			bool failed = json_object_get(line, "error");
			if (failed)
				error_from_json(line, 0, error);
			else
				log_line_print(line);
			json_decref(line);
			if (failed)
				return -1;
		}
		buffer_consume(input, size + 1);
	}
	return 0;
}

static int lines_follow(struct client *client, const char *path, struct error *error)
{
	char data[16384];
	DONE_BUFFER struct buffer input = BUFFER(1024 * 1024);
	struct exchange *exchange = exchange_new();
	struct request request = {
	    .method = "GET", .path = path, .extra = "Accept: text/event-stream\r\n"};
	int result = exchange_begin(client, &request, exchange, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	while (result == 0) {
		ssize_t got = exchange_read(exchange, data, sizeof(data), error);
		if (got <= 0) {
			result = (int)got;
			break;
		}
		if (buffer_append(&input, data, (size_t)got) < 0)
			result =
			    error_set(error, ERROR_INTERNAL, "the daemon sent an invalid event");
		else
			result = events_take(&input, error);
	}
	exchange_free(exchange);
	return result;
}

static int lines_show(struct client *client, const char *sandbox, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(8192);
	json_t *answer = NULL, *line;
	size_t at;
	if (options.from || options.standard_error)
		return error_set(error, ERROR_USAGE,
				 "--from and --stderr are of one command's bytes; of lines it is "
				 "--source");
	if (sandbox_path(&path, sandbox, "/logs", error) < 0 ||
	    options_to_path(logs_specs, &path, error) < 0)
		return -1;
	if (options.follow)
		return lines_follow(client, path.data, error);
	if (client_call(client, "GET", path.data, NULL, NULL, 0, &answer, error) < 0)
		return -1;
	json_array_foreach(json_object_get(answer, "lines"), at, line) log_line_print(line);
	json_decref(answer);
	return 0;
}

static int logs_run(struct client *client, int argc, char **argv, struct error *error)
{
	char id[64];
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "logs needs a sandbox: caisson logs mybox");
	if (argc > 3 || (argc == 3 && options.exec))
		return error_set(error, ERROR_USAGE,
				 "logs takes a sandbox and one exec of it, not \"%s\" too",
				 argv[argc - 1]);
	if (argc == 3)
		options.exec = argv[2];
	if (lines_are_wanted())
		return lines_show(client, argv[1], error);
	if (options.exec)
		snprintf(id, sizeof(id), "%s", options.exec);
	else if (newest_exec_find(client, argv[1], id, sizeof(id), error) < 0)
		return -1;
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (sandbox_path(&path, argv[1], "/execs/", error) < 0)
		return -1;
	if (buffer_append_encoded(&path, id) < 0 ||
	    buffer_printf(&path, "/output?stream=%s&from=",
			  options.standard_error ? "stderr" : "stdout") < 0 ||
	    buffer_append_encoded(&path, options.from ? options.from : "0") < 0 ||
	    buffer_append_text(&path, options.follow ? "&follow=1" : "") < 0)
		return error_set(error, ERROR_USAGE, "an argument is too long");
	struct exchange *exchange = exchange_new();
	struct request request = {.method = "GET", .path = path.data};
	int result = exchange_begin(client, &request, exchange, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	if (result == 0)
		result = output_copy(exchange, error);
	exchange_free(exchange);
	return result;
}

const struct verb verb_logs = {
    .name = "logs",
    .json = "errors and lines as JSON; bytes of one command stay as they are",
    .sandboxes = true,
    .execs = true,
    .arguments = "[options] SANDBOX [EXEC]",
    .summary = "Print the output of a command in a sandbox",
    .help =
	"Output is kept by offset: the first 8 MiB and the last 24 MiB of each stream, also after\n"
	"the command, the client or the daemon is gone.\n"
	"\n"
	"  id=$(caisson exec -d mybox -- make)\n"
	"  caisson logs -f mybox $id\n"
	"\n"
	"With any of --all, --tail, --since, --until, --source and --grep it prints lines of all\n"
	"commands, in the order in which they began, or of one:\n"
	"\n"
	"  caisson logs -n 50 -f mybox\n"
	"  caisson logs --grep error --source stderr --since 10m mybox",
    .options = logs_specs,
    .run = logs_run,
};
