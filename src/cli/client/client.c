/* The command line's HTTP client: one blocking request per connection. See client.h. */
#include "cli/client/client.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/client/tls.h"
#include "cli/client/daemon_start.h"

#define SYSTEM_RUNTIME "/run/caisson"

int client_use_url(struct client *client, const char *name, const char *url, struct error *error)
{
	client->tls = text_starts(url, "https://");
	if (!client->tls && !text_starts(url, "http://"))
		return error_set(error, ERROR_USAGE,
				 "%s is \"%s\"; it must be http://HOST:PORT or "
				 "https://HOST:PORT",
				 name, url);
	const char *host = url + strlen(client->tls ? "https://" : "http://");
	size_t length = strcspn(host, "/");
	const char *colon = memrchr(host, ':', length);
	size_t host_length = colon ? (size_t)(colon - host) : length;
	if (host_length == 0 || host_length >= sizeof(client->host))
		return error_set(error, ERROR_USAGE, "%s \"%s\" has no host", name, url);
	bool bracketed = host[0] == '[' && host[host_length - 1] == ']' && host_length > 2;
	snprintf(client->host, sizeof(client->host), "%.*s",
		 (int)(bracketed ? host_length - 2 : host_length), bracketed ? host + 1 : host);
	snprintf(client->port, sizeof(client->port), "%.*s",
		 colon ? (int)(length - host_length - 1) : 4, colon ? colon + 1 : "7878");
	client->remote = true;
	return 0;
}

/* A worker that a killed spawner had just forked keeps the socket for a moment, but nobody accepts
 * the connection: the request would be lost with "connection reset". The kernel reports the pid
 * that called listen(), 0 if that is in another pid namespace. */
static bool listener_has_ended(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0 &&
	       kill(peer.pid, 0) < 0 && errno == ESRCH;
}

static int socket_connect_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int result = text_copy(address.sun_path, sizeof(address.sun_path), path);
	if (result < 0)
		return result;
	CLOSE_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return listener_has_ended(fd) ? -ECONNREFUSED : TAKE_FD(fd);
}

/* The process that listens at the socket receives the request, the token and the user's folders, so
 * it must belong to this user or root. In a directory below /tmp another user may have created the
 * runtime directory first. If the user named the runtime directory, we trust its owner. The kernel
 * reports the uid that called listen(). */
static int client_check_listener(const struct client *client, int fd, struct error *error)
{
	struct stat info;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	const char *runtime = client->config.runtime;
	if (lstat(runtime, &info) < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, errno, "%s", runtime);
	/* Follow a symbolic link only if its owner is trusted. */
	uid_t owner = client->runtime_named ? info.st_uid : geteuid();
	bool owned = info.st_uid == owner || info.st_uid == 0;
	if (owned && S_ISLNK(info.st_mode)) {
		if (stat(runtime, &info) < 0)
			return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, errno, "%s",
					       runtime);
		owner = client->runtime_named ? info.st_uid : geteuid();
		owned = info.st_uid == owner || info.st_uid == 0;
	}
	if (!owned)
		return error_set(error, ERROR_DAEMON_UNREACHABLE,
				 "%s belongs to uid %u, not to this user: refusing to send to the "
				 "process that listens there",
				 runtime, (unsigned)info.st_uid);
	if (info.st_mode & 022)
		return error_set(
		    error, ERROR_DAEMON_UNREACHABLE,
		    "others can write to %s: nothing is sent to the process that listens there",
		    runtime);
	if (peer.uid != geteuid() && peer.uid != 0 && peer.uid != owner)
		return error_set(error, ERROR_DAEMON_UNREACHABLE,
				 "uid %u, neither this user nor root, listens at %s: refusing "
				 "to send to it",
				 (unsigned)peer.uid, client->socket);
	return 0;
}

/* An ordinary user has a daemon of their own, which needs no token and is started on demand. With a
 * token, the user means the daemon that issued it: root's daemon, if that runs. */
static void client_use_system_daemon(struct client *client)
{
	if (geteuid() == 0 || getenv("CAISSON_RUNTIME") || !client->token[0])
		return;
	CLOSE_FD int fd = socket_connect_unix(SYSTEM_RUNTIME "/caisson.sock");
	if (fd >= 0)
		snprintf(client->config.runtime, sizeof(client->config.runtime), "%s",
			 SYSTEM_RUNTIME);
}

static int client_read_configuration(struct client *client, struct error *error)
{
	config_defaults(&client->config);
	/* A daemon that we start listens on TCP only if the configuration names a port. The default
	 * port is for a daemon that somebody started on purpose. */
	client->config.listen[0] = '\0';
	char runtime[sizeof(client->config.runtime)];
	memcpy(runtime, client->config.runtime, sizeof(runtime));
	const char *explicit_path = getenv("CAISSON_CONFIG");
	char path[256];
	if (config_path(explicit_path, path, sizeof(path)) < 0)
		return error_set(error, ERROR_CONFIG, "the configuration file's path is too long");
	if (config_read_file(&client->config, path, explicit_path != NULL, error) < 0 ||
	    config_read_environment(&client->config, error) < 0)
		return -1;
	if (!client->config.listen[0])
		snprintf(client->config.listen, sizeof(client->config.listen), "none");
	client->runtime_named =
	    getenv("CAISSON_RUNTIME") || strcmp(runtime, client->config.runtime) != 0;
	if (explicit_path && text_copy(client->config_path, sizeof(client->config_path), path) < 0)
		return error_set(error, ERROR_CONFIG, "the configuration file's path is too long");
	return 0;
}

