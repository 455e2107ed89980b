/* The daemon's main: reads the configuration, starts the domain, opens the two doors, narrows
 * itself and turns the loop until the spawner says quit, is gone, or nobody needs it any more.
 * Called by src/main.c for the role `_daemon`. */
#include "daemon/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "daemon/narrow.h"
#include "daemon/watchdog.h"

#define SHUTDOWN_GRACE_MS 3000
#define IDLE_CHECK_MS 250

struct daemon {
	uv_loop_t loop;
	struct config config;
	char config_path[256]; /* "" = there is none */
	bool with_tcp;
	struct core core;
	struct api api;
	struct http_server *server; /* NULL until the domain is ready */
	const char *hosts[5];
	char host[CONFIG_HOST_MAX + 2];
	SSL_CTX *tls;
	struct watchdog watchdog;
	uv_timer_t idle_timer;
	int64_t idle_since; /* 0 = not idle */
	bool stopping;
	int exit_code;
};

/* --- configuration --- */

struct flags {
	const char *config, *state, *runtime, *listen, *idle_exit, *log_level;
	bool log_json, tcp;
};

static int parse_flags(int argc, char **argv, struct flags *flags)
{
	static const struct option options[] = {
	    {"config", required_argument, NULL, 'c'},
	    {"state", required_argument, NULL, 's'},
	    {"runtime", required_argument, NULL, 'r'},
	    {"listen", required_argument, NULL, 'l'},
	    {"idle-exit", required_argument, NULL, 'i'},
	    {"log-level", required_argument, NULL, 'v'},
	    {"log-json", no_argument, NULL, 'j'},
	    {"tcp", no_argument, NULL, 't'},
	    {0},
	};
	int option;
	optind = 1;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			flags->config = optarg;
			break;
		case 's':
			flags->state = optarg;
			break;
		case 'r':
			flags->runtime = optarg;
			break;
		case 'l':
			flags->listen = optarg;
			break;
		case 'i':
			flags->idle_exit = optarg;
			break;
		case 'v':
			flags->log_level = optarg;
			break;
		case 'j':
			flags->log_json = true;
			break;
		case 't':
			flags->tcp = true;
			break;
		default:
			return -1;
		}
	}
	return optind == argc ? 0 : -1;
}

/* Also on reload, where the flags go on winning. */
static int read_config(const struct flags *flags, const char *path, struct config *config,
		       struct error *error)
{
	uint64_t seconds;
	config_defaults(config);
	if ((path[0] && config_read_file(config, path, false, error) < 0) ||
	    config_read_environment(config, error) < 0)
		return -1;
	if ((flags->state && text_copy(config->state, sizeof(config->state), flags->state) < 0) ||
	    (flags->runtime &&
	     text_copy(config->runtime, sizeof(config->runtime), flags->runtime) < 0) ||
	    (flags->listen && text_copy(config->listen, sizeof(config->listen), flags->listen) < 0))
		return error_set(error, ERROR_CONFIG, "a path or address is too long");
	if (flags->idle_exit) {
		if (text_to_u64(flags->idle_exit, 0, 1000000, &seconds) < 0)
			return error_set(error, ERROR_CONFIG, "--idle-exit %s: not a number",
					 flags->idle_exit);
		config->idle_exit_seconds = (uint32_t)seconds;
	}
	if (flags->log_level && log_level_parse(flags->log_level, &config->log_level) < 0)
		return error_set(error, ERROR_CONFIG, "--log-level %s: there is none of that name",
				 flags->log_level);
	config->log_json |= flags->log_json;
	return config_check(config, error);
}

static struct flags flags; /* the command line's, for reloads */

static void watch_idle(struct daemon *daemon);

static void reload(void *data)
{
	struct daemon *daemon = data;
	struct config config;
	struct error error;
	if (read_config(&flags, daemon->config_path, &config, &error) < 0) {
		log_error("reload: the configuration stays as it was: %s", error.message);
		return;
	}
	daemon->config = config;
	log_set_level(config.log_level);
	core_configure(&daemon->core, &config);
	watch_idle(daemon);
	log_info("the configuration was read again");
}

/* --- ending --- */

static void closed(void *data)
{
	struct daemon *daemon = data;
	/* No request is left that could be answered; the domain tells the last callbacks so. */
	core_stop(&daemon->core);
	uv_stop(&daemon->loop);
}

