/* The dialect of OpenSandbox: the table of its nineteen tools with the schemas that its own server
 * lists, and the face that shows them at /mcp/opensandbox and in `caisson mcp --dialect
 * opensandbox`. What the tools do is in the opensandbox_*.c beside it. Only tables; nothing runs
 * here. */
#include "mcp/dialects/opensandbox.h"

/* --- pieces of the schemas --- */

#define STRING "{\"type\":\"string\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define NUMBER "{\"type\":\"number\"}"
#define BOOLEAN "{\"type\":\"boolean\"}"
#define TIME "{\"format\":\"date-time\",\"type\":\"string\"}"
#define STRING_OR(value) "{\"default\":\"" value "\",\"type\":\"string\"}"
#define INTEGER_OR(value) "{\"default\":" value ",\"type\":\"integer\"}"
#define NUMBER_OR(value) "{\"default\":" value ",\"type\":\"number\"}"
#define FALSE_OR_TRUE "{\"default\":false,\"type\":\"boolean\"}"
#define LIST(of) "{\"items\":" of ",\"type\":\"array\"}"
#define MAP "{\"additionalProperties\":" STRING ",\"type\":\"object\"}"
#define NULLABLE(of) "{\"anyOf\":[" of ",{\"type\":\"null\"}],\"default\":null}"
#define REF(name) "{\"$ref\":\"#/$defs/" name "\"}"
#define WORDS_2(a, b) "{\"enum\":[\"" a "\",\"" b "\"],\"type\":\"string\"}"

#define P(name, schema) "\"" name "\":" schema
#define DEFS(definitions) "\"$defs\":{" definitions "},"
#define PROPERTIES(properties) "\"properties\":{" properties "}"
#define OBJECT(properties, required)                                                               \
	"{" PROPERTIES(properties) ",\"required\":[" required "],\"type\":\"object\"}"
#define OBJECT_DEFS(definitions, properties, required)                                             \
	"{" DEFS(definitions) PROPERTIES(properties) ",\"required\":[" required                    \
						     "],\"type\":\"object\"}"
#define ID P("sandbox_id", STRING)
#define CONNECT "," P("connect_if_missing", FALSE_OR_TRUE)

/* --- what comes back --- */

#define PLATFORM                                                                                   \
	P("PlatformSpec",                                                                          \
	  OBJECT(P("os", WORDS_2("linux", "windows")) "," P("arch", WORDS_2("amd64", "arm64")),    \
		 "\"os\",\"arch\""))
#define IMAGE                                                                                      \
	P("SandboxImageAuth",                                                                      \
	  OBJECT(P("username", STRING) "," P("password", STRING), "\"username\",\"password\""))    \
	"," P("SandboxImageSpec",                                                                  \
	      OBJECT(P("image", STRING) "," P("auth", NULLABLE(REF("SandboxImageAuth"))),          \
		     "\"image\""))
#define STATUS                                                                                     \
	P("SandboxStatus",                                                                         \
	  OBJECT(P("state", STRING) "," P("reason", NULLABLE(STRING)) "," P(                       \
		     "message", NULLABLE(STRING)) "," P("last_transition_at", NULLABLE(TIME)),     \
		 "\"state\""))
#define INFO_PROPERTIES                                                                                                             \
	P("id", STRING)                                                                                                             \
	"," P("status", REF("SandboxStatus")) "," P("entrypoint", LIST(STRING)) "," P(                                              \
	    "expires_at",                                                                                                           \
	    NULLABLE(                                                                                                               \
		TIME)) "," P("created_at",                                                                                          \
			     TIME) "," P("image",                                                                                   \
					 NULLABLE(REF(                                                                              \
					     "SandboxImageSpec"))) "," P("snapshot_id",                                             \
									 NULLABLE(                                                  \
									     STRING)) "," P("plat"                                  \
											    "for"                                   \
											    "m",                                    \
											    NULLABLE(REF(                           \
												"PlatformSpec"))) "," P("metadata", \
															NULLABLE(   \
															    MAP))
#define INFO_REQUIRED "\"id\",\"status\",\"entrypoint\",\"created_at\""
#define INFO_DEFS PLATFORM "," IMAGE "," STATUS
#define INFO P("SandboxInfo", OBJECT(INFO_PROPERTIES, INFO_REQUIRED))

