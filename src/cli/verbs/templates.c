/* `caisson templates`: what a sandbox can start with. */
#include <stdio.h>

#include "cli/cli.h"

static int templates_run(struct client *client, int argc, char **argv, struct error *error)
{
	json_t *list = NULL, *one;
	size_t at;
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "templates takes no argument (\"%s\")",
				 argv[1]);
	if (client_call(client, "GET", "/v1/templates", NULL, NULL, 0, &list, error) < 0)
		return -1;
	if (cli_json) {
		json_print(list);
	} else {
		printf("%-18s %-14s %s\n", "NAME", "AVAILABLE", "DESCRIPTION");
		json_array_foreach(list, at, one)
		{
			const char *name = member_text(one, "name");
			const char *resolved = member_text(one, "resolved_to");
			char available[48];
			bool itself = *resolved && json_equal(json_object_get(one, "name"),
							      json_object_get(one, "resolved_to"));
			snprintf(available, sizeof(available), "%s%s",
				 itself      ? "yes"
				 : *resolved ? "as "
					     : "no",
				 itself ? "" : resolved);
			printf("%-18s %-14s %s\n", name, available,
			       member_text(one, "description"));
		}
	}
	json_decref(list);
	return 0;
}

const struct verb verb_templates = {
    .name = "templates",
    .arguments = "",
    .summary = "List the templates for sandboxes",
    .help = "A template that is not available is refused, unless `host` may replace it:\n"
	    "`caisson create --template NAME --allow-substitute`, or `substitute = yes` below "
	    "[templates]\n"
	    "in caisson.conf.",
    .run = templates_run,
};
