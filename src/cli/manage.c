/* The verbs that look at sandboxes and change their state: ls, inspect, top, stop, start, pause,
 * resume, rm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"

static struct {
	bool all, quiet, force, once;
} options;

static int fetch_list(struct client *client, bool all, json_t **ret_list, struct error *error)
{
	json_t *list = json_array();
	char cursor[256] = "";
	for (;;) {
		char path[512];
		snprintf(path, sizeof(path), "/v1/sandboxes?limit=200%s%s%s", all ? "&all=1" : "",
			 *cursor ? "&cursor=" : "", cursor);
		json_t *page = NULL;
		if (client_json(client, "GET", path, NULL, NULL, 0, &page, error) < 0) {
			json_decref(list);
			return -1;
		}
		json_array_extend(list, json_object_get(page, "items"));
		snprintf(cursor, sizeof(cursor), "%s", member_text(page, "next_cursor"));
		json_decref(page);
		if (!*cursor)
			break;
	}
	*ret_list = list;
	return 0;
}

static void print_limit(const json_t *record, const char *name, char text[32])
{
	const json_t *limit = json_object_get(json_object_get(record, "limits"), name);
	bytes_text((uint64_t)member_integer(limit, "value"), text);
}

/* Seconds until its time is over; -1 when it has no end. */
static int64_t expires_in(const json_t *record)
{
	struct tm parts = {0};
	const char *text = member_text(record, "expires_at");
	if (!*text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &parts))
		return -1;
	return MAX((int64_t)timegm(&parts) - clock_wall() / NSEC_PER_SEC, 0);
}

static void print_row(const json_t *record)
{
	char memory[32], left[32];
	print_limit(record, "memory", memory);
	const char *reason = member_text(json_object_get(record, "end"), "reason");
	if (*reason)
		snprintf(left, sizeof(left), "(%s)", reason);
	else
		age_text(expires_in(record), left);
	printf("%-17s %-16.16s %-9s %-10s %-9s %8s %9s\n", member_text(record, "id"),
	       *member_text(record, "name") ? member_text(record, "name") : "-",
	       member_text(record, "status"), member_text(record, "isolation"),
	       member_text(record, "template"), memory, left);
}

static int run_ls(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "ls takes no argument (\"%s\")", argv[1]);
	json_t *list;
	if (fetch_list(client, options.all, &list, error) < 0)
		return -1;
	if (cli_json) {
		print_json(list);
	} else {
		if (!options.quiet)
			printf("%-17s %-16s %-9s %-10s %-9s %8s %9s\n", "ID", "NAME", "STATUS",
			       "ISOLATION", "TEMPLATE", "MEMORY", "EXPIRES");
		size_t at;
		json_t *record;
		json_array_foreach(list, at, record)
		{
			if (options.quiet)
				printf("%s\n", member_text(record, "id"));
			else
				print_row(record);
		}
	}
	json_decref(list);
	return 0;
}

static const struct option_spec ls_specs[] = {
    {"all", 'a', OPTION_FLAG, &options.all, NULL, "ended ones too, with why they ended"},
    {"quiet", 'q', OPTION_FLAG, &options.quiet, NULL, "ids only"},
    {0},
};

const struct verb verb_ls = {
    .name = "ls",
    .arguments = "[options]",
    .summary = "List the sandboxes",
    .help = "  caisson ls\n  caisson ls -q | xargs caisson rm",
    .options = ls_specs,
    .run = run_ls,
};

static int run_inspect(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "inspect needs a sandbox");
	for (int i = 1; i < argc; i++) {
		DONE_BUFFER struct buffer path = BUFFER(4096);
		json_t *record = NULL;
		if (sandbox_path(&path, argv[i], "", error) < 0 ||
		    client_json(client, "GET", path.data, NULL, NULL, 0, &record, error) < 0)
			return -1;
		print_json(record);
		json_decref(record);
	}
	return 0;
}

const struct verb verb_inspect = {
    .name = "inspect",
    .arguments = "SANDBOX ...",
    .summary = "Print all that is known of a sandbox, as JSON",
    .help = "Its state, limits and for each whether it is enforced, timings, and for an ended one\n"
	    "when and why it ended.",
    .run = run_inspect,
};

/* One request per sandbox; goes on after a failure, and fails in the end if any did. */
static int for_each(struct client *client, int argc, char **argv, const char *method,
		    const char *rest, struct error *error)
{
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "%s needs a sandbox", argv[0]);
	int failed = 0;
	struct error last = {0};
	json_t *answers = json_array();
	for (int i = 1; i < argc; i++) {
		DONE_BUFFER struct buffer path = BUFFER(4096);
		struct error one;
		json_t *answer = NULL;
		if (sandbox_path(&path, argv[i], rest, &one) < 0 ||
		    client_json(client, method, path.data, NULL, NULL, 0, &answer, &one) < 0) {
			if (options.force && (one.kind == ERROR_SANDBOX_NOT_FOUND ||
					      one.kind == ERROR_SANDBOX_ENDED))
				continue;
			if (failed++ > 0)
				fprintf(stderr, "caisson %s: %s\n", argv[0], last.message);
			last = one;
		} else {
			json_array_append_new(answers, answer ? answer : json_null());
			if (!cli_json)
				printf("%s\n", argv[i]);
		}
	}
	if (cli_json)
		print_json(answers);
	json_decref(answers);
	if (failed == 0)
		return 0;
	*error = last;
	return -1;
}

