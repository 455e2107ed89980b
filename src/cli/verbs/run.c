/* `caisson run`, `exec` and `shell`: run a command in a sandbox, connected to our standard
 * descriptors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/client/terminal.h"
#include "cli/suggestions.h"

static struct {
	const char *timeout, *cwd, *user;
	struct text_list environment;
	bool interactive, tty, no_tty, keep, remove, detach;
} options;

const struct option_spec place_rows[] = {
    {"cwd", 'w', OPTION_TEXT, &options.cwd, "DIR", "where it starts (default: /workspace)", "cwd"},
    {"user", 'u', OPTION_TEXT, &options.user, "USER",
     "name or number, optionally with :GROUP (default: root of the sandbox)", "user"},
    {0},
};

static const struct option_spec terminal_rows[] = {
    {"tty", 't', OPTION_FLAG, &options.tty, NULL, "use a terminal even if standard input is none"},
    {"interactive", 'i', OPTION_FLAG, &options.interactive, NULL,
     "no effect: standard input is always passed on"},
    {"no-tty", 0, OPTION_FLAG, &options.no_tty, NULL,
     "use no terminal even if standard input is one"},
    {0},
};

static const struct option_spec exec_specs[] = {
    {"timeout", 'T', OPTION_TEXT, &options.timeout, "TIME",
     "end the command and all it started after this time, like 90s or 15m", "timeout_seconds"},
    {"env", 'e', OPTION_ENVIRONMENT, &options.environment, "K[=V]",
     "environment; K alone passes yours on (repeatable)", "env"},
    OPTION_ROWS_OF(place_rows),
    OPTION_ROWS_OF(terminal_rows),
    {"detach", 'd', OPTION_FLAG, &options.detach, NULL,
     "start it, print its id, do not wait (see `caisson logs`, with --tty `caisson attach`)"},
    {0},
};

static int exec_body_fill(json_t *body, int argc, char **argv, bool tty, struct error *error)
{
	json_t *words = json_array();
	json_object_set_new(body, "argv", words);
	json_object_set_new(body, "tty", json_boolean(tty));
	for (int i = 0; i < argc; i++)
		if (json_array_append_new(words, json_string(argv[i])) < 0)
			return error_set(error, ERROR_USAGE, "\"%s\" is not valid UTF-8", argv[i]);
	if (options_to_body(exec_specs, body, error) < 0)
		return -1;
	const char *terminal = getenv("TERM");
	if (tty && terminal && !json_object_get(body, "env"))
		json_object_set_new(body, "env", json_object());
	if (tty && terminal && !json_object_get(json_object_get(body, "env"), "TERM"))
		json_object_set_new(json_object_get(body, "env"), "TERM", json_string(terminal));
	/* A terminal without a size (expect creates such ones) has none to pass on. */
	struct winsize size;
	if (tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
		json_object_set_new(body, "rows", json_integer(size.ws_row));
		json_object_set_new(body, "cols", json_integer(size.ws_col));
	}
	return 0;
}

int exec_body_make(int argc, char **argv, bool tty, json_t **ret_body, struct error *error)
{
	json_t *body = json_object();
	int result = exec_body_fill(body, argc, argv, tty, error);
	if (result == 0)
		*ret_body = body;
	else
		json_decref(body);
	return result;
}

static bool tty_is_wanted(void)
{
	return !options.no_tty && (options.tty || exec_session_wants_tty());
}

static int sandbox_run_session(struct client *client, const char *sandbox, int argc, char **argv,
			       int *ret_exit_code, struct error *error)
{
	bool tty = tty_is_wanted();
	json_t *body;
	if (exec_body_make(argc, argv, tty, &body, error) < 0)
		return -1;
	struct exec_session session = {
	    .sandbox = sandbox, .body = body, .tty = tty, .stdin_open = true};
	int result = exec_session_run(client, &session, ret_exit_code, error);
	json_decref(body);
	return result;
}

int client_sandbox_delete(struct client *client, const char *id, struct error *error)
{
	return client_sandbox_call(client, "DELETE", id, "", NULL, NULL, error);
}

/* The sandbox lives a little longer than its command's time-out, so that the end of the command is
 * reported. */
