/* `caisson sign`: creates a URL that reads or writes one file of a sandbox without a token. */
#include <stdio.h>

#include "base/text.h"
#include "cli/cli.h"

static struct {
	bool put;
	const char *expires, *max_bytes, *user;
} sign_options;

static int sign_body_fill(const char *file, json_t *body, struct error *error)
{
	uint64_t seconds, bytes;
	json_object_set_new(body, "path", json_string(file));
	json_object_set_new(body, "method", json_string(sign_options.put ? "PUT" : "GET"));
	if (sign_options.expires) {
		if (text_to_seconds(sign_options.expires, &seconds) < 0 || seconds == 0)
			return error_set(
			    error, ERROR_USAGE,
			    "--expires: invalid time `%s`; use for example 90s, 15m, 2h or 7d",
			    sign_options.expires);
		json_object_set_new(body, "expires_seconds", json_integer((json_int_t)seconds));
	}
	if (sign_options.max_bytes) {
		if (text_to_bytes(sign_options.max_bytes, 1, &bytes) < 0 || bytes == 0)
			return error_set(
			    error, ERROR_USAGE,
			    "--max-bytes: invalid size `%s`; use for example 512K, 10M or 1G",
			    sign_options.max_bytes);
		json_object_set_new(body, "max_bytes", json_integer((json_int_t)bytes));
	}
	if (sign_options.user)
		json_object_set_new(body, "user", json_string(sign_options.user));
	return 0;
}

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
	int result = sign_body_fill(argv[2], body, error);
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

static const struct option_spec options[] = {
    {"put", 0, OPTION_FLAG, &sign_options.put, NULL, "to write the file (default: to read it)"},
    {"expires", 0, OPTION_TEXT, &sign_options.expires, "TIME",
     "how long it is valid, like 15m, at most 7d (default: 1h)"},
    {"max-bytes", 0, OPTION_TEXT, &sign_options.max_bytes, "SIZE",
     "with --put: the maximum size, like 10M"},
    {"user", 'u', OPTION_TEXT, &sign_options.user, "USER",
     "the user in the sandbox (default: root)"},
    {0},
};

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
