/* `caisson code`: runs a file or standard input as python, node or bash in a sandbox, in a fresh
 * interpreter or in a context that keeps its variables. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"

#define SOURCE_MAX (1024 * 1024)

static const char *language, *context, *timeout_text;
static bool new_context;

static const struct option_spec options[] = {
    {"language", 0, OPTION_TEXT, &language, "LANGUAGE",
     "python, node or bash; else by the file's name, else python", "language", "python,node,bash"},
    {"context", 'c', OPTION_TEXT, &context, "ID", "run it in this context", "context"},
    {"new-context", 0, OPTION_FLAG, &new_context, NULL,
     "make a context first, run it there and print the context's id to standard error"},
    {"timeout", 'T', OPTION_TEXT, &timeout_text, "TIME", "like 30s or 5m; 0: no limit",
     "timeout_seconds"},
    {0},
};

static int source_read(const char *file, struct buffer *source, struct error *error)
{
	CLOSE_FD int opened = -1;
	int fd = STDIN_FILENO;
	if (strcmp(file, "-") != 0)
		fd = opened = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(error, ERROR_USAGE, errno, "%s", file);
	for (;;) {
		if (buffer_reserve(source, 65536) < 0)
			return error_set(error, ERROR_TOO_LARGE, "%s: code is at most %d bytes",
					 file, SOURCE_MAX);
		ssize_t got = read(fd, source->data + source->size, 65536);
		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR)
			return error_set_errno(error, ERROR_USAGE, errno, "%s", file);
		if (got > 0)
			buffer_grow(source, (size_t)got);
	}
}

static const char *file_language(const char *file)
{
	const char *dot = strrchr(file, '.');
	if (language)
		return language;
	if (dot && (strcmp(dot, ".js") == 0 || strcmp(dot, ".mjs") == 0))
		return "node";
	return dot && strcmp(dot, ".sh") == 0 ? "bash" : "python";
}

static int context_make(struct client *client, const char *sandbox, char id[ID_LENGTH + 1],
			struct error *error)
{
	json_t *record = NULL, *body = json_pack("{s:s}", "language", language);
	int result =
	    client_sandbox_call(client, "POST", sandbox, "/contexts", body, &record, error);
	if (result == 0 && text_copy(id, ID_LENGTH + 1, member_text(record, "id")) < 0)
		result = error_set(error, ERROR_INTERNAL, "the daemon's answer has no context");
	if (result == 0)
		fprintf(stderr, "context %s\n", id);
	json_decref(body);
	json_decref(record);
	return result;
}

/* Prints text, or bytes that are not UTF-8 and come as base64. */
static void code_stream_print(const json_t *answer, const char *text_name, const char *base64_name,
			      FILE *to)
{
	const char *base64 = member_text(answer, base64_name);
	size_t size = strlen(base64);
	char *bytes = malloc(size + 1);
	if (!bytes)
		abort();
	ssize_t decoded = base64_decode(base64, size, bytes);
	fputs(member_text(answer, text_name), to);
	if (decoded > 0)
		fwrite(bytes, 1, (size_t)decoded, to);
	free(bytes);
}

/* The order for people: output, then the value, then the error. */
static void code_result_print(const json_t *answer)
{
	size_t index;
	json_t *result;
	code_stream_print(answer, "stdout", "stdout_base64", stdout);
	fflush(stdout);
	code_stream_print(answer, "stderr", "stderr_base64", stderr);
	json_array_foreach(json_object_get(answer, "results"), index, result)
	{
		const char *plain = member_text(result, "text/plain");
		if (*plain)
			printf("%s\n", plain);
	}
	const json_t *error = json_object_get(answer, "error");
	const char *trace = error ? member_text(error, "traceback") : "";
	if (*trace)
		fprintf(stderr, "%s%s", trace, trace[strlen(trace) - 1] == '\n' ? "" : "\n");
	else if (json_is_object(error))
		error_print("%s: %s", member_text(error, "name"), member_text(error, "value"));
	if (json_is_true(json_object_get(answer, "timed_out")))
		fprintf(stderr, "caisson code: its time-out has passed\n");
}

static int code_run(struct client *client, int argc, char **argv, struct error *error)
{
	DONE_BUFFER struct buffer source = BUFFER(SOURCE_MAX + 65536);
	DONE_BUFFER struct buffer path = BUFFER(4096);
	char made[ID_LENGTH + 1] = "";
	if (argc != 2 && argc != 3)
		return error_set(error, ERROR_USAGE,
				 "code needs a sandbox and a file: caisson code mybox script.py");
	const char *file = argc == 3 ? argv[2] : "-";
	if (context && (new_context || language))
		return error_set(error, ERROR_USAGE,
				 "a context has its language, and is there already");
	if (source_read(file, &source, error) < 0 ||
	    sandbox_path(&path, argv[1], "/code", error) < 0)
		return -1;
	json_t *text = json_stringn(buffer_text(&source), source.size);
	if (!text || memchr(buffer_text(&source), '\0', source.size)) {
		json_decref(text);
		return error_set(error, ERROR_USAGE, "%s is not text in UTF-8", file);
	}
	json_t *body = json_pack("{s:o}", "code", text), *answer = NULL;
	if (!context)
		language = file_language(file);
	int result = options_to_body(options, body, error);
	if (result == 0 && new_context) {
		result = context_make(client, argv[1], made, error);
		json_object_del(body, "language");
		json_object_set_new(body, "context", json_string(made));
	}
	if (result == 0)
		result = client_call(client, "POST", path.data, body, NULL, 0, &answer, error);
	if (result == 0 && cli_json)
		json_print(answer);
	else if (result == 0)
		code_result_print(answer);
	if (result == 0)
		result = (int)(member_integer(answer, "exit_code") & 255);
	json_decref(body);
	json_decref(answer);
	return result;
}

const struct verb verb_code = {
    .name = "code",
    .sandboxes = true,
    .arguments = "[options] SANDBOX [FILE|-]",
    .summary = "Run python, node or bash code in a sandbox",
    .help =
	"Runs a file of this machine, or standard input, inside. Prints its output and then the\n"
	"value of its last expression, and exits with its exit code. A context keeps its "
	"variables\n"
	"for the next time.\n"
	"\n"
	"  caisson code mybox script.py\n"
	"  echo '6 * 7' | caisson code mybox\n"
	"  echo 'x = 1' | caisson code --new-context mybox",
    .json = "the whole answer, with results in every form",
    .options = options,
    .run = code_run,
};