static char sandbox_timeout[32];

static void timeout_outlive_command(void)
{
	uint64_t seconds;
	if (!options.timeout || text_to_seconds(options.timeout, &seconds) < 0 || seconds == 0 ||
	    seconds + 30 > SANDBOX_TIMEOUT_MAX)
		return;
	snprintf(sandbox_timeout, sizeof(sandbox_timeout), "%llu",
		 (unsigned long long)MAX(seconds + 30, (uint64_t)SANDBOX_TIMEOUT_DEFAULT));
	create_options.timeout = sandbox_timeout;
}

/* The default command: bash if it exists. */
static char *const shell_words[] = {
    "/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash; else exec /bin/sh; fi", NULL};
#define SHELL_COUNT ((int)ARRAY_SIZE(shell_words) - 1)

/* One request makes the sandbox, runs the command and removes the sandbox. */
static int oneshot_run(struct client *client, int argc, char **argv, int *ret_exit_code,
		       struct error *error)
{
	int fds[CREATE_MOUNTS_MAX];
	size_t fd_count = 0;
	struct exec_session session = {.body = json_object(),
				       .fds = fds,
				       .tty = tty_is_wanted(),
				       .stdin_open = true,
				       .fresh = verb_run.name};
	int result = options_to_body(create_rows, session.body, error);
	if (result == 0)
		result = exec_body_fill(session.body, argc, argv, session.tty, error);
	if (result == 0)
		result = create_mounts_open(session.body, fds, &fd_count, error);
	session.fd_count = fd_count;
	if (result == 0)
		result = exec_session_run(client, &session, ret_exit_code, error);
	if (session.left[0])
		error_print("caisson: sandbox %s is removed when nothing has run in it for %d "
			    "minutes",
			    session.made, ONESHOT_LEFT_IDLE_SECONDS / 60);
	for (size_t i = 0; i < fd_count; i++)
		fd_close(&fds[i]);
	json_decref(session.body);
	return result;
}

static int kept_sandbox_run(struct client *client, int argc, char **argv, int *ret_exit_code,
			    struct error *error)
{
	json_t *record = NULL;
	timeout_outlive_command();
	if (client_sandbox_create(client, &record, error) < 0)
		return -1;
	unenforced_limits_warn(verb_run.name, record);
	const char *id = member_text(record, "id");
	int result = sandbox_run_session(client, id, argc, argv, ret_exit_code, error);
	fprintf(stderr, "caisson: kept as %s\n", id);
	json_decref(record);
	return result;
}

static int run_run(struct client *client, int argc, char **argv, struct error *error)
{
	int exit_code = 0, count = argc > 1 ? argc - 1 : SHELL_COUNT;
	char **words = argc > 1 ? argv + 1 : (char **)shell_words;
	if (options.keep && options.remove)
		return error_set(error, ERROR_USAGE, "--keep and --rm contradict each other");
	int result = options.keep ? kept_sandbox_run(client, count, words, &exit_code, error)
				  : oneshot_run(client, count, words, &exit_code, error);
	bool meant_image =
	    options.interactive || options.remove || (argc > 1 && word_looks_like_image(argv[1]));
	if (result < 0 && error->kind == ERROR_PROGRAM_NOT_FOUND && meant_image)
		return error_prepend(error, "there are no images yet, the first word is the "
					    "command");
	return result < 0 ? -1 : exit_code;
}

static const struct option_spec run_specs[] = {
    OPTION_ROWS_OF(create_rows),
    {"timeout", 'T', OPTION_TEXT, &options.timeout, "TIME",
     "end the command and all it started after this time, like 90s or 15m (default: no end)",
     "timeout_seconds"},
    OPTION_ROWS_OF(place_rows),
    OPTION_ROWS_OF(terminal_rows),
    {"keep", 'k', OPTION_FLAG, &options.keep, NULL,
     "keep the sandbox afterwards: for 10m, or a little longer than -T"},
    {"rm", 0, OPTION_FLAG, &options.remove, NULL, "no effect: it is removed anyway"},
    {0},
};

