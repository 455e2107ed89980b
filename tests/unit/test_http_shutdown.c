/* How the HTTP server ends: requests that are there are answered, and it is over in time. */
#include "test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/work.h"
#include "http_fixture.h"

TEST_MAIN

#define HOST "Host: localhost\r\n"

static struct http_fixture f;
static struct http_seen seen;

static void look(int fd)
{
	seen.size = 0;
	seen.closed = false;
	client_receive(&f, fd, &seen);
}

static void note_closed(void *data)
{
	((struct http_fixture *)data)->closed = true;
}

TEST(shutdown_lets_answers_finish)
{
	fixture_start(&f, NULL, NULL);
	int idle = client_tcp(&f), busy = client_tcp(&f);
	(void)client_text(&f, idle, "GET /here HTTP/1.1\r\n" HOST "\r\n");
	look(idle);
	CHECK_INT(answer_status(&seen), 200);
	(void)client_text(&f, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	http_server_shutdown(f.server, 5000, NULL, note_closed, &f);
	CHECK(!f.closed);
	look(idle);
	CHECK(seen.closed);
	CHECK(!f.closed);
	http_respond(f.pending, 200, NULL, NULL, 0, "done", 4);
	look(busy);
	CHECK_INT(answer_status(&seen), 200);
	CHECK(seen_has(&seen, "Connection: close"));
	CHECK(seen.closed);
	close(busy);
	close(idle);
	fixture_pump(&f);
	CHECK(f.closed);
	fixture_stop(&f);
}

/* The loop does not turn between the arrival of a request and the shutdown. */
static void check_unseen_request(int client)
{
	static const char request[] = "GET /here HTTP/1.1\r\n" HOST "\r\n";
	CHECK_INT(send(client, request, sizeof(request) - 1, MSG_NOSIGNAL),
		  (int)sizeof(request) - 1);
	http_server_shutdown(f.server, 5000, NULL, note_closed, &f);
	look(client);
	CHECK_INT(answer_status(&seen), 200);
	CHECK(seen_has(&seen, "Connection: close"));
	CHECK(seen.closed);
	close(client);
	fixture_pump(&f);
	CHECK(f.closed);
	fixture_stop(&f);
}

TEST(shutdown_answers_what_no_event_told_of)
{
	fixture_start(&f, NULL, NULL);
	int client = client_tcp(&f);
	fixture_pump(&f);
	check_unseen_request(client);
}

/* The client has connected, and is about to send. */
TEST(shutdown_answers_what_is_on_its_way)
{
	fixture_start(&f, NULL, NULL);
	int client = client_tcp(&f), silent = client_tcp(&f);
	http_server_shutdown(f.server, 5000, NULL, note_closed, &f);
	fixture_pump(&f);
	CHECK(!f.closed);
	(void)client_text(&f, client, "GET /here HTTP/1.1\r\n" HOST "\r\n");
	look(client);
	CHECK_INT(answer_status(&seen), 200);
	CHECK(seen_has(&seen, "Connection: close"));
	CHECK(seen.closed);
	int64_t until = clock_monotonic() + 5 * NSEC_PER_SEC;
	while (!f.closed && clock_monotonic() < until)
		uv_run(&f.loop, UV_RUN_ONCE);
	CHECK(f.closed);
	look(silent);
	CHECK(seen.closed);
	CHECK_INT(seen.size, 0);
	close(client);
	close(silent);
	fixture_stop(&f);
}

TEST(shutdown_answers_who_was_not_accepted)
{
	fixture_start(&f, NULL, NULL);
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)f.port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	check_unseen_request(client);
}

static struct {
	struct work work;
	struct work_share *share;
	int client;
	bool ran, stopped;
	int64_t now;
} hog;

static int64_t hog_clock(void)
{
	return hog.now;
}

/* It uses up the turn, in which a request arrives. */
static void hog_run(struct work *work)
{
	static const char request[] = "GET /here HTTP/1.1\r\n" HOST "\r\n";
	(void)work;
	hog.now += NSEC_PER_SEC;
	CHECK_INT(send(hog.client, request, sizeof(request) - 1, MSG_NOSIGNAL),
		  (int)sizeof(request) - 1);
	hog.ran = true;
}

