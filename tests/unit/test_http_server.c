/* The behaviour of the HTTP server over real sockets: bodies, streams, deadlines, disconnects,
 * upgrades, descriptors, limits. What it refuses is in test_http_traps.c, how it ends in
 * test_http_shutdown.c. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "http/connection.h"
#include "http/target.h"
#include "http_fixture.h"

TEST_MAIN

#define HOST "Host: localhost\r\n"

static struct http_fixture f;
static struct http_seen seen;

/* Longer than a machine stalls: fixture_wait() moves the time. */
static const struct http_settings quick = {
    .head_timeout_ms = 15000,
    .idle_timeout_ms = 30000,
    .body_timeout_ms = 15000,
    .write_timeout_ms = 20000,
    .connections_max = 100,
};

static void look(int fd)
{
	seen.size = 0;
	seen.closed = false;
	client_receive(&f, fd, &seen);
}

static size_t open_fds(void)
{
	size_t count = 0;
	DIR *directory = opendir("/proc/self/fd");
	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count;
}

TEST(answers_carry_date_id_and_length)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd, "GET /a%20b?x=1 HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 200);
	CHECK(seen_has(got, "\r\nDate: "));
	CHECK(seen_has(got, "\r\nX-Request-Id: "));
	CHECK(seen_has(got, "\r\nContent-Type: text/plain\r\n"));
	CHECK(seen_has(got, "\r\nContent-Length: 10\r\n"));
	CHECK(seen_has(got, "\r\n\r\nGET /a b 0"));
	CHECK(!seen_has(got, "Server:"));
	CHECK(!seen_has(got, "Connection:"));
	CHECK(!got->closed);
	close(fd);
	fixture_stop(&f);
}

TEST(refusals_are_json_with_the_request_id)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd, "GET / HTTP/1.1\r\n\r\n");
	CHECK_INT(answer_status(got), 400);
	CHECK(seen_has(got, "{\"error\":\"Host is missing\",\"code\":\"request.malformed\","
			    "\"request_id\":\""));
	CHECK(seen_has(got, "\r\nConnection: close\r\n"));
	CHECK(got->closed);
	CHECK_INT(f.handled, 0);
	close(fd);
	fixture_stop(&f);
}

TEST(head_and_204_have_no_body)
{
	struct http_answer answer;
	size_t at = 0;
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd,
					   "HEAD /x HTTP/1.1\r\n" HOST "\r\n"
					   "HEAD /stream HTTP/1.1\r\n" HOST "\r\n"
					   "GET /none HTTP/1.1\r\n" HOST "\r\n");
	CHECK(seen_has(got, "\r\nContent-Length: 9\r\n"));
	CHECK(seen_has(got, "\r\nTransfer-Encoding: chunked\r\n"));
	CHECK(!seen_has(got, "HEAD /x 0"));
	CHECK(!seen_has(got, "hello"));
	const char *last = strstr(got->data, "HTTP/1.1 204 ");
	CHECK(last && !strstr(last, "Content-Length"));
	got = client_ask(&f, fd, "GET /y HTTP/1.1\r\n" HOST "\r\n");
	CHECK(answer_next(got, &at, &answer) && answer.status == 200);
	close(fd);
	fixture_stop(&f);
}

TEST(streams_are_chunked_or_end_with_the_connection)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd, "GET /stream HTTP/1.1\r\n" HOST "\r\n");
	CHECK(seen_has(got, "\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n"));
	CHECK(!got->closed);
	got = client_ask(&f, fd, "GET /length HTTP/1.1\r\n" HOST "\r\n");
	CHECK(seen_has(got, "\r\nContent-Length: 11\r\n"));
	CHECK(seen_has(got, "\r\n\r\nhello world"));
	CHECK(!got->closed);
	got = client_ask(&f, fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	CHECK(seen_has(got, "\r\nConnection: close\r\n"));
	CHECK(seen_has(got, "\r\n\r\nhello world"));
	CHECK(!seen_has(got, "chunked"));
	CHECK(got->closed);
	close(fd);
	fixture_stop(&f);
}

