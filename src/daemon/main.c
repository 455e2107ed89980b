/* The daemon's main. It reads the configuration, starts the domain, opens its two listeners and
 * drops privileges. Then it runs the loop until the spawner says quit or is gone, or the daemon
 * is idle. Called by src/main.c for the role `_daemon`. */
#include "daemon/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "api/prometheus.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "daemon/tcp_access.h"
#include "daemon/fault.h"
#include "daemon/privileges.h"
#include "daemon/watchdog.h"
#include "edge/edge.h"
#include "mcp/mcp.h"
#include "proto/spawner_messages.h"

#define SHUTDOWN_GRACE_MS 2800
#define LOST_GRACE_MS 0    /* the next daemon is being started */
#define POOL_GRACE_MS 2000 /* after the last answer */
#define IDLE_CHECK_MS 250

struct daemon {
	uv_loop_t loop;
	struct config config;
	char config_path[256]; /* "" = none */
	bool with_tcp;
	struct core core;
	struct edge edge;
	struct mcp_server *mcp;
	struct http_server *server;    /* NULL until the domain is ready */
	struct tcp_access accesses[2]; /* one is in use, a reload fills the other */
	struct tcp_access *access;
	SSL_CTX *tls;
	struct watchdog watchdog;
	uv_timer_t idle_timer;
	int64_t idle_since;                          /* 0 = not idle */
	bool stopping, closed, pool_ended, finished; /* the steps of ending */
	int exit_code;
};

/* --- configuration --- */

struct flags {
	const char *config, *state, *runtime, *listen, *idle_exit, *files_max, *log_level;
	const char *tls_certificate, *tls_key;
	bool log_json, tcp;
};

static int flags_parse(int argc, char **argv, struct flags *flags)
{
	const struct {
		const char *name, **text; /* takes a text, */
		bool *set;                /* or none */
	} known[] = {
	    {"config", &flags->config, NULL},
	    {"state", &flags->state, NULL},
	    {"runtime", &flags->runtime, NULL},
	    {"listen", &flags->listen, NULL},
	    {"idle-exit", &flags->idle_exit, NULL},
	    {"files-max", &flags->files_max, NULL},
	    {"tls-certificate", &flags->tls_certificate, NULL},
	    {"tls-key", &flags->tls_key, NULL},
	    {"log-level", &flags->log_level, NULL},
	    {"log-json", NULL, &flags->log_json},
	    {"tcp", NULL, &flags->tcp},
	};
	struct option options[ARRAY_SIZE(known) + 1] = {0};
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		options[i] = (struct option){
		    .name = known[i].name,
		    .has_arg = known[i].text ? required_argument : no_argument,
		};
	int result, index;
	optind = 1;
	while ((result = getopt_long(argc, argv, "", options, &index)) == 0) {
		if (known[index].text)
			*known[index].text = optarg;
		else
			*known[index].set = true;
	}
	return result == -1 && optind == argc ? 0 : -1;
}

/* Also used on reload, where flags still take precedence. */
static int config_read(const struct flags *flags, const char *path, struct config *config,
		       struct error *error)
{
	uint64_t seconds, files;
	config_defaults(config);
	if ((path[0] && config_read_file(config, path, false, error) < 0) ||
	    config_read_environment(config, error) < 0)
		return -1;
	if ((flags->state && text_copy(config->state, sizeof(config->state), flags->state) < 0) ||
	    (flags->runtime &&
	     text_copy(config->runtime, sizeof(config->runtime), flags->runtime) < 0) ||
	    (flags->listen &&
	     text_copy(config->listen, sizeof(config->listen), flags->listen) < 0) ||
	    (flags->tls_certificate &&
	     text_copy(config->tls_certificate, sizeof(config->tls_certificate),
		       flags->tls_certificate) < 0) ||
	    (flags->tls_key &&
	     text_copy(config->tls_key, sizeof(config->tls_key), flags->tls_key) < 0))
		return error_set(error, ERROR_CONFIG, "a path or address is too long");
	if (flags->idle_exit) {
		if (text_to_u64(flags->idle_exit, 0, 1000000, &seconds) < 0)
			return error_set(error, ERROR_CONFIG, "--idle-exit %s: not a number",
					 flags->idle_exit);
		config->idle_exit_seconds = (uint32_t)seconds;
	}
	if (flags->files_max) {
		if (text_to_u64(flags->files_max, SANDBOX_FILES_MIN, SANDBOX_FILES_MAX, &files) < 0)
			return error_set(error, ERROR_CONFIG, "--files-max %s: not a number",
					 flags->files_max);
		config->files_cap = (uint32_t)files;
		config->maximum.files = MIN(config->maximum.files, config->files_cap);
		config->defaults.files = MIN(config->defaults.files, config->files_cap);
	}
	if (flags->log_level && log_level_parse(flags->log_level, &config->log_level) < 0)
		return error_set(error, ERROR_CONFIG, "--log-level %s: unknown level",
				 flags->log_level);
	config->log_json |= flags->log_json;
	return config_check(config, error);
}

