/* Who may hold how much of the HTTP server: connections and descriptors per uid and address, and
 * what trusted uids keep whatever the others do. The fixture says who a client is. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "http/connection.h"
#include "http_fixture.h"

TEST_MAIN

#define HOST "Host: localhost\r\n"
#define HALF "GET /x HTTP/1.1\r\nHo"
#define WHOLE "GET /x HTTP/1.1\r\n" HOST "\r\n"
#define LATER "GET /later HTTP/1.1\r\n" HOST "\r\n"

static struct http_fixture f;
static struct http_seen seen;
static int clients[64];

static const struct http_settings small = {
    .head_timeout_ms = 10000,
    .idle_timeout_ms = 10000,
    .body_timeout_ms = 10000,
    .write_timeout_ms = 10000,
    .connections_max = 20,
    .connections_reserved = 4,
    .connections_per_uid = 6,
    .connections_per_address = 8,
    .descriptors_per_uid = 20,
    .descriptors_max = 30,
};

static bool is_closed(int fd)
{
	seen.size = 0;
	seen.closed = false;
	client_receive(&f, fd, &seen);
	return seen.closed;
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

/* Opens `count` connections from clients[at] on, each with that text. */
static void crowd(size_t at, size_t count, bool over_unix, const char *text)
{
	for (size_t i = at; i < at + count; i++) {
		clients[i] = over_unix ? client_unix(&f) : client_tcp(&f);
		(void)client_text(&f, clients[i], text);
	}
}

static void leave(size_t at, size_t count)
{
	for (size_t i = at; i < at + count; i++)
		close(clients[i]);
	fixture_pump(&f);
}

static int one_status(bool over_unix)
{
	int fd = over_unix ? client_unix(&f) : client_tcp(&f);
	int status = answer_status(client_ask(&f, fd, WHOLE));
	close(fd);
	fixture_pump(&f);
	return status;
}

TEST(a_uid_at_its_cap_loses_its_oldest_head)
{
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, 6, true, HALF);
	CHECK_INT(http_server_connections(f.server), 6);
	crowd(6, 1, true, HALF);
	CHECK_INT(http_server_connections(f.server), 6);
	CHECK(is_closed(clients[0]));
	CHECK(!is_closed(clients[1]) && !is_closed(clients[6]));
	/* Another uid has its own. */
	fixture_pretend(&f, 1001, NULL);
	CHECK_INT(one_status(true), 200);
	CHECK_INT(http_server_connections(f.server), 6);
	leave(0, 7);
	CHECK_INT(http_server_connections(f.server), 0);
	fixture_stop(&f);
}

TEST(requests_under_way_are_not_given_up)
{
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, 6, true, LATER);
	crowd(6, 1, true, "");
	CHECK(is_closed(clients[6]));
	CHECK_INT(f.gone, 0);
	/* One that has its answer can be: it is idle. */
	http_respond(f.pending, 200, NULL, NULL, 0, "x", 1);
	fixture_pump(&f);
	CHECK_INT(one_status(true), 200);
	CHECK_INT(f.gone, 0);
	CHECK(is_closed(clients[5]) && seen_has(&seen, " 200 "));
	leave(0, 7);
	fixture_stop(&f);
}

TEST(a_body_that_nobody_reads_holds_no_place)
{
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, 6, true, "POST /unread HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\nabc");
	CHECK_INT(one_status(true), 200);
	CHECK_INT(http_server_connections(f.server), 5);
	leave(0, 6);
	fixture_stop(&f);
}

TEST(use_makes_a_connection_younger)
{
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, 6, true, "");
	CHECK_INT(answer_status(client_ask(&f, clients[0], WHOLE)), 200);
	crowd(6, 1, true, "");
	CHECK(!is_closed(clients[0]));
	CHECK(is_closed(clients[1]));
	leave(0, 7);
	fixture_stop(&f);
}

TEST(trusted_uids_keep_their_slots)
{
	static const uid_t owner = 500;
	struct http_settings settings = small;
	settings.trusted_uids = &owner;
	settings.trusted_uid_count = 1;
	fixture_start(&f, &settings, NULL);
	/* Three uids have all that the untrusted may have, in requests that nobody ends. */
	for (size_t i = 0; i < 3; i++) {
		fixture_pretend(&f, (uid_t)(1000 + i), NULL);
		crowd(i * 6, i < 2 ? 6 : 4, true, LATER);
	}
	CHECK_INT(http_server_connections(f.server), 16);
	fixture_pretend(&f, 1003, NULL);
	crowd(16, 1, true, "");
	CHECK(is_closed(clients[16]));
	leave(16, 1);
	fixture_pretend(&f, 0, NULL);
	crowd(16, 2, true, HALF);
	fixture_pretend(&f, owner, NULL);
	crowd(18, 2, true, HALF);
	CHECK_INT(http_server_connections(f.server), 20);
	CHECK(!is_closed(clients[16]) && !is_closed(clients[19]));
	/* All is taken, but by the trusted too: their oldest head makes room for them alone. */
	CHECK_INT(one_status(true), 200);
	CHECK_INT(f.gone, 0);
	fixture_pretend(&f, 1003, NULL);
	crowd(20, 2, true, "");
	CHECK(is_closed(clients[20]) && is_closed(clients[21]));
	leave(0, 22);
	fixture_stop(&f);
}