static int run_rm(struct client *client, int argc, char **argv, struct error *error)
{
	return for_each(client, argc, argv, "DELETE", "", error);
}

static int run_stop(struct client *client, int argc, char **argv, struct error *error)
{
	return for_each(client, argc, argv, "POST", "/stop", error);
}

static int run_start(struct client *client, int argc, char **argv, struct error *error)
{
	return for_each(client, argc, argv, "POST", "/start", error);
}

static int run_pause(struct client *client, int argc, char **argv, struct error *error)
{
	return for_each(client, argc, argv, "POST", "/pause", error);
}

static int run_resume(struct client *client, int argc, char **argv, struct error *error)
{
	return for_each(client, argc, argv, "POST", "/resume", error);
}

static const struct option_spec rm_specs[] = {
    {"force", 'f', OPTION_FLAG, &options.force, NULL, "one that is not there is no error"},
    {0},
};

const struct verb verb_rm = {
    .name = "rm",
    .arguments = "[options] SANDBOX ...",
    .summary = "Remove sandboxes with all that is in them",
    .help = "Kills every process of each sandbox and removes its files. A tombstone stays:\n"
	    "`caisson inspect` still says when and why it ended.",
    .options = rm_specs,
    .run = run_rm,
};

const struct verb verb_stop = {
    .name = "stop",
    .arguments = "SANDBOX ...",
    .summary = "End a sandbox's processes, keep its files",
    .help = "SIGTERM, two seconds later SIGKILL. `caisson start` goes on with the same files.",
    .run = run_stop,
};

const struct verb verb_start = {
    .name = "start",
    .arguments = "SANDBOX ...",
    .summary = "Start a stopped sandbox again",
    .help = "With the files it had when it was stopped.",
    .run = run_start,
};

const struct verb verb_pause = {
    .name = "pause",
    .arguments = "SANDBOX ...",
    .summary = "Freeze a sandbox's processes",
    .help = "They keep their memory and use no cpu; timers hold. The next exec wakes it.",
    .run = run_pause,
};

const struct verb verb_resume = {
    .name = "resume",
    .arguments = "SANDBOX ...",
    .summary = "Let a paused sandbox go on",
    .help = "The other half of pause.",
    .run = run_resume,
};

static void print_top_row(struct client *client, const json_t *record)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	struct error ignored;
	json_t *metrics = NULL;
	char memory[32], limit[32], disk[32];
	if (sandbox_path(&path, member_text(record, "id"), "/metrics", &ignored) < 0 ||
	    client_json(client, "GET", path.data, NULL, NULL, 0, &metrics, &ignored) < 0)
		return;
	bytes_text((uint64_t)member_integer(metrics, "memory_bytes"), memory);
	bytes_text((uint64_t)member_integer(metrics, "disk_bytes"), disk);
	print_limit(record, "memory", limit);
	printf("%-17s %-16.16s %-9s %9.2f %9s/%-9s %6lld %9s\n", member_text(record, "id"),
	       *member_text(record, "name") ? member_text(record, "name") : "-",
	       member_text(record, "status"),
	       json_number_value(json_object_get(metrics, "cpu_seconds")), memory, limit,
	       (long long)member_integer(metrics, "processes"), disk);
	json_decref(metrics);
}

static int run_top(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "top takes no argument (\"%s\")", argv[1]);
	bool live = isatty(STDOUT_FILENO) && !options.once && !cli_json;
	do {
		json_t *list;
		if (fetch_list(client, false, &list, error) < 0)
			return -1;
		if (cli_json) {
			print_json(list);
			json_decref(list);
			return 0;
		}
		if (live)
			printf("\033[H\033[2J");
		printf("%-17s %-16s %-9s %9s %9s/%-9s %6s %9s\n", "ID", "NAME", "STATUS", "CPU s",
		       "MEMORY", "LIMIT", "PROCS", "DISK");
		size_t at;
		json_t *record;
		json_array_foreach(list, at, record) print_top_row(client, record);
		json_decref(list);
		fflush(stdout);
		if (live)
			sleep(2);
	} while (live);
	return 0;
}

static const struct option_spec top_specs[] = {
    {"once", '1', OPTION_FLAG, &options.once, NULL, "print once and exit"},
    {0},
};

const struct verb verb_top = {
    .name = "top",
    .arguments = "[options]",
    .summary = "Show what the sandboxes use",
    .help = "Cpu seconds, memory, processes and disk, refreshed every two seconds on a terminal.",
    .options = top_specs,
    .run = run_top,
};
