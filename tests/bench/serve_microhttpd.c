/* bench-microhttpd: GNU libmicrohttpd answering a constant, one thread with epoll: the peer of our
 * own HTTP layer. Ends with its standard input.
 *
 *   bench-microhttpd PORT BYTES */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX 65536

static char answer[BYTES_MAX];
static size_t answer_size;

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *data_size, void **state)
{
	(void)context;
	(void)url;
	(void)method;
	(void)version;
	(void)data;
	(void)data_size;
	/* The first call is for the head alone; an answer to it would end the connection. */
	if (!*state) {
		*state = answer;
		return MHD_YES;
	}
	*state = NULL;
	struct MHD_Response *response =
	    MHD_create_response_from_buffer(answer_size, answer, MHD_RESPMEM_PERSISTENT);
	MHD_add_response_header(response, "Content-Type", "application/json");
	enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return result;
}

int main(int argc, char **argv)
{
	char byte;
	if (argc != 3) {
		fprintf(stderr, "usage: bench-microhttpd PORT BYTES\n");
		return 2;
	}
	size_t asked = strtoul(argv[2], NULL, 10);
	answer_size = asked < BYTES_MAX ? asked : BYTES_MAX;
	memset(answer, 'x', answer_size);
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct MHD_Daemon *daemon = MHD_start_daemon(
	    MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR,
	    (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, 1024, MHD_OPTION_END);
	if (!daemon) {
		fprintf(stderr, "bench-microhttpd: it does not start\n");
		return 1;
	}
	while (read(0, &byte, 1) > 0)
		;
	MHD_stop_daemon(daemon);
	return 0;
}
