/* `caisson welcome`: what `make run` shows once the daemon answers: a command run in a sandbox, a
 * token for this run, and what to paste into which client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

/* Revokes the tokens of earlier runs, then creates one for this run. */
static int welcome_token_make(struct client *client, char *token, size_t room, struct error *error)
{
	json_t *answer = NULL, *old;
	if (client_call(client, "GET", "/v1/tokens", NULL, NULL, 0, &answer, error) < 0)
		return -1;
	size_t at;
	json_array_foreach(json_object_get(answer, "tokens"), at, old)
	{
		char path[128];
		struct error ignored;
		if (strcmp(member_text(old, "label"), "make run") != 0)
			continue;
		snprintf(path, sizeof(path), "/v1/tokens/%s", member_text(old, "id"));
		if (client_call(client, "DELETE", path, NULL, NULL, 0, NULL, &ignored) < 0)
			error_print("caisson: an old token was not revoked: %s", ignored.message);
	}
	json_decref(answer);
	json_t *body = json_pack("{s:s, s:[s,s], s:i, s:s}", "workspace", "default", "scopes",
				 "sandboxes:read", "sandboxes:write", "expires_seconds", 86400,
				 "label", "make run");
	int result = client_call(client, "POST", "/v1/tokens", body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	snprintf(token, room, "%s", member_text(answer, "token"));
	json_decref(answer);
	return 0;
}

/* *ret_shown is the result for --json. */
static int first_command_show(struct client *client, json_t **ret_shown, struct error *error)
{
	int64_t began = clock_monotonic();
	json_t *record = NULL, *result = NULL;
	create_options.timeout = "60";
	if (client_sandbox_create(client, &record, error) < 0)
		return -1;
	DONE_BUFFER struct buffer exec = BUFFER(4096), path = BUFFER(4096);
	json_t *body = json_pack("{s:s}", "cmd",
				 "echo \"Hello from $(hostname), $(nproc) cpu, uid $(id -u), "
				 "$(uname -sr)\"");
	int outcome = sandbox_path(&path, member_text(record, "id"), "", error);
	if (outcome == 0)
		outcome = sandbox_path(&exec, member_text(record, "id"), "/exec", error);
	if (outcome == 0)
		outcome = client_call(client, "POST", exec.data, body, NULL, 0, &result, error);
	double milliseconds = (double)(clock_monotonic() - began) / 1e6;
	struct error ignored;
	if (path.data &&
	    client_call(client, "DELETE", path.data, NULL, NULL, 0, NULL, &ignored) < 0)
		fprintf(stderr, "caisson: %s\n", ignored.message);
	char said[256];
	snprintf(said, sizeof(said), "%s", member_text(result, "stdout"));
	said[strcspn(said, "\n")] = '\0';
	if (outcome == 0 && cli_json) {
		*ret_shown = json_pack("{s:s, s:s, s:f, s:O, s:O}", "said", said, "isolation",
				       member_text(record, "isolation"), "took_ms", milliseconds,
				       "boot_ms", json_object_get(record, "boot_ms"), "limits",
				       json_object_get(record, "limits"));
	} else if (outcome == 0) {
		printf("\nA sandbox said:  ");
		safe_text_print(said);
		printf(
		    "\nIsolation:       %s\n"
		    "It took:         %.1f ms from nothing to its output (%.1f ms to be ready)\n",
		    member_text(record, "isolation"), milliseconds,
		    json_number_value(json_object_get(record, "boot_ms")));
		unenforced_limits_print(json_object_get(record, "limits"), "NOT enforced:    ");
	}
	json_decref(body);
	json_decref(record);
	json_decref(result);
	return outcome;
}

static void snippets_print(const char *url, const char *token)
{
	printf("\nAPI:     %s/v1\nMCP URL: %s/mcp\nToken:   %s   (24 h; the last run's is "
	       "revoked)\n",
	       url, url, token);
	printf("\n# curl: one command; then a sandbox that stays, a command in it, its end\n"
	       "AUTH='Authorization: Bearer %s'\n"
	       "curl -sS -H \"$AUTH\" -d '{\"cmd\":\"uname -a\"}' %s/v1/run\n"
	       "curl -sS -H \"$AUTH\" -d '{\"name\":\"demo\"}' %s/v1/sandboxes\n"
	       "curl -sS -H \"$AUTH\" -d '{\"cmd\":\"id; pwd\"}' %s/v1/sandboxes/demo/exec\n"
	       "curl -sS -H \"$AUTH\" -X DELETE %s/v1/sandboxes/demo\n",
	       token, url, url, url, url);
	printf("\n# Claude Code\nclaude mcp add --transport http caisson %s/mcp \\\n"
	       "  --header 'Authorization: Bearer %s'\n",
	       url, token);
	printf("\n# Cursor: ~/.cursor/mcp.json\n{\"mcpServers\": {\"caisson\": {\"url\": "
	       "\"%s/mcp\",\n  \"headers\": {\"Authorization\": \"Bearer %s\"}}}}\n",
	       url, token);
	printf("\n# VS Code: .vscode/mcp.json\n{\"servers\": {\"caisson\": {\"type\": \"http\", "
	       "\"url\": "
	       "\"%s/mcp\",\n  \"headers\": {\"Authorization\": \"Bearer %s\"}}}}\n",
	       url, token);
}

static void local_clients_print(void)
{
	char program[4096] = "caisson";
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	if (size > 0)
		program[size] = '\0';
	printf("\n# any of them without a token, as a process of yours (also claude-desktop,\n"
	       "# windsurf, zed, codex, gemini); --write creates the file where there is none\n"
	       "claude mcp add caisson -- %s mcp\n%s mcp config cursor --write\n\n",
	       program, program);
	fflush(stdout);
}

static int welcome_run(struct client *client, int argc, char **argv, struct error *error)
{
	(void)argv;
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "welcome takes no argument");
	char token[128] = "", url[512];
	json_t *shown = NULL;
	struct error no_url;
	/* Without an address a token has no use: the Unix socket needs none. */
	bool door = client_daemon_url(client, url, sizeof(url), &no_url) == 0;
	if (first_command_show(client, &shown, error) < 0 ||
	    (door && welcome_token_make(client, token, sizeof(token), error) < 0)) {
		json_decref(shown);
		return -1;
	}
	if (cli_json) {
		json_object_set_new(shown, "url", door ? json_string(url) : json_null());
		json_object_set_new(shown, "token", door ? json_string(token) : json_null());
		json_print(shown);
	} else {
		if (door)
			snippets_print(url, token);
		else
			printf("\nNo API over HTTP: %s\n", no_url.message);
		local_clients_print();
	}
	json_decref(shown);
	return 0;
}

const struct verb verb_welcome = {
    .name = "welcome",
    .arguments = "",
    .summary = "Show that the daemon works and what to paste into a client",
    .help = "Runs a command in a sandbox, makes a token for a day and prints snippets for clients.",
    .run = welcome_run,
    .hidden = true,
};
