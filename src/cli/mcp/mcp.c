/* `caisson mcp`: the MCP server on standard input and output, as a client of the daemon. Also the
 * list of its tools, `mcp config` (client_config.c), and OpenSandbox's server with its own name and
 * flags. */
#include "cli/mcp/mcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/text.h"

struct mcp_options mcp_options;

int mcp_lines_path(struct buffer *path, const char *connection, struct error *error)
{
	if (buffer_append_text(path, MCP_LINES_PATH) < 0 ||
	    buffer_append_parameter(path, "toolsets", mcp_options.toolsets) < 0 ||
	    buffer_append_parameter(path, "dialect", mcp_options.dialect) < 0 ||
	    buffer_append_parameter(path, "readonly", mcp_options.read_only ? "1" : NULL) < 0 ||
	    buffer_append_parameter(path, "ephemeral", connection ? "1" : NULL) < 0 ||
	    buffer_append_parameter(path, "connection", connection) < 0)
		return error_set(error, ERROR_USAGE, "an option's value is too long");
	return 0;
}

int mcp_lines_open(struct client *client, const char *path, struct exchange *exchange,
		   struct error *error)
{
	struct request request = {.method = "POST", .path = path, .upgrade = MCP_LINES_PROTOCOL};
	return exchange_begin(client, &request, exchange, error);
}

int mcp_lines_read_head(struct exchange *exchange, struct error *error)
{
	if (exchange_read_head(exchange, error) < 0)
		return -1;
	if (exchange->status != 101)
		return error_set(error, ERROR_GUEST_PROTOCOL,
				 "the daemon is another version: it does not know %s",
				 MCP_LINES_PROTOCOL);
	return 0;
}

/* --- the list of tools --- */

#define LIST_REQUEST                                                                               \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{"          \
	"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                              \
	"\"io.modelcontextprotocol/clientCapabilities\":{}}}}\n"
#define LIST_MAX (4 * MIB)

static int answer_read_line(struct exchange *exchange, struct buffer *line, struct error *error)
{
	for (;;) {
		size_t have = exchange->end - exchange->start;
		char *data = exchange->buffer + exchange->start, *end = memchr(data, '\n', have);
		size_t piece = end ? (size_t)(end - data) : have;
		if (buffer_append(line, data, piece) < 0)
			return error_set(error, ERROR_INTERNAL, "the daemon sent too long a line");
		exchange->start += piece;
		if (end)
			return 0;
		exchange->start = exchange->end = 0;
		ssize_t got =
		    exchange_receive(exchange, exchange->buffer, sizeof(exchange->buffer));
		if (got <= 0)
			return error_set(error, ERROR_DAEMON_RESTARTING,
					 "the daemon closed the connection without an answer");
		exchange->end = (size_t)got;
	}
}

static int tools_request(struct client *client, const char *path, struct exchange *exchange,
			 json_t **ret_answer, struct error *error)
{
	DONE_BUFFER struct buffer line = BUFFER(LIST_MAX);
	if (mcp_lines_open(client, path, exchange, error) < 0 ||
	    mcp_lines_read_head(exchange, error) < 0 ||
	    exchange_write(exchange, false, LIST_REQUEST, strlen(LIST_REQUEST), error) < 0 ||
	    answer_read_line(exchange, &line, error) < 0)
		return -1;
	*ret_answer = json_loadb(line.data, line.size, 0, NULL);
	const json_t *problem = json_object_get(*ret_answer, "error");
	if (*ret_answer && !problem)
		return 0;
	json_decref(*ret_answer);
	*ret_answer = NULL;
	return error_set(error, ERROR_INTERNAL, "the daemon does not list its tools");
}

/* Prints the first sentence. */
static void tool_summary_print(const char *text)
{
	const char *end = strstr(text, ". ");
	size_t size = end ? (size_t)(end - text) + 1 : strcspn(text, "\n");
	FREE_TEXT char *first = strndup(text, size);
	safe_text_print(first ? first : "");
}

static void tools_print(const json_t *tools)
{
	json_t *tool;
	size_t at;
	json_array_foreach(tools, at, tool)
	{
		printf("%-24s ", member_text(tool, "name"));
		tool_summary_print(member_text(tool, "description"));
		putchar('\n');
	}
}

