/* Eras and envelopes (envelope.h). Called for every message before it is dispatched; works on
 * memory, nothing blocks. */
#include "mcp/transport/envelope.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/text.h"

#define KEY_VERSION "io.modelcontextprotocol/protocolVersion"
#define KEY_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define KEY_LOG_LEVEL "io.modelcontextprotocol/logLevel"
#define KEY_TASKS "io.modelcontextprotocol/tasks"
#define VERSION_SHOWN 64
#define HEADER_NAME_MAX 64
#define HEADER_VALUE_MAX HTTP_HEAD_MAX

/* --- revisions --- */

static const char *const revisions[MCP_REVISION_COUNT] = {
    [MCP_2024_11_05] = "2024-11-05", [MCP_2025_03_26] = "2025-03-26",
    [MCP_2025_06_18] = "2025-06-18", [MCP_2025_11_25] = "2025-11-25",
    [MCP_2026_07_28] = "2026-07-28",
};

const char *revision_name(enum mcp_revision revision)
{
	return revisions[revision];
}

int revision_parse(const char *name)
{
	for (int i = 0; i < MCP_REVISION_COUNT; i++)
		if (strcmp(revisions[i], name) == 0)
			return i;
	/* The tag before the first release, which clients still list: the same wire format. */
	return strcmp(name, "2024-10-07") == 0 ? MCP_2024_11_05 : -1;
}

bool revision_modern(enum mcp_revision revision)
{
	return revision >= MCP_2026_07_28;
}

/* --- what a message says of itself --- */

static json_t *meta_of(const json_t *params)
{
	return json_object_get(params, "_meta");
}

bool envelope_claims(const json_t *json)
{
	return json_object_get(meta_of(json_object_get(json, "params")), KEY_VERSION) != NULL;
}

bool envelope_modern(const struct message *message, const char *version_header)
{
	if (json_object_get(meta_of(message->params), KEY_VERSION))
		return true;
	/* `initialize` always means the era that has it. */
	if (message->method && strcmp(message->method, "initialize") == 0)
		return false;
	int named = version_header ? revision_parse(version_header) : -1;
	return named >= 0 && revision_modern((enum mcp_revision)named);
}

uint32_t envelope_capabilities(const json_t *capabilities)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} known[] = {
	    {"sampling", CLIENT_SAMPLING},
	    {"elicitation", CLIENT_ELICITATION},
	    {"roots", CLIENT_ROOTS},
	};
	uint32_t bits = 0;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (json_is_object(json_object_get(capabilities, known[i].name)))
			bits |= known[i].bit;
	if (json_is_object(json_object_get(json_object_get(capabilities, "extensions"), KEY_TASKS)))
		bits |= CLIENT_TASKS;
	return bits;
}

json_t *envelope_progress_token(const json_t *params)
{
	json_t *token = json_object_get(meta_of(params), "progressToken");
	if (json_is_integer(token) ||
	    (json_is_string(token) && json_string_length(token) <= MESSAGE_ID_MAX))
		return token;
	return NULL;
}

static int meta_missing(struct mcp_problem *problem, const char *key, const char *what)
{
	return problem_set(problem, MCP_INVALID_PARAMS, 400, "params._meta[\"%s\"] must be %s", key,
			   what);
}

static int version_unsupported(const char *version, struct mcp_problem *problem)
{
	size_t shown = text_utf8_prefix(version, MIN(strlen(version), (size_t)VERSION_SHOWN));
	struct buffer data DONE_BUFFER = BUFFER(4 * KIB);
	struct json_writer writer = json_writer_on(&data);
	problem_set(problem, MCP_UNSUPPORTED_VERSION, 400,
		    "protocol version %.*s is not supported in this form; supported: %s",
		    (int)shown, version, revision_name(MCP_2026_07_28));
	put_object(&writer, NULL);
	put_array(&writer, "supported");
	put_text(&writer, NULL, revision_name(MCP_2026_07_28));
	put_array_end(&writer);
	put_text_size(&writer, "requested", version, shown);
	put_object_end(&writer);
	/* A text of control characters grows sixfold: then only the message says it. */
	if (data.size < sizeof(problem->data))
		memcpy(problem->data, data.data, data.size + 1);
	return -1;
}

