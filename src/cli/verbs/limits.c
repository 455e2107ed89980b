/* `caisson limits` and `caisson budget`: what may be requested and what is left; for the
 * administrator, the budgets of each workspace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

static struct {
	const char *workspace;
} options;

static void amount_print(const json_t *value)
{
	if (json_is_number(value))
		printf("%12.12g", json_number_value(value));
	else
		printf("%12s", "-");
}

static void budgets_print(const json_t *budgets)
{
	json_t *budget;
	size_t at;
	if (json_array_size(budgets) == 0) {
		printf("No budgets.\n");
		return;
	}
	printf("%-24s %12s %12s %12s  %-25s %s\n", "BUDGET", "MAXIMUM", "USED", "LEFT", "RESETS",
	       "FROM");
	json_array_foreach((json_t *)budgets, at, budget)
	{
		char name[64];
		snprintf(name, sizeof(name), "%s/%s", member_text(budget, "what"),
			 member_text(budget, "period"));
		const char *resets = member_text(budget, "resets_at");
		printf("%-24s ", name);
		amount_print(json_object_get(budget, "maximum"));
		putchar(' ');
		amount_print(json_object_get(budget, "used"));
		putchar(' ');
		amount_print(json_object_get(budget, "left"));
		printf("  %-25s %s\n", *resets ? resets : "-", member_text(budget, "source"));
	}
}

static void limits_print(const json_t *limits)
{
	const json_t *host = json_object_get(limits, "host");
	const json_t *token = json_object_get(limits, "token");
	const json_t *queue = json_object_get(limits, "queue");
	const json_t *maximum = json_object_get(limits, "maximum");
	json_t *size;
	size_t at;
	printf("Workspace  %s\n", member_text(token, "workspace"));
	printf("Sizes      ");
	json_array_foreach(json_object_get(limits, "sizes"), at, size)
	{
		printf("%s%s (%g cpu, %lld MiB%s)", at ? ", " : "", member_text(size, "name"),
		       json_number_value(json_object_get(size, "cpu")),
		       (long long)member_integer(size, "memory_mb"),
		       json_is_false(json_object_get(size, "fits")) ? "; more than this host gives"
								    : "");
	}
	printf("\nAt most    %g cpu, %lld MiB memory, %lld MiB disk\n",
	       json_number_value(json_object_get(maximum, "cpu")),
	       (long long)member_integer(maximum, "memory_mb"),
	       (long long)member_integer(maximum, "disk_mb"));
	printf("Host       %s room; %lld of %lld sandboxes, %lld MiB memory and %lld MiB disk "
	       "free\n",
	       json_is_true(json_object_get(host, "room")) ? "has" : "has no",
	       (long long)member_integer(host, "sandboxes"),
	       (long long)member_integer(host, "sandboxes_max"),
	       (long long)member_integer(host, "memory_available_mb"),
	       (long long)member_integer(host, "disk_free_mb"));
	printf("Queue      %lld of %lld\n\n", (long long)member_integer(queue, "length"),
	       (long long)member_integer(queue, "maximum"));
	budgets_print(json_object_get(limits, "budgets"));
}

static int limits_run(struct client *client, int argc, char **argv, struct error *error)
{
	json_t *answer = NULL;
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "limits takes no argument: \"%s\"", argv[1]);
	if (client_call(client, "GET", "/v1/limits", NULL, NULL, 0, &answer, error) < 0)
		return -1;
	if (cli_json)
		json_print(answer);
	else
		limits_print(answer);
	json_decref(answer);
	return 0;
}

const struct verb verb_limits = {
    .name = "limits",
    .arguments = "",
    .summary = "Show what may be created, and what is left of each budget",
    .help =
	"Sizes by name, maxima, what this token may, each budget of its workspace with what is\n"
	"used and left of it and when it resets, and what the host has room for.",
    .run = limits_run,
};

/* --- budget --- */

/* Splits "what/period". */
static int budget_kind_split(const char *text, char kind[64], const char **ret_period,
			     struct error *error)
{
	char *slash;
	if (text_copy(kind, 64, text) < 0 || !(slash = strchr(kind, '/')) || slash == kind ||
	    !slash[1])
		return error_set(
		    error, ERROR_USAGE,
		    "invalid budget `%.64s`; use for example sandboxes/now or creates/minute",
		    text);
	*slash = '\0';
	*ret_period = slash + 1;
	return 0;
}

/* Parses "sandboxes/now=5"; "none" removes the default. */
static int budget_parse(const char *text, json_t **ret_budget, struct error *error)
{
	char name[128], kind[64];
	const char *period;
	char *end, *equals;
	if (text_copy(name, sizeof(name), text) < 0 || !(equals = strchr(name, '=')))
		return error_set(error, ERROR_USAGE,
				 "invalid budget `%.64s`; use for example creates/minute=60", text);
	*equals = '\0';
	if (budget_kind_split(name, kind, &period, error) < 0)
		return -1;
	json_t *maximum = json_null();
	if (strcmp(equals + 1, "none") != 0) {
		double value = strtod(equals + 1, &end);
		if (end == equals + 1 || *end || !(value >= 0 && value <= 1e15))
			return error_set(error, ERROR_USAGE,
					 "invalid maximum `%.64s`; use a number or none",
					 equals + 1);
		maximum = value == (double)(json_int_t)value ? json_integer((json_int_t)value)
							     : json_real(value);
	}
	*ret_budget =
	    json_pack("{s:s, s:s, s:o}", "what", kind, "period", period, "maximum", maximum);
	return 0;
}

