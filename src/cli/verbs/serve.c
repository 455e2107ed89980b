/* `caisson serve` and `caisson version`. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "spawner/spawner.h"

static struct {
	const char *listen, *state, *runtime, *config, *user, *log_level, *idle_exit;
	const char *tls_certificate, *tls_key;
	bool log_json;
} options;

static int config_set_text(char *to, size_t room, const char *value, const char *name,
			   struct error *error)
{
	if (value && text_copy(to, room, value) < 0)
		return error_set(error, ERROR_USAGE, "--%s is too long", name);
	return 0;
}

/* The spawner reads the file, also on a reload, and its working directory differs. */
static int path_make_absolute(char *path, size_t room, const char *name, struct error *error)
{
	char whole[PATH_MAX + 256];
	FREE_TEXT char *here = getcwd(NULL, 0);
	if (path[0] == '\0' || path[0] == '/')
		return 0;
	if (!here || text_format(whole, sizeof(whole), "%s/%s", here, path) < 0 ||
	    text_copy(path, room, whole) < 0)
		return error_set(error, ERROR_USAGE, "--%s is too long", name);
	return 0;
}

/* Precedence: defaults < file < environment < flags. */
static int serve_config_read(struct config *config, char *path, size_t room, struct error *error)
{
	config_defaults(config);
	if (config_path(options.config, path, room) < 0)
		return error_set(error, ERROR_USAGE, "--config is too long");
	if (config_read_file(config, path, options.config != NULL, error) < 0 ||
	    config_read_environment(config, error) < 0 ||
	    config_set_text(config->listen, sizeof(config->listen), options.listen, "listen",
			    error) < 0 ||
	    config_set_text(config->state, sizeof(config->state), options.state, "state", error) <
		0 ||
	    config_set_text(config->runtime, sizeof(config->runtime), options.runtime, "runtime",
			    error) < 0 ||
	    config_set_text(config->user, sizeof(config->user), options.user, "user", error) < 0 ||
	    config_set_text(config->tls_certificate, sizeof(config->tls_certificate),
			    options.tls_certificate, "tls-certificate", error) < 0 ||
	    config_set_text(config->tls_key, sizeof(config->tls_key), options.tls_key, "tls-key",
			    error) < 0 ||
	    path_make_absolute(config->tls_certificate, sizeof(config->tls_certificate),
			       "tls-certificate", error) < 0 ||
	    path_make_absolute(config->tls_key, sizeof(config->tls_key), "tls-key", error) < 0)
		return -1;
	if (options.log_level && log_level_parse(options.log_level, &config->log_level) < 0)
		return error_set(error, ERROR_USAGE,
				 "invalid log level `%s`; use error, warning, info or debug",
				 options.log_level);
	config->log_level_fixed = config->log_level_fixed || options.log_level;
	uint64_t seconds;
	if (options.idle_exit) {
		if (text_to_seconds(options.idle_exit, &seconds) < 0 || seconds > UINT32_MAX)
			return error_set(
			    error, ERROR_USAGE,
			    "--idle-exit: invalid time `%s`; use for example 90s or 15m",
			    options.idle_exit);
		config->idle_exit_seconds = (uint32_t)seconds;
	}
	config->log_json = config->log_json || options.log_json;
	return config_check(config, error);
}

static int serve_run(struct client *client, int argc, char **argv, struct error *error)
{
	(void)client;
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "serve takes no argument (\"%s\")", argv[1]);
	struct config config;
	char path[256];
	if (serve_config_read(&config, path, sizeof(path), error) < 0)
		return -1;
	log_setup("spawner", config.log_level, config.log_json);
	return spawner_main(&config, path);
}

static const struct option_spec serve_specs[] = {
    {"listen", 0, OPTION_TEXT, &options.listen, "HOST:PORT",
     "where the API listens; none = the Unix socket only (default: 127.0.0.1:7878)"},
    {"state", 0, OPTION_TEXT, &options.state, "DIR",
     "state directory (default: /var/lib/caisson, or ~/.local/state/caisson)"},
    {"runtime", 0, OPTION_TEXT, &options.runtime, "DIR",
     "runtime directory, for sockets (default: /run/caisson; a user's: $XDG_RUNTIME_DIR/caisson, "
     "else /run/user/UID/caisson, else DIR/run of the state)"},
    {"config", 0, OPTION_TEXT, &options.config, "FILE",
     "configuration (default: /etc/caisson/caisson.conf, or ~/.config/caisson/...)"},
    {"user", 0, OPTION_TEXT, &options.user, "NAME",
     "user of the API process if started by root (default: caisson)"},
    {"tls-certificate", 0, OPTION_TEXT, &options.tls_certificate, "FILE",
     "TLS on the TCP port: the certificate chain in PEM, readable by you; SIGHUP reloads it",
     "tls_certificate"},
    {"tls-key", 0, OPTION_TEXT, &options.tls_key, "FILE", "its private key, likewise", "tls_key"},
    {"log-level", 0, OPTION_TEXT, &options.log_level, "LEVEL", "error, warning, info or debug"},
    {"log-json", 0, OPTION_FLAG, &options.log_json, NULL, "one JSON object per log line"},
    {"idle-exit", 0, OPTION_TEXT, &options.idle_exit, "TIME",
     "end after this time without a sandbox or a request"},
    {0},
};

const struct verb verb_serve = {
    .name = "serve",
    .json = "errors as JSON (the log: --log-json)",
    .arguments = "[options]",
    .summary = "Run the daemon in the foreground",
    .help =
	"The daemon: the API on the Unix socket and on a TCP port (with tokens). Sandboxes keep\n"
	"running when it ends, and the next daemon finds them. SIGHUP reloads the configuration.\n"
	"An ordinary user can run one too, in directories of the user's own. Each sandbox's "
	"record\n"
	"says which limits it cannot enforce (disk; without a cgroup of the user's also memory, "
	"cpu\n"
	"and processes). With a range of ids in /etc/subuid and /etc/subgid its sandboxes have\n"
	"users of their own and their root is not the user.\n"
	"Flags override the environment (CAISSON_LISTEN, CAISSON_STATE, CAISSON_RUNTIME), which\n"
	"overrides the configuration file.",
    .options = serve_specs,
    .configuration = CONFIGURATION_NEVER,
    .run = serve_run,
};

static int version_run(struct client *client, int argc, char **argv, struct error *error)
{
	(void)client;
	(void)argv;
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "version takes no argument");
	if (cli_json)
		printf("{\"version\": \"%s\"}\n", CAISSON_VERSION);
	else
		printf("caisson %s\n", CAISSON_VERSION);
	return 0;
}

const struct verb verb_version = {
    .name = "version",
    .arguments = "",
    .summary = "Print the version",
    .help = "The version of this program. The daemon's: GET /v1/version.",
    .configuration = CONFIGURATION_NEVER,
    .run = version_run,
};
