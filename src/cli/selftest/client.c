/* Items that are tried from outside, besides the file items: paths in place of identifiers, and a
 * sandbox whose users kill, stop or replace the processes and files that it depends on. Blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/selftest/selftest.h"

/* Sends the path unchanged. Returns the status, or -1 without an answer. */
static int request_status(struct selftest *test, const char *method, const char *path)
{
	struct error ignored;
	struct request request = {.method = method, .path = path};
	struct exchange *exchange = exchange_new();
	int status = -1;
	if (exchange_begin(test->client, &request, exchange, &ignored) == 0) {
		int head = exchange_read_head(exchange, &ignored);
		(void)head;
		status = exchange->status > 0 ? exchange->status : -1;
	}
	exchange_free(exchange);
	return status;
}

/* Each path must be refused with a 4xx status. */
static void paths_try(struct selftest *test, const char *id, const char *const *paths)
{
	for (; *paths; paths++) {
		int status = request_status(test, "GET", *paths);
		selftest_note_result(test, id, status >= 400 && status < 500, "GET %s: status %d",
				     *paths, status);
	}
}

static int sandbox_ids_try(struct selftest *test, const char *id, struct error *error)
{
	static const char *const paths[] = {
	    "/v1/sandboxes/..%2f..%2f..%2fetc%2fpasswd",
	    "/v1/sandboxes/%2e%2e%2f%2e%2e%2fdb",
	    "/v1/sandboxes/../../etc/passwd",
	    "/v1/sandboxes/%2e%2e/%2e%2e/etc/passwd",
	    "/v1/sandboxes/.",
	    "/v1/sandboxes/..",
	    "/v1/sandboxes/a%00b",
	    "/v1/sandboxes/a%0d%0ab",
	    "/v1/sandboxes/%ff%fe",
	    "/v1/sandboxes/%c0%ae%c0%ae%c0%af",
	    "/v1/sandboxes/a%5c..%5cb",
	    "/v1/sandboxes/%252e%252e%252f",
	    NULL,
	};
	(void)error;
	paths_try(test, id, paths);
	return 0;
}

static int exec_ids_try(struct selftest *test, const char *id, struct error *error)
{
	static const char *const rests[] = {
	    "/execs/..%2f..%2fother%2fx",
	    "/execs/..",
	    "/execs/%2e%2e/output",
	    "/execs/a%00/output",
	    "/execs/..%2f..%2f..%2fdb%2fcaisson.db/output",
	};
	for (size_t i = 0; i < ARRAY_SIZE(rests); i++) {
		DONE_BUFFER struct buffer path = BUFFER(4096);
		if (sandbox_path(&path, test->boxes.main, "", error) < 0 ||
		    buffer_append_text(&path, rests[i]) < 0)
			return -1;
		const char *const list[] = {path.data, NULL};
		paths_try(test, id, list);
	}
	return 0;
}

/* Fields of a create that name something on the host's disk. */
static int names_try(struct selftest *test, const char *id, struct error *error)
{
	static const struct {
		const char *field, *value;
	} texts[] = {
	    {"name", "../../../etc"},
	    {"name", ".."},
	    {"name", "a/b"},
	    {"name", "a\nb"},
	    {"template", "../../.."},
	    {"template", "/etc"},
	    {"template", "host/../../.."},
	    {"isolation", "../vm"},
	};
	(void)error;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct error refused = {0};
		json_t *record = NULL, *body = json_pack("{s:s}", texts[i].field, texts[i].value);
		int result = client_call(test->client, "POST", "/v1/sandboxes", body, NULL, 0,
					 &record, &refused);
		json_decref(body);
		int status = result < 0 ? error_info(refused.kind)->http_status : 201;
		selftest_note_result(test, id, status >= 400 && status < 500,
				     "a sandbox with %s \"%s\": status %d", texts[i].field,
				     texts[i].value, status);
		DONE_BUFFER struct buffer path = BUFFER(4096);
		struct error ignored;
		if (result == 0 &&
		    sandbox_path(&path, member_text(record, "id"), "", &ignored) == 0)
			(void)!client_call(test->client, "DELETE", path.data, NULL, NULL, 0, NULL,
					   &ignored);
		json_decref(record);
	}
	return 0;
}

static bool box_command_prints(struct selftest *test, const char *box, const char *command,
			       const char *wanted)
{
	json_t *result = NULL;
	struct error ignored;
	bool same = selftest_shell(test, box, command, &result, &ignored) == 0 &&
		    strcmp(member_text(result, "stdout"), wanted) == 0;
	json_decref(result);
	return same;
}

/* Kills every process that root inside may signal, among them the launcher and the runners. */
static int kill_everything_try(struct selftest *test, const char *id, struct error *error)
{
	json_t *result = NULL;
	struct error ended;
	(void)error;
	if (selftest_shell(test, test->boxes.small, "kill -9 -1", &result, &ended) == 0)
		json_decref(result);
	selftest_note_result(test, id,
			     box_command_prints(test, test->boxes.small, "echo here", "here\n"),
			     "the sandbox does not answer after kill -9 -1");
	selftest_note_result(test, id,
			     box_command_prints(test, test->boxes.neighbour, "echo here", "here\n"),
			     "the neighbour does not answer");
	return 0;
}

static int box_change_state(struct selftest *test, const char *box, const char *rest,
			    struct error *error)
{
	return client_sandbox_call(test->client, "POST", box, rest, NULL, NULL, error);
}

/* A start writes to and mounts over files that the users left: links to anywhere. A sandbox that
 * does not start again has harmed only itself. */
static int restart_links_try(struct selftest *test, const char *id, struct error *error)
{
	static const char script[] =
	    "cd / && rm -rf workspace tmp srv mnt media home && "
	    "for i in workspace tmp srv mnt media home; do ln -s /proc/1/root/etc $i; done; "
	    "mv etc etc-before && ln -s /proc/1/root/etc etc; rm -rf sys; ln -s /proc/1/root sys; "
	    "true";
	json_t *result = NULL;
	struct error refused;
	if (selftest_shell(test, test->boxes.small, script, &result, error) < 0)
		return -1;
	json_decref(result);
	if (box_change_state(test, test->boxes.small, "/stop", error) < 0)
		return -1;
	bool started = box_change_state(test, test->boxes.small, "/start", &refused) == 0;
	json_t *answer = NULL;
	if (started && selftest_shell(test, test->boxes.small, "cd /; cat sys/etc/shadow", &answer,
				      &refused) == 0)
		selftest_note_result(test, id, member_integer(answer, "exit_code") != 0,
				     "a file of the host can be read through links after a start");
	json_decref(answer);
	selftest_note_result(test, id,
			     box_command_prints(test, test->boxes.neighbour, "echo here", "here\n"),
			     "the neighbour does not answer");
	return 0;
}

static const struct {
	const char *id;
	int (*try)(struct selftest *test, const char *id, struct error *error);
} attempts[] = {
    {"sandbox_id_traversal", sandbox_ids_try},
    {"exec_id_traversal", exec_ids_try},
    {"name_traversal", names_try},
    {"kill_everything", kill_everything_try},
    {"restart_links", restart_links_try}, /* last: its sandbox cannot be used afterwards */
};

int selftest_run_client(struct selftest *test, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		if (selftest_item_is_elsewhere(test, attempts[i].id))
			continue;
		selftest_show_progress(test, "%s", attempts[i].id);
		if (attempts[i].try(test, attempts[i].id, error) < 0)
			return -1;
	}
	return 0;
}