static int tools_fetch(struct client *client, const char *path, struct error *error)
{
	struct exchange *exchange = exchange_new();
	json_t *answer = NULL;
	int result = tools_request(client, path, exchange, &answer, error);
	const json_t *tools = json_object_get(json_object_get(answer, "result"), "tools");
	if (result == 0 && cli_json)
		json_print(tools);
	else if (result == 0)
		tools_print(tools);
	json_decref(answer);
	exchange_free(exchange);
	return result;
}

/* --- OpenSandbox's flags --- */

/* A domain is another daemon over TCP, with the key as its token. Without a domain the local daemon
 * is used. */
static int opensandbox_domain_use(struct client *client, struct error *error)
{
	const char *key = mcp_options.api_key, *domain = mcp_options.domain;
	const char *protocol = mcp_options.protocol ? mcp_options.protocol : "http";
	char url[512];
	if (!key)
		key = getenv("OPEN_SANDBOX_API_KEY");
	if (!domain)
		domain = getenv("OPEN_SANDBOX_DOMAIN");
	if (strcmp(protocol, "http") != 0 && strcmp(protocol, "https") != 0)
		return error_set(error, ERROR_USAGE, "--protocol is http or https, not \"%s\"",
				 protocol);
	if (key && *key &&
	    (text_copy(client->token, sizeof(client->token), key) < 0 || strpbrk(key, "\r\n")))
		return error_set(error, ERROR_USAGE, "--api-key is not a valid token");
	if (!domain || !*domain)
		return 0;
	bool whole = strstr(domain, "://") != NULL;
	if (text_format(url, sizeof(url), "%s%s%s", whole ? "" : protocol, whole ? "" : "://",
			domain) < 0)
		return error_set(error, ERROR_USAGE, "--domain is too long");
	return client_use_url(client, "--domain", url, error);
}

static int opensandbox_options_check(struct error *error)
{
	uint64_t seconds;
	const char *transport = mcp_options.transport ? mcp_options.transport : "stdio";
	const bool given = mcp_options.api_key || mcp_options.domain || mcp_options.protocol ||
			   mcp_options.request_timeout || mcp_options.transport ||
			   mcp_options.host || mcp_options.port || mcp_options.use_server_proxy;
	bool dialect = mcp_options.dialect && strcmp(mcp_options.dialect, "opensandbox") == 0;
	if (given && !dialect)
		return error_set(error, ERROR_USAGE,
				 "--api-key, --domain, --protocol, --request-timeout-seconds, "
				 "--transport, --host and --port are OpenSandbox's: they need "
				 "--dialect opensandbox");
	if (strcmp(transport, "stdio") != 0 && strcmp(transport, "streamable-http") != 0)
		return error_set(error, ERROR_USAGE,
				 "--transport is stdio or streamable-http, not \"%s\"", transport);
	if (mcp_options.request_timeout &&
	    (strtod(mcp_options.request_timeout, NULL) <= 0 ||
	     text_to_seconds(mcp_options.request_timeout, &seconds) < 0))
		return error_set(
		    error, ERROR_USAGE,
		    "--request-timeout-seconds: invalid number `%s`; use for example 30",
		    mcp_options.request_timeout);
	return 0;
}

static int mcp_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (mcp_options.dialect && mcp_options.toolsets)
		return error_set(error, ERROR_USAGE,
				 "--toolsets is for the usual tools: a dialect (--dialect %s) has "
				 "one set of tools",
				 mcp_options.dialect);
	if (argc > 1 && strcmp(argv[1], "config") == 0)
		return mcp_config_run(client, argc - 1, argv + 1, error);
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "mcp takes no argument but `config` (\"%s\")",
				 argv[1]);
	if (opensandbox_options_check(error) < 0)
		return -1;
	bool dialect = mcp_options.dialect && strcmp(mcp_options.dialect, "opensandbox") == 0;
	if (dialect && opensandbox_domain_use(client, error) < 0)
		return -1;
	if (mcp_options.transport && strcmp(mcp_options.transport, "streamable-http") == 0)
		return mcp_relay_run(client, error);
	DONE_BUFFER struct buffer path = BUFFER(4096);
	struct id connection = id_new();
	if (mcp_lines_path(&path, mcp_options.ephemeral ? connection.text : NULL, error) < 0)
		return -1;
	if (mcp_options.list_tools)
		return tools_fetch(client, path.data, error);
	return mcp_bridge_run(client, path.data, error);
}

