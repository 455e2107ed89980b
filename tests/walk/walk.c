/* One request to a daemon that lives in this process, and the functions that it passed through: the
 * daemon's own HTTP server, edge, surfaces and core, with the spawner and the inits of the unit
 * tests (tests/unit/fake_host.h) at the other end of real sockets. Built and read by
 * tests/walk/walk, which compiles the daemon with -finstrument-functions.
 *
 *     walk exec|create|run_shell [OFFSET...]
 *
 * prints the place in this program of each function, in order of first call; what is called from
 * within those at the given places is left out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_host.h"
#include "http/http.h"
#include "mcp/mcp.h"
#include "test.h"
#if __has_include("edge/edge.h")
#include "api/api.h"
#include "edge/edge.h"
#else
/* Before issue 13 the edge was a part of the REST API: the first commits can be measured too. */
#include "api/api.h"
#define edge api
#define edge_handle api_handle
#define mcp_server_new(core) mcp_server_new(core, false)
#endif

#define FUNCTIONS_MAX 4096
#define WARM_REQUESTS 3
#define ANSWER_MS 5000

/* --- what is called --- */

extern const char __executable_start[];
static const char *called[FUNCTIONS_MAX];
static size_t called_count;
static bool recording;
/* Functions whose calls are no part of a walk, and how many of them we are in. */
static const char *left_out[16];
static size_t left_out_count;
static unsigned inside_left_out;
static _Thread_local bool in_loop; /* threads of libuv's do what is no part of a walk */

__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function, void *site);
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *site);

__attribute__((no_instrument_function)) static bool is_left_out(const char *function)
{
	for (size_t i = 0; i < left_out_count; i++)
		if (left_out[i] == function)
			return true;
	return false;
}

void __cyg_profile_func_enter(void *function, void *site)
{
	(void)site;
	if (!in_loop)
		return;
	inside_left_out += is_left_out(function);
	if (!recording || inside_left_out > 0)
		return;
	for (size_t i = 0; i < called_count; i++)
		if (called[i] == function)
			return;
	if (called_count < FUNCTIONS_MAX)
		called[called_count++] = function;
}

void __cyg_profile_func_exit(void *function, void *site)
{
	(void)site;
	if (in_loop && is_left_out(function))
		inside_left_out--;
}

/* --- a daemon and its client --- */

/* What the fakes of the unit tests have to say. */
struct test *test_first, **test_last = &test_first;
int test_failures;
const char *test_skipped;

void test_fail(const char *file, int line, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s:%d: ", file, line);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	test_failures++;
}

struct walk {
	struct fake_host *host;
	struct edge edge;
	struct http_server *server;
	struct mcp_server *mcp;
	char path[108];
	int client;
};

static void walk_fail(const char *why)
{
	fprintf(stderr, "walk: %s\n", why);
	exit(1);
}

static int unix_socket(const char *path, bool listening)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	const struct sockaddr *to = (const struct sockaddr *)&address;
	if (fd < 0 ||
	    (listening ? bind(fd, to, sizeof(address)) : connect(fd, to, sizeof(address))) < 0 ||
	    (listening && listen(fd, 8) < 0))
		walk_fail(strerror(errno));
	return fd;
}

static void walk_start(struct walk *walk)
{
	struct http_handlers handlers = {.handle = edge_handle, .context = &walk->edge};
	struct error error;
	*walk = (struct walk){.host = fake_host_new()};
	fake_start(walk->host);
	walk->edge.core = &walk->host->core;
	walk->edge.owner = geteuid();
#if __has_include("edge/edge.h")
	static const struct surface *const surfaces[] = {&rest_surface, &mcp_surface, NULL};
	edge_start(&walk->edge, surfaces);
#else
	api_start();
#endif
	walk->server = http_server_new(walk->host->loop, &http_default_settings, &handlers);
	walk->edge.server = walk->server;
	walk->mcp = mcp_server_new(&walk->host->core);
	mcp_serve(walk->mcp);
	snprintf(walk->path, sizeof(walk->path), "%s/caisson.sock", walk->host->runtime);
	if (http_server_listen(walk->server, unix_socket(walk->path, true), NULL, &error) < 0)
		walk_fail(error.message);
	walk->client = unix_socket(walk->path, false);
}

/* The fake inits run every command until they are told otherwise: all of them are `true`. */
static void end_commands(struct fake_host *host)
{
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		for (size_t k = 0; host->inits[i].used && k < FAKE_RECORDS_MAX; k++)
			if (host->inits[i].records[k].key != 0 &&
			    host->inits[i].records[k].status.phase == EXEC_PHASE_RUNNING)
				fake_exit(&host->inits[i], host->inits[i].records[k].key,
					  EXEC_END_EXITED, 0, 0);
}