#define RETURNS_INFO OBJECT_DEFS(INFO_DEFS, INFO_PROPERTIES, INFO_REQUIRED)
#define RETURNS_SANDBOX                                                                            \
	OBJECT_DEFS(INFO_DEFS "," INFO, ID "," P("info", REF("SandboxInfo")),                      \
		    "\"sandbox_id\",\"info\"")
#define RETURNS_STATUS OBJECT(P("status", STRING), "\"status\"")
#define RETURNS_PAGE                                                                               \
	OBJECT_DEFS(                                                                               \
	    INFO_DEFS "," INFO "," P(                                                              \
		"PaginationInfo",                                                                  \
		OBJECT(P("page", INTEGER) "," P("page_size", INTEGER) "," P(                       \
			   "total_items", INTEGER) "," P("total_pages",                            \
							 INTEGER) "," P("has_next_page", BOOLEAN), \
		       "\"page\",\"page_size\",\"total_items\",\"total_pages\","                   \
		       "\"has_next_page\"")),                                                      \
	    P("sandbox_infos", LIST(REF("SandboxInfo"))) "," P("pagination",                       \
							       REF("PaginationInfo")),             \
	    "\"sandbox_infos\",\"pagination\"")
#define RETURNS_METRICS                                                                            \
	OBJECT(P("cpu_count", NUMBER) "," P("cpu_used_percentage", NUMBER) "," P(                  \
		   "memory_total_in_mib", NUMBER) "," P("memory_used_in_mib",                      \
							NUMBER) "," P("timestamp", INTEGER),       \
	       "\"cpu_count\",\"cpu_used_percentage\",\"memory_total_in_mib\","                    \
	       "\"memory_used_in_mib\",\"timestamp\"")

#define OUTPUT_MESSAGE                                                                             \
	P("OutputMessage",                                                                         \
	  OBJECT(P("text", STRING) "," P("timestamp", INTEGER) "," P("is_error", FALSE_OR_TRUE),   \
		 "\"text\",\"timestamp\""))
#define EXECUTION_DEFS                                                                                                                                                                    \
	P("ExecutionComplete",                                                                                                                                                            \
	  OBJECT(P("timestamp", INTEGER) "," P("execution_time_in_millis", INTEGER),                                                                                                      \
		 "\"timestamp\",\"execution_time_in_millis\""))                                                                                                                           \
	"," P("ExecutionError", OBJECT(P("name", STRING) "," P("value", STRING) "," P("timestamp", INTEGER) "," P("traceback", LIST(STRING)), "\"name\",\"value\",\"timestamp\"")) "," P( \
	    "ExecutionLogs",                                                                                                                                                              \
	    "{" PROPERTIES(P(                                                                                                                                                             \
		"stdout",                                                                                                                                                                 \
		LIST(REF(                                                                                                                                                                 \
		    "O"                                                                                                                                                                   \
		    "u"                                                                                                                                                                   \
		    "t"                                                                                                                                                                   \
		    "p"                                                                                                                                                                   \
		    "u"                                                                                                                                                                   \
		    "t"                                                                                                                                                                   \
		    "M"                                                                                                                                                                   \
		    "e"                                                                                                                                                                   \
		    "s"                                                                                                                                                                   \
		    "s"                                                                                                                                                                   \
		    "a"                                                                                                                                                                   \
		    "g"                                                                                                                                                                   \
		    "e"))) "," P("stderr",                                                                                                                                                \
				 LIST(REF(                                                                                                                                                \
				     "OutputMessage")))) ",\"type\""                                                                                                                      \
							 ":\"object"                                                                                                                      \
							 "\"}") "," P("ExecutionResult",                                                                                                  \
								      OBJECT(                                                                                                             \
									  P("text", NULLABLE(STRING)) "," P(                                                                              \
									      "timestamp",                                                                                                \
									      INTEGER) "," P("ext"                                                                                        \
											     "ra_"                                                                                        \
											     "pro"                                                                                        \
											     "per"                                                                                        \
											     "tie"                                                                                        \
											     "s",                                                                                         \
											     MAP),                                                                                        \
									  "\"timestamp\"")) "," OUTPUT_MESSAGE