static bool budgets_are_same_kind(const json_t *a, const json_t *b)
{
	return strcmp(member_text(a, "what"), member_text(b, "what")) == 0 &&
	       strcmp(member_text(a, "period"), member_text(b, "period")) == 0;
}

static int budgets_path_append(struct buffer *path, struct error *error)
{
	if (buffer_append_text(path, "/v1/workspaces/") < 0 ||
	    buffer_append_encoded(path, options.workspace ? options.workspace : "default") < 0 ||
	    buffer_append_text(path, "/budgets") < 0)
		return error_set(error, ERROR_USAGE, "that workspace's name is too long");
	return 0;
}

/* Any token may read the budgets of its own workspace. */
static int budget_list(struct client *client, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(1024);
	json_t *answer = NULL;
	if ((options.workspace && budgets_path_append(&path, error) < 0) ||
	    client_call(client, "GET", options.workspace ? path.data : "/v1/budgets", NULL, NULL, 0,
			&answer, error) < 0)
		return -1;
	if (cli_json)
		json_print(answer);
	else
		budgets_print(json_object_get(answer, "budgets"));
	json_decref(answer);
	return 0;
}

/* Keeps the workspace's own budgets that are not named. */
static int budgets_merge_own(struct client *client, const char *path, json_t *wishes,
			     struct error *error)
{
	json_t *answer = NULL, *budget, *wish;
	size_t at, index;
	if (client_call(client, "GET", path, NULL, NULL, 0, &answer, error) < 0)
		return -1;
	json_array_foreach(json_object_get(answer, "budgets"), at, budget)
	{
		bool named = strcmp(member_text(budget, "source"), "workspace") != 0;
		json_array_foreach(wishes, index, wish)
		{
			named |= budgets_are_same_kind(wish, budget);
		}
		if (!named)
			json_array_append_new(
			    wishes,
			    json_pack("{s:O, s:O, s:O}", "what", json_object_get(budget, "what"),
				      "period", json_object_get(budget, "period"), "maximum",
				      json_object_get(budget, "maximum")));
	}
	json_decref(answer);
	return 0;
}

static int budget_set(struct client *client, int argc, char **argv, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(1024);
	json_t *wishes = json_array(), *answer = NULL, *wish = NULL;
	int result = argc < 3 ? error_set(error, ERROR_USAGE,
					  "budget set needs budgets, like creates/minute=60")
			      : budgets_path_append(&path, error);
	for (int i = 2; result == 0 && i < argc; i++) {
		result = budget_parse(argv[i], &wish, error);
		if (result == 0)
			json_array_append_new(wishes, wish);
	}
	if (result == 0)
		result = budgets_merge_own(client, path.data, wishes, error);
	json_t *body = json_pack("{s:o}", "budgets", wishes);
	if (result == 0)
		result = client_call(client, "PUT", path.data, body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	if (cli_json)
		json_print(answer);
	else
		budgets_print(json_object_get(answer, "budgets"));
	json_decref(answer);
	return 0;
}

static int budget_remove(struct client *client, const char *text, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(1024);
	char kind[64];
	const char *period;
	if (budgets_path_append(&path, error) < 0)
		return -1;
	if (text && (budget_kind_split(text, kind, &period, error) < 0 ||
		     buffer_append_parameter(&path, "what", kind) < 0 ||
		     buffer_append_parameter(&path, "period", period) < 0))
		return -1;
	return client_call(client, "DELETE", path.data, NULL, NULL, 0, NULL, error);
}

static int budget_rm(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc == 2)
		return budget_remove(client, NULL, error);
	for (int i = 2; i < argc; i++)
		if (budget_remove(client, argv[i], error) < 0)
			return -1;
	return 0;
}

static int budget_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc == 2 && strcmp(argv[1], "list") == 0)
		return budget_list(client, error);
	if (argc >= 2 && strcmp(argv[1], "set") == 0)
		return budget_set(client, argc, argv, error);
	if (argc >= 2 && strcmp(argv[1], "rm") == 0)
		return budget_rm(client, argc, argv, error);
	return error_set(
	    error, ERROR_USAGE,
	    "use budget list, budget set WHAT/PERIOD=MAXIMUM or budget rm [WHAT/PERIOD]");
}

static const struct option_spec budget_specs[] = {
    {"workspace", 0, OPTION_TEXT, &options.workspace, "NAME",
     "the workspace (default: the token's own)", "workspace"},
    {0},
};

const struct verb verb_budget = {
    .name = "budget",
    .words = "set list rm",
    .arguments = "set|list|rm [options] [WHAT/PERIOD[=MAXIMUM] ...]",
    .summary = "Set, list and remove what a workspace may use",
    .help =
	"WHAT/PERIOD is one of\n"
	"  sandboxes/now, vcpus/now, memory_mb/now, disk_mb/now: at once\n"
	"  creates, execs, wall_seconds, cpu_seconds, each with /minute, /day or /month (UTC)\n"
	"MAXIMUM is a number, or none to remove a default of the configuration. `rm` removes a\n"
	"workspace's own budgets, or the named ones: the defaults apply again.\n"
	"\n"
	"  caisson budget set --workspace team sandboxes/now=20 creates/minute=60\n"
	"  caisson budget list --workspace team",
    .options = budget_specs,
    .run = budget_run,
};
