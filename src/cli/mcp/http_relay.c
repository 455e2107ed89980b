/* `caisson mcp --dialect opensandbox --transport streamable-http`: OpenSandbox's server as its
 * clients know it, at http://127.0.0.1:8000/mcp. Each connection carries one request. Its head is
 * parsed strictly, checked and sent on to the daemon at /mcp/opensandbox; the rest is passed
 * through in both directions until one side closes. A client of this port acts as this user, so
 * only this user's processes on this host may connect: the address must be a loopback one, pages of
 * other origins are refused, and we ask the kernel which user owns the other end.
 *
 * Each connection has a process, at most RELAY_MAX; each blocks. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/mcp/mcp.h"

#define RELAY_MAX 128
#define HEAD_NS (10 * NSEC_PER_SEC)
#define TARGET "/mcp/opensandbox"

/* --- a request's head --- */

struct head {
	char method[16];
	int64_t length; /* length of the body; -1: chunked */
	bool authorized;
	char extra[HTTP_HEAD_MAX]; /* headers to pass on */
};

static int connection_refuse(int fd, int status, const char *reason, const char *text)
{
	char answer[1024];
	int size = snprintf(answer, sizeof(answer),
			    "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nConnection: close\r\n"
			    "Content-Length: %zu\r\n\r\n%s\n",
			    status, reason, strlen(text) + 1, text);
	(void)!send(fd, answer, (size_t)size, MSG_NOSIGNAL);
	return -1;
}

/* "localhost[:port]" and the like. */
static bool host_is_loopback(const char *host)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t size = strlen(names[i]);
		if (strncasecmp(host, names[i], size) != 0)
			continue;
		const char *port = host + size;
		if (*port == '\0' ||
		    (*port == ':' && port[1] && port[1 + strspn(port + 1, "0123456789")] == '\0'))
			return true;
	}
	return false;
}

static bool origin_is_loopback(const char *origin)
{
	if (text_starts(origin, "http://"))
		return host_is_loopback(origin + strlen("http://"));
	return text_starts(origin, "https://") && host_is_loopback(origin + strlen("https://"));
}

static bool header_is_hop_by_hop(const char *name)
{
	static const char *const names[] = {"connection", "keep-alive", "upgrade", "te",
					    "trailer",    "expect",     "host",    "origin"};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcasecmp(name, names[i]) == 0)
			return true;
	return strncasecmp(name, "proxy-", strlen("proxy-")) == 0;
}

struct seen_headers {
	bool host, length, chunked;
	const char *problem; /* NULL, or why it is refused with 403 */
};

static bool text_is_token(const char *text)
{
	size_t size = strlen(text);
	return size > 0 && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					"0123456789!#$%&'*+-.^_`|~") == size;
}

/* 0, or -1: invalid HTTP. */
static int head_take_header(struct head *head, struct seen_headers *seen, char *line)
{
	char *colon = strchr(line, ':');
	if (!colon)
		return -1;
	*colon = '\0';
	char *value = colon + 1 + strspn(colon + 1, " \t");
	size_t size = strlen(value);
	while (size > 0 && strchr(" \t", value[size - 1]))
		value[--size] = '\0';
	if (!text_is_token(line))
		return -1;
	uint64_t length;
	if (strcasecmp(line, "host") == 0) {
		if (seen->host)
			return -1;
		seen->host = true;
		if (!host_is_loopback(value))
			seen->problem = "the Host header is not this server's";
	} else if (strcasecmp(line, "origin") == 0 && !origin_is_loopback(value)) {
		seen->problem = "pages of that origin may not call this server";
	} else if (strcasecmp(line, "content-length") == 0) {
		if (seen->length || seen->chunked || text_to_u64(value, 0, INT64_MAX, &length) < 0)
			return -1;
		seen->length = true;
		head->length = (int64_t)length;
		return 0;
	} else if (strcasecmp(line, "transfer-encoding") == 0) {
		if (seen->length || seen->chunked || strcasecmp(value, "chunked") != 0)
			return -1;
		seen->chunked = true;
		head->length = -1;
		return 0;
	}
	if (header_is_hop_by_hop(line))
		return 0;
	head->authorized |= strcasecmp(line, "authorization") == 0;
	size_t used = strlen(head->extra);
	return text_format(head->extra + used, sizeof(head->extra) - used, "%s: %s\r\n", line,
			   value);
}