TEST(the_caller_that_hoards_most_makes_room)
{
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, 2, true, HALF);
	fixture_pretend(&f, (uid_t)-1, NULL);
	crowd(2, 14, false, HALF);
	CHECK_INT(http_server_connections(f.server), 16);
	fixture_pretend(&f, 1001, NULL);
	crowd(16, 1, true, HALF);
	CHECK_INT(http_server_connections(f.server), 16);
	CHECK(!is_closed(clients[0]) && is_closed(clients[2]) && !is_closed(clients[16]));
	/* Loopback TCP may have all of it, but no more. */
	fixture_pretend(&f, (uid_t)-1, NULL);
	crowd(17, 1, false, HALF);
	CHECK(is_closed(clients[3]) && !is_closed(clients[17]));
	leave(0, 18);
	fixture_stop(&f);
}

TEST(who_connects_too_often_is_refused)
{
	struct http_settings settings = http_default_settings;
	int refused = 0;
	fixture_start(&f, &settings, NULL);
	fixture_pretend(&f, 1000, NULL);
	uv_update_time(&f.loop);
	/* Each is closed again, so that there is never more than one. */
	for (int i = 0; i < 4 * HTTP_PACE_JOINS; i++) {
		int fd = client_unix(&f);
		refused += is_closed(fd);
		close(fd);
		fixture_pump(&f);
	}
	CHECK(refused > 0);
	CHECK_INT(http_server_connections(f.server), 0);
	fixture_pretend(&f, 0, NULL);
	CHECK_INT(one_status(true), 200);
	fixture_wait(&f, 2 * HTTP_PACE_MS);
	fixture_pretend(&f, 1000, NULL);
	CHECK_INT(one_status(true), 200);
	fixture_stop(&f);
}

TEST(addresses_are_told_apart)
{
	static const struct {
		const char *crowd, *same, *other;
	} cases[] = {
	    {"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"},
	    {"2001:db8::1", "2001:db8::ffff:0:1", "2001:db8:0:1::1"},
	    {"::ffff:198.51.100.7", "198.51.100.7", "2001:db8::1"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fixture_start(&f, &small, NULL);
		fixture_pretend(&f, (uid_t)-1, cases[i].crowd);
		crowd(0, 8, false, HALF);
		fixture_pretend(&f, (uid_t)-1, cases[i].other);
		crowd(8, 1, false, HALF);
		CHECK_INT(http_server_connections(f.server), 9);
		fixture_pretend(&f, (uid_t)-1, cases[i].same);
		crowd(9, 1, false, HALF);
		CHECK_INT(http_server_connections(f.server), 9);
		CHECK(is_closed(clients[0]) && !is_closed(clients[8]));
		leave(0, 10);
		fixture_stop(&f);
	}
	/* Loopback is one caller, whichever of its addresses; and none of the bound ones. */
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, (uid_t)-1, "127.0.0.9");
	crowd(0, 8, false, HALF);
	fixture_pretend(&f, (uid_t)-1, "::1");
	crowd(8, 8, false, HALF);
	CHECK_INT(http_server_connections(f.server), 16);
	fixture_pretend(&f, (uid_t)-1, "::ffff:127.0.0.1");
	crowd(16, 1, false, HALF);
	CHECK(is_closed(clients[0]));
	leave(0, 17);
	fixture_stop(&f);
}

static void pass(int fd, const char *text, int passed, size_t count)
{
	int fds[HTTP_PASSED_FDS_MAX];
	for (size_t i = 0; i < count; i++)
		fds[i] = passed;
	CHECK_INT(fd_send(fd, text, strlen(text), fds, count), strlen(text));
	fixture_pump(&f);
}

