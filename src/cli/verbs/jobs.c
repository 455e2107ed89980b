/* `caisson jobs`: lists the commands of a sandbox, kills one, or removes its record. */
#include <stdio.h>
#include <time.h>
#include <string.h>

#include "cli/cli.h"

static struct {
	const char *state, *limit, *kill, *remove;
	bool all, quiet;
} options;

static int job_change(struct client *client, const char *sandbox, const char *id, bool purge,
		      struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (sandbox_path(&path, sandbox, "/jobs/", error) < 0)
		return -1;
	if (buffer_append_encoded(&path, id) < 0 ||
	    buffer_append_text(&path, purge ? "?purge=1" : "/signal") < 0)
		return error_set(error, ERROR_USAGE, "an argument is too long");
	if (purge)
		return client_call(client, "DELETE", path.data, NULL, NULL, 0, NULL, error);
	json_t *answer = NULL;
	json_t *body = json_pack("{s:s, s:b}", "signal", "KILL", "tree", 1);
	int result = client_call(client, "POST", path.data, body, NULL, 0, &answer, error);
	json_decref(body);
	json_decref(answer);
	return result;
}

static void job_print(const json_t *record)
{
	char how[48] = "";
	const json_t *code = json_object_get(record, "exit_code");
	if (json_is_true(json_object_get(record, "timed_out")))
		snprintf(how, sizeof(how), "time-out");
	else if (*member_text(record, "signal_name"))
		snprintf(how, sizeof(how), "%s", member_text(record, "signal_name"));
	else if (json_is_integer(code))
		snprintf(how, sizeof(how), "exit %d", (int)json_integer_value(code));
	/* With the date if it is not today's. */
	char started[24] = "-", took[32] = "-";
	time_t start = (time_t)member_time(record, "started_at"), now = time(NULL);
	int64_t end = member_time(record, "ended_at");
	struct tm began, today;
	if (start >= 0 && localtime_r(&start, &began) && localtime_r(&now, &today)) {
		bool same = began.tm_yday == today.tm_yday && began.tm_year == today.tm_year;
		strftime(started, sizeof(started), same ? "%H:%M:%S" : "%m-%d %H:%M", &began);
		age_to_text(MAX((end < 0 ? (int64_t)now : end) - start, 0), took);
	}
	printf("%-17s %-9s %-10s %-11s %8s %-4s %10lld  ", member_text(record, "exec_id"),
	       member_text(record, "state"), how, started, took,
	       json_is_true(json_object_get(record, "tty")) ? "tty" : "",
	       (long long)(member_integer(record, "stdout_bytes") +
			   member_integer(record, "stderr_bytes")));
	safe_text_print(member_text(record, "command"));
	printf("\n");
}

static const struct option_spec jobs_specs[] = {
    {"state", 's', OPTION_TEXT, &options.state, "STATE", "only running, ended or failed ones",
     "state", "running,ended,failed"},
    {"limit", 'n', OPTION_TEXT, &options.limit, "N", "at most this many (default: 100)", "limit"},
    {"all", 'a', OPTION_FLAG, &options.all, NULL, "also the processes of code contexts", "all"},
    {"quiet", 'q', OPTION_FLAG, &options.quiet, NULL, "ids only"},
    {"kill", 0, OPTION_TEXT, &options.kill, "ID", "kill one and all that it started",
     .words = WORDS_EXECS},
    {"rm", 0, OPTION_TEXT, &options.remove, "ID",
     "remove one and its output; a running one is killed first", .words = WORDS_EXECS},
    {0},
};

static int jobs_run(struct client *client, int argc, char **argv, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	json_t *answer = NULL, *record;
	size_t at;
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "jobs needs a sandbox: caisson jobs mybox");
	if (argc > 2)
		return error_set(error, ERROR_USAGE,
				 "jobs takes a sandbox and nothing else (\"%s\"); to end a "
				 "command: caisson jobs --kill ID %s",
				 argv[2], argv[1]);
	if (options.kill && options.remove)
		return error_set(error, ERROR_USAGE, "--kill and --rm are one at a time");
	if (options.kill)
		return job_change(client, argv[1], options.kill, false, error);
	if (options.remove)
		return job_change(client, argv[1], options.remove, true, error);
	if (sandbox_path(&path, argv[1], "/jobs", error) < 0 ||
	    options_to_path(jobs_specs, &path, error) < 0)
		return -1;
	if (client_call(client, "GET", path.data, NULL, NULL, 0, &answer, error) < 0)
		return -1;
	if (cli_json) {
		json_print(json_object_get(answer, "jobs"));
	} else if (options.quiet) {
		json_array_foreach(json_object_get(answer, "jobs"), at, record)
		    printf("%s\n", member_text(record, "exec_id"));
	} else {
		printf("%-17s %-9s %-10s %-11s %8s %-4s %10s  %s\n", "ID", "STATE", "HOW", "START",
		       "DURATION", "", "BYTES", "COMMAND");
		json_array_foreach(json_object_get(answer, "jobs"), at, record) job_print(record);
		if (json_is_true(json_object_get(answer, "truncated")))
			printf("... and more: --limit N\n");
	}
	json_decref(answer);
	return 0;
}

const struct verb verb_jobs = {
    .name = "jobs",
    .sandboxes = true,
    .arguments = "[options] SANDBOX",
    .summary = "List the commands of a sandbox, kill or remove one",
    .help = "Every command that was run in it, newest first, ended ones included.\n"
	    "\n"
	    "  caisson exec -d mybox -- make\n"
	    "  caisson jobs --state running mybox\n"
	    "  caisson jobs --kill ID mybox",
    .options = jobs_specs,
    .run = jobs_run,
};
