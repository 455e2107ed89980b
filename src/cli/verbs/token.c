/* `caisson token`: create, list, revoke. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static struct {
	const char *workspace, *scopes, *expires, *label, *sandbox;
} options;

static const struct option_spec token_specs[] = {
    {"workspace", 0, OPTION_TEXT, &options.workspace, "NAME",
     "the workspace that it is for (default: default)", "workspace"},
    {"scope", 0, OPTION_WORDS, &options.scopes, "S[,S...]",
     "sandboxes:read, sandboxes:write, admin (default: the first two)", "scopes",
     "sandboxes:read,sandboxes:write,admin"},
    {"expires", 0, OPTION_TEXT, &options.expires, "TIME", "like 24h or 30d (default: never)",
     "expires_seconds"},
    {"label", 0, OPTION_TEXT, &options.label, "TEXT", "a note for you", "label"},
    {"sandbox", 0, OPTION_TEXT, &options.sandbox, "ID", "valid for this sandbox only", "sandbox"},
    {0},
};

static int token_new(struct client *client, struct error *error)
{
	json_t *body = json_object(), *answer = NULL;
	if (!options.scopes)
		options.scopes = "sandboxes:read,sandboxes:write";
	if (!options.workspace)
		options.workspace = "default";
	int result = options_to_body(token_specs, body, error);
	if (result == 0)
		result = client_call(client, "POST", "/v1/tokens", body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	if (cli_json)
		json_print(answer);
	else
		printf("%s\n", member_text(answer, "token"));
	json_decref(answer);
	return 0;
}

static int token_list(struct client *client, struct error *error)
{
	json_t *answer = NULL;
	if (client_call(client, "GET", "/v1/tokens", NULL, NULL, 0, &answer, error) < 0)
		return -1;
	json_t *tokens = json_object_get(answer, "tokens"), *token;
	if (cli_json) {
		json_print(tokens);
	} else {
		printf("%-17s %-16s %-40s %-25s %-17s %s\n", "ID", "WORKSPACE", "SCOPES", "EXPIRES",
		       "SANDBOX", "LABEL");
		size_t at;
		json_array_foreach(tokens, at, token)
		{
			char scopes[128] = "";
			json_t *scope;
			size_t index;
			json_array_foreach(json_object_get(token, "scopes"), index, scope)
			{
				size_t used = strlen(scopes);
				snprintf(scopes + used, sizeof(scopes) - used, "%s%s",
					 index ? "," : "", json_string_value(scope));
			}
			const char *expires = member_text(token, "expires_at");
			const char *sandbox = member_text(token, "sandbox");
			printf("%-17s %-16s %-40s %-25s %-17s ", member_text(token, "id"),
			       member_text(token, "workspace"), scopes,
			       *expires ? expires : "never", *sandbox ? sandbox : "-");
			safe_text_print(member_text(token, "label"));
			putchar('\n');
		}
	}
	json_decref(answer);
	return 0;
}

static int token_revoke(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc < 3)
		return error_set(error, ERROR_USAGE, "token revoke needs a token's id");
	for (int i = 2; i < argc; i++) {
		DONE_BUFFER struct buffer path = BUFFER(1024);
		if (buffer_append_text(&path, "/v1/tokens/") < 0 ||
		    buffer_append_encoded(&path, argv[i]) < 0)
			return error_set(error, ERROR_USAGE, "that id is too long");
		if (client_call(client, "DELETE", path.data, NULL, NULL, 0, NULL, error) < 0)
			return -1;
		printf("%s\n", argv[i]);
	}
	return 0;
}

static int token_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc >= 2 && strcmp(argv[1], "create") == 0 && argc == 2)
		return token_new(client, error);
	if (argc >= 2 && strcmp(argv[1], "list") == 0 && argc == 2)
		return token_list(client, error);
	if (argc >= 2 && strcmp(argv[1], "revoke") == 0)
		return token_revoke(client, argc, argv, error);
	return error_set(error, ERROR_USAGE, "use token create, token list or token revoke ID");
}

const struct verb verb_token = {
    .name = "token",
    .words = "create list revoke",
    .arguments = "create|list|revoke [options] [ID]",
    .summary = "Create, list and revoke access tokens",
    .help = "A token is needed on the TCP port; on the Unix socket the daemon's own user and root\n"
	    "need none. `create` prints the token alone; it is shown once and kept as a hash.\n\n"
	    "  caisson token create --workspace team --scope sandboxes:read,sandboxes:write \\\n"
	    "                       --expires 30d",
    .options = token_specs,
    .run = token_run,
};