static struct flags flags; /* the command line's, for reloads */

static void idle_timer_update(struct daemon *daemon);

/* Rereads the TCP listener's names and certificate. */
static int tcp_access_reload(struct daemon *daemon, const struct config *config,
			     struct error *error)
{
	struct tcp_access *access = &daemon->accesses[daemon->access == &daemon->accesses[0]];
	SSL_CTX *tls = NULL;
	if (tcp_access_configure(access, config, error) < 0 ||
	    (daemon->tls &&
	     tcp_access_load_tls(config, DAEMON_CERTIFICATE_FD, DAEMON_KEY_FD, &tls, error) < 0))
		return -1;
	daemon->access = access;
	if (daemon->server)
		http_server_set_names(daemon->server, access->hosts, access->origins);
	/* Switching TLS on or off needs a restart; connections keep their context. */
	if (tls) {
		if (daemon->server)
			http_server_set_tls(daemon->server, tls);
		SSL_CTX_free(daemon->tls);
		daemon->tls = tls;
	}
	return 0;
}

static void on_reload(void *data)
{
	struct daemon *daemon = data;
	struct config config;
	struct error error;
	if (config_read(&flags, daemon->config_path, &config, &error) < 0 ||
	    tcp_access_reload(daemon, &config, &error) < 0) {
		log_error("reload: the configuration stays as it was: %s", error.message);
		return;
	}
	daemon->config = config;
	log_set_level(config.log_level);
	core_configure(&daemon->core, &config);
	idle_timer_update(daemon);
	log_info("the configuration was read again");
}

/* --- ending --- */

static void daemon_finish(struct daemon *daemon)
{
	if (daemon->finished)
		return;
	daemon->finished = true;
	/* No request is open any more; the domain fails the remaining callbacks. */
	mcp_server_free(daemon->mcp);
	core_stop(&daemon->core);
	uv_stop(&daemon->loop);
}

static void on_pool_late(uv_timer_t *timer)
{
	log_warning("the pool has not ended in %d seconds", POOL_GRACE_MS / 1000);
	daemon_finish(timer->data);
}

static void on_server_closed(void *data)
{
	struct daemon *daemon = data;
	daemon->closed = true;
	if (daemon->pool_ended)
		daemon_finish(daemon);
	else
		uv_timer_start(&daemon->idle_timer, on_pool_late, POOL_GRACE_MS, 0);
}

static void on_pool_ended(void *data)
{
	struct daemon *daemon = data;
	daemon->pool_ended = true;
	if (daemon->closed)
		daemon_finish(daemon);
}

/* This must happen before connections are closed: a closed connection cancels its command. */
static void on_last_answers(void *data)
{
	struct daemon *daemon = data;
	core_let_go(&daemon->core);
}

static void daemon_stop(struct daemon *daemon, int exit_code, uint32_t grace_ms)
{
	if (daemon->stopping)
		return;
	daemon->stopping = true;
	daemon->exit_code = exit_code;
	core_end_pool(&daemon->core, on_pool_ended, daemon);
	if (!daemon->server) {
		on_server_closed(daemon);
		return;
	}
	mcp_server_ending(daemon->mcp);
	uv_timer_stop(&daemon->idle_timer);
	http_server_shutdown(daemon->server, grace_ms, on_last_answers, on_server_closed, daemon);
}

