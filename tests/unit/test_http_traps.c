/* The table of RFC 9112 traps (tests/api/http_traps.json), sent to a real server: whole, and byte
 * by byte, over TCP and over a Unix socket. */
#include "test.h"

#include <jansson.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_fixture.h"

TEST_MAIN

#define REQUEST_MAX (1024 * 1024)
/* Byte by byte takes too long for the largest requests; they go in small pieces. */
#define BYTEWISE_MAX 40000

static char request[REQUEST_MAX];
static size_t request_size;

/* The table's texts hold one byte per character. */
static void add_bytes(json_t *text)
{
	const char *utf8 = json_string_value(text);
	size_t size = json_string_length(text);
	for (size_t i = 0; i < size && request_size < REQUEST_MAX; i++) {
		unsigned char c = (unsigned char)utf8[i];
		if (c >= 0x80) {
			i++;
			c = (unsigned char)((c & 3) << 6 | ((unsigned char)utf8[i] & 0x3f));
		}
		request[request_size++] = (char)c;
	}
}

static void build_request(json_t *parts)
{
	size_t index;
	json_t *part;
	request_size = 0;
	json_array_foreach(parts, index, part)
	{
		if (json_is_string(part)) {
			add_bytes(part);
			continue;
		}
		json_int_t times = json_integer_value(json_object_get(part, "times"));
		for (json_int_t i = 0; i < times; i++)
			add_bytes(json_object_get(part, "repeat"));
	}
}

static bool listed(json_t *statuses, int status)
{
	size_t index;
	json_t *entry;
	json_array_foreach(statuses, index, entry)
	{
		if (json_integer_value(entry) == status)
			return true;
	}
	return false;
}

static void check_case(struct http_fixture *fixture, json_t *trap, bool over_unix, size_t piece)
{
	static struct http_seen seen;
	struct http_answer answer;
	const char *name = json_string_value(json_object_get(trap, "name"));
	json_t *statuses = json_object_get(trap, "status");
	int first = 0, count = 0;
	size_t at = 0;
	seen.size = 0;
	seen.closed = false;
	int fd = over_unix ? client_unix(fixture) : client_tcp(fixture);
	build_request(json_object_get(trap, "request"));
	/* A refusal may come before everything is sent. */
	for (size_t sent = 0; sent < request_size && !seen.closed; sent += piece * 64) {
		size_t size = request_size - sent < piece * 64 ? request_size - sent : piece * 64;
		if (!client_send(fixture, fd, request + sent, size, piece))
			break;
		client_receive(fixture, fd, &seen);
	}
	if (json_is_true(json_object_get(trap, "fin")))
		shutdown(fd, SHUT_WR);
	client_receive(fixture, fd, &seen);
	bool closes = json_is_true(json_object_get(trap, "closes"));
	int expected = (int)json_integer_value(json_object_get(trap, "answers"));
	if (!closes && !seen.closed) {
		(void)client_text(fixture, fd, "GET /after HTTP/1.1\r\nHost: localhost\r\n\r\n");
		client_receive(fixture, fd, &seen);
		expected++;
	}
	while (answer_next(&seen, &at, &answer)) {
		first = first ? first : answer.status;
		count++;
	}
	if (first && !listed(statuses, first))
		test_fail(__FILE__, __LINE__, "%s (pieces of %zu): status %d", name, piece, first);
	if (count != expected)
		test_fail(__FILE__, __LINE__, "%s (pieces of %zu): %d answers, not %d", name, piece,
			  count, expected);
	if (seen.closed != closes)
		test_fail(__FILE__, __LINE__, "%s (pieces of %zu): %s", name, piece,
			  closes ? "not closed" : "closed");
	close(fd);
	fixture_pump(fixture);
}

static json_t *load_table(void)
{
	const char *source = getenv("CAISSON_SOURCE");
	char path[4096];
	json_error_t error;
	snprintf(path, sizeof(path), "%s/tests/api/http_traps.json", source ? source : ".");
	json_t *table = json_load_file(path, JSON_ALLOW_NUL, &error);
	const char *slash = strrchr(__FILE__, '/');
	if (!table && slash) {
		snprintf(path, sizeof(path), "%.*s/../api/http_traps.json", (int)(slash - __FILE__),
			 __FILE__);
		table = json_load_file(path, JSON_ALLOW_NUL, &error);
	}
	if (!table)
		test_fail(__FILE__, __LINE__, "http_traps.json: %s", error.text);
	return table;
}

static void check_table(bool over_unix, bool whole)
{
	static struct http_fixture fixture;
	json_t *table = load_table(), *cases = json_object_get(table, "cases"), *trap;
	size_t index;
	CHECK(json_array_size(cases) >= 70);
	fixture_start(&fixture, NULL, NULL);
	json_array_foreach(cases, index, trap)
	{
		build_request(json_object_get(trap, "request"));
		size_t piece = whole ? REQUEST_MAX : request_size > BYTEWISE_MAX ? 997 : 1;
		check_case(&fixture, trap, over_unix, piece);
	}
	CHECK_INT(http_server_connections(fixture.server), 0);
	fixture_stop(&fixture);
	json_decref(table);
}

TEST(traps_whole_over_tcp)
{
	check_table(false, true);
}

TEST(traps_byte_by_byte_over_tcp)
{
	check_table(false, false);
}

TEST(traps_whole_over_unix)
{
	check_table(true, true);
}

TEST(traps_byte_by_byte_over_unix)
{
	check_table(true, false);
}
