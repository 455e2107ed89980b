/* `caisson mcp config`: what to add to an MCP client's configuration. A client is a row of a table
 * (proto/mcp_clients.c); client_config_file.c creates its file. Only the snippet goes to standard
 * output, so that it can be piped; its place is printed on standard error. */
#include "cli/mcp/client_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define NAME_MAX_SIZE 40

static const struct mcp_client *mcp_client_find(const char *name, struct error *error)
{
	char names[256] = "";
	for (const struct mcp_client *client = mcp_clients; client->name; client++) {
		size_t used = strlen(names);
		if (strcmp(client->name, name) == 0)
			return client;
		snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
			 client->name);
	}
	error_set(error, ERROR_USAGE, "unknown client \"%s\"; known are %s", name, names);
	return NULL;
}

static int mcp_clients_print(void)
{
	json_t *list = json_array();
	for (const struct mcp_client *client = mcp_clients; client->name; client++) {
		char path[512] = "";
		struct error ignored;
		if (client->file && mcp_config_file_path(client, path, sizeof(path), &ignored) < 0)
			path[0] = '\0';
		if (cli_json)
			json_array_append_new(list,
					      json_pack("{s:s, s:s, s:s}", "name", client->name,
							"title", client->title, "file", path));
		else
			printf("%-16s %-18s %s\n", client->name, client->title, path);
	}
	if (cli_json)
		json_print(list);
	json_decref(list);
	return 0;
}

/* --- the entry --- */

static void words_add_option(json_t *words, const char *option, const char *value)
{
	if (!value)
		return;
	json_array_append_new(words, json_string(option));
	json_array_append_new(words, json_string(value));
}

/* Clients start servers with few environment variables, so the ones that select the daemon are put
 * into the entry. */
static json_t *entry_environment(void)
{
	static const char *const names[] = {"CAISSON_RUNTIME", "CAISSON_STATE", "CAISSON_CONFIG",
					    "CAISSON_LISTEN",  "CAISSON_URL",   "CAISSON_CA_FILE",
					    "CAISSON_TOKEN",   "CAISSON_START"};
	json_t *object = json_object();
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);
		if (mcp_options.token && strcmp(names[i], "CAISSON_TOKEN") == 0)
			value = mcp_options.token;
		if (value && *value)
			json_object_set_new(object, names[i], json_string(value));
	}
	return object;
}

static int stdio_entry_make(const struct mcp_client *client, json_t **ret_entry,
			    struct error *error)
{
	char program[4096];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	if (size < 0)
		return error_set(error, ERROR_INTERNAL, "this program's path cannot be read");
	program[size] = '\0';
	json_t *words = json_pack("[s]", "mcp"), *entry = json_object(),
	       *variables = entry_environment();
	words_add_option(words, "--dialect", mcp_options.dialect);
	words_add_option(words, "--toolsets", mcp_options.toolsets);
	if (mcp_options.read_only)
		json_array_append_new(words, json_string("--read-only"));
	if (mcp_options.ephemeral)
		json_array_append_new(words, json_string("--ephemeral"));
	if (client->stdio_type)
		json_object_set_new(entry, "type", json_string(client->stdio_type));
	bool good = json_object_set_new(entry, "command", json_string(program)) == 0;
	json_object_set_new(entry, "args", words);
	if (json_object_size(variables) > 0)
		json_object_set(entry, "env", variables);
	json_decref(variables);
	*ret_entry = entry;
	if (good)
		return 0;
	json_decref(entry);
	return error_set(error, ERROR_USAGE, "this program's path is not valid UTF-8");
}

static int daemon_mcp_url(struct client *client, char *url, size_t room, struct error *error)
{
	char base[512];
	if (mcp_options.ephemeral)
		return error_set(error, ERROR_USAGE,
				 "--ephemeral is for a connection that stays: without --http");
	if (mcp_options.dialect && (mcp_options.toolsets || mcp_options.read_only))
		return error_set(error, ERROR_USAGE, "a dialect has one set of tools");
	if (client_daemon_url(client, base, sizeof(base), error) < 0)
		return -1;
	int result;
	if (mcp_options.dialect)
		result = text_format(url, room, "%s/mcp/%s", base, mcp_options.dialect);
	else if (mcp_options.toolsets)
		result = text_format(url, room, "%s/mcp/x/%s%s", base, mcp_options.toolsets,
				     mcp_options.read_only ? "/readonly" : "");
	else
		result = text_format(url, room, "%s/mcp%s", base,
				     mcp_options.read_only ? "/readonly" : "");
	return result < 0 ? error_set(error, ERROR_USAGE, "the URL is too long") : 0;
}

static bool url_is_plain_and_remote(const struct client *client, const char *url)
{
	return text_starts(url, "http://") && client->remote &&
	       strcmp(client->host, "localhost") != 0 && strcmp(client->host, "127.0.0.1") != 0;
}

/* For a client that can only start commands: mcp-remote connects to the URL. The header's value is
 * passed in the environment, since some clients split arguments at spaces. */
static json_t *bridged_entry_make(const struct client *daemon, const char *url, const char *bearer)
{
	json_t *words = json_pack("[s, s, s, s, s]", "-y", "mcp-remote", url, "--header",
				  "Authorization:${CAISSON_AUTHORIZATION}");
	if (url_is_plain_and_remote(daemon, url))
		json_array_append_new(words, json_string("--allow-http"));
	return json_pack("{s:s, s:o, s:{s:s}}", "command", "npx", "args", words, "env",
			 "CAISSON_AUTHORIZATION", bearer);
}

