/* `caisson logs`: the output of an exec, by offset, followed if asked. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"

static struct {
	bool follow, standard_error;
	const char *exec;
	const char *from;
} options;

/* The newest exec of the sandbox. */
static int newest_exec(struct client *client, const char *sandbox, char *id, size_t room,
		       struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	json_t *answer = NULL;
	if (sandbox_path(&path, sandbox, "/execs?limit=1", error) < 0 ||
	    client_json(client, "GET", path.data, NULL, NULL, 0, &answer, error) < 0)
		return -1;
	json_t *first = json_array_get(json_object_get(answer, "execs"), 0);
	snprintf(id, room, "%s", member_text(first, "exec_id"));
	json_decref(answer);
	if (!*id)
		return error_set(error, ERROR_EXEC_NOT_FOUND, "%s has not run anything yet",
				 sandbox);
	return 0;
}

static int copy_output(struct exchange *exchange, struct error *error)
{
	char data[65536];
	if (exchange->gap > 0)
		fprintf(stderr, "caisson: %lld bytes are not kept any more\n",
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

static int run_logs(struct client *client, int argc, char **argv, struct error *error)
{
	char id[64];
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "logs needs a sandbox");
	if (options.exec)
		snprintf(id, sizeof(id), "%s", options.exec);
	else if (newest_exec(client, argv[1], id, sizeof(id), error) < 0)
		return -1;
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (sandbox_path(&path, argv[1], "/execs/", error) < 0)
		return -1;
	if (append_encoded(&path, id) < 0 ||
	    buffer_printf(&path, "/output?stream=%s&from=",
			  options.standard_error ? "stderr" : "stdout") < 0 ||
	    append_encoded(&path, options.from ? options.from : "0") < 0 ||
	    buffer_append_text(&path, options.follow ? "&follow=1" : "") < 0)
		return error_set(error, ERROR_USAGE, "an argument is too long");
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		abort();
	exchange->fd = -1;
	struct request request = {.method = "GET", .path = path.data};
	int result = exchange_begin(client, &request, exchange, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	if (result == 0)
		result = copy_output(exchange, error);
	exchange_done(exchange);
	free(exchange);
	return result;
}

static const struct option_spec logs_specs[] = {
    {"follow", 'f', OPTION_FLAG, &options.follow, NULL, "go on until the command ends"},
    {"exec", 'x', OPTION_TEXT, &options.exec, "ID", "which command (default: the newest)"},
    {"stderr", 'e', OPTION_FLAG, &options.standard_error, NULL, "its standard error instead"},
    {"from", 0, OPTION_TEXT, &options.from, "OFFSET", "begin at this byte (default: 0)"},
    {0},
};

const struct verb verb_logs = {
    .name = "logs",
    .arguments = "[options] SANDBOX",
    .summary = "Print what a command in a sandbox has printed",
    .help =
	"Output is kept by offset: the first 8 MiB and the last 24 MiB of each stream, also after\n"
	"the command, the client or the daemon is gone.\n\n"
	"  id=$(caisson exec -d mybox -- make)\n"
	"  caisson logs -f -x $id mybox",
    .options = logs_specs,
    .run = run_logs,
};