int envelope_read(const struct message *message, const char *version_header,
		  struct envelope *ret_envelope, struct mcp_problem *problem)
{
	json_t *meta = meta_of(message->params);
	const json_t *version = json_object_get(meta, KEY_VERSION);
	const json_t *capabilities = json_object_get(meta, KEY_CAPABILITIES);
	const json_t *level = json_object_get(meta, KEY_LOG_LEVEL);
	const char *name = json_string_value(version);
	if (!name)
		return meta_missing(problem, KEY_VERSION, "the protocol's version, a string");
	if (version_header && strcmp(version_header, name) != 0)
		return problem_set(problem, MCP_HEADER_MISMATCH, 400,
				   "the header MCP-Protocol-Version is not the body's %s",
				   KEY_VERSION);
	if (!json_is_object(capabilities))
		return meta_missing(problem, KEY_CAPABILITIES, "an object");
	int log_level = MCP_LOG_OFF;
	if (level)
		log_level = json_is_string(level) ? mcp_level_parse(json_string_value(level)) : -1;
	if (log_level < 0)
		return meta_missing(problem, KEY_LOG_LEVEL, "a level, debug to emergency");
	int revision = revision_parse(name);
	if (revision < 0 || !revision_modern((enum mcp_revision)revision))
		return version_unsupported(name, problem);
	*ret_envelope = (struct envelope){.revision = (enum mcp_revision)revision,
					  .client = envelope_capabilities(capabilities),
					  .log_level = (enum mcp_log_level)log_level};
	return 0;
}

/* --- headers --- */

#define SENTINEL "=?base64?"
#define SENTINEL_END "?="

/* A header's value is the text, or the text as `=?base64?...?=`. -1: invalid base64. */
static int header_text(const char *value, char to[HEADER_VALUE_MAX], size_t *ret_size)
{
	size_t size = strlen(value), begin = strlen(SENTINEL), end = strlen(SENTINEL_END);
	bool encoded = size >= begin + end && text_starts(value, SENTINEL) &&
		       strcmp(value + size - end, SENTINEL_END) == 0;
	if (size >= HEADER_VALUE_MAX)
		return -1;
	if (!encoded) {
		memcpy(to, value, size + 1);
		*ret_size = size;
		return 0;
	}
	ssize_t decoded = base64_decode(value + begin, size - begin - end, to);
	if (decoded < 0)
		return -1;
	*ret_size = (size_t)decoded;
	return 0;
}

static int header_mismatch(struct mcp_problem *problem, const char *header, const char *what)
{
	return problem_set(problem, MCP_HEADER_MISMATCH, 400, "the header %s %s", header, what);
}

/* `wanted` NULL: the body has no such value, and the method's handler reports that. */
static int envelope_check_named(const struct mcp_headers *headers, const json_t *wanted,
				struct mcp_problem *problem)
{
	char text[HEADER_VALUE_MAX];
	size_t size;
	const char *value = headers->get(headers->data, "mcp-name");
	if (!json_is_string(wanted))
		return 0;
	if (!value)
		return header_mismatch(problem, "Mcp-Name", "is missing, or was sent twice");
	if (header_text(value, text, &size) < 0)
		return header_mismatch(problem, "Mcp-Name", "is not valid base64");
	if (size != json_string_length(wanted) ||
	    memcmp(text, json_string_value(wanted), size) != 0)
		return header_mismatch(problem, "Mcp-Name", "does not name what the body does");
	return 0;
}