#define RETURNS_EXECUTION                                                                                                              \
	"{" DEFS(EXECUTION_DEFS) PROPERTIES(                                                                                           \
	    P("id", NULLABLE(STRING)) "," P("execution_count", NULLABLE(INTEGER)) "," P("result", LIST(REF("ExecutionResult"))) "," P( \
		"error",                                                                                                               \
		NULLABLE(REF(                                                                                                          \
		    "ExecutionError"))) "," P("complete",                                                                              \
					      NULLABLE(REF(                                                                            \
						  "ExecutionComple"                                                                    \
						  "te"))) "," P("e"                                                                    \
								"x"                                                                    \
								"i"                                                                    \
								"t"                                                                    \
								"_"                                                                    \
								"c"                                                                    \
								"o"                                                                    \
								"d"                                                                    \
								"e",                                                                   \
								NULLABLE(                                                              \
								    INTEGER)) "," P("logs",                                            \
										    REF("Executio"                                     \
											"nLogs"))) ",\"type\":\"object\"}"
#define RETURNS_ENTRIES                                                                            \
	OBJECT_DEFS(                                                                               \
	    P("EntryInfo",                                                                         \
	      OBJECT(                                                                              \
		  P("path", STRING) "," P("type", NULLABLE(STRING)) "," P("mode", INTEGER) "," P(  \
		      "owner",                                                                     \
		      STRING) "," P("group",                                                       \
				    STRING) "," P("size", INTEGER) "," P("modified_at",            \
									 TIME) "," P("created_at", \
										     TIME),        \
		  "\"path\",\"mode\",\"owner\",\"group\",\"size\",\"modified_at\","                \
		  "\"created_at\"")),                                                              \
	    P("result", LIST(REF("EntryInfo"))), "\"result\"")
#define RETURNS_REPLACED                                                                           \
	OBJECT_DEFS(                                                                               \
	    P("ContentReplaceResult", OBJECT(P("path", STRING) "," P("replaced_count", INTEGER),   \
					     "\"path\",\"replaced_count\"")),                      \
	    P("result", LIST(REF("ContentReplaceResult"))), "\"result\"")

/* --- what is asked --- */

#define NETWORK_POLICY                                                                             \
	P("NetworkPolicy",                                                                         \
	  "{" PROPERTIES(                                                                          \
	      P("defaultAction",                                                                   \
		"{\"anyOf\":[" WORDS_2(                                                            \
		    "allow",                                                                       \
		    "deny") ",{\"type\":\"null\"}],"                                               \
			    "\"default\":\"deny\"}") "," P("egress",                               \
							   NULLABLE(LIST(REF(                      \
							       "NetworkRule"))))) ",\"type\":"     \
										  "\"object\"}")   \
	"," P("NetworkRule", OBJECT(P("action", WORDS_2("allow", "deny")) "," P("target", STRING), \
				    "\"action\",\"target\""))
#define TAKES_CREATE                                                                                                                                                                \
	OBJECT_DEFS(                                                                                                                                                                \
	    NETWORK_POLICY,                                                                                                                                                         \
	    P("image", STRING) "," P("auth_username", NULLABLE(STRING)) "," P("auth_password", NULLABLE(STRING)) "," P("timeout_seconds", NUMBER_OR("600")) "," P(                  \
		"ready_timeout_seconds",                                                                                                                                            \
		NUMBER_OR(                                                                                                                                                          \
		    "30")) "," P("health_check_polling_interval_ms",                                                                                                                \
				 INTEGER_OR(                                                                                                                                        \
				     "200")) "," P("skip_health_check",                                                                                                             \
						   FALSE_OR_TRUE) "," P("env",                                                                                                      \
									NULLABLE(                                                                                                   \
									    MAP)) "," P("metadat"                                                                                   \
											"a",                                                                                        \
											NULLABLE(                                                                                   \
											    MAP)) "," P("resource",                                                                 \
													NULLABLE(                                                                   \
													    MAP)) "," P("network_policy",                                           \
															NULLABLE(REF(                                               \
															    "NetworkPolicy"))) "," P("extensions",                  \
																		     NULLABLE(                      \
																			 MAP)) "," P("entrypoint",  \
																				     NULLABLE(LIST( \
																					 STRING))), \
	    "\"image\"")
