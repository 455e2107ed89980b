/* The verbs that show sandboxes: ls, inspect, top. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"

static struct {
	bool all, quiet, names, once;
	struct text_list labels;
	const char *state;
} options;

static const struct option_spec ls_specs[] = {
    {"all", 'a', OPTION_FLAG, &options.all, NULL, "also ended ones, with the reason", "all"},
    {"quiet", 'q', OPTION_FLAG, &options.quiet, NULL, "ids only"},
    {"names", 0, OPTION_FLAG, &options.names, NULL, "ids and names only, one per line"},
    {"label", 'l', OPTION_LIST, &options.labels, "K=V",
     "only those with this label (repeatable: all must hold)", "label"},
    {"state", 's', OPTION_TEXT, &options.state, "STATE",
     "only those that are running, paused, stopped, ended, ...", "state", WORDS_STATES},
    {0},
};

static int list_path_append(struct buffer *path, const char *cursor, struct error *error)
{
	if (buffer_append_text(path, "/v1/sandboxes?limit=200") < 0 ||
	    options_to_path(ls_specs, path, error) < 0)
		return -1;
	if (buffer_append_parameter(path, "cursor", *cursor ? cursor : NULL) < 0)
		return error_set(error, ERROR_USAGE, "too many labels");
	return 0;
}

static int list_fetch(struct client *client, json_t **ret_list, struct error *error)
{
	json_t *list = json_array();
	char cursor[256] = "";
	for (;;) {
		DONE_BUFFER struct buffer path = BUFFER(12 * KIB);
		json_t *page = NULL;
		if (list_path_append(&path, cursor, error) < 0 ||
		    client_call(client, "GET", path.data, NULL, NULL, 0, &page, error) < 0) {
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

static void record_limit_text(const json_t *record, const char *name, char text[32])
{
	const json_t *limit = json_object_get(json_object_get(record, "limits"), name);
	bytes_to_text((uint64_t)member_integer(limit, "value"), text);
}

/* Seconds until it expires; -1 if it never does. */
static int64_t record_expires_in(const json_t *record)
{
	int64_t end = member_time(record, "expires_at");
	return end < 0 ? -1 : MAX(end - clock_wall() / NSEC_PER_SEC, 0);
}

/* Widths of the columns that vary. */
struct widths {
	int name, status, isolation, template;
};

static void width_widen(int *width, const char *text)
{
	*width = MAX(*width, MIN((int)strlen(text), 32));
}

static struct widths list_widths(const json_t *list)
{
	struct widths widths = {4, 7, 9, 8};
	size_t at;
	json_t *record;
	json_array_foreach((json_t *)list, at, record)
	{
		width_widen(&widths.name, member_text(record, "name"));
		width_widen(&widths.status, member_text(record, "status"));
		width_widen(&widths.isolation, member_text(record, "isolation"));
		width_widen(&widths.template, member_text(record, "template"));
	}
	return widths;
}

/* Adds its unenforced limits to `unenforced`; true if there is one. */
static bool record_note_unenforced(const json_t *record, json_t *unenforced)
{
	bool found = false;
	const char *name;
	json_t *limit;
	json_object_foreach(json_object_get(record, "limits"), name, limit)
	{
		if (!json_is_false(json_object_get(limit, "enforced")))
			continue;
		found = true;
		json_object_set(unenforced, name, limit);
	}
	return found;
}

static void list_row_print(const struct widths *widths, const json_t *record, const char *mark)
{
	char memory[32], left[32], age[32];
	record_limit_text(record, "memory", memory);
	age_to_text(MAX(clock_wall() / NSEC_PER_SEC - member_time(record, "created_at"), 0), age);
	const char *reason = member_text(json_object_get(record, "end"), "reason");
	if (*reason)
		snprintf(left, sizeof(left), "(%s)", reason);
	else
		age_to_text(record_expires_in(record), left);
	printf("%-16s  %-*.32s  %-*s  %-*s  %-*s  %8s  %6s  %s%s\n", member_text(record, "id"),
	       widths->name, *member_text(record, "name") ? member_text(record, "name") : "-",
	       widths->status, member_text(record, "status"), widths->isolation,
	       member_text(record, "isolation"), widths->template, member_text(record, "template"),
	       memory, age, left, mark);
}

static void list_print(json_t *list)
{
	struct widths widths = list_widths(list);
	json_t *record, *unenforced = json_object();
	bool screen = isatty(STDOUT_FILENO);
	size_t at;
	printf("%-16s  %-*s  %-*s  %-*s  %-*s  %8s  %6s  %s\n", "ID", widths.name, "NAME",
	       widths.status, "STATUS", widths.isolation, "ISOLATION", widths.template, "TEMPLATE",
	       "MEMORY", "AGE", "EXPIRES");
	json_array_foreach(list, at, record)
	{
		bool marked = screen && record_note_unenforced(record, unenforced);
		list_row_print(&widths, record, marked ? " *" : "");
	}
	/* On a terminal a star marks rows with unenforced limits; these lines say which limits. */
	unenforced_limits_print(unenforced, "* not enforced: ");
	json_decref(unenforced);
}