static int http_entry_make(struct client *daemon, const struct mcp_client *client,
			   json_t **ret_entry, struct error *error)
{
	char url[1024], bearer[320];
	const char *token = mcp_options.token ? mcp_options.token : daemon->token;
	if (!*token)
		return error_set(error, ERROR_USAGE,
				 "--http needs a token (--token or CAISSON_TOKEN); `caisson token "
				 "create` makes one");
	if (text_format(bearer, sizeof(bearer), "Bearer %s", token) < 0 ||
	    strpbrk(token, " \r\n\"\\"))
		return error_set(error, ERROR_USAGE, "--token is not a valid token");
	if (daemon_mcp_url(daemon, url, sizeof(url), error) < 0)
		return -1;
	if (!client->url_member) {
		*ret_entry = bridged_entry_make(daemon, url, bearer);
		return 0;
	}
	json_t *entry = json_object();
	if (client->http_type)
		json_object_set_new(entry, "type", json_string(client->http_type));
	json_object_set_new(entry, client->url_member, json_string(url));
	json_object_set_new(entry, client->key ? "headers" : "http_headers",
			    json_pack("{s:s}", "Authorization", bearer));
	*ret_entry = entry;
	return 0;
}

/* --- what is printed --- */

static int toml_append_value(struct buffer *to, json_t *value)
{
	const char *key;
	json_t *member;
	size_t at;
	int result = 0;
	if (json_is_array(value)) {
		result |= buffer_append_text(to, "[");
		json_array_foreach(value, at, member)
		{
			result |= buffer_append_text(to, at ? ", " : "");
			result |= toml_append_value(to, member);
		}
		return result | buffer_append_text(to, "]");
	}
	if (json_is_object(value)) {
		result |= buffer_append_text(to, "{ ");
		json_object_foreach(value, key, member)
		{
			bool first = json_object_iter_key(json_object_iter(value)) == key;
			result |= buffer_printf(to, "%s\"%s\" = ", first ? "" : ", ", key);
			result |= toml_append_value(to, member);
		}
		return result | buffer_append_text(to, " }");
	}
	/* A JSON string is also a TOML basic string. */
	FREE_TEXT char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	return text ? result | buffer_append_text(to, text) : -1;
}

static int toml_append_entry(const char *name, const json_t *entry, struct buffer *to)
{
	const char *key;
	json_t *member;
	int result = buffer_printf(to, "[mcp_servers.%s]\n", name);
	json_object_foreach((json_t *)entry, key, member)
	{
		result |= buffer_printf(to, "%s = ", key);
		result |= toml_append_value(to, member);
		result |= buffer_append_text(to, "\n");
	}
	return result;
}

/* Appends the whole snippet: {"mcpServers": {NAME: entry}}, or a TOML table. */
static int snippet_append(const struct mcp_client *client, const char *name, json_t *entry,
			  struct buffer *to)
{
	if (!client->key)
		return toml_append_entry(name, entry, to);
	json_t *whole = json_pack("{s:{s:O}}", client->key, name, entry);
	FREE_TEXT char *text = json_dumps(whole, JSON_INDENT(2));
	json_decref(whole);
	return text ? buffer_printf(to, "%s\n", text) : -1;
}

static bool name_is_valid(const char *name)
{
	size_t size = strlen(name);
	return size > 0 && size <= NAME_MAX_SIZE &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
		   size;
}

static void snippet_place_print(const struct mcp_client *client)
{
	char path[512];
	struct error ignored;
	if (!client->file) {
		fprintf(stderr, "Put it where your client keeps its servers.\n");
		return;
	}
	if (mcp_config_file_path(client, path, sizeof(path), &ignored) < 0)
		return;
	fprintf(stderr, "%s: add it to %s", client->title, path);
	if (client->key)
		fprintf(stderr, ", in \"%s\"", client->key);
	fprintf(stderr, "; --write creates a missing file.\n");
}

int mcp_config_run(struct client *client, int argc, char **argv, struct error *error)
{
	const char *name = mcp_options.name ? mcp_options.name : "caisson";
	if (mcp_options.list && argc == 1)
		return mcp_clients_print();
	if (argc != 2)
		return error_set(error, ERROR_USAGE,
				 "mcp config needs a client: caisson mcp config claude-code "
				 "(--list lists them)");
	const struct mcp_client *row = mcp_client_find(argv[1], error);
	if (!row)
		return -1;
	if (!name_is_valid(name))
		return error_set(error, ERROR_USAGE,
				 "--name is 1 to %d of a-z, A-Z, 0-9, '-' and '_'", NAME_MAX_SIZE);
	if (mcp_options.write && !row->file)
		return error_set(error, ERROR_USAGE,
				 "--write needs to know the client; without it the snippet is "
				 "printed");
	json_t *entry = NULL;
	if ((mcp_options.http ? http_entry_make(client, row, &entry, error)
			      : stdio_entry_make(row, &entry, error)) < 0)
		return -1;
	DONE_BUFFER struct buffer snippet = BUFFER(64 * KIB);
	int result = 0;
	if (snippet_append(row, name, entry, &snippet) < 0) {
		result = error_set(error, ERROR_USAGE, "the entry is too long");
	} else if (mcp_options.write) {
		result = mcp_config_file_write(row, name, entry, &snippet, error);
	} else {
		printf("%s", snippet.data);
		snippet_place_print(row);
	}
	json_decref(entry);
	return result;
}