TEST(an_answer_that_is_not_whole_is_cut)
{
	static const char *const paths[] = {"/abort", "/short", "/long"};
	struct http_answer answer;
	fixture_start(&f, NULL, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		char text[128];
		size_t at = 0;
		int fd = client_tcp(&f);
		snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n" HOST "\r\n", paths[i]);
		struct http_seen *got = client_ask(&f, fd, text);
		CHECK(got->closed);
		CHECK(!answer_next(got, &at, &answer) || !answer.whole);
		close(fd);
	}
	CHECK_INT(http_server_connections(f.server), 0);
	fixture_stop(&f);
}

TEST(pipelined_answers_keep_their_order)
{
	struct http_answer answer;
	size_t at = 0;
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd,
			  "GET /later HTTP/1.1\r\n" HOST "\r\nGET /second HTTP/1.1\r\n" HOST
			  "\r\nPOST /third HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc");
	look(fd);
	CHECK_INT(seen.size, 0);
	CHECK_INT(f.handled, 1);
	http_respond(f.pending, 200, NULL, NULL, 0, "first", 5);
	look(fd);
	CHECK(answer_next(&seen, &at, &answer) && memcmp(answer.body, "first", 5) == 0);
	CHECK(answer_next(&seen, &at, &answer) && memcmp(answer.body, "GET /second 0", 13) == 0);
	CHECK(answer_next(&seen, &at, &answer) && memcmp(answer.body, "POST /third 3", 13) == 0);
	close(fd);
	fixture_stop(&f);
}

/* A client that sends more and more behind an answer it does not wait for, then goes. */
TEST(too_much_ahead_of_an_answer_is_gone)
{
	static char flood[200000];
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	memset(flood, 'x', sizeof(flood));
	(void)client_text(&f, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	(void)client_send(&f, fd, flood, 1000, 1000);
	CHECK_INT(f.gone, 0);
	(void)client_send(&f, fd, flood, sizeof(flood), sizeof(flood));
	/* Its end is not even sent yet. */
	CHECK_INT(f.gone, 1);
	CHECK_INT(http_server_connections(f.server), 0);
	close(fd);
	fixture_stop(&f);
}

/* Pipelined requests whose answers nobody reads stop being answered, and then count as gone. */
TEST(unread_answers_hold_pipelined_requests)
{
	static char requests[600 * 1024];
	static const char one[] = "GET /stream HTTP/1.1\r\n" HOST "\r\n";
	size_t size = 0;
	struct http_settings settings = quick;
	fixture_start(&f, &settings, NULL);
	int fd = client_unix(&f);
	while (size + sizeof(one) < sizeof(requests)) {
		memcpy(requests + size, one, sizeof(one) - 1);
		size += sizeof(one) - 1;
	}
	(void)client_send(&f, fd, requests, size, size);
	int handled = f.handled;
	CHECK(handled > 100 && handled < (int)(size / (sizeof(one) - 1)));
	fixture_wait(&f, 2000);
	CHECK_INT(f.handled, handled);
	fixture_wait(&f, 40000);
	CHECK_INT(http_server_connections(f.server), 0);
	close(fd);
	fixture_stop(&f);
}

static void check_gone(const char *request, bool half)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, request);
	CHECK_INT(f.handled, 1);
	CHECK_INT(f.gone, 0);
	CHECK_INT(http_server_connections(f.server), 1);
	if (half)
		shutdown(fd, SHUT_WR);
	else
		close(fd);
	fixture_pump(&f);
	CHECK_INT(f.gone, 1);
	CHECK_INT(http_server_connections(f.server), 0);
	if (half)
		close(fd);
	fixture_stop(&f);
}