static int head_take_request_line(struct head *head, char *line)
{
	char *target = strchr(line, ' ');
	char *version = target ? strchr(target + 1, ' ') : NULL;
	if (!version || strcmp(version, " HTTP/1.1") != 0)
		return 400;
	*target++ = *version = '\0';
	if (text_copy(head->method, sizeof(head->method), line) < 0 || !text_is_token(head->method))
		return 400;
	return strcmp(target, "/mcp") == 0 || strcmp(target, "/mcp/") == 0 ? 0 : 404;
}

/* Parses a head without its last line end. Returns 0, or the status of the refusal. */
static int head_parse(struct head *head, char *text, const char **ret_why)
{
	struct seen_headers seen = {0};
	bool first = true;
	*ret_why = "the request is not valid HTTP/1.1 for this server";
	for (char *line = text, *next; *line; line = next) {
		char *end = strstr(line, "\r\n");
		if (!end)
			return 400;
		*end = '\0';
		next = end + 2;
		/* Refuse bare line ends and folded headers. */
		if (strpbrk(line, "\r\n") || (!first && strchr(" \t", line[0])))
			return 400;
		int status = first ? head_take_request_line(head, line)
				   : (head_take_header(head, &seen, line) < 0 ? 400 : 0);
		if (status == 404)
			*ret_why = "the server is at /mcp";
		if (status != 0)
			return status;
		first = false;
	}
	if (first || !seen.host)
		return 400;
	if (seen.problem)
		*ret_why = seen.problem;
	return seen.problem ? 403 : 0;
}

/* Reads until the empty line. *ret_size: bytes read; *ret_head: how many of them are the head. */
static int head_read(int fd, char *data, size_t room, size_t *ret_size, size_t *ret_head)
{
	int64_t until = clock_monotonic() + HEAD_NS;
	size_t size = 0;
	for (;;) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		int64_t left = until - clock_monotonic();
		if (left <= 0 || size == room - 1 ||
		    poll(&wait, 1, (int)(left / NSEC_PER_MSEC) + 1) <= 0)
			return -1;
		ssize_t got = recv(fd, data + size, room - 1 - size, 0);
		if (got <= 0)
			return -1;
		size += (size_t)got;
		data[size] = '\0';
		char *end = memmem(data, size, "\r\n\r\n", 4);
		if (memchr(data, '\0', end ? (size_t)(end - data) : size))
			return -1;
		if (end) {
			*ret_size = size;
			*ret_head = (size_t)(end - data) + 4;
			return 0;
		}
	}
}

/* --- whose the other end is --- */

#define LOOK_UP_ATTEMPTS 10

/* Counts the lines for a connection in the kernel's table; *ret_same: the other end is this user's.
 * Only the line of a connected socket that a process has open is evidence: a closed socket belongs
 * to the kernel and has no inode and uid 0, independent of its former owner. Two sockets with the
 * same addresses prove nothing. The table is read in pieces: while others connect and close, a line
 * can appear twice or be missed. */
