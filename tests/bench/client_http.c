/* HTTP/1.1 as little as a measurement needs. See client.h. Called by client_measure.c; blocks. */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

void client_fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "bench-client: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
}

double client_now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

void link_open(struct link *link, const struct address *address)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct sockaddr_in remote = {.sin_family = AF_INET,
				     .sin_port = htons(address->port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1, result;
	link->fd = socket(address->path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (link->fd < 0)
		client_fail("socket: %s", strerror(errno));
	if (address->path) {
		if (text_copy(local.sun_path, sizeof(local.sun_path), address->path) < 0)
			client_fail("the socket's path is too long");
		result = connect(link->fd, (struct sockaddr *)&local, sizeof(local));
	} else {
		setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		result = connect(link->fd, (struct sockaddr *)&remote, sizeof(remote));
	}
	if (result < 0)
		client_fail("connect: %s", strerror(errno));
	link->received = 0;
	link->length = -1;
}

void link_close(struct link *link)
{
	fd_close(&link->fd);
}

void link_prepare(struct link *link, const struct address *address, const char *method,
		  const char *path, const char *body, const char *headers)
{
	char length[64] = "";
	if (body)
		snprintf(length, sizeof(length),
			 "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
	int size = snprintf(link->request, sizeof(link->request),
			    "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s%s%s%s\r\n%s", method, path,
			    address->token ? "Authorization: Bearer " : "",
			    address->token ? address->token : "", address->token ? "\r\n" : "",
			    headers ? headers : "", length, body ? body : "");
	if (size < 0 || (size_t)size >= sizeof(link->request))
		client_fail("a request is too long");
	link->request_size = (size_t)size;
}

void link_send(struct link *link)
{
	link->received = 0;
	link->length = -1;
	if (fd_write_full(link->fd, link->request, link->request_size) < 0)
		client_fail("send: %s", strerror(errno));
}

/* The value of a header, or NULL. */
static const char *header(const struct link *link, const char *name)
{
	const char *line = link->answer;
	size_t length = strlen(name);
	while ((line = strstr(line, "\r\n")) && line < link->answer + link->head_size) {
		line += 2;
		if (strncasecmp(line, name, length) == 0 && line[length] == ':')
			return line + length + 1;
	}
	return NULL;
}

static bool parse_head(struct link *link)
{
	link->answer[link->received] = '\0';
	const char *end = strstr(link->answer, "\r\n\r\n");
	if (!end)
		return false;
	link->head_size = (size_t)(end - link->answer) + 4;
	if (link->received < 12 || strncmp(link->answer, "HTTP/1.1 ", 9) != 0)
		client_fail("that is no HTTP: %.80s", link->answer);
	link->status = (int)strtol(link->answer + 9, NULL, 10);
	const char *length = header(link, "content-length");
	link->length = length ? strtoll(length, NULL, 10) : 0;
	link->chunked = !length && header(link, "transfer-encoding");
	return true;
}

bool link_receive(struct link *link)
{
	if (link->received >= ANSWER_ROOM - 1)
		client_fail("an answer is too long");
	ssize_t got =
	    recv(link->fd, link->answer + link->received, ANSWER_ROOM - 1 - link->received, 0);
	if (got <= 0)
		client_fail("recv: %s", got == 0 ? "the server hung up" : strerror(errno));
	link->received += (size_t)got;
	if (link->length < 0 && !parse_head(link))
		return false;
	link->answer[link->received] = '\0';
	if (link->chunked)
		return link->received >= link->head_size + 5 &&
		       memcmp(link->answer + link->received - 5, "0\r\n\r\n", 5) == 0;
	return link->received >= link->head_size + (size_t)link->length;
}

void link_call(struct link *link)
{
	link_send(link);
	while (!link_receive(link))
		;
	if (link->status < 200 || link->status > 299)
		client_fail("%.60s: %s", link->request, link->answer);
}

void link_head(struct link *link)
{
	link->received = 0;
	link->length = -1;
	while (link->length < 0)
		link_receive(link);
}

void link_field(struct link *link, const char *name, char *to, size_t room)
{
	char key[64];
	snprintf(key, sizeof(key), "\"%s\":\"", name);
	const char *at = strstr(link->answer + link->head_size, key);
	to[0] = '\0';
	if (!at)
		return;
	at += strlen(key);
	if (text_format(to, room, "%.*s", (int)strcspn(at, "\""), at) < 0)
		client_fail("the field %s is too long", name);
}