TEST(a_client_that_goes_is_noticed)
{
	check_gone("GET /later HTTP/1.1\r\n" HOST "\r\n", false);
	/* A half-close while we are still answering counts as gone. */
	check_gone("GET /later HTTP/1.1\r\n" HOST "\r\n", true);
	/* ... also while its body is held, or was never asked for. */
	check_gone("POST /hold HTTP/1.1\r\n" HOST "Content-Length: 9000\r\n\r\nabc", false);
	check_gone("POST /later HTTP/1.1\r\n" HOST "Content-Length: 9000\r\n\r\nabc", false);
	check_gone("POST /x HTTP/1.1\r\n" HOST "Content-Length: 9000\r\n\r\nabc", false);
	check_gone("GET /later HTTP/1.1\r\n" HOST "\r\nGET /x HTTP/1.1\r\n" HOST "\r\n", false);
}

TEST(a_half_close_behind_an_immediate_answer_is_fine)
{
	static const char request[] = "GET /x HTTP/1.1\r\n" HOST "\r\n";
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	/* Both reach the server in one turn. */
	send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	look(fd);
	CHECK_INT(answer_status(&seen), 200);
	CHECK(seen.closed);
	close(fd);
	fixture_stop(&f);
}

TEST(bodies_over_their_maximum_get_413)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(
	    &f, fd, "POST /small HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\nhello world");
	CHECK_INT(answer_status(got), 413);
	CHECK(seen_has(got, "request.too_large"));
	CHECK(got->closed);
	CHECK_INT(f.gone, 1);
	close(fd);
	fd = client_tcp(&f);
	got = client_ask(&f, fd,
			 "POST /small HTTP/1.1\r\n" HOST
			 "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
	CHECK_INT(got->size, 0);
	got = client_ask(&f, fd, "6\r\n world\r\n");
	CHECK_INT(answer_status(got), 413);
	CHECK(got->closed);
	CHECK_INT(f.gone, 2);
	close(fd);
	fd = client_tcp(&f);
	got = client_ask(&f, fd,
			 "POST /small HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nhelloworld");
	CHECK_INT(answer_status(got), 200);
	CHECK_INT(f.gone, 2);
	close(fd);
	fixture_stop(&f);
}

/* The refusal must reach a client that is still sending when it comes. */
TEST(a_refusal_survives_what_is_still_being_sent)
{
	static char data[300000];
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, "POST /small HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n");
	CHECK(client_send(&f, fd, data, sizeof(data), 5000));
	look(fd);
	CHECK_INT(answer_status(&seen), 413);
	close(fd);
	fixture_pump(&f);
	CHECK_INT(http_server_connections(f.server), 0);
	fixture_stop(&f);
}

