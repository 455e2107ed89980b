/* Acts on sandboxes that are selected rather than named: one request for all, one line for each. */
#include <stdio.h>

#include "cli/cli.h"

static void selection_result_print(const char *verb, const json_t *result)
{
	const char *name = member_text(result, "id");
	name = *name ? name : member_text(result, "name");
	if (json_is_true(json_object_get(result, "ok")))
		printf("%s\n", name);
	else
		error_print("caisson %s: %s: %s", verb, name, member_text(result, "error"));
}

int selection_apply(struct client *client, const char *verb, const char *action,
		    const struct selection *selection, struct error *error)
{
	json_t *labels, *answer = NULL;
	if (pairs_to_json(&selection->labels, OPTION_PAIRS, &labels, error) < 0)
		return -1;
	json_t *body =
	    json_pack("{s:s, s:{s:o, s:s*}, s:b}", "action", action, "selector", "labels", labels,
		      "status", selection->state, "all", selection->all);
	int result =
	    client_call(client, "POST", "/v1/sandboxes/bulk", body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	size_t at;
	json_t *one;
	if (cli_json)
		json_print(answer);
	else
		json_array_foreach(json_object_get(answer, "results"), at, one)
		    selection_result_print(verb, one);
	if (json_array_size(json_object_get(answer, "results")) == 0)
		fprintf(stderr, "caisson %s: no sandbox matches; nothing was done\n", verb);
	int64_t failed = member_integer(answer, "failed");
	json_decref(answer);
	if (failed > 0)
		return error_set(error, ERROR_SANDBOX_STATE, "%lld of them failed",
				 (long long)failed);
	return 0;
}