static void on_quit(void *data)
{
	log_info("asked to end");
	daemon_stop(data, EXIT_SUCCESS, SHUTDOWN_GRACE_MS);
}

/* Sandboxes run on; the next spawner starts a daemon that finds them. */
static void on_spawner_lost(void *data)
{
	daemon_stop(data, EXIT_FAILURE, LOST_GRACE_MS);
}

/* Returns whether a retry is useless. A full disk, a locked database or a busy spawner may
 * recover. */
static bool error_is_permanent(const struct error *error)
{
	return error->kind == ERROR_CONFIG || error->kind == ERROR_STORE_CORRUPT ||
	       error->kind == ERROR_STORE_NEWER || error->kind == ERROR_UNSUPPORTED;
}

static void on_start_failed(void *data, const struct error *error)
{
	(void)data;
	log_error("cannot start: %s", error->message);
	exit(error_is_permanent(error) ? DAEMON_EXIT_CONFIG : EXIT_FAILURE);
}

static void on_idle_timer(uv_timer_t *timer)
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
		daemon_stop(daemon, DAEMON_EXIT_IDLE, SHUTDOWN_GRACE_MS);
	}
}

/* The timer only runs if the daemon may exit when idle. */
static void idle_timer_update(struct daemon *daemon)
{
	daemon->idle_since = 0;
	if (daemon->stopping)
		return;
	if (daemon->config.idle_exit_seconds > 0)
		uv_timer_start(&daemon->idle_timer, on_idle_timer, IDLE_CHECK_MS, IDLE_CHECK_MS);
	else
		uv_timer_stop(&daemon->idle_timer);
}

/* --- starting --- */

/* Half of the descriptors; the others are for guests, logs and requests. */
static uint32_t connections_max(void)
{
	struct rlimit files;
	uint32_t most = http_default_settings.connections_max;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 2 >= most)
		return most;
	return MAX((uint32_t)files.rlim_cur / 2, 16);
}

static void on_ready(void *data)
{
	struct daemon *daemon = data;
	struct http_settings settings = http_default_settings;
	struct http_handlers handlers = {
	    .handle = edge_handle, .answered = prometheus_answered, .context = &daemon->edge};
	struct error error;
	settings.hosts = daemon->access->hosts;
	settings.origins = daemon->access->origins;
	settings.connections_max = connections_max();
	/* Users without a token (edge/authentication.c) are accepted even if many others use the
	 * socket. */
	settings.trusted_uids = &daemon->edge.owner;
	settings.trusted_uid_count = 1;
	daemon->server = http_server_new(&daemon->loop, &settings, &handlers);
	daemon->edge.server = daemon->server;
	daemon->mcp = mcp_server_new(&daemon->core);
	mcp_serve(daemon->mcp);
	if (http_server_listen(daemon->server, DAEMON_UNIX_FD, NULL, &error) < 0 ||
	    (daemon->with_tcp &&
	     http_server_listen(daemon->server, DAEMON_TCP_FD, daemon->tls, &error) < 0)) {
		log_error("cannot listen: %s", error.message);
		exit(EXIT_FAILURE);
	}
	if (daemon->with_tcp)
		tcp_access_url(&daemon->config, daemon->tls != NULL, daemon->edge.url,
			       sizeof(daemon->edge.url));
	log_info("ready: %s/caisson.sock%s%s", daemon->config.runtime,
		 daemon->with_tcp ? " and " : "", daemon->with_tcp ? daemon->config.listen : "");
}

/* Makes libraries read their files while that is still allowed. */
static void libraries_warm(void)
{
	json_object_seed(0);
	tzset();
}

/* What is served over HTTP. */
static const struct surface *const surfaces[] = {&rest_surface, &mcp_surface, NULL};