TEST(an_unread_body_is_skipped_when_it_is_small)
{
	static char data[70000];
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got =
	    client_ask(&f, fd, "POST /unread HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n");
	CHECK_INT(answer_status(got), 200);
	CHECK(!seen_has(got, "Connection: close"));
	(void)client_send(&f, fd, data, 1000, 100);
	got = client_ask(&f, fd, "GET /x HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 200);
	got = client_ask(&f, fd,
			 "POST /unread HTTP/1.1\r\n" HOST
			 "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	CHECK_INT(answer_status(got), 200);
	got = client_ask(&f, fd, "0\r\n\r\nGET /x HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 200);
	got = client_ask(&f, fd, "POST /unread HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n");
	CHECK_INT(answer_status(got), 200);
	CHECK(seen_has(got, "Connection: close"));
	CHECK(got->closed);
	close(fd);
	fd = client_tcp(&f);
	got = client_ask(&f, fd,
			 "POST /unread HTTP/1.1\r\n" HOST
			 "Transfer-Encoding: chunked\r\n\r\nffffff\r\n");
	CHECK_INT(answer_status(got), 200);
	(void)client_send(&f, fd, data, sizeof(data), 5000);
	look(fd);
	CHECK(seen.closed);
	close(fd);
	fixture_stop(&f);
}

TEST(an_answer_in_the_middle_of_a_body)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got =
	    client_ask(&f, fd, "POST /early HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nhello");
	CHECK_INT(answer_status(got), 202);
	got = client_ask(&f, fd, "worldGET /x HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 200);
	CHECK_INT(f.ended, 1);
	CHECK_INT(f.gone, 0);
	close(fd);
	fixture_stop(&f);
}

TEST(expect_is_answered_when_the_body_is_wanted)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd,
					   "POST /x HTTP/1.1\r\n" HOST
					   "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
	CHECK_TEXT(got->data, "HTTP/1.1 100 Continue\r\n\r\n");
	got = client_ask(&f, fd, "hello");
	CHECK_INT(answer_status(got), 200);
	got = client_ask(&f, fd,
			 "POST /unread HTTP/1.1\r\n" HOST
			 "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
	CHECK_INT(answer_status(got), 200);
	CHECK(!seen_has(got, "100 Continue"));
	CHECK(got->closed);
	close(fd);
	fixture_stop(&f);
}

TEST(a_held_body_is_not_read)
{
	static char data[4 * 1024 * 1024];
	fixture_start(&f, NULL, NULL);
	int fd = client_unix(&f);
	(void)client_text(&f, fd, "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 4194304\r\n\r\n");
	(void)client_send(&f, fd, data, 100000, 100000);
	size_t first = f.received;
	CHECK(first > 0 && first <= 65536);
	(void)client_send(&f, fd, data + 100000, sizeof(data) - 100000, 100000);
	CHECK_INT(f.received, first);
	for (int i = 0; i < 100 && f.received <= 300000; i++) {
		http_body_resume(f.pending);
		fixture_pump(&f);
	}
	CHECK(f.received > 65536);
	CHECK_INT(f.gone, 0);
	close(fd);
	fixture_pump(&f);
	/* On a Unix socket the end is seen even behind unread bytes. */
	CHECK_INT(f.gone, 1);
	fixture_stop(&f);
}

TEST(a_slow_reader_holds_the_producer)
{
	static struct http_seen all;
	fixture_start(&f, NULL, NULL);
	int fd = client_unix(&f), drained;
	(void)client_text(&f, fd, "GET /large HTTP/1.1\r\n" HOST "\r\n");
	drained = f.drained;
	CHECK(drained < 10);
	fixture_wait(&f, 20);
	CHECK_INT(f.drained, drained);
	size_t total = 0;
	bool end = false;
	for (int i = 0; i < 1000 && !end; i++) {
		all.size = 0;
		client_receive(&f, fd, &all);
		total += all.size;
		end = all.size >= 5 && memcmp(all.data + all.size - 5, "0\r\n\r\n", 5) == 0;
	}
	CHECK(end);
	CHECK(total > 8 * 1024 * 1024);
	CHECK(f.drained > drained);
	CHECK_INT(answer_status(client_ask(&f, fd, "GET /x HTTP/1.1\r\n" HOST "\r\n")), 200);
	close(fd);
	fixture_stop(&f);
}

TEST(head_deadline_is_not_moved_by_dripping)
{
	fixture_start(&f, &quick, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, "GET / HTTP/1.1\r\nX-A: ");
	seen.size = 0;
	seen.closed = false;
	for (int i = 0; i < 30 && !seen.closed; i++) {
		fixture_wait(&f, 1000);
		(void)client_text(&f, fd, "a");
		client_receive(&f, fd, &seen);
	}
	CHECK_INT(answer_status(&seen), 408);
	CHECK(seen.closed);
	close(fd);
	fixture_stop(&f);
}

TEST(a_deadline_in_real_time)
{
	struct http_settings settings = quick;
	settings.head_timeout_ms = 100;
	fixture_start(&f, &settings, NULL);
	int64_t began = clock_monotonic();
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, "GET / HTTP/1.1\r\n");
	do {
		uv_run(&f.loop, UV_RUN_ONCE);
		look(fd);
	} while (seen.size == 0 && clock_monotonic() - began < 20 * NSEC_PER_SEC);
	/* The loop's clock is coarse. */
	CHECK(clock_monotonic() - began >= 90 * NSEC_PER_MSEC);
	CHECK_INT(answer_status(&seen), 408);
	close(fd);
	fixture_stop(&f);
}

TEST(idle_connections_end_silently)
{
	fixture_start(&f, &quick, NULL);
	int fresh = client_tcp(&f), used = client_tcp(&f);
	CHECK_INT(answer_status(client_ask(&f, used, "GET /x HTTP/1.1\r\n" HOST "\r\n")), 200);
	fixture_wait(&f, 20000);
	CHECK_INT(http_server_connections(f.server), 2);
	fixture_wait(&f, 25000);
	CHECK_INT(http_server_connections(f.server), 0);
	look(fresh);
	CHECK(seen.closed && seen.size == 0);
	close(fresh);
	close(used);
	fixture_stop(&f);
}

TEST(a_body_that_pauses_too_long_gets_408)
{
	fixture_start(&f, &quick, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\n");
	for (int i = 0; i < 4; i++) {
		fixture_wait(&f, 8000);
		(void)client_text(&f, fd, "hello");
	}
	CHECK_INT(f.gone, 0);
	fixture_wait(&f, 30000);
	CHECK_INT(f.gone, 1);
	look(fd);
	CHECK_INT(answer_status(&seen), 408);
	close(fd);
	/* A body that we hold has no deadline. */
	fd = client_tcp(&f);
	(void)client_text(&f, fd, "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nab");
	fixture_wait(&f, 40000);
	CHECK_INT(f.gone, 1);
	close(fd);
	fixture_stop(&f);
}

TEST(a_reader_that_stops_is_gone)
{
	fixture_start(&f, &quick, NULL);
	int fd = client_unix(&f);
	(void)client_text(&f, fd, "GET /large HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(f.gone, 0);
	fixture_wait(&f, 40000);
	CHECK_INT(f.gone, 1);
	CHECK_INT(http_server_connections(f.server), 0);
	close(fd);
	fixture_stop(&f);
}

TEST(a_silent_stream_has_no_deadline)
{
	fixture_start(&f, &quick, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	http_stream_begin(f.pending, 200, "text/event-stream", -1, NULL, 0);
	fixture_wait(&f, 50000);
	CHECK_INT(f.gone, 0);
	CHECK(http_stream_write(f.pending, "data: 1\n\n", 9));
	look(fd);
	CHECK(seen_has(&seen, "data: 1\n\n"));
	close(fd);
	fixture_pump(&f);
	CHECK_INT(f.gone, 1);
	fixture_stop(&f);
}

TEST(upgrade_is_raw_both_ways)
{
	static const char ask[] =
	    "GET /upgrade HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: raw\r\n\r\nearly";
	fixture_start(&f, &quick, NULL);
	int fd = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd, ask);
	CHECK(seen_has(got, "HTTP/1.1 101 Switching Protocols\r\n"));
	CHECK(seen_has(got, "\r\nUpgrade: raw\r\n"));
	CHECK(seen_has(got, "\r\n\r\nearly"));
	fixture_wait(&f, 40000);
	got = client_ask(&f, fd, "GET / HTTP/9.9\n");
	CHECK_TEXT(got->data, "GET / HTTP/9.9\n");
	shutdown(fd, SHUT_WR);
	look(fd);
	CHECK_TEXT(seen.data, "END");
	CHECK(seen.closed);
	CHECK_INT(f.ended, 1);
	close(fd);
	fd = client_unix(&f);
	got = client_ask(&f, fd, ask);
	got = client_ask(&f, fd, "bye");
	CHECK_TEXT(got->data, "bye");
	CHECK(got->closed);
	close(fd);
	fd = client_unix(&f);
	got = client_ask(&f, fd, ask);
	close(fd);
	fixture_pump(&f);
	CHECK_INT(f.ended, 2);
	CHECK_INT(http_server_connections(f.server), 0);
	fd = client_unix(&f);
	got = client_ask(&f, fd, "GET /upgrade HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 400);
	CHECK_INT(f.gone, 1);
	close(fd);
	fixture_stop(&f);
}

static void send_with_fds(int fd, const char *text, const int *fds, size_t count)
{
	CHECK_INT(fd_send(fd, text, strlen(text), fds, count), strlen(text));
}

TEST(descriptors_come_with_the_head)
{
	int ends[2], many[HTTP_PASSED_FDS_MAX + 1];
	char text[8] = "";
	size_t before = open_fds();
	fixture_start(&f, NULL, NULL);
	CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = ends[1];
	int fd = client_unix(&f);
	send_with_fds(fd, "GET /fds HTTP/1.1\r\n" HOST "\r\n", many, HTTP_PASSED_FDS_MAX);
	look(fd);
	CHECK(seen_has(&seen, "\r\n\r\n16"));
	CHECK_INT(read(ends[0], text, sizeof(text)), 2);
	/* The next request has none of them; one with the head in two pieces has its own. */
	struct http_seen *got = client_ask(&f, fd, "GET /fds HTTP/1.1\r\n" HOST "\r\n");
	CHECK(seen_has(got, "\r\n\r\n0"));
	send_with_fds(fd, "GET /fds HTTP/1.1\r\n", many, 1);
	fixture_pump(&f);
	send_with_fds(fd, HOST "\r\n", many, 1);
	look(fd);
	CHECK(seen_has(&seen, "\r\n\r\n2"));
	close(fd);
	/* Too many, in one message or in several; and with a body's bytes. */
	fd = client_unix(&f);
	send_with_fds(fd, "GET /fds HTTP/1.1\r\n", many, HTTP_PASSED_FDS_MAX + 1);
	look(fd);
	CHECK(seen.closed && seen.size == 0);
	close(fd);
	fd = client_unix(&f);
	send_with_fds(fd, "GET /fds HTTP/1.1\r\n", many, HTTP_PASSED_FDS_MAX);
	fixture_pump(&f);
	send_with_fds(fd, HOST, many, 1);
	look(fd);
	CHECK(seen.closed && seen.size == 0);
	close(fd);
	fd = client_unix(&f);
	(void)client_text(&f, fd, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n");
	send_with_fds(fd, "abc", many, 1);
	look(fd);
	CHECK(seen.closed && f.gone == 1);
	close(fd);
	fd = client_unix(&f);
	send_with_fds(fd, "GET /later HTTP/1.1\r\n" HOST "\r\n", many, 3);
	fixture_pump(&f);
	const struct http_request *request = http_request(f.pending);
	CHECK(request->peer.is_unix);
	CHECK_INT(request->peer.uid, getuid());
	CHECK_INT(request->peer.pid, getpid());
	close(fd);
	fixture_pump(&f);
	fixture_stop(&f);
	close(ends[0]);
	close(ends[1]);
	CHECK_INT(open_fds(), before);
}

TEST(the_host_is_checked_on_tcp)
{
	static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]", NULL};
	static const struct {
		const char *request;
		int status;
	} cases[] = {
	    {"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
	    {"GET /x HTTP/1.1\r\nHost: LocalHost:7878\r\n\r\n", 200},
	    {"GET /x HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n", 200},
	    {"GET /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200},
	    {"GET /x HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421},
	    {"GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
	    {"GET /x HTTP/1.1\r\nHost: local\r\n\r\n", 421},
	    {"GET /x HTTP/1.0\r\n\r\n", 421},
	};
	struct http_settings settings = http_default_settings;
	settings.hosts = hosts;
	fixture_start(&f, &settings, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int fd = client_tcp(&f);
		CHECK_INT(answer_status(client_ask(&f, fd, cases[i].request)), cases[i].status);
		close(fd);
		fd = client_unix(&f);
		CHECK_INT(answer_status(client_ask(&f, fd, cases[i].request)), 200);
		close(fd);
	}
	fixture_stop(&f);
}

TEST(connections_are_bounded)
{
	struct http_settings settings = http_default_settings;
	settings.connections_max = 3;
	settings.connections_reserved = 0;
	fixture_start(&f, &settings, NULL);
	int first = client_tcp(&f), second = client_tcp(&f), third = client_tcp(&f);
	(void)client_text(&f, second, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	/* The one that has been idle for longest makes room. */
	int fourth = client_tcp(&f);
	CHECK_INT(http_server_connections(f.server), 3);
	look(first);
	CHECK(seen.closed);
	(void)client_text(&f, third, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	(void)client_text(&f, fourth, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	/* None is idle: the next one is refused until one ends. */
	int refused = client_tcp(&f);
	look(refused);
	CHECK(seen.closed && seen.size == 0);
	close(refused);
	CHECK_INT(http_server_connections(f.server), 3);
	close(second);
	fixture_pump(&f);
	int fifth = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fifth, "GET /x HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 200);
	(void)client_text(&f, fifth, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	/* ... or turns idle. */
	refused = client_tcp(&f);
	look(refused);
	CHECK(seen.closed && seen.size == 0);
	close(refused);
	http_respond(f.pending, 200, NULL, NULL, 0, "x", 1);
	fixture_pump(&f);
	int sixth = client_tcp(&f);
	got = client_ask(&f, sixth, "GET /x HTTP/1.1\r\n" HOST "\r\n");
	CHECK_INT(answer_status(got), 200);
	close(sixth);
	close(first);
	close(third);
	close(fourth);
	close(fifth);
	fixture_stop(&f);
}

TEST(running_out_of_descriptors_is_survived)
{
	struct rlimit limit, low;
	fixture_start(&f, NULL, NULL);
	int busy = client_tcp(&f), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), probe;
	(void)client_text(&f, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	close(fd);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	int waiting = client_tcp(&f);
	probe = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(probe);
	low = limit;
	low.rlim_cur = (rlim_t)probe + 1; /* room for the client's end alone */
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &low), 0);
	int late = client_tcp(&f);
	(void)client_text(&f, late, "GET /x HTTP/1.1\r\n" HOST "\r\n");
	look(waiting);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK(seen.closed); /* it was idle */
	fixture_wait(&f, 150);
	look(late);
	CHECK_INT(answer_status(&seen), 200);
	CHECK_INT(f.gone, 0);
	close(busy);
	close(waiting);
	close(late);
	fixture_stop(&f);
}

TEST(a_header_cannot_be_smuggled_into_an_answer)
{
	static const struct http_header headers[] = {
	    {"X-Good", "1"}, {"X-Bad", "1\r\nSet-Cookie: a"}, {"X Bad", "1"}, {"", "1"}};
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	http_respond(f.pending, 200, NULL, headers, ARRAY_SIZE(headers), "x", 1);
	look(fd);
	CHECK(seen_has(&seen, "X-Good: 1\r\n"));
	CHECK(!seen_has(&seen, "Bad"));
	CHECK(!seen_has(&seen, "Cookie"));
	close(fd);
	fixture_stop(&f);
}

TEST(queries_are_decoded)
{
	char text[16];
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f);
	(void)client_text(&f, fd,
			  "GET /later?a=1&b=x%20y+z&c&%64=5&e=%zz&f=%00&g=1&g=2&h=%2B&a2=3 "
			  "HTTP/1.1\r\n" HOST "\r\n");
	struct http_exchange *exchange = f.pending;
	const char *query = http_request(exchange)->query;
	CHECK_INT(http_query_find(query, "a", text, sizeof(text)), 1);
	CHECK_TEXT(text, "1");
	CHECK_INT(http_query_find(query, "b", text, sizeof(text)), 5);
	CHECK_TEXT(text, "x y z");
	CHECK_INT(http_query_find(query, "b", text, 5), -EINVAL);
	CHECK_INT(http_query_find(query, "b", text, 6), 5);
	CHECK_INT(http_query_find(query, "c", text, sizeof(text)), 0);
	CHECK_INT(http_query_find(query, "d", text, sizeof(text)), 1);
	CHECK_INT(http_query_find(query, "e", text, sizeof(text)), -EINVAL);
	CHECK_INT(http_query_find(query, "f", text, sizeof(text)), -EINVAL);
	CHECK_INT(http_query_find(query, "g", text, sizeof(text)), -EINVAL);
	CHECK_INT(http_query_find(query, "h", text, sizeof(text)), 1);
	CHECK_TEXT(text, "+");
	CHECK_INT(http_query_find(query, "x", text, sizeof(text)), -ENOENT);
	CHECK_TEXT(http_header(exchange, "host"), "localhost");
	CHECK(http_header(exchange, "x") == NULL);
	close(fd);
	fixture_stop(&f);
}

TEST(the_server_can_be_freed_with_requests_under_way)
{
	fixture_start(&f, NULL, NULL);
	int fd = client_tcp(&f), idle = client_unix(&f);
	(void)client_text(&f, fd, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab");
	fixture_stop(&f);
	CHECK_INT(f.gone, 1);
	close(fd);
	close(idle);
}

static void stop_waiting(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

/* How often the loop turns in 100 ms: it must sleep whatever its clients leave unread. */
static int turns(void)
{
	uv_timer_t timer;
	bool over = false;
	int count = 0;
	uv_timer_init(&f.loop, &timer);
	timer.data = &over;
	uv_timer_start(&timer, stop_waiting, 100, 0);
	do
		uv_run(&f.loop, UV_RUN_ONCE);
	while (count++, !over);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&f.loop, UV_RUN_NOWAIT);
	return count;
}

TEST(the_loop_sleeps_in_every_state)
{
	static const struct {
		const char *request;
		bool half;
	} cases[] = {
	    {"", false},
	    {"GET /la", false},
	    {"GET /later HTTP/1.1\r\n" HOST "\r\nGET /more HTTP/1.1", false},
	    {"POST /later HTTP/1.1\r\n" HOST "Content-Length: 99\r\n\r\nabc", false},
	    {"POST /hold HTTP/1.1\r\n" HOST "Content-Length: 99\r\n\r\nabc", false},
	    {"POST /x HTTP/1.1\r\n" HOST "Content-Length: 99\r\n\r\nabc", false},
	    {"POST /unread HTTP/1.1\r\n" HOST "Content-Length: 99\r\n\r\nabc", false},
	    {"POST /large HTTP/1.1\r\n" HOST "Content-Length: 99\r\n\r\nabc", false},
	    {"GET /large HTTP/1.1\r\n" HOST "\r\n", false},
	    {"GET /large HTTP/1.1\r\n" HOST "Connection: close\r\n\r\nmore", true},
	    {"GET /bad\r\n\r\n", false},
	    {"GET /pause HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: raw\r\n\r\n", false},
	    {"GET /pause HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: raw\r\n\r\n", true},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (int over_unix = 0; over_unix < 2; over_unix++) {
			fixture_start(&f, NULL, NULL);
			int fd = over_unix ? client_unix(&f) : client_tcp(&f);
			(void)client_text(&f, fd, cases[i].request);
			(void)client_text(&f, fd, "p");
			if (cases[i].half)
				shutdown(fd, SHUT_WR);
			fixture_pump(&f);
			int count = turns();
			if (count > 20)
				test_fail(__FILE__, __LINE__, "case %zu: %d turns", i, count);
			close(fd);
			fixture_pump(&f);
			fixture_stop(&f);
		}
}
