/* Makes a request from its head, and answers a handler's questions about it. The exchange, its
 * headers and all of its text are one allocation. Its connection frees it, at a turn or at the
 * connection's end. Nothing here blocks. */
#include "http/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "http/characters.h"
#include "http/target.h"

bool http_host_served(const struct http_server *server, const char *host, size_t size)
{
	if (!server->settings.hosts)
		return true;
	if (size > 0 && host[0] == '[') {
		const char *bracket = memchr(host, ']', size);
		size = bracket ? (size_t)(bracket - host) + 1 : size;
	} else {
		const char *colon = memchr(host, ':', size);
		size = colon ? (size_t)(colon - host) : size;
	}
	for (const char *const *name = server->settings.hosts; *name; name++)
		if (strlen(*name) == size && strncasecmp(*name, host, size) == 0)
			return true;
	return false;
}

/* Copies the head's text into the exchange's memory, and ends each part with a NUL. A NUL replaces
 * only separators: a space, a colon, a line end. */
static void exchange_copy_text(struct http_exchange *exchange, const char *data, size_t head_size,
			       const struct http_head *head)
{
	struct http_header *headers = (struct http_header *)(exchange + 1);
	char *text = (char *)(headers + head->header_count);
	struct http_request *request = &exchange->request;
	memcpy(text, data, head_size);
	text[head_size] = '\0';
	text[head->method + head->method_size] = '\0';
	text[head->target + head->target_size] = '\0';
	request->method = text + head->method;
	request->target = text + head->target;
	const char *mark = strchr(request->target, '?');
	request->query = mark ? mark + 1 : "";
	for (size_t i = 0; i < head->header_count; i++) {
		const struct http_parsed_header *header = &head->headers[i];
		char *value = text + header->value;
		text[header->name + header->name_size] = '\0';
		value[header->value_size] = '\0';
		for (char *tab = value; (tab = strchr(tab, '\t'));)
			*tab = ' ';
		headers[i].name = text + header->name;
		headers[i].value = value;
	}
	request->headers = headers;
	request->header_count = head->header_count;
	request->path = text + head_size + 1;
}

static void exchange_take_passed(struct http_connection *connection, struct http_exchange *exchange)
{
	struct http_request *request = &exchange->request;
	struct http_passed *passed = connection->passed;
	for (size_t i = 0; i < HTTP_PASSED_FDS_MAX; i++)
		request->fds[i] = passed && i < passed->count ? passed->fds[i] : -1;
	request->fd_count = passed ? passed->count : 0;
	exchange->fds_charged = request->fd_count;
	free(passed);
	connection->passed = NULL;
}

static void exchange_set_body(struct http_exchange *exchange, const struct http_head *head)
{
	exchange->request.content_length = head->content_length;
	exchange->request.has_body = head->chunked || head->content_length > 0;
	exchange->body_chunked = head->chunked;
	exchange->body_left = head->content_length > 0 ? (uint64_t)head->content_length : 0;
	exchange->body = exchange->request.has_body ? HTTP_BODY_UNASKED : HTTP_BODY_NONE;
}

/* A client's own id connects its records with ours. We do not use an id that could be misread in a
 * log. */
static void exchange_set_id(struct http_exchange *exchange)
{
	const char *given = http_header(exchange, "x-request-id");
	size_t size = given ? strnlen(given, HTTP_REQUEST_ID_SIZE) : 0;
	bool good = size > 0 && size <= HTTP_REQUEST_ID_MAX;
	for (size_t i = 0; i < size && good; i++)
		good = http_is_id(given[i]);
	if (good)
		memcpy(exchange->request.id, given, size + 1);
	else
		http_server_next_id(exchange->connection->server, exchange->request.id);
}

int http_exchange_new(struct http_connection *connection, const char *data, size_t head_size,
		      const struct http_head *head, const char **ret_reason)
{
	struct http_server *server = connection->server;
	if (!connection->peer.is_unix &&
	    !http_host_served(server, data + head->host, head->host_size)) {
		*ret_reason = "this host name is not served here";
		return -421;
	}
	struct http_exchange *exchange =
	    malloc(sizeof(*exchange) + head->header_count * sizeof(struct http_header) + head_size +
		   1 + head->target_size + 1);
	if (!exchange)
		abort();
	memset(exchange, 0, sizeof(*exchange));
	exchange->connection = connection;
	exchange_copy_text(exchange, data, head_size, head);
	int result = http_path_decode(exchange->request.target, head->target_size,
				      (char *)exchange->request.path, ret_reason);
	if (result < 0) {
		free(exchange);
		return result;
	}
	exchange_set_body(exchange, head);
	exchange->is_head = strcmp(exchange->request.method, "HEAD") == 0;
	exchange->is_old = head->minor == 0;
	exchange->keep_alive = head->keep_alive;
	exchange->expect_continue = head->expect_continue;
	exchange->upgrade_asked = head->upgrade;
	exchange->request.peer = connection->peer;
	exchange_take_passed(connection, exchange);
	exchange_set_id(exchange);
	http_origin_note(exchange);
	connection->exchange = exchange;
	return 0;
}

void http_exchange_drop_passed(struct http_exchange *exchange)
{
	for (size_t i = 0; i < exchange->request.fd_count; i++)
		fd_close(&exchange->request.fds[i]);
	http_caller_discharge(exchange->connection, exchange->fds_charged);
	exchange->request.fd_count = exchange->fds_charged = 0;
}

void http_exchange_free(struct http_exchange *exchange)
{
	if (!exchange)
		return;
	http_exchange_drop_passed(exchange);
	free(exchange);
}

bool http_exchange_open(const struct http_exchange *exchange)
{
	return http_state_open(exchange->connection->state);
}

const struct http_request *http_request(const struct http_exchange *exchange)
{
	return &exchange->request;
}

const char *http_header(const struct http_exchange *exchange, const char *name)
{
	const struct http_request *request = &exchange->request;
	for (size_t i = 0; i < request->header_count; i++)
		if (request->headers[i].name[0] == name[0] &&
		    strcmp(request->headers[i].name, name) == 0)
			return request->headers[i].value;
	return NULL;
}

void http_set_data(struct http_exchange *exchange, void *data)
{
	exchange->data = data;
}

void *http_data(const struct http_exchange *exchange)
{
	return exchange->data;
}

struct work_share *http_share(const struct http_exchange *exchange)
{
	return exchange->connection->share;
}

void http_set_share(struct http_exchange *exchange, struct work_share *share)
{
	struct http_connection *connection = exchange->connection;
	work_share_hold(share);
	work_share_release(connection->share);
	connection->share = share;
}

void http_set_callbacks(struct http_exchange *exchange, const struct http_callbacks *callbacks)
{
	exchange->callbacks = *callbacks;
}