static void stop(struct daemon *daemon, int exit_code)
{
	if (daemon->stopping)
		return;
	daemon->stopping = true;
	daemon->exit_code = exit_code;
	if (daemon->server)
		http_server_shutdown(daemon->server, SHUTDOWN_GRACE_MS, closed, daemon);
	else
		closed(daemon);
}

static void quit(void *data)
{
	log_info("asked to end");
	stop(data, EXIT_SUCCESS);
}

/* Sandboxes run on; whoever starts the spawner again starts a daemon that finds them. */
static void lost(void *data)
{
	(void)data;
	log_error("the spawner is gone");
	exit(EXIT_FAILURE);
}

static void failed(void *data, const struct error *error)
{
	(void)data;
	log_error("cannot start: %s", error->message);
	exit(DAEMON_EXIT_CONFIG);
}

static void check_idle(uv_timer_t *timer)
{
	struct daemon *daemon = timer->data;
	uint32_t seconds = daemon->config.idle_exit_seconds;
	int64_t now = clock_boot();
	bool idle = daemon->server && core_idle(&daemon->core) &&
		    http_server_connections(daemon->server) == 0;
	if (!idle) {
		daemon->idle_since = 0;
		return;
	}
	if (daemon->idle_since == 0)
		daemon->idle_since = now;
	if (now - daemon->idle_since >= seconds * NSEC_PER_SEC) {
		log_info("idle for %u seconds: ending", seconds);
		stop(daemon, DAEMON_EXIT_IDLE);
	}
}

/* A daemon that stays anyway is not woken to look. */
static void watch_idle(struct daemon *daemon)
{
	daemon->idle_since = 0;
	if (daemon->config.idle_exit_seconds > 0)
		uv_timer_start(&daemon->idle_timer, check_idle, IDLE_CHECK_MS, IDLE_CHECK_MS);
	else
		uv_timer_stop(&daemon->idle_timer);
}

/* --- starting --- */

static int load_tls(struct daemon *daemon, struct error *error)
{
	const struct config *config = &daemon->config;
	if (!daemon->with_tcp || !config->tls_certificate[0])
		return 0;
	daemon->tls = SSL_CTX_new(TLS_server_method());
	if (!daemon->tls || SSL_CTX_set_min_proto_version(daemon->tls, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_use_certificate_chain_file(daemon->tls, config->tls_certificate) != 1 ||
	    SSL_CTX_use_PrivateKey_file(daemon->tls, config->tls_key, SSL_FILETYPE_PEM) != 1)
		return error_set(error, ERROR_CONFIG, "TLS: %s, %s: %s", config->tls_certificate,
				 config->tls_key, ERR_reason_error_string(ERR_get_error()));
	return 0;
}

/* Names by which a browser may reach the TCP door. An operator who listens on every address has
 * names that we cannot know: then any is right, and tokens alone guard it. */
static const char *const *served_hosts(struct daemon *daemon)
{
	char host[CONFIG_HOST_MAX];
	uint16_t port;
	size_t count = 0;
	daemon->hosts[count++] = "localhost";
	daemon->hosts[count++] = "127.0.0.1";
	daemon->hosts[count++] = "[::1]";
	if (config_split_listen(daemon->config.listen, host, &port) == 0) {
		if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
			return NULL;
		snprintf(daemon->host, sizeof(daemon->host), strchr(host, ':') ? "[%s]" : "%s",
			 host);
		daemon->hosts[count++] = daemon->host;
	}
	return daemon->hosts;
}

/* Half of the descriptors: the others are for guests, logs and what a request needs. */
static uint32_t connections_max(void)
{
	struct rlimit files;
	uint32_t most = http_default_settings.connections_max;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 2 >= most)
		return most;
	return MAX((uint32_t)files.rlim_cur / 2, 16);
}