TEST(descriptors_of_a_uid_are_bounded)
{
	size_t before = open_fds();
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, 3, true, "");
	pass(clients[0], HALF, null, 16);
	pass(clients[1], HALF, null, 4);
	CHECK_INT(f.server->untrusted_descriptors, 20);
	pass(clients[2], HALF, null, 1);
	CHECK(is_closed(clients[2]) && !is_closed(clients[0]));
	/* All the untrusted together. */
	fixture_pretend(&f, 1001, NULL);
	crowd(3, 2, true, "");
	pass(clients[3], HALF, null, 10);
	pass(clients[4], HALF, null, 1);
	CHECK(!is_closed(clients[3]) && is_closed(clients[4]));
	fixture_pretend(&f, 0, NULL);
	crowd(5, 2, true, "");
	pass(clients[5], HALF, null, 16);
	pass(clients[6], HALF, null, 16);
	CHECK(!is_closed(clients[5]) && !is_closed(clients[6]));
	/* They count in a request too, until it ends. */
	(void)client_text(&f, clients[1], "st: h\r\n\r\n");
	CHECK_INT(f.server->untrusted_descriptors, 26);
	leave(0, 1);
	CHECK_INT(f.server->untrusted_descriptors, 10);
	leave(1, 6);
	CHECK_INT(f.server->untrusted_descriptors, 0);
	fixture_stop(&f);
	close(null);
	CHECK_INT(open_fds(), before);
}

/* A request that was answered or refused holds none, however slow its client is to go. */
TEST(descriptors_end_with_the_answer)
{
	int ends[2];
	char byte;
	CHECK_INT(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	static const char *const texts[] = {
	    "POST /unread HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\nabc",
	    "GET /x HTTP/1.1\r\nbad header\r\n",
	    "GET /x HTTP/1.1\r\n" HOST "\r\n",
	};
	fixture_start(&f, &small, NULL);
	fixture_pretend(&f, 1000, NULL);
	crowd(0, ARRAY_SIZE(texts), true, "");
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		pass(clients[i], texts[i], ends[1], 3);
		CHECK_INT(f.server->untrusted_descriptors, 0);
	}
	CHECK(http_server_connections(f.server) >= 2);
	close(ends[1]);
	CHECK_INT(read(ends[0], &byte, 1), 0); /* nobody else has the other end */
	leave(0, ARRAY_SIZE(texts));
	fixture_stop(&f);
	close(ends[0]);
}

TEST(a_head_with_descriptors_has_little_time)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	bool closed = true;
	/* Two seconds; once more where the machine has stood still for the rest of them. */
	for (int i = 0;; i++) {
		fixture_start(&f, &small, NULL);
		fixture_pretend(&f, 0, NULL);
		crowd(0, 2, true, HALF);
		uint64_t began = uv_hrtime();
		pass(clients[0], "st", null, 2);
		fixture_wait(&f, 1000);
		closed = is_closed(clients[0]);
		if (!closed || uv_hrtime() - began < 2000000000 || i == 4)
			break;
		leave(0, 2);
		fixture_stop(&f);
	}
	CHECK(!closed);
	fixture_wait(&f, 1200);
	(void)is_closed(clients[0]);
	CHECK_INT(answer_status(&seen), 408);
	CHECK(!is_closed(clients[1]) && seen.size == 0);
	leave(0, 2);
	fixture_stop(&f);
	close(null);
}

TEST(many_deadlines_at_once_are_all_kept)
{
	struct http_settings settings = http_default_settings;
	static int many[700];
	settings.head_timeout_ms = 30000;
	fixture_start(&f, &settings, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		many[i] = client_unix(&f);
		(void)client_text(&f, many[i], HALF);
	}
	fixture_wait(&f, 50000);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		(void)is_closed(many[i]);
		CHECK_INT(answer_status(&seen), 408);
		close(many[i]);
	}
	fixture_stop(&f);
}

TEST(answers_that_nobody_reads_are_bounded)
{
	struct http_fixture fixture;
	size_t size = HTTP_UNREAD_CALLER_MAX / 4;
	char *data = calloc(1, size);
	int readers[6];
	static struct http_seen unread;
	CHECK(data != NULL);
	fixture_start(&fixture, &http_default_settings, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
		readers[i] = client_tcp(&fixture);
		CHECK(client_text(&fixture, readers[i],
				  "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"));
		CHECK(fixture.pending != NULL);
		struct http_exchange *pending = fixture.pending;
		fixture.pending = NULL;
		http_respond(pending, 200, "text/plain", NULL, 0, data, size);
		fixture_pump(&fixture);
		CHECK(http_server_connections(fixture.server) <= 4);
	}
	/* Those that took nothing for longest are gone; the last ones are not. */
	CHECK(http_server_connections(fixture.server) >= 2);
	do {
		unread.size = 0;
		client_receive(&fixture, readers[0], &unread);
	} while (unread.size > 0 && !unread.closed);
	CHECK(unread.closed);
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
		close(readers[i]);
	fixture_stop(&fixture);
	free(data);
}