#define TAKES_CONNECT                                                                              \
	OBJECT(ID "," P("connect_timeout_seconds", NUMBER_OR("30")) "," P(                         \
		   "health_check_polling_interval_ms",                                             \
		   INTEGER_OR("200")) "," P("skip_health_check", FALSE_OR_TRUE),                   \
	       "\"sandbox_id\"")
#define TAKES_ID OBJECT(ID, "\"sandbox_id\"")
#define TAKES_ID_CONNECT OBJECT(ID CONNECT, "\"sandbox_id\"")
#define TAKES_LIST                                                                                 \
	"{" DEFS(P(                                                                                \
	    "SandboxFilter",                                                                       \
	    "{" PROPERTIES(                                                                        \
		P("states", NULLABLE(LIST(STRING))) "," P("metadata", NULLABLE(MAP)) "," P(        \
		    "page_size",                                                                   \
		    NULLABLE(INTEGER)) "," P("page", NULLABLE(INTEGER))) ",\"type\":\"object\"}")) \
	    PROPERTIES(P("filter", NULLABLE(REF("SandboxFilter")))) ",\"type\":\"object\"}"
#define TAKES_RENEW                                                                                \
	OBJECT(ID "," P("timeout_seconds", NUMBER), "\"sandbox_id\",\"timeout_seconds\"")
#define TAKES_RUN                                                                                  \
	OBJECT(ID "," P("command", STRING) "," P("background", FALSE_OR_TRUE) "," P(               \
		   "working_directory", NULLABLE(STRING)) CONNECT,                                 \
	       "\"sandbox_id\",\"command\"")
#define TAKES_INTERRUPT                                                                            \
	OBJECT(ID "," P("execution_id", STRING) CONNECT, "\"sandbox_id\",\"execution_id\"")
#define TAKES_READ                                                                                 \
	OBJECT(ID "," P("path", STRING) "," P("encoding", STRING_OR("utf-8")) "," P(               \
		   "range_header", NULLABLE(STRING)) CONNECT,                                      \
	       "\"sandbox_id\",\"path\"")
#define OWNED "," P("owner", NULLABLE(STRING)) "," P("group", NULLABLE(STRING))
#define TAKES_WRITE                                                                                \
	OBJECT(ID "," P("path", STRING) "," P("content", STRING) "," P(                            \
		   "encoding", STRING_OR("utf-8")) "," P("mode", INTEGER_OR("755")) OWNED CONNECT, \
	       "\"sandbox_id\",\"path\",\"content\"")
#define TAKES_PATHS OBJECT(ID "," P("paths", LIST(STRING)) CONNECT, "\"sandbox_id\",\"paths\"")
#define TAKES_SEARCH                                                                               \
	OBJECT(ID "," P("path", STRING) "," P("pattern", STRING) CONNECT,                          \
	       "\"sandbox_id\",\"path\",\"pattern\"")
#define TAKES_ENTRIES(name, properties, required)                                                  \
	OBJECT_DEFS(P(name, OBJECT(properties, required)),                                         \
		    ID "," P("entries", LIST(REF(name))) CONNECT, "\"sandbox_id\",\"entries\"")
#define TAKES_DIRECTORIES                                                                          \
	TAKES_ENTRIES("DirectoryEntryInput",                                                       \
		      P("path", STRING) "," P("mode", INTEGER_OR("755")) OWNED, "\"path\"")
#define TAKES_MOVES                                                                                \
	TAKES_ENTRIES("MoveEntry", P("source", STRING) "," P("destination", STRING),               \
		      "\"source\",\"destination\"")
#define TAKES_REPLACEMENTS                                                                         \
	TAKES_ENTRIES("ContentReplaceEntry",                                                       \
		      P("path", STRING) "," P("old_content", STRING) "," P("new_content", STRING), \
		      "\"path\",\"old_content\",\"new_content\"")
#define TAKES_PORT OBJECT(ID "," P("port", INTEGER) CONNECT, "\"sandbox_id\",\"port\"")

/* --- the tools --- */

#define EXAMPLE_ID "\"sandbox_id\":\"k3v8q1z6m0t5w2y7\""