/* Before the sockets are looked at. */
static void begin_hog(uv_prepare_t *prepare)
{
	work_run(&hog.work, hog.share);
	uv_close((uv_handle_t *)prepare, NULL);
}

/* After that, and before whoever waits for a turn (libuv calls who was started last first). */
static void stop_server(uv_check_t *check)
{
	CHECK(hog.ran);
	hog.stopped = true;
	http_server_shutdown(f.server, 5000, NULL, note_closed, &f);
	uv_close((uv_handle_t *)check, NULL);
}

TEST(shutdown_answers_what_waits_for_its_turn)
{
	fixture_start(&f, NULL, NULL);
	struct work_queue *queue = work_queue_of(&f.loop);
	uv_prepare_t prepare;
	uv_check_t check;
	hog.share = work_share_get(queue, "hog");
	hog.client = client_tcp(&f);
	fixture_pump(&f);
	work_set_clock(queue, hog_clock);
	hog.work.run = hog_run;
	uv_prepare_init(&f.loop, &prepare);
	uv_prepare_start(&prepare, begin_hog);
	uv_check_init(&f.loop, &check);
	uv_check_start(&check, stop_server);
	look(hog.client);
	CHECK(hog.stopped);
	CHECK_INT(answer_status(&seen), 200);
	CHECK(seen_has(&seen, "Connection: close"));
	close(hog.client);
	fixture_pump(&f);
	CHECK(f.closed);
	work_share_release(hog.share);
	work_queue_release(queue);
	fixture_stop(&f);
}

TEST(shutdown_ends_with_its_grace)
{
	fixture_start(&f, NULL, NULL);
	int busy = client_tcp(&f);
	(void)client_text(&f, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	http_server_shutdown(f.server, 5000, NULL, note_closed, &f);
	fixture_wait(&f, 2000);
	CHECK(!f.closed);
	fixture_wait(&f, 6000);
	CHECK(f.closed);
	CHECK_INT(f.gone, 1);
	close(busy);
	fixture_stop(&f);
	fixture_start(&f, NULL, NULL);
	http_server_shutdown(f.server, 5000, NULL, note_closed, &f);
	CHECK(!f.closed);
	fixture_pump(&f);
	CHECK(f.closed);
	fixture_stop(&f);
}

static void nothing(void *data)
{
	(void)data;
}

static void answer_pending(void *data)
{
	struct http_fixture *fixture = data;
	http_respond(fixture->pending, 503, NULL, NULL, 0, "ends", 4);
}

/* All at once, as for a process that was stopped. */
static void jump(uint64_t ms)
{
	*clock_advance += ms * NSEC_PER_MSEC;
	uv_run(&f.loop, UV_RUN_NOWAIT);
}

/* Also where the loop stood still until both the last call and the cut were due. */
TEST(shutdown_delivers_the_last_answers)
{
	fixture_start(&f, NULL, NULL);
	int busy = client_tcp(&f);
	(void)client_text(&f, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	http_server_shutdown(f.server, 1000, answer_pending, note_closed, &f);
	fixture_wait(&f, 900);
	CHECK(!f.closed);
	jump(10000);
	look(busy);
	CHECK_INT(answer_status(&seen), 503);
	CHECK(seen.closed);
	close(busy);
	fixture_pump(&f);
	CHECK(f.closed);
	fixture_stop(&f);
	/* Who is not answered is cut. */
	fixture_start(&f, NULL, NULL);
	busy = client_tcp(&f);
	(void)client_text(&f, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
	http_server_shutdown(f.server, 1000, nothing, note_closed, &f);
	jump(10000);
	fixture_pump(&f);
	CHECK(!f.closed);
	fixture_wait(&f, HTTP_LAST_CALL_MS + 1);
	CHECK(f.closed);
	CHECK_INT(f.gone, 1);
	close(busy);
	fixture_stop(&f);
}