const struct verb verb_run = {
    .name = "run",
    .json = "errors as JSON; what the command prints stays as it is",
    .arguments = "[options] [--] [COMMAND ...]",
    .summary = "Run one command in a fresh sandbox",
    .help =
	"Creates a sandbox, runs the command with your standard input, output and error,\n"
	"removes the sandbox, and exits with the command's code (124: timed out, 126: not\n"
	"executable, 127: no such program, 125: caisson itself failed). With a terminal it is\n"
	"interactive: Ctrl-C and the like go to the terminal inside. Without one, SIGINT and\n"
	"SIGTERM are passed on to all that the command started, and the third one kills it. The\n"
	"sandbox ends with this process, however that ends, unless --keep is given or you detach\n"
	"from the command.\n" TERMINAL_LEAVE_HELP "\n\n"
	"  caisson run -- python3 -c 'print(2 ** 100)'\n"
	"  echo data | caisson run -- wc -c\n"
	"  caisson run -v ~/project:/workspace:cow --timeout 5m -- make test",
    .options = run_specs,
    .command_follows = true,
    .run = run_run,
};

/* Parses "SANDBOX [--] COMMAND ...": returns the index of the command. */
static int command_find_start(int argc, char **argv)
{
	int at = 2;
	if (at < argc && strcmp(argv[at], "--") == 0)
		at++;
	return at;
}

static int background_exec_start(struct client *client, const char *sandbox, int argc, char **argv,
				 struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	json_t *body, *answer = NULL;
	if (sandbox_path(&path, sandbox, "/exec", error) < 0 ||
	    exec_body_make(argc, argv, options.tty, &body, error) < 0)
		return -1;
	json_object_set_new(body, "background", json_true());
	/* A terminal can be attached to later. */
	if (options.tty)
		json_object_set_new(body, "stdin", json_true());
	int result = client_call(client, "POST", path.data, body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	if (cli_json)
		json_print(answer);
	else
		printf("%s\n", member_text(answer, "exec_id"));
	json_decref(answer);
	return 0;
}

static int exec_run(struct client *client, int argc, char **argv, struct error *error)
{
	int at = command_find_start(argc, argv);
	if (at >= argc)
		return error_set(error, ERROR_USAGE,
				 "exec needs a sandbox and a command: caisson exec ID -- ls -l");
	if (options.detach)
		return background_exec_start(client, argv[1], argc - at, argv + at, error);
	int exit_code = 0;
	if (sandbox_run_session(client, argv[1], argc - at, argv + at, &exit_code, error) < 0)
		return -1;
	return exit_code;
}

const struct verb verb_exec = {
    .name = "exec",
    .json = "errors, and with -d the record, as JSON; the command's output stays",
    .sandboxes = true,
    .arguments = "[options] SANDBOX [--] COMMAND ...",
    .summary = "Run a command in an existing sandbox",
    .help =
	"Like run, in an existing sandbox (id or name). A paused sandbox is resumed, a stopped\n"
	"one is started.\n" TERMINAL_LEAVE_HELP "\n\n"
	"  caisson exec mybox -- ls -l\n"
	"  tar c . | caisson exec mybox -- tar x\n"
	"  caisson exec -d mybox -- python3 -m http.server",
    .options = exec_specs,
    .command_follows = true,
    .run = exec_run,
};

static int shell_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 2)
		return error_set(error, ERROR_USAGE,
				 "shell takes a sandbox and no command: caisson exec %s -- %s ...",
				 argv[1], argv[2]);
	if (argc < 2)
		return run_run(client, argc, argv, error);
	int exit_code = 0;
	if (sandbox_run_session(client, argv[1], SHELL_COUNT, (char **)shell_words, &exit_code,
				error) < 0)
		return -1;
	return exit_code;
}

const struct verb verb_shell = {
    .name = "shell",
    .json = "errors as JSON",
    .sandboxes = true,
    .arguments = "[options] [SANDBOX]",
    .summary = "Open a terminal in a sandbox",
    .help =
	"An interactive shell (bash if it exists) in an existing sandbox, or in a fresh one that\n"
	"is removed when the shell ends.\n" TERMINAL_LEAVE_HELP "\n\n"
	"  caisson shell mybox",
    .options = exec_specs,
    .run = shell_run,
};