/* Sends a request, turns the loop until its answer is whole and what follows it is done. */
static void walk_request(struct walk *walk, const char *target, const char *headers,
			 const char *body, struct buffer *answer)
{
	struct buffer request = BUFFER(64 * 1024);
	int64_t until = clock_monotonic() + ANSWER_MS * NSEC_PER_MSEC;
	const char *head_end = NULL, *length = NULL;
	if (buffer_printf(
		&request,
		"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
		"Content-Length: %zu\r\n\r\n%s",
		target, headers, strlen(body), body) < 0 ||
	    send(walk->client, request.data, request.size, MSG_NOSIGNAL) != (ssize_t)request.size)
		walk_fail("the request cannot be sent");
	buffer_clear(answer);
	do {
		char piece[4096];
		uv_run(walk->host->loop, UV_RUN_NOWAIT);
		end_commands(walk->host);
		ssize_t got = recv(walk->client, piece, sizeof(piece), 0);
		if (got == 0 || (got > 0 && buffer_append(answer, piece, (size_t)got) < 0))
			walk_fail("the server has closed the connection");
		head_end = answer->size ? strstr(buffer_text(answer), "\r\n\r\n") : NULL;
		length = head_end ? strstr(answer->data, "Content-Length: ") : NULL;
		if (clock_monotonic() > until)
			walk_fail("no answer in time");
	} while (!length || answer->size < (size_t)(head_end + 4 - answer->data) +
					       strtoul(length + 16, NULL, 10));
	for (int i = 0; i < 20; i++)
		uv_run(walk->host->loop, UV_RUN_NOWAIT);
	buffer_done(&request);
	/* Of MCP too a refusal has another status, or says that it is one. */
	if (!strstr(answer->data, "HTTP/1.1 20") || strstr(answer->data, "\"isError\":true"))
		walk_fail(answer->data);
}

static void walk_operation(struct walk *walk, const char *name, const char *sandbox,
			   struct buffer *answer)
{
	char text[512];
	if (strcmp(name, "create") == 0) {
		walk_request(walk, "/v1/sandboxes", "", "{}", answer);
	} else if (strcmp(name, "exec") == 0) {
		snprintf(text, sizeof(text), "/v1/sandboxes/%s/exec", sandbox);
		walk_request(walk, text, "", "{\"argv\":[\"true\"]}", answer);
	} else if (strcmp(name, "run_shell") == 0) {
		snprintf(
		    text, sizeof(text),
		    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/"
		    "call\",\"params\":{\"name\":\"run_shell\","
		    "\"arguments\":{\"command\":\"true\",\"sandbox_id\":\"%s\"},\"_meta\":{"
		    "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
		    "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"walk\",\"version\":\"1\"},"
		    "\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
		    sandbox);
		walk_request(walk, "/mcp",
			     "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: "
			     "2026-07-28\r\n"
			     "Mcp-Method: tools/call\r\nMcp-Name: run_shell\r\n",
			     text, answer);
	} else {
		walk_fail("exec, create or run_shell");
	}
}

int main(int argc, char **argv)
{
	struct walk walk;
	struct buffer answer = BUFFER(256 * 1024);
	if (argc < 2 || (size_t)argc - 2 > sizeof(left_out) / sizeof(left_out[0]))
		walk_fail("usage: walk exec|create|run_shell [OFFSET...]");
	for (int i = 2; i < argc; i++)
		left_out[left_out_count++] = __executable_start + strtoul(argv[i], NULL, 16);
	in_loop = true;
	walk_start(&walk);
	struct sandbox *sandbox = fake_create(walk.host, NULL);
	if (!sandbox)
		walk_fail("there is no sandbox");
	char id[64];
	snprintf(id, sizeof(id), "%s", sandbox->row.id.text);
	for (int i = 0; i < WARM_REQUESTS; i++) {
		walk_operation(&walk, argv[1], id, &answer);
		fake_turn(walk.host, 50);
	}
	recording = true;
	walk_operation(&walk, argv[1], id, &answer);
	recording = false;
	for (size_t i = 0; i < called_count; i++)
		printf("%lx\n", (unsigned long)(called[i] - __executable_start));
	/* Only the directories are left behind: the process ends with all else. */
	close(walk.client);
	mcp_server_free(walk.mcp);
	http_server_free(walk.server);
	fake_host_free(walk.host);
	buffer_done(&answer);
	return test_failures > 0;
}
