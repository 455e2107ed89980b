/* `caisson usage`: what sandboxes and workspaces have used. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

static struct {
	const char *from, *to, *by, *workspace;
} options;

static const struct option_spec usage_specs[] = {
    {"from", 0, OPTION_TEXT, &options.from, "TIME",
     "from the hour of this time: 6h, 2026-11-15 or 2026-11-15T08:00:00Z (default: this month)",
     "from"},
    {"to", 0, OPTION_TEXT, &options.to, "TIME", "to the hour of this time (default: now)", "to"},
    {"by", 0, OPTION_TEXT, &options.by, "KIND", "sandbox or workspace (default: sandbox)", "by",
     "sandbox,workspace"},
    {"workspace", 0, OPTION_TEXT, &options.workspace, "NAME",
     "another workspace's, or '*' for all; for the administrator", "workspace"},
    {0},
};

/* Reads all pages into one list. */
static int usage_read_all(struct client *client, json_t *items, struct error *error)
{
	FREE_TEXT char *cursor = NULL;
	do {
		DONE_BUFFER struct buffer path = BUFFER(4096);
		json_t *answer = NULL;
		if (buffer_append_text(&path, "/v1/usage?limit=1000") < 0 ||
		    options_to_path(usage_specs, &path, error) < 0)
			return -1;
		if (buffer_append_parameter(&path, "cursor", cursor) < 0)
			return error_set(error, ERROR_INTERNAL,
					 "the daemon sent an invalid cursor");
		if (client_call(client, "GET", path.data, NULL, NULL, 0, &answer, error) < 0)
			return -1;
		json_array_extend(items, json_object_get(answer, "items"));
		const char *next = member_text(answer, "next_cursor");
		text_free(&cursor);
		cursor = *next ? text_duplicate(next) : NULL;
		json_decref(answer);
	} while (cursor);
	return 0;
}

static double item_number(const json_t *item, const char *name)
{
	return json_number_value(json_object_get(item, name));
}

static void usage_item_print(const json_t *item)
{
	const char *name = member_text(item, "name"), *sandbox = member_text(item, "sandbox");
	printf("%-17s %-20s %-16s ", *sandbox ? sandbox : "-", *name ? name : "-",
	       member_text(item, "workspace"));
	printf("%12.1f %12.1f %12.3f %14.1f %14.1f %8.0f\n", item_number(item, "alive_seconds"),
	       item_number(item, "paused_seconds"), item_number(item, "cpu_seconds"),
	       item_number(item, "memory_byte_seconds") / (1 << 20),
	       item_number(item, "disk_byte_seconds") / (1 << 20), item_number(item, "execs"));
}

static int usage_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "usage takes no argument: \"%s\"", argv[1]);
	json_t *items = json_array(), *item;
	if (usage_read_all(client, items, error) < 0) {
		json_decref(items);
		return -1;
	}
	if (cli_json) {
		json_print(items);
	} else {
		size_t at;
		printf("%-17s %-20s %-16s %12s %12s %12s %14s %14s %8s\n", "SANDBOX", "NAME",
		       "WORKSPACE", "ALIVE s", "PAUSED s", "CPU s", "MEMORY MiB*s", "DISK MiB*s",
		       "EXECS");
		json_array_foreach(items, at, item)
		{
			usage_item_print(item);
		}
	}
	json_decref(items);
	return 0;
}

const struct verb verb_usage = {
    .name = "usage",
    .arguments = "[options]",
    .summary = "Show what sandboxes and workspaces have used",
    .help =
	"Time alive and paused, cpu, memory and disk over time, and commands, summed over whole\n"
	"hours (UTC). Ended sandboxes are included.\n"
	"\n"
	"  caisson usage --by workspace --from 2026-11-01",
    .options = usage_specs,
    .run = usage_run,
};
