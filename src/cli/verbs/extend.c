/* `caisson extend`: sets how long sandboxes live, counted from now. */
#include <stdio.h>

#include "base/text.h"
#include "cli/cli.h"

static int sandbox_extend(struct client *client, const char *sandbox, json_t *body, json_t *answers,
			  struct error *error)
{
	json_t *record = NULL;
	if (client_sandbox_call(client, "PATCH", sandbox, "", body, &record, error) < 0)
		return -1;
	const char *end = member_text(record, "expires_at");
	if (!cli_json)
		printf("%s %s\n", sandbox, *end ? end : "never");
	json_array_append_new(answers, record);
	return 0;
}

static int extend_run(struct client *client, int argc, char **argv, struct error *error)
{
	uint64_t seconds;
	if (argc < 3)
		return error_set(error, ERROR_USAGE,
				 "extend needs a sandbox and a time: caisson extend mybox 2h");
	const char *time = argv[argc - 1];
	if (text_to_seconds(time, &seconds) < 0 || seconds > SANDBOX_TIMEOUT_MAX)
		return error_set(
		    error, ERROR_USAGE,
		    "invalid time `%s`; use for example 90s, 15m, 2h, 7d, or 0 for no end", time);
	json_t *answers = json_array();
	json_t *body = json_pack("{s:I}", "timeout_seconds", (json_int_t)seconds);
	int result = 0;
	for (int i = 1; result == 0 && i < argc - 1; i++)
		result = sandbox_extend(client, argv[i], body, answers, error);
	if (cli_json)
		json_print(answers);
	json_decref(body);
	json_decref(answers);
	return result;
}

const struct verb verb_extend = {
    .name = "extend",
    .sandboxes = true,
    .arguments = "SANDBOX ... TIME",
    .summary = "Change how long a sandbox lives",
    .help =
	"TIME counts from now, like 90s, 15m, 2h or 7d; 0: no end. Prints when it ends.\n"
	"A sandbox of `caisson create` lives for 10 minutes unless its --timeout says otherwise;\n"
	"then it is removed with its files, whether it runs or is stopped. While it is paused no "
	"time\n"
	"passes. `caisson ls` shows how long each has left.\n"
	"\n"
	"  caisson extend mybox 2h",
    .run = extend_run,
};