static const struct option_spec mcp_specs[] = {
    {"toolsets", 0, OPTION_TEXT, &mcp_options.toolsets, "LIST",
     "more tools: files, jobs, metrics, sandboxes, separated by commas, or all (default: what an "
     "agent needs)",
     "toolsets", "files,jobs,metrics,sandboxes,all"},
    {"read-only", 0, OPTION_FLAG, &mcp_options.read_only, NULL, "only tools that change nothing",
     "readonly"},
    {"ephemeral", 0, OPTION_FLAG, &mcp_options.ephemeral, NULL,
     "the sandboxes that are created through it end with it"},
    {"dialect", 0, OPTION_TEXT, &mcp_options.dialect, "NAME",
     "other tools: opensandbox (that server's, as its clients know them) or admin (this host's)",
     "dialect", "opensandbox,admin"},
    {"list-tools", 0, OPTION_FLAG, &mcp_options.list_tools, NULL,
     "print the tools it would show, and end"},
    {"name", 0, OPTION_TEXT, &mcp_options.name, "NAME",
     "config: the server's name in the client (default: caisson)"},
    {"http", 0, OPTION_FLAG, &mcp_options.http, NULL,
     "config: use the daemon's URL instead of a command"},
    {"token", 0, OPTION_TEXT, &mcp_options.token, "TOKEN",
     "config --http: the token it sends (default: CAISSON_TOKEN)"},
    {"write", 0, OPTION_FLAG, &mcp_options.write, NULL,
     "config: create the client's own file; an existing one is not changed"},
    {"list", 0, OPTION_FLAG, &mcp_options.list, NULL, "config: the clients that it knows"},
    {"api-key", 0, OPTION_TEXT, &mcp_options.api_key, "KEY",
     "opensandbox: the token (else OPEN_SANDBOX_API_KEY)"},
    {"domain", 0, OPTION_TEXT, &mcp_options.domain, "HOST:PORT",
     "opensandbox: the daemon (else OPEN_SANDBOX_DOMAIN, else this user's own)"},
    {"protocol", 0, OPTION_TEXT, &mcp_options.protocol, "http|https",
     "opensandbox: the domain's protocol (default: http)", .words = "http,https"},
    {"request-timeout-seconds", 0, OPTION_TEXT, &mcp_options.request_timeout, "N",
     "opensandbox: accepted for compatibility, without effect"},
    {"transport", 0, OPTION_TEXT, &mcp_options.transport, "NAME",
     "opensandbox: stdio or streamable-http (default: stdio)", .words = "stdio,streamable-http"},
    {"host", 0, OPTION_TEXT, &mcp_options.host, "ADDRESS",
     "opensandbox: where streamable-http listens (default: 127.0.0.1)"},
    {"port", 0, OPTION_TEXT, &mcp_options.port, "N",
     "opensandbox: the port it listens at, path /mcp (default: 8000)"},
    {"use-server-proxy", 0, OPTION_FLAG, &mcp_options.use_server_proxy, NULL,
     "opensandbox: accepted for compatibility; all requests go through the daemon"},
    {0},
};

const struct verb verb_mcp = {
    .name = "mcp",
    .json = "--list-tools and errors as JSON",
    .words = "config",
    .arguments = "[options] | config CLIENT [--write] [--http] [--name NAME] [--token TOKEN]",
    .summary = "Serve MCP on standard input and output",
    .help =
	"For an MCP client to start: one JSON-RPC message a line, in every revision of the "
	"protocol\n"
	"from 2024-11-05 to 2026-07-28. The daemon does the work and is started if none runs; if\n"
	"it is restarted meanwhile, this command reconnects. It ends when its input ends.\n"
	"\n"
	"`mcp config CLIENT` prints what to put into a client's configuration: claude-code,\n"
	"claude-desktop, cursor, vscode, windsurf, zed, codex, gemini, generic. --write creates\n"
	"the client's file. It does not change an existing file: then the exit code is 0 if the\n"
	"file has the entry already, else 1, and what to add to it is printed.\n"
	"Options of `mcp` given to it are passed on to the server.\n"
	"\n"
	"  caisson mcp --toolsets files,jobs --ephemeral\n"
	"  caisson mcp --list-tools\n"
	"  caisson mcp config claude-code\n"
	"  caisson mcp config cursor --write\n"
	"  caisson mcp config vscode --http --token \"$CAISSON_TOKEN\"",
    .options = mcp_specs,
    .run = mcp_run,
};