static int daemon_start(struct daemon *daemon, struct error *error)
{
	struct stat runtime;
	if (stat(daemon->config.runtime, &runtime) < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "%s", daemon->config.runtime);
	daemon->edge.core = &daemon->core;
	daemon->edge.owner = runtime.st_uid;
	daemon->core.hooks = (struct core_hooks){.reload = on_reload,
						 .quit = on_quit,
						 .lost = on_spawner_lost,
						 .failed = on_start_failed,
						 .data = daemon};
	libraries_warm();
	edge_start(&daemon->edge, surfaces);
	prometheus_start();
	daemon->access = &daemon->accesses[0];
	if (tcp_access_configure(daemon->access, &daemon->config, error) < 0 ||
	    (daemon->with_tcp && tcp_access_load_tls(&daemon->config, DAEMON_CERTIFICATE_FD,
						     DAEMON_KEY_FD, &daemon->tls, error) < 0) ||
	    core_start(&daemon->core, &daemon->loop, &daemon->config, DAEMON_SPAWNER_FD, on_ready,
		       daemon, error) < 0 ||
	    privileges_drop(&daemon->config, daemon->config_path, error) < 0)
		return -1;
	watchdog_start(&daemon->watchdog, &daemon->loop, &daemon->edge.last_route);
	uv_timer_init(&daemon->loop, &daemon->idle_timer);
	daemon->idle_timer.data = daemon;
	idle_timer_update(daemon);
	return 0;
}

static int daemon_prepare(struct daemon *daemon, int argc, char **argv, struct error *error)
{
	if (flags_parse(argc, argv, &flags) < 0)
		return error_set(error, ERROR_USAGE, "_daemon: started by the spawner only");
	if (flags.config &&
	    text_copy(daemon->config_path, sizeof(daemon->config_path), flags.config) < 0)
		return error_set(error, ERROR_CONFIG, "--config: the path is too long");
	if (config_read(&flags, daemon->config_path, &daemon->config, error) < 0)
		return -1;
	daemon->with_tcp = flags.tcp;
	log_setup("daemon", daemon->config.log_level, daemon->config.log_json);
	for (int fd = DAEMON_SPAWNER_FD; fd <= (flags.tcp ? DAEMON_TCP_FD : DAEMON_UNIX_FD); fd++)
		if (fd_set_cloexec(fd, true) < 0 || fd_set_nonblocking(fd) < 0)
			return error_set(error, ERROR_USAGE,
					 "_daemon: descriptor %d is missing; started by the "
					 "spawner only",
					 fd);
	if (flags.tls_certificate && (fd_set_cloexec(DAEMON_CERTIFICATE_FD, true) < 0 ||
				      fd_set_cloexec(DAEMON_KEY_FD, true) < 0))
		return error_set(error, ERROR_USAGE,
				 "_daemon: the copies of the TLS files are "
				 "missing; started by the spawner only");
	return 0;
}

int daemon_main(int argc, char **argv)
{
	static struct daemon daemon;
	struct error error;
	log_setup("daemon", LOG_INFO, false);
	/* The spawner handles these signals and tells us. A closed connection must not raise
	 * SIGPIPE. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (daemon_prepare(&daemon, argc, argv, &error) < 0) {
		log_error("%s", error.message);
		return DAEMON_EXIT_CONFIG;
	}
	uv_loop_init(&daemon.loop);
	uv_loop_configure(&daemon.loop, UV_METRICS_IDLE_TIME);
	FAULT_WATCH_CLOCK(&daemon.loop);
	if (daemon_start(&daemon, &error) < 0) {
		log_error("cannot start: %s", error.message);
		return error_is_permanent(&error) ? DAEMON_EXIT_CONFIG : EXIT_FAILURE;
	}
	uv_run(&daemon.loop, UV_RUN_DEFAULT);
	/* Handles close in the iterations after uv_close(). */
	watchdog_stop(&daemon.watchdog);
	uv_close((uv_handle_t *)&daemon.idle_timer, NULL);
	http_server_free(daemon.server);
	for (int i = 0; i < 8 && uv_run(&daemon.loop, UV_RUN_NOWAIT) != 0; i++)
		;
	SSL_CTX_free(daemon.tls);
	return daemon.exit_code;
}