int client_setup(struct client *client, bool needed, struct error *error)
{
	memset(client, 0, sizeof(*client));
	const char *url = getenv("CAISSON_URL");
	bool remote = url && *url;
	if (client_read_configuration(client, error) < 0 && (needed || !remote))
		return -1;
	const char *token = getenv("CAISSON_TOKEN");
	if (token && text_copy(client->token, sizeof(client->token), token) < 0)
		return error_set(error, ERROR_USAGE, "CAISSON_TOKEN is too long to be a token");
	if (strpbrk(client->token, "\r\n"))
		return error_set(error, ERROR_USAGE, "CAISSON_TOKEN holds a line end");
	if (remote)
		return client_use_url(client, "CAISSON_URL", url, error);
	client_use_system_daemon(client);
	if (config_socket_path(&client->config, client->socket, sizeof(client->socket)) < 0)
		return error_set(error, ERROR_CONFIG,
				 "the runtime directory's path is too long for a Unix socket: %s",
				 client->config.runtime);
	return 0;
}

static int client_connect_tcp(const struct client *client, struct error *error)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *addresses;
	int result = getaddrinfo(client->host, client->port, &hints, &addresses);
	if (result != 0)
		return error_set(error, ERROR_DAEMON_UNREACHABLE, "%s: %s", client->host,
				 gai_strerror(result));
	CLOSE_FD int fd = -1;
	int saved = 0;
	for (struct addrinfo *a = addresses; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
			saved = errno;
			fd_close(&fd);
		}
	}
	freeaddrinfo(addresses);
	if (fd < 0)
		return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, saved,
				       "no daemon answers at %s://%s:%s",
				       client->tls ? "https" : "http", client->host, client->port);
	return TAKE_FD(fd);
}

void client_explain_lost_connection(const struct client *client, struct error *error)
{
	const struct timeval patience = {.tv_sec = 5};
	struct error ignored;
	if (!client->remote || client->tls || error->kind != ERROR_DAEMON_RESTARTING)
		return;
	CLOSE_FD int fd = client_connect_tcp(client, &ignored);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    !client_tls_is_spoken(fd))
		return;
	bool brackets = strchr(client->host, ':');
	error_set(error, ERROR_DAEMON_TLS,
		  "port %s of %s uses TLS: set CAISSON_URL=https://%s%s%s:%s (a token that was "
		  "sent to it by http:// was sent unencrypted)",
		  client->port, client->host, brackets ? "[" : "", client->host,
		  brackets ? "]" : "", client->port);
}

static int daemon_unreachable(const struct client *client, int result, struct error *error)
{
	if (result == -EACCES || result == -EPERM)
		return error_set(error, ERROR_NO_PERMISSION,
				 "no permission to use the daemon's socket %s", client->socket);
	return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, result, "no daemon answers at %s",
			       client->socket);
}

int client_ping(struct client *client, struct error *error)
{
	CLOSE_FD int fd = client->remote ? client_connect_tcp(client, error)
					 : socket_connect_unix(client->socket);
	if (fd < 0)
		return client->remote ? -1 : daemon_unreachable(client, fd, error);
	return client->remote ? 0 : client_check_listener(client, fd, error);
}

/* Shell completion must not start a daemon, nor may a process that waits for one. */
static bool client_may_start(const struct client *client)
{
	const char *word = getenv("CAISSON_START");
	return !client->no_start && (!word || strcmp(word, "no") != 0);
}

int client_connect(struct client *client, struct error *error)
{
	if (client->remote)
		return client_connect_tcp(client, error);
	CLOSE_FD int fd = socket_connect_unix(client->socket);
	if ((fd == -ENOENT || fd == -ECONNREFUSED) && client_may_start(client)) {
		if (daemon_start(client, error) < 0)
			return -1;
		fd = socket_connect_unix(client->socket);
	}
	if (fd < 0)
		return daemon_unreachable(client, fd, error);
	if (client_check_listener(client, fd, error) < 0)
		return -1;
	return TAKE_FD(fd);
}

int client_daemon_url(struct client *client, char *url, size_t room, struct error *error)
{
	const char *scheme = client->tls ? "https" : "http";
	url[0] = '\0';
	if (client->remote) {
		snprintf(url, room, strchr(client->host, ':') ? "%s://[%s]:%s" : "%s://%s:%s",
			 scheme, client->host, client->port);
		return 0;
	}
	json_t *version = NULL;
	if (client_call(client, "GET", "/v1/version", NULL, NULL, 0, &version, error) < 0)
		return -1;
	const char *said = json_string_value(json_object_get(version, "url"));
	if (said)
		snprintf(url, room, "%s", said);
	json_decref(version);
	if (url[0])
		return 0;
	return error_set(
	    error, ERROR_USAGE,
	    "the daemon has no TCP address, only its Unix socket: `caisson serve` takes its "
	    "place with one (%s unless --listen says otherwise), or set `[server] listen`",
	    CONFIG_LISTEN_DEFAULT);
}