#define TOOL_FLAGS(tool, text, takes, returns, shown, needs, function, flags)                      \
	{                                                                                          \
		.name = tool, .description = text, .input = takes, .output = returns,              \
		.example = shown, .scope = needs, .hints = TOOL_NO_HINTS | flags, .call = function \
	}
#define TOOL(...) TOOL_FLAGS(__VA_ARGS__, 0)

static const struct mcp_tool sandbox_tools_table[] = {
    TOOL_FLAGS(
	"sandbox_create",
	"Create a sandbox and wait until it is ready. `image` is a template of this server (host, "
	"python-3.12, node-22, ubuntu-24.04, code-interpreter, ...) or an image that stands for "
	"one (python:3.12, node:22, ubuntu, opensandbox/code-interpreter). Returns its id and "
	"record.",
	TAKES_CREATE, RETURNS_SANDBOX, "{\"image\":\"python:3.12\",\"timeout_seconds\":600}",
	SCOPE_WRITE, opensandbox_create, TOOL_UNBOUND),
    TOOL("sandbox_connect",
	 "Make an existing sandbox ready for use, waking it where it is paused. Other tools need "
	 "no connect before them.",
	 TAKES_CONNECT, RETURNS_SANDBOX, "{" EXAMPLE_ID "}", SCOPE_READ, opensandbox_connect),
    TOOL("sandbox_kill", "End a sandbox: its processes and files are gone for good.", TAKES_ID,
	 RETURNS_STATUS, "{" EXAMPLE_ID "}", SCOPE_WRITE, opensandbox_kill),
    TOOL("sandbox_get_info", "The record of a sandbox: state, image, metadata, when it ends.",
	 TAKES_ID, RETURNS_INFO, "{" EXAMPLE_ID "}", SCOPE_READ, opensandbox_get_info),
    TOOL("sandbox_list",
	 "List sandboxes, the newest first, by state and metadata, in pages of 20 unless "
	 "`page_size` says otherwise.",
	 TAKES_LIST, RETURNS_PAGE, "{\"filter\":{\"states\":[\"Running\"],\"page_size\":50}}",
	 SCOPE_READ, opensandbox_list),
    TOOL("sandbox_renew", "Let a sandbox live for so many seconds from now on.", TAKES_RENEW,
	 OBJECT(P("expires_at", TIME), "\"expires_at\""),
	 "{" EXAMPLE_ID ",\"timeout_seconds\":1800}", SCOPE_WRITE, opensandbox_renew),
    TOOL("sandbox_get_metrics", "Processor and memory in use in a sandbox, of what it may have.",
	 TAKES_ID_CONNECT, RETURNS_METRICS, "{" EXAMPLE_ID "}", SCOPE_READ, opensandbox_metrics),
    TOOL("sandbox_healthcheck", "Whether a sandbox runs and answers. It is not woken by this.",
	 TAKES_ID_CONNECT, OBJECT(ID "," P("healthy", BOOLEAN), "\"sandbox_id\",\"healthy\""),
	 "{" EXAMPLE_ID "}", SCOPE_READ, opensandbox_healthcheck),
    {0},
};

