/* The verbs that look at sandboxes and change their state: ls, inspect, top, stop, start, pause,
 * resume, rm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"

static struct {
	bool all, quiet, names, force, once;
	struct selection selection;
} options;

/* Appends "/v1/sandboxes?" with the parameters for --all, --label and --state. */
static int list_path_append(struct buffer *path, bool all, const char *cursor, struct error *error)
{
	const struct text_list *labels = &options.selection.labels;
	int result = buffer_printf(path, "/v1/sandboxes?limit=200%s%s%s", all ? "&all=1" : "",
				   *cursor ? "&cursor=" : "", cursor);
	if (result == 0 && options.selection.state)
		result = buffer_append_text(path, "&state=") < 0
			     ? -1
			     : buffer_append_encoded(path, options.selection.state);
	for (size_t i = 0; result == 0 && i < labels->count; i++)
		result = buffer_append_text(path, "&label=") < 0
			     ? -1
			     : buffer_append_encoded(path, labels->items[i]);
	return result < 0 ? error_set(error, ERROR_USAGE, "too many labels") : 0;
}

static int list_fetch(struct client *client, bool all, json_t **ret_list, struct error *error)
{
	json_t *list = json_array();
	char cursor[256] = "";
	for (;;) {
		DONE_BUFFER struct buffer path = BUFFER(12 * KIB);
		json_t *page = NULL;
		if (list_path_append(&path, all, cursor, error) < 0 ||
		    client_request_json(client, "GET", path.data, NULL, NULL, 0, &page, error) <
			0) {
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

/* On a terminal a star marks rows with unenforced limits; this says which limits. */
static void unenforced_limits_print(json_t *unenforced)
{
	char names[128];
	const char *reason;
	void *at = json_object_iter(unenforced);
	while (unenforced_limits_next(unenforced, &at, names, sizeof(names), &reason))
		printf("* not enforced: %s: %s\n", names, reason);
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
	unenforced_limits_print(unenforced);
	json_decref(unenforced);
}

static int ls_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "ls takes no argument (\"%s\")", argv[1]);
	json_t *list;
	if (list_fetch(client, options.all, &list, error) < 0)
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

static const struct option_spec ls_specs[] = {
    {"all", 'a', OPTION_FLAG, &options.all, NULL, "ended ones too, with why they ended"},
    {"quiet", 'q', OPTION_FLAG, &options.quiet, NULL, "ids only"},
    {"names", 0, OPTION_FLAG, &options.names, NULL, "ids and names only, one per line"},
    {"label", 'l', OPTION_LIST, &options.selection.labels, "K=V",
     "only those with this label (repeatable: all must hold)"},
    {"state", 's', OPTION_TEXT, &options.selection.state, "STATE",
     "only those that are running, paused, stopped, ended, ..."},
    {0},
};

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
		DONE_BUFFER struct buffer path = BUFFER(4096);
		json_t *record = NULL;
		if (sandbox_path_append(&path, argv[i], "", error) < 0 ||
		    client_request_json(client, "GET", path.data, NULL, NULL, 0, &record, error) <
			0)
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
    .summary = "Print all that is known of a sandbox, as JSON",
    .help = "Its state, limits and for each whether it is enforced, timings, and for an ended one\n"
	    "when and why it ended.",
    .run = inspect_run,
};

/* Prints its name and, on a terminal only, the memory that a pause gave back to the host. */
static void sandbox_done_print(const char *sandbox, const json_t *answer)
{
	const json_t *pause = json_object_get(answer, "pause");
	char got[32], before[32];
	printf("%s", sandbox);
	if (json_object_get(pause, "reclaimed_bytes") && isatty(STDOUT_FILENO)) {
		bytes_to_text((uint64_t)member_integer(pause, "reclaimed_bytes"), got);
		bytes_to_text((uint64_t)member_integer(pause, "memory_before_bytes"), before);
		printf("  (%s of %s went back to the host)", got, before);
	}
	printf("\n");
}

/* Sends one request per sandbox. Continues after a failure, and fails at the end if any failed. */
static int sandboxes_act(struct client *client, int argc, char **argv, const char *method,
			 const char *rest, struct error *error)
{
	const struct selection *selection = &options.selection;
	if (selection->all || selection->labels.count > 0 || selection->state) {
		if (argc > 1)
			return error_set(error, ERROR_USAGE,
					 "name sandboxes, or select them with --label, --state or "
					 "--all; not both");
		return selection_apply(client, argv[0], *rest ? rest + 1 : "delete", selection,
				       error);
	}
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "%s needs a sandbox, or --label K=V, or --all",
				 argv[0]);
	int failed = 0;
	struct error last = {0};
	json_t *answers = json_array();
	for (int i = 1; i < argc; i++) {
		DONE_BUFFER struct buffer path = BUFFER(4096);
		struct error one;
		json_t *answer = NULL;
		if (sandbox_path_append(&path, argv[i], rest, &one) < 0 ||
		    client_request_json(client, method, path.data, NULL, NULL, 0, &answer, &one) <
			0) {
			if (options.force && (one.kind == ERROR_SANDBOX_NOT_FOUND ||
					      one.kind == ERROR_SANDBOX_ENDED))
				continue;
			if (failed++ > 0)
				error_line_print("caisson %s: %s", argv[0], last.message);
			last = one;
		} else {
			json_array_append_new(answers, answer ? answer : json_string(argv[i]));
			if (!cli_json)
				sandbox_done_print(argv[i], answer);
		}
	}
	if (cli_json)
		json_print(answers);
	json_decref(answers);
	if (failed == 0)
		return 0;
	*error = last;
	return -1;
}