static void ready(void *data)
{
	struct daemon *daemon = data;
	struct http_settings settings = http_default_settings;
	struct http_handlers handlers = {.handle = api_handle, .context = &daemon->api};
	struct error error;
	settings.hosts = served_hosts(daemon);
	settings.connections_max = connections_max();
	/* Those who need no token (api/auth.c) are let in whoever else crowds the socket. */
	settings.trusted_uids = &daemon->api.owner;
	settings.trusted_uid_count = 1;
	daemon->server = http_server_new(&daemon->loop, &settings, &handlers);
	if (http_server_listen(daemon->server, DAEMON_UNIX_FD, NULL, &error) < 0 ||
	    (daemon->with_tcp &&
	     http_server_listen(daemon->server, DAEMON_TCP_FD, daemon->tls, &error) < 0)) {
		log_error("cannot listen: %s", error.message);
		exit(EXIT_FAILURE);
	}
	log_info("ready: %s/caisson.sock%s%s", daemon->config.runtime,
		 daemon->with_tcp ? " and " : "", daemon->with_tcp ? daemon->config.listen : "");
}

/* What libraries would read from files at their first use, while that is still possible. */
static void warm_libraries(void)
{
	json_object_seed(0);
	tzset();
}

static int start(struct daemon *daemon, struct error *error)
{
	struct stat runtime;
	if (stat(daemon->config.runtime, &runtime) < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "%s", daemon->config.runtime);
	daemon->api.core = &daemon->core;
	daemon->api.owner = runtime.st_uid;
	daemon->core.hooks = (struct core_hooks){
	    .reload = reload, .quit = quit, .lost = lost, .failed = failed, .data = daemon};
	warm_libraries();
	api_start();
	if (load_tls(daemon, error) < 0 ||
	    core_start(&daemon->core, &daemon->loop, &daemon->config, DAEMON_SPAWNER_FD, ready,
		       daemon, error) < 0 ||
	    narrow(&daemon->config, daemon->config_path, error) < 0)
		return -1;
	watchdog_start(&daemon->watchdog, &daemon->loop, &daemon->api.last_route);
	uv_timer_init(&daemon->loop, &daemon->idle_timer);
	daemon->idle_timer.data = daemon;
	watch_idle(daemon);
	return 0;
}

static int prepare(struct daemon *daemon, int argc, char **argv, struct error *error)
{
	if (parse_flags(argc, argv, &flags) < 0)
		return error_set(error, ERROR_USAGE, "_daemon: started by the spawner only");
	if (flags.config &&
	    text_copy(daemon->config_path, sizeof(daemon->config_path), flags.config) < 0)
		return error_set(error, ERROR_CONFIG, "--config: the path is too long");
	if (read_config(&flags, daemon->config_path, &daemon->config, error) < 0)
		return -1;
	daemon->with_tcp = flags.tcp;
	log_setup("daemon", daemon->config.log_level, daemon->config.log_json);
	for (int fd = DAEMON_SPAWNER_FD; fd <= (flags.tcp ? DAEMON_TCP_FD : DAEMON_UNIX_FD); fd++)
		if (fd_set_cloexec(fd, true) < 0 || fd_set_nonblocking(fd) < 0)
			return error_set(error, ERROR_USAGE,
					 "_daemon: descriptor %d is missing; started by the "
					 "spawner only",
					 fd);
	return 0;
}

int daemon_main(int argc, char **argv)
{
	static struct daemon daemon;
	struct error error;
	log_setup("daemon", LOG_INFO, false);
	/* The terminal's signals are the spawner's to hear; a closed connection is no signal. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (prepare(&daemon, argc, argv, &error) < 0) {
		log_error("%s", error.message);
		return DAEMON_EXIT_CONFIG;
	}
	uv_loop_init(&daemon.loop);
	uv_loop_configure(&daemon.loop, UV_METRICS_IDLE_TIME);
	if (start(&daemon, &error) < 0) {
		log_error("cannot start: %s", error.message);
		bool hopeless = error.kind == ERROR_CONFIG || error.kind == ERROR_STORE_CORRUPT ||
				error.kind == ERROR_STORE_NEWER;
		return hopeless ? DAEMON_EXIT_CONFIG : EXIT_FAILURE;
	}
	uv_run(&daemon.loop, UV_RUN_DEFAULT);
	/* Handles close in the turns after they were asked to. */
	watchdog_stop(&daemon.watchdog);
	uv_close((uv_handle_t *)&daemon.idle_timer, NULL);
	http_server_free(daemon.server);
	for (int i = 0; i < 8 && uv_run(&daemon.loop, UV_RUN_NOWAIT) != 0; i++)
		;
	SSL_CTX_free(daemon.tls);
	return daemon.exit_code;
}