static const struct mcp_tool work_tools_table[] = {
    TOOL("command_run",
	 "Run a shell command and return its output line by line, with its exit code. With "
	 "`background` the answer comes at once; its `id` is for command_interrupt, and its output "
	 "is best sent to a file.",
	 TAKES_RUN, RETURNS_EXECUTION, "{" EXAMPLE_ID ",\"command\":\"ls -la\"}", SCOPE_WRITE,
	 opensandbox_run),
    TOOL("command_interrupt",
	 "End a running command with every process it started: SIGTERM, and SIGKILL after three "
	 "seconds.",
	 TAKES_INTERRUPT, RETURNS_STATUS, "{" EXAMPLE_ID ",\"execution_id\":\"b7d2f9x4c1h6n8p3\"}",
	 SCOPE_WRITE, opensandbox_interrupt),
    TOOL("file_read",
	 "Read a text file, up to 1 MiB at once; `range_header` (\"bytes=0-1023\") reads a part. "
	 "`encoding` is utf-8, ascii, latin-1, or base64 for any bytes.",
	 TAKES_READ, OBJECT(P("path", STRING) "," P("content", STRING), "\"path\",\"content\""),
	 "{" EXAMPLE_ID ",\"path\":\"/workspace/main.py\"}", SCOPE_READ, opensandbox_read),
    TOOL("file_write",
	 "Write a whole file; its folders are made. `mode` is octal digits (644). `encoding` as in "
	 "file_read.",
	 TAKES_WRITE, RETURNS_STATUS,
	 "{" EXAMPLE_ID ",\"path\":\"/workspace/a.txt\",\"content\":\"hello\\n\",\"mode\":644}",
	 SCOPE_WRITE, opensandbox_write),
    TOOL("file_delete",
	 "Delete files. One that is not there is no error; a directory that is not empty is.",
	 TAKES_PATHS, RETURNS_STATUS, "{" EXAMPLE_ID ",\"paths\":[\"/workspace/a.txt\"]}",
	 SCOPE_WRITE, opensandbox_delete),
    TOOL("file_search",
	 "Find files below a directory by a glob: of their names (\"*.py\"), or of their paths "
	 "where it has a slash (\"src/**/*.py\").",
	 TAKES_SEARCH, RETURNS_ENTRIES,
	 "{" EXAMPLE_ID ",\"path\":\"/workspace\",\"pattern\":\"*.py\"}", SCOPE_READ,
	 opensandbox_search),
    TOOL("file_create_directories", "Make directories, with those above them.", TAKES_DIRECTORIES,
	 RETURNS_STATUS,
	 "{" EXAMPLE_ID ",\"entries\":[{\"path\":\"/workspace/src\",\"mode\":755}]}", SCOPE_WRITE,
	 opensandbox_make_directories),
    TOOL("file_delete_directories", "Delete directories with everything in them.", TAKES_PATHS,
	 RETURNS_STATUS, "{" EXAMPLE_ID ",\"paths\":[\"/workspace/build\"]}", SCOPE_WRITE,
	 opensandbox_delete_directories),
    TOOL("file_move",
	 "Move or rename files and directories; folders are made, and nothing is overwritten.",
	 TAKES_MOVES, RETURNS_STATUS,
	 "{" EXAMPLE_ID
	 ",\"entries\":[{\"source\":\"/workspace/a\",\"destination\":\"/workspace/b\"}]}",
	 SCOPE_WRITE, opensandbox_move),
    TOOL("file_replace_contents",
	 "Replace every occurrence of a text in files; says how many there were in each.",
	 TAKES_REPLACEMENTS, RETURNS_REPLACED,
	 "{" EXAMPLE_ID ",\"entries\":[{\"path\":\"/workspace/a\",\"old_content\":\"x\","
	 "\"new_content\":\"y\"}]}",
	 SCOPE_WRITE, opensandbox_replace),
    TOOL("sandbox_get_endpoint",
	 "The address under which a port of a sandbox is reached. Sandboxes of this server have no "
	 "network yet: it answers with an error.",
	 TAKES_PORT, OBJECT(P("endpoint", STRING) "," P("headers", MAP), "\"endpoint\""),
	 "{" EXAMPLE_ID ",\"port\":8000}", SCOPE_READ, opensandbox_endpoint),
    {0},
};

static const struct mcp_tool *const tables[] = {sandbox_tools_table, work_tools_table, NULL};

static void instructions(const struct mcp_view *view, struct buffer *to)
{
	(void)view;
	(void)!buffer_append_text(
	    to,
	    "Sandboxes: Linux machines for running commands and keeping files. Make one with "
	    "sandbox_create, use its sandbox_id in every other call, end it with sandbox_kill. Any "
	    "sandbox that sandbox_list shows can be used at once, without sandbox_connect. "
	    "Sandboxes end by themselves after timeout_seconds (600 unless told otherwise); "
	    "sandbox_renew gives them longer. They have no network. The output of a command is cut "
	    "in its middle where it is long: send long output to a file and read it in parts with "
	    "file_read.");
}

const struct mcp_face opensandbox_face = {.name = "opensandbox-sandbox",
					  .title = "OpenSandbox",
					  .scope = SCOPE_READ,
					  .tools = tables,
					  .instructions = instructions};