static size_t connection_table_count(const char *table, const char *wanted, bool *ret_same)
{
	char line[512];
	FILE *file = fopen(table, "re");
	size_t found = 0;
	unsigned long seen = 0;
	*ret_same = false;
	while (file && fgets(line, sizeof(line), file)) {
		char local[80], remote[80];
		unsigned state, uid;
		unsigned long inode;
		if (sscanf(line, " %*d: %70s %70s %x %*s %*s %*s %u %*d %lu", local, remote, &state,
			   &uid, &inode) != 5)
			continue;
		char pair[164];
		snprintf(pair, sizeof(pair), "%s %s", local, remote);
		if (strcmp(pair, wanted) != 0 || (found > 0 && inode != 0 && inode == seen))
			continue;
		found++;
		seen = inode;
		*ret_same = state == TCP_ESTABLISHED && inode != 0 && uid == geteuid();
	}
	if (file)
		fclose(file);
	return found;
}

static bool connection_table_same_user(const char *table, const char *wanted)
{
	bool same = false;
	for (int attempt = 0; attempt < LOOK_UP_ATTEMPTS; attempt++) {
		size_t found = connection_table_count(table, wanted, &same);
		if (found > 0)
			return found == 1 && same;
	}
	return false;
}

/* True if nobody has closed or reset the connection: until now the other end's address was that of
 * the same socket. */
static bool connection_is_established(int fd)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
	       info.tcpi_state == TCP_ESTABLISHED;
}

static void endpoint_format(char *text, size_t room, const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)address;
		snprintf(text, room, "%08X:%04X", in->sin_addr.s_addr, ntohs(in->sin_port));
		return;
	}
	const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
	uint32_t words[4];
	memcpy(words, &in->sin6_addr, sizeof(words));
	snprintf(text, room, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3],
		 ntohs(in->sin6_port));
}

static bool peer_is_same_user(int fd)
{
	struct sockaddr_storage ours, theirs;
	socklen_t our_size = sizeof(ours), their_size = sizeof(theirs);
	char our_text[64], their_text[64], pair[164];
	if (getsockname(fd, (struct sockaddr *)&ours, &our_size) < 0 ||
	    getpeername(fd, (struct sockaddr *)&theirs, &their_size) < 0)
		return false;
	endpoint_format(our_text, sizeof(our_text), &ours);
	endpoint_format(their_text, sizeof(their_text), &theirs);
	snprintf(pair, sizeof(pair), "%s %s", their_text, our_text);
	return connection_table_same_user(
		   ours.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", pair) &&
	       connection_is_established(fd);
}

/* --- one connection --- */

static int connection_pass_through(int fd, struct exchange *exchange)
{
	static char data[65536];
	struct error ignored;
	for (;;) {
		struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
				       {.fd = exchange->fd, .events = POLLIN}};
		bool pending = exchange_has_input(exchange);
		if (poll(fds, ARRAY_SIZE(fds), pending ? 0 : -1) < 0 && errno != EINTR)
			return -1;
		if (pending || fds[1].revents) {
			ssize_t got = exchange_receive(exchange, data, sizeof(data));
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0 || fd_write_full(fd, data, (size_t)got) < 0)
				return got < 0 ? -1 : 0;
		}
		/* A client that closes its side is gone, and so is its request. */
		if (fds[0].revents) {
			ssize_t got = recv(fd, data, sizeof(data), 0);
			if (got <= 0 ||
			    exchange_write(exchange, false, data, (size_t)got, &ignored) < 0)
				return got < 0 ? -1 : 0;
		}
	}
}

static int connection_refuse_stranger(int fd)
{
	return connection_refuse(fd, 403, "Forbidden", "this server is another user's");
}