static int ls_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "ls takes no argument (\"%s\")", argv[1]);
	json_t *list;
	if (list_fetch(client, &list, error) < 0)
		return -1;
	if (cli_json) {
		json_print(list);
	} else if (!options.quiet && !options.names) {
		list_print(list);
	} else {
		size_t at;
		json_t *record;
		json_array_foreach(list, at, record)
		{
			printf("%s\n", member_text(record, "id"));
			if (options.names && *member_text(record, "name"))
				printf("%s\n", member_text(record, "name"));
		}
	}
	json_decref(list);
	return 0;
}

const struct verb verb_ls = {
    .name = "ls",
    .arguments = "[options]",
    .summary = "List the sandboxes",
    .help = "On a terminal a star marks sandboxes with limits that this host does not enforce; a "
	    "line\nbelow says which and why (in --json: `enforced` and `reason` of each limit).\n\n"
	    "  caisson ls\n  caisson ls --label team=red --state running\n"
	    "  caisson ls -q | xargs caisson rm",
    .options = ls_specs,
    .run = ls_run,
};

static int inspect_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "inspect needs a sandbox");
	for (int i = 1; i < argc; i++) {
		json_t *record = NULL;
		if (client_sandbox_call(client, "GET", argv[i], "", NULL, &record, error) < 0)
			return -1;
		json_print(record);
		json_decref(record);
	}
	return 0;
}

const struct verb verb_inspect = {
    .name = "inspect",
    .sandboxes = true,
    .arguments = "SANDBOX ...",
    .summary = "Print everything known about a sandbox, as JSON",
    .help = "Its state, limits and for each whether it is enforced, timings, and for an ended one\n"
	    "when and why it ended.",
    .run = inspect_run,
};

/* Adds each sandbox's usage to its record, as "usage"; null if it has just ended. */
static void list_add_usage(struct client *client, json_t *list)
{
	size_t at, seen;
	json_t *record, *one, *metrics = NULL;
	struct error ignored;
	if (client_call(client, "GET", "/v1/metrics", NULL, NULL, 0, &metrics, &ignored) < 0)
		metrics = NULL;
	json_array_foreach(list, at, record)
	{
		json_object_set_new(record, "usage", json_null());
		json_array_foreach(json_object_get(metrics, "items"), seen, one)
		{
			if (strcmp(member_text(one, "id"), member_text(record, "id")) == 0)
				json_object_set(record, "usage", one);
		}
	}
	json_decref(metrics);
}

/* "-" if the host does not count it, as memory without a cgroup. */
static void usage_text(const json_t *usage, const char *name, bool bytes, char text[32])
{
	const json_t *value = json_object_get(usage, name);
	if (!json_is_number(value))
		snprintf(text, 32, "-");
	else if (bytes)
		bytes_to_text((uint64_t)json_integer_value(value), text);
	else if (json_is_integer(value))
		snprintf(text, 32, "%lld", (long long)json_integer_value(value));
	else
		snprintf(text, 32, "%.2f", json_real_value(value));
}

static void usage_row_print(const json_t *record)
{
	char share[32], cpu[32], memory[32], limit[32], processes[32], disk[32];
	const json_t *usage = json_object_get(record, "usage");
	if (!json_is_object(usage))
		return;
	usage_text(usage, "cpu_percent", false, share);
	usage_text(usage, "cpu_seconds", false, cpu);
	usage_text(usage, "memory_bytes", true, memory);
	usage_text(usage, "processes", false, processes);
	usage_text(usage, "disk_bytes", true, disk);
	record_limit_text(record, "memory", limit);
	printf("%-17s %-16.16s %-9s %7s %9s %9s/%-9s %6s %9s\n", member_text(record, "id"),
	       *member_text(record, "name") ? member_text(record, "name") : "-",
	       member_text(record, "status"), share, cpu, memory, limit, processes, disk);
}

static int top_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "top takes no argument (\"%s\")", argv[1]);
	bool live = isatty(STDOUT_FILENO) && !options.once && !cli_json;
	do {
		json_t *list;
		if (list_fetch(client, &list, error) < 0)
			return -1;
		list_add_usage(client, list);
		if (cli_json) {
			json_print(list);
			json_decref(list);
			return 0;
		}
		if (live)
			printf("\033[H\033[2J");
		printf("%-17s %-16s %-9s %7s %9s %9s/%-9s %6s %9s\n", "ID", "NAME", "STATUS",
		       "CPU %", "CPU s", "MEMORY", "LIMIT", "PROCS", "DISK");
		size_t at;
		json_t *record;
		json_array_foreach(list, at, record) usage_row_print(record);
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
    .help =
	"Cpu (percent of one, and seconds), memory, processes and disk, refreshed every two\n"
	"seconds on a terminal; - where the host does not count it. With --json the records of\n"
	"`ls`, each with `usage`.",
    .options = top_specs,
    .run = top_run,
};