static int rm_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "DELETE", "", error);
}

static int stop_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "POST", "/stop", error);
}

/* Folders belong to one sandbox: the ones that it was created with. */
static int sandbox_start_with_folders(struct client *client, int argc, char **argv,
				      struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	int fds[CREATE_MOUNTS_MAX];
	size_t count = 0;
	json_t *record = NULL;
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "start with -v takes one sandbox");
	json_t *body = json_object();
	int result = create_mounts_open(body, fds, &count, error);
	if (result == 0)
		result = sandbox_path_append(&path, argv[1], "/start", error);
	if (result == 0)
		result = client_request_json(client, "POST", path.data, body, fds, count, &record,
					     error);
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
	json_decref(body);
	if (result < 0)
		return -1;
	json_t *records = json_pack("[o]", record);
	if (cli_json)
		json_print(records);
	else
		printf("%s\n", argv[1]);
	json_decref(records);
	return 0;
}

static int start_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (create_options.mounts.count > 0)
		return sandbox_start_with_folders(client, argc, argv, error);
	return sandboxes_act(client, argc, argv, "POST", "/start", error);
}

static int pause_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "POST", "/pause", error);
}

static int resume_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "POST", "/resume", error);
}

#define SELECTION_ROWS                                                                             \
	{"label",     'l',                                                                         \
	 OPTION_LIST, &options.selection.labels,                                                   \
	 "K=V",       "those with this label (repeatable: all must hold)"},                        \
	    {"state",     's',                                                                     \
	     OPTION_TEXT, &options.selection.state,                                                \
	     "STATE",     "those that are running, paused, stopped, ..."},                         \
	{                                                                                          \
		"all", 'a', OPTION_FLAG, &options.selection.all, NULL, "every sandbox"             \
	}

static const struct option_spec select_specs[] = {
    SELECTION_ROWS,
    {0},
};

static const struct option_spec rm_specs[] = {
    {"force", 'f', OPTION_FLAG, &options.force, NULL, "one that is not there is no error"},
    SELECTION_ROWS,
    {0},
};

const struct verb verb_rm = {
    .name = "rm",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Remove sandboxes with all that is in them",
    .help = "Kills every process of each sandbox and removes its files. A tombstone stays:\n"
	    "`caisson inspect` still says when and why it ended.\n\n"
	    "  caisson rm mybox\n"
	    "  caisson rm --label team=red --state stopped",
    .options = rm_specs,
    .run = rm_run,
};

const struct verb verb_stop = {
    .name = "stop",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "End a sandbox's processes, keep its files",
    .help = "SIGTERM, two seconds later SIGKILL. `caisson start` goes on with the same files.\n"
	    "Its time goes on too: when that is over it is removed, stopped or not. `caisson ls`\n"
	    "shows how long it has left, `caisson extend` gives it more.",
    .options = select_specs,
    .run = stop_run,
};

static const struct option_spec start_specs[] = {
    CREATE_VOLUME_ROW,
    {0},
};

const struct verb verb_start = {
    .name = "start",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Start a stopped sandbox again",
    .help =
	"With the files it had when it was stopped. Folders that it was created with (-v) have\n"
	"to be given again when the daemon was restarted since, the same ones:\n"
	"  caisson start -v .:/workspace:rw SANDBOX",
    .options = start_specs,
    .run = start_run,
};

const struct verb verb_pause = {
    .name = "pause",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Freeze a sandbox's processes",
    .help = "They use no cpu and timers hold; what of their memory is on disk goes back to the\n"
	    "host. The next exec wakes it.",
    .options = select_specs,
    .run = pause_run,
};

const struct verb verb_resume = {
    .name = "resume",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Let a paused sandbox go on",
    .help = "The other half of pause.",
    .options = select_specs,
    .run = resume_run,
};

/* Adds each sandbox's usage to its record, as "usage"; null if it has just ended. */
static void list_add_usage(struct client *client, json_t *list)
{
	size_t at, seen;
	json_t *record, *one, *metrics = NULL;
	struct error ignored;
	if (client_request_json(client, "GET", "/v1/metrics", NULL, NULL, 0, &metrics, &ignored) <
	    0)
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
		if (list_fetch(client, false, &list, error) < 0)
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
