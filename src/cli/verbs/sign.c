/* `caisson sign`: creates a URL that reads or writes one file of a sandbox without a token. */
#include <stdio.h>

#include "cli/cli.h"

static struct {
	bool put;
	const char *expires, *max_bytes, *user;
} sign_options;

static const struct option_spec options[] = {
    {"put", 0, OPTION_FLAG, &sign_options.put, NULL, "to write the file (default: to read it)",
     "method", NULL, "PUT"},
    {"expires", 0, OPTION_TEXT, &sign_options.expires, "TIME",
     "how long it is valid, like 15m, at most 7d (default: 1h)", "expires_seconds"},
    {"max-bytes", 0, OPTION_TEXT, &sign_options.max_bytes, "SIZE",
     "with --put: the maximum size, like 10M", "max_bytes"},
    {"user", 'u', OPTION_TEXT, &sign_options.user, "USER",
     "the user in the sandbox (default: root)", "user"},
    {0},
};

/* Without a TCP port the daemon answers with a path: print how to fetch it over the socket instead.
 */
static void signed_url_print(const struct client *client, const char *url)
{
	if (url[0] != '/') {
		printf("%s\n", url);
		return;
	}
	DONE_BUFFER struct buffer socket = BUFFER(4 * sizeof(client->socket) + 3);
	if (buffer_append_shell_word(&socket, client->socket) < 0)
		abort(); /* room for as many quotes */
	printf("curl -fsS %s--unix-socket %s 'http://localhost%s'\n",
	       sign_options.put ? "-T - " : "", socket.data, url);
}

static int sign_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc != 3)
		return error_set(error, ERROR_USAGE,
				 "sign needs a sandbox and a path: caisson sign mybox report.pdf");
	json_t *body = json_object(), *answer = NULL;
	json_object_set_new(body, "path", json_string(argv[2]));
	int result = options_to_body(options, body, error);
	if (result == 0)
		result = client_sandbox_call(client, "POST", argv[1], "/files/sign", body, &answer,
					     error);
	if (result == 0 && cli_json)
		json_print(answer);
	else if (result == 0)
		signed_url_print(client, member_text(answer, "url"));
	json_decref(body);
	json_decref(answer);
	return result;
}

const struct verb verb_sign = {
    .name = "sign",
    .sandboxes = true,
    .arguments = "[options] SANDBOX PATH",
    .summary = "Create a URL that reads or writes one file without a token",
    .options = options,
    .json = "the URL with its method and expiry, as JSON",
    .help =
	"Prints the URL. Everybody who has it may read (or, with --put, write) that one file "
	"until\n"
	"it expires, or the token that created it or the sandbox ends. If the daemon has no TCP\n"
	"port, the curl line that fetches it through the Unix socket is printed instead\n"
	"(with --put it sends standard input).\n"
	"\n"
	"  caisson sign mybox /workspace/report.pdf --expires 1d\n"
	"  curl -T data.csv \"$(caisson sign mybox data.csv --put)\"",
    .run = sign_run,
};
