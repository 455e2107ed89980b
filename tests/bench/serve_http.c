/* bench-http: our own HTTP layer answering a constant, on a loop of its own. What GET of a sandbox
 * is compared with. Ends with its standard input.
 *
 *   bench-http PORT BYTES */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http.h"

#define BYTES_MAX 65536

static char answer[BYTES_MAX];
static size_t answer_size;

static void handle(void *context, struct http_exchange *exchange)
{
	(void)context;
	http_respond(exchange, 200, "application/json", NULL, 0, answer, answer_size);
}

static int listen_on(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 512) < 0) {
		fprintf(stderr, "bench-http: port %u: %s\n", port, strerror(errno));
		exit(1);
	}
	return fd;
}

static void on_input(uv_poll_t *poll, int status, int events)
{
	char byte;
	(void)poll;
	(void)status;
	(void)events;
	if (read(0, &byte, 1) <= 0)
		exit(0);
}

int main(int argc, char **argv)
{
	struct error error;
	uv_poll_t input;
	if (argc != 3) {
		fprintf(stderr, "usage: bench-http PORT BYTES\n");
		return 2;
	}
	answer_size = MIN(strtoul(argv[2], NULL, 10), BYTES_MAX);
	memset(answer, 'x', answer_size);
	uv_loop_t *loop = uv_default_loop();
	const struct http_handlers handlers = {.handle = handle};
	struct http_server *server = http_server_new(loop, &http_default_settings, &handlers);
	int fd = listen_on((uint16_t)strtoul(argv[1], NULL, 10));
	if (http_server_listen(server, fd, NULL, &error) < 0) {
		fprintf(stderr, "bench-http: %s\n", error.message);
		return 1;
	}
	if (uv_poll_init(loop, &input, 0) < 0 || uv_poll_start(&input, UV_READABLE, on_input) < 0)
		return 1;
	return uv_run(loop, UV_RUN_DEFAULT);
}
