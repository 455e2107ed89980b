/* `caisson welcome`: what `make run` shows once the daemon answers: a command run in a sandbox, a
 * token for this run, and what to paste into which client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"

/* Revokes the tokens that earlier runs left, then makes this run's. */
static int run_token(struct client *client, char *token, size_t room, struct error *error)
{
	json_t *answer = NULL, *old;
	if (client_json(client, "GET", "/v1/tokens", NULL, NULL, 0, &answer, error) < 0)
		return -1;
	size_t at;
	json_array_foreach(json_object_get(answer, "tokens"), at, old)
	{
		char path[128];
		struct error ignored;
		if (strcmp(member_text(old, "label"), "make run") != 0)
			continue;
		snprintf(path, sizeof(path), "/v1/tokens/%s", member_text(old, "id"));
		if (client_json(client, "DELETE", path, NULL, NULL, 0, NULL, &ignored) < 0)
			fprintf(stderr, "caisson: an old token was not revoked: %s\n",
				ignored.message);
	}
	json_decref(answer);
	json_t *body = json_pack("{s:s, s:[s,s], s:i, s:s}", "workspace", "default", "scopes",
				 "sandboxes:read", "sandboxes:write", "expires_seconds", 86400,
				 "label", "make run");
	int result = client_json(client, "POST", "/v1/tokens", body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	snprintf(token, room, "%s", member_text(answer, "token"));
	json_decref(answer);
	return 0;
}

static int show_command(struct client *client, struct error *error)
{
	int64_t began = clock_monotonic();
	json_t *record = NULL, *result = NULL;
	create_options.timeout = "60";
	if (create_sandbox(client, 0, &record, error) < 0)
		return -1;
	DONE_BUFFER struct buffer exec = BUFFER(4096), path = BUFFER(4096);
	json_t *body = json_pack("{s:s}", "cmd",
				 "echo \"Hello from $(hostname), $(nproc) cpu, uid $(id -u), "
				 "$(uname -sr)\"");
	int outcome = sandbox_path(&path, member_text(record, "id"), "", error);
	if (outcome == 0)
		outcome = sandbox_path(&exec, member_text(record, "id"), "/exec", error);
	if (outcome == 0)
		outcome = client_json(client, "POST", exec.data, body, NULL, 0, &result, error);
	double milliseconds = (double)(clock_monotonic() - began) / 1e6;
	struct error ignored;
	if (path.data &&
	    client_json(client, "DELETE", path.data, NULL, NULL, 0, NULL, &ignored) < 0)
		fprintf(stderr, "caisson: %s\n", ignored.message);
	if (outcome == 0) {
		printf("\nA sandbox said:  ");
		char said[256];
		snprintf(said, sizeof(said), "%s", member_text(result, "stdout"));
		said[strcspn(said, "\n")] = '\0';
		print_safe(said);
		printf(
		    "\nIsolation:       %s\n"
		    "It took:         %.1f ms from nothing to its output (%.1f ms to be ready)\n",
		    member_text(record, "isolation"), milliseconds,
		    json_number_value(json_object_get(record, "boot_ms")));
	}
	json_decref(body);
	json_decref(record);
	json_decref(result);
	return outcome;
}

static void print_snippets(const char *url, const char *token)
{
	printf("\nAPI:     http://%s/v1\nMCP URL: http://%s/mcp\nToken:   %s   (24 h; the last "
	       "run's is "
	       "revoked)\n",
	       url, url, token);
	printf(
	    "\nThis version serves the REST API; the MCP server comes with a later one, and the\n"
	    "snippets for MCP clients below are ready for it.\n");
	printf("\n# curl\ncurl -sS -H 'Authorization: Bearer %s' \\\n"
	       "  -d '{\"template\":\"host\"}' http://%s/v1/sandboxes\n",
	       token, url);
	printf("\n# Claude Code\nclaude mcp add --transport http caisson http://%s/mcp \\\n"
	       "  --header 'Authorization: Bearer %s'\n",
	       url, token);
	printf("\n# Cursor: ~/.cursor/mcp.json\n{\"mcpServers\": {\"caisson\": {\"url\": "
	       "\"http://%s/mcp\",\n  \"headers\": {\"Authorization\": \"Bearer %s\"}}}}\n",
	       url, token);
	printf("\n# VS Code: .vscode/mcp.json\n{\"servers\": {\"caisson\": {\"type\": \"http\", "
	       "\"url\": "
	       "\"http://%s/mcp\",\n  \"headers\": {\"Authorization\": \"Bearer %s\"}}}}\n\n",
	       url, token);
	fflush(stdout);
}

static int run_welcome(struct client *client, int argc, char **argv, struct error *error)
{
	(void)argv;
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "welcome takes no argument");
	char token[128];
	if (show_command(client, error) < 0 || run_token(client, token, sizeof(token), error) < 0)
		return -1;
	print_snippets(client->config.listen, token);
	return 0;
}

const struct verb verb_welcome = {
    .name = "welcome",
    .arguments = "",
    .summary = "Show that the daemon works and what to paste into a client",
    .help = "Runs a command in a sandbox, makes a token for a day and prints snippets for clients.",
    .run = run_welcome,
    .hidden = true,
};