static int connection_serve(struct client *client, int fd)
{
	static char text[HTTP_HEAD_MAX];
	static struct head head;
	static struct exchange exchange = {.fd = -1};
	struct error error;
	size_t size, head_size;
	const char *why;
	if (!peer_is_same_user(fd))
		return connection_refuse_stranger(fd);
	if (head_read(fd, text, sizeof(text), &size, &head_size) < 0)
		return connection_refuse(fd, 400, "Bad Request",
					 "the request's head is incomplete");
	char saved = text[head_size - 2];
	text[head_size - 2] = '\0';
	int status = head_parse(&head, text, &why);
	text[head_size - 2] = saved;
	if (status != 0)
		return connection_refuse(fd, status,
					 status == 403   ? "Forbidden"
					 : status == 404 ? "Not Found"
							 : "Bad Request",
					 why);
	/* The sender is still connected, and still this user. */
	if (!peer_is_same_user(fd))
		return connection_refuse_stranger(fd);
	if (head.authorized)
		client->token[0] = '\0';
	struct request request = {
	    .method = head.method, .path = TARGET, .extra = head.extra, .length = head.length};
	if (exchange_begin(client, &request, &exchange, &error) < 0 ||
	    exchange_write(&exchange, false, text + head_size, size - head_size, &error) < 0)
		return connection_refuse(fd, 502, "Bad Gateway", error.message);
	int result = connection_pass_through(fd, &exchange);
	exchange_done(&exchange);
	return result;
}

/* --- the listener --- */

static int listener_open(struct error *error)
{
	const char *host = mcp_options.host ? mcp_options.host : "127.0.0.1";
	const char *port = mcp_options.port ? mcp_options.port : "8000";
	uint64_t number;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *address;
	if (text_to_u64(port, 0, UINT16_MAX, &number) < 0)
		return error_set(error, ERROR_USAGE, "--port: invalid port `%s`; use 1 to 65535",
				 port);
	if (!host_is_loopback(strcmp(host, "::1") == 0 ? "[::1]" : host))
		return error_set(
		    error, ERROR_USAGE,
		    "--host must be 127.0.0.1, ::1 or localhost: every client acts as this user. "
		    "For others `caisson serve --listen` has /mcp/opensandbox, with tokens");
	int result = getaddrinfo(host, port, &hints, &address);
	if (result != 0)
		return error_set(error, ERROR_USAGE, "--host %s: %s", host, gai_strerror(result));
	CLOSE_FD int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int yes = 1;
	bool bound = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
		     bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, 64) == 0;
	int saved = errno;
	freeaddrinfo(address);
	if (!bound)
		return error_set_errno(error, ERROR_USAGE, saved, "listening at %s:%s", host, port);
	return TAKE_FD(fd);
}

static void listener_address_print(int listener)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	char text[64] = "?", port[16] = "?";
	if (getsockname(listener, (struct sockaddr *)&address, &size) == 0)
		getnameinfo((struct sockaddr *)&address, size, text, sizeof(text), port,
			    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	fprintf(stderr,
		strchr(text, ':') ? "caisson mcp: http://[%s]:%s/mcp\n"
				  : "caisson mcp: http://%s:%s/mcp\n",
		text, port);
}

static bool connection_serve_in_child(struct client *client, int listener, int fd)
{
	pid_t parent = getpid(), child = fork();
	if (child != 0)
		return child > 0;
	/* The children end when we end. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_IGN);
	close(listener);
	_exit(connection_serve(client, fd) < 0);
}

int mcp_relay_run(struct client *client, struct error *error)
{
	/* Make sure that a daemon runs before we print where to connect. */
	CLOSE_FD int probe = client_connect(client, error);
	if (probe < 0)
		return -1;
	CLOSE_FD int listener = listener_open(error);
	if (listener < 0)
		return -1;
	listener_address_print(listener);
	size_t children = 0;
	for (;;) {
		while (children > 0 && waitpid(-1, NULL, children >= RELAY_MAX ? 0 : WNOHANG) > 0)
			children--;
		/* Ended children are reaped at the next connection or time-out. */
		struct pollfd wait = {.fd = listener, .events = POLLIN};
		if (poll(&wait, 1, children > 0 ? 1000 : -1) <= 0)
			continue;
		CLOSE_FD int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		if (connection_serve_in_child(client, listener, fd))
			children++;
		else
			connection_refuse(fd, 503, "Service Unavailable", "no process can be made");
	}
}