int envelope_check_headers(const struct message *message, const struct mcp_headers *headers,
			   struct mcp_problem *problem)
{
	static const struct {
		const char *method, *member;
	} named[] = {
	    {"tools/call", "name"},  {"prompts/get", "name"},    {"resources/read", "uri"},
	    {"tasks/get", "taskId"}, {"tasks/update", "taskId"}, {"tasks/cancel", "taskId"},
	};
	if (!headers->get)
		return 0;
	if (!headers->get(headers->data, "mcp-protocol-version"))
		return header_mismatch(problem, "MCP-Protocol-Version",
				       "is missing, or was sent twice");
	const char *method = headers->get(headers->data, "mcp-method");
	if (!method)
		return header_mismatch(problem, "Mcp-Method", "is missing, or was sent twice");
	if (strcmp(method, message->method) != 0)
		return header_mismatch(problem, "Mcp-Method", "is not the body's method");
	for (size_t i = 0; i < ARRAY_SIZE(named); i++)
		if (strcmp(named[i].method, message->method) == 0)
			return envelope_check_named(
			    headers, json_object_get(message->params, named[i].member), problem);
	return 0;
}

/* The same value: a text byte by byte, a number as a number, a boolean by its name. */
static bool parameter_equal(const json_t *value, const char *text, size_t size)
{
	char number[32];
	if (json_is_string(value))
		return size == json_string_length(value) &&
		       memcmp(text, json_string_value(value), size) == 0;
	if (json_is_boolean(value)) {
		const char *word = json_is_true(value) ? "true" : "false";
		return size == strlen(word) && memcmp(text, word, size) == 0;
	}
	if (!json_is_integer(value) || size == 0 || size >= sizeof(number) ||
	    (!isdigit((unsigned char)text[0]) && text[0] != '-'))
		return false;
	char *end;
	memcpy(number, text, size);
	number[size] = '\0';
	errno = 0;
	long long read = strtoll(number, &end, 10);
	return errno == 0 && end == number + size && read == json_integer_value(value);
}

static int envelope_check_parameter(const json_t *value, const char *header,
				    const struct mcp_headers *from, struct mcp_problem *problem)
{
	char name[HEADER_NAME_MAX + 16], text[HEADER_VALUE_MAX];
	size_t size;
	if (!value || json_is_null(value))
		return 0;
	snprintf(name, sizeof(name), "mcp-param-%.*s", HEADER_NAME_MAX, header);
	for (char *at = name; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	const char *given = from->get(from->data, name);
	if (!given)
		return header_mismatch(problem, name, "is missing, or was sent twice");
	if (header_text(given, text, &size) < 0)
		return header_mismatch(problem, name, "is not valid base64");
	if (!parameter_equal(value, text, size))
		return header_mismatch(problem, name, "is not the argument's value");
	return 0;
}

/* The schemas are our own, so their depth is bounded. */
static int envelope_check_schema(const json_t *schema, const json_t *arguments,
				 const struct mcp_headers *headers, struct mcp_problem *problem)
{
	const char *name;
	json_t *property, *properties = json_object_get(schema, "properties");
	json_object_foreach(properties, name, property)
	{
		const json_t *value = json_object_get(arguments, name);
		const char *header = json_string_value(json_object_get(property, "x-mcp-header"));
		if (header && envelope_check_parameter(value, header, headers, problem) < 0)
			return -1;
		if (json_is_object(value) &&
		    envelope_check_schema(property, value, headers, problem) < 0)
			return -1;
	}
	return 0;
}

int envelope_check_parameters(const json_t *arguments, const char *schema,
			      const struct mcp_headers *headers, struct mcp_problem *problem)
{
	if (!headers->get || !schema || !strstr(schema, "\"x-mcp-header\""))
		return 0;
	json_t *tree = json_loads(schema, 0, NULL);
	int result = envelope_check_schema(tree, arguments, headers, problem);
	json_decref(tree);
	return result;
}
