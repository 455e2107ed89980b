/* The API's sockets. The spawner binds them once and passes them to each daemon, so that
 * connections wait while a daemon restarts. Called with the runtime directory locked: an
 * existing socket file is stale. */
#include "spawner/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define BACKLOG 512
#define IN_USE_PAUSE (10 * NSEC_PER_MSEC)
#define IN_USE_PAUSES_MAX 300

static int unix_listener_open(struct spawner *spawner, struct error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (config_socket_path(&spawner->config, address.sun_path, sizeof(address.sun_path)) < 0)
		return error_set(error, ERROR_CONFIG, "the runtime directory's path is too long");
	CLOSE_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "Unix socket");
	unlink(address.sun_path);
	/* Everyone may connect: clients are authenticated by their credentials or their token. */
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, 0666) < 0 || listen(fd, BACKLOG) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "Unix socket %s",
				       address.sun_path);
	spawner->unix_listener = TAKE_FD(fd);
	return 0;
}

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Whether the program that has the address answers as Caisson does on /healthz. The exchange is
 * bounded, and its result only chooses a word of an error message. */
static bool address_answers_as_caisson(const union address *address, socklen_t size)
{
	static const char question[] =
	    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	const struct timeval patience = {.tv_sec = 1};
	char answer[2048];
	size_t have = 0;
	CLOSE_FD int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(fd, &address->any, size) < 0 ||
	    send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) < 0)
		return false;
	for (int i = 0; i < 4 && have < sizeof(answer) - 1; i++) {
		ssize_t got = recv(fd, answer + have, sizeof(answer) - 1 - have, 0);
		if (got <= 0)
			break;
		have += (size_t)got;
	}
	answer[have] = '\0';
	return strcasestr(answer, "\r\nX-Request-Id: ") && strstr(answer, "{\"status\":\"");
}

static int address_set_error(const char *listen_on, const union address *address, socklen_t size,
			     int errnum, struct error *error)
{
	if (errnum == EADDRINUSE)
		return error_set(
		    error, ERROR_CONFIG,
		    "the address %s is in use by another %s: choose another with "
		    "--listen HOST:PORT, or --listen none for the Unix socket alone",
		    listen_on,
		    address_answers_as_caisson(address, size)
			? "Caisson daemon (an ordinary user's takes it when it is free)"
			: "program");
	if (errnum == EADDRNOTAVAIL)
		return error_set(error, ERROR_CONFIG,
				 "the address %s is not one of this host's: choose another with "
				 "--listen HOST:PORT",
				 listen_on);
	return error_set_errno(error, ERROR_CONFIG, errnum, "listening on %s", listen_on);
}

static socklen_t address_parse(const char *host, uint16_t port, union address *address)
{
	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, host, &address->v4.sin_addr) == 1) {
		address->v4.sin_family = AF_INET;
		address->v4.sin_port = htons(port);
		return sizeof(address->v4);
	}
	if (inet_pton(AF_INET6, host, &address->v6.sin6_addr) != 1)
		return 0;
	address->v6.sin6_family = AF_INET6;
	address->v6.sin6_port = htons(port);
	return sizeof(address->v6);
}

static bool address_is_loopback(const union address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

/* A killed spawner leaves its socket file and a daemon that ends as soon as it notices. Until
 * then the daemon keeps the address. */
static int address_bind(const struct spawner *spawner, int fd, const union address *address,
			socklen_t size)
{
	char path[SPAWNER_PATH_MAX];
	bool killed = config_socket_path(&spawner->config, path, sizeof(path)) == 0 &&
		      access(path, F_OK) == 0;
	for (int i = 0; bind(fd, &address->any, size) < 0; i++) {
		if (errno != EADDRINUSE || !killed || i == IN_USE_PAUSES_MAX)
			return -1;
		nanosleep(&(struct timespec){.tv_nsec = IN_USE_PAUSE}, NULL);
	}
	return 0;
}

static int tcp_listener_open(struct spawner *spawner, struct error *error)
{
	char host[CONFIG_HOST_MAX];
	uint16_t port;
	union address address;
	const char *listen_on = spawner->config.listen;
	int on = 1;
	int result = config_split_listen(listen_on, host, &port);
	if (result == -ENOENT)
		return 0;
	socklen_t size = result < 0 ? 0 : address_parse(host, port, &address);
	if (size == 0)
		return error_set(error, ERROR_CONFIG, "listen = %s is not understood", listen_on);
	CLOSE_FD int fd =
	    socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    address_bind(spawner, fd, &address, size) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, &address.any, &size) < 0) {
		/* Each user of a host may have a daemon; the default port belongs to the first
		 * one. */
		if (errno != EADDRINUSE || spawner->host.rights == RIGHTS_ROOT ||
		    strcmp(listen_on, CONFIG_LISTEN_DEFAULT) != 0)
			return address_set_error(listen_on, &address, size, errno, error);
		log_warning("the address %s is in use: the API is on the Unix socket alone "
			    "(--listen HOST:PORT chooses another)",
			    listen_on);
		return 0;
	}
	/* Port 0 means any port: read which one was assigned. */
	bool v6 = address.any.sa_family == AF_INET6;
	port = ntohs(v6 ? address.v6.sin6_port : address.v4.sin_port);
	(void)!text_format(spawner->listen, sizeof(spawner->listen), v6 ? "[%s]:%u" : "%s:%u", host,
			   (unsigned)port);
	if (!address_is_loopback(&address) && !spawner->config.tls_certificate[0])
		log_warning("%s can be reached from other hosts, and tokens travel unencrypted: "
			    "set tls_certificate and tls_key",
			    spawner->listen);
	spawner->tcp_listener = TAKE_FD(fd);
	return 0;
}

int listeners_open(struct spawner *spawner, struct error *error)
{
	return tcp_listener_open(spawner, error) < 0 ? -1 : unix_listener_open(spawner, error);
}
