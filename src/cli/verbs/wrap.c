/* `caisson wrap`: runs a third party's stdio MCP server in a sandbox of its own, connected to our
 * standard descriptors. Like `run`, but the sandbox lives as long as we do: it carries the label of
 * a connection that we hold open (core/sandbox/ephemeral.h) and ends with it, however we end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/held_connection.h"

/* Creates the sandbox, runs the server in it and deletes the sandbox. */
static int held_sandbox_run(struct client *client, const char *verb, json_t *body,
			    int *ret_exit_code, struct error *error)
{
	json_t *record = NULL;
	create_options.timeout = "0";
	if (client_sandbox_create(client, &record, error) < 0)
		return -1;
	unenforced_limits_warn(verb, record);
	const char *id = member_text(record, "id");
	struct exec_session session = {
	    .sandbox = id, .body = body, .stdin_open = true, .fresh = "wrap"};
	int result = exec_session_run(client, &session, ret_exit_code, error);
	struct error ignored;
	if (client_sandbox_delete(client, id, result < 0 ? &ignored : error) < 0)
		result = -1;
	json_decref(record);
	return result;
}

static int wrap_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc < 2)
		return error_set(error, ERROR_USAGE,
				 "wrap needs a command: caisson wrap -v .:/workspace -- node "
				 "server.js");
	json_t *body = NULL;
	if (exec_body_make(argc - 1, argv + 1, false, &body, error) < 0)
		return -1;
	struct exchange *hold = NULL;
	int exit_code = 0;
	int result = held_connection_open(client, &hold, error);
	if (result == 0)
		result = held_sandbox_run(client, argv[0], body, &exit_code, error);
	held_connection_close(hold);
	json_decref(body);
	return result < 0 ? -1 : exit_code;
}

static const struct option_spec wrap_specs[] = {
    OPTION_ROWS_OF(create_rows),
    OPTION_ROWS_OF(place_rows),
    {0},
};

const struct verb verb_wrap = {
    .name = "wrap",
    .json = "errors as JSON; what the server prints stays as it is",
    .arguments = "[options] [--] COMMAND ...",
    .summary = "Run somebody else's stdio MCP server in a sandbox",
    .help =
	"Creates a sandbox and runs the server in it with your standard input, output and error,\n"
	"byte for byte. In a client's configuration, put it before the server's own command. The\n"
	"sandbox has no time-out: it lives as long as this process, however that ends, and the\n"
	"server's exit code becomes ours. SIGINT and SIGTERM are passed on.\n"
	"\n"
	"The server sees no file of yours but this machine's /usr (read-only) and the folders "
	"that\n"
	"-v gives it, and it has no network: `npx -y` and `uvx` can fetch nothing there. Install "
	"the\n"
	"server first, give its folder with -v, and start it by its file:\n"
	"\n"
	"  npm install --prefix ~/servers some-server\n"
	"  caisson wrap -v ~/servers:/servers -- node /servers/node_modules/some-server/index.js\n"
	"  caisson wrap -m 256M -v ~/notes:/notes:rw -e API_KEY -- /notes/server --root /notes",
    .options = wrap_specs,
    .command_follows = true,
    .run = wrap_run,
};
