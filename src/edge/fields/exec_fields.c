/* See exec_fields.h. Pure; nothing blocks. */
#include "edge/fields/exec_fields.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/base64.h"
#include "base/text.h"
#include "edge/json/json_pairs.h"

/* The request's bytes bound a command, and what is told counts characters. */
#define COMMAND_TEXT "\"type\":\"string\",\"minLength\":1,\"maxLength\":122880"
#define COMMAND_SHAPE                                                                              \
	"\"oneOf\":[{" COMMAND_TEXT "},{\"type\":\"array\",\"minItems\":1,\"maxItems\":1024,"      \
	"\"items\":{\"type\":\"string\"}}]"
_Static_assert(EXEC_REQUEST_BYTES_MAX == 122880 && EXEC_ARGV_MAX == 1024, "COMMAND_SHAPE");

#define LIMIT_SHAPE                                                                                \
	"\"oneOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"object\",\"properties\":{"    \
	"\"soft\":{\"type\":\"integer\",\"minimum\":0},\"hard\":{\"type\":\"integer\","            \
	"\"minimum\":0}},\"required\":[\"soft\",\"hard\"],\"additionalProperties\":false}]"

/* A limit stands at the place of its resource's number. */
struct limit_values {
	json_t *of[EXEC_RUNLIMITS_MAX];
};
#define LIMIT(name, resource)                                                                      \
	{                                                                                          \
		name, FIELD_ANY_AT(struct limit_values, of[resource]), .shape = LIMIT_SHAPE        \
	}
static const struct field limit_fields[] = {
    LIMIT("nofile", RLIMIT_NOFILE),
    LIMIT("nproc", RLIMIT_NPROC),
    LIMIT("fsize", RLIMIT_FSIZE),
    LIMIT("cpu", RLIMIT_CPU),
    LIMIT("as", RLIMIT_AS),
    LIMIT("data", RLIMIT_DATA),
    LIMIT("stack", RLIMIT_STACK),
    LIMIT("core", RLIMIT_CORE),
    LIMIT("memlock", RLIMIT_MEMLOCK),
    LIMIT("rss", RLIMIT_RSS),
    LIMIT("locks", RLIMIT_LOCKS),
    LIMIT("sigpending", RLIMIT_SIGPENDING),
    {0},
};
static const struct field limit_pair_fields[] = {
    {"soft", FIELD_UINT_AT(struct exec_limit, soft), FIELD_REQUIRED},
    {"hard", FIELD_UINT_AT(struct exec_limit, hard), FIELD_REQUIRED},
    {0},
};

static const struct field output_fields[] = {
    {"head_bytes", FIELD_UINT_AT(struct exec_spec, head), .min = 1, .max = OUTPUT_KEEP_MAX},
    {"tail_bytes", FIELD_UINT_AT(struct exec_spec, tail), .min = 1, .max = OUTPUT_KEEP_MAX},
    {0},
};

#define AT(kind, member) FIELD_##kind##_AT(struct exec_fields, member)

const struct field exec_fields[] = {
    {"cmd", AT(ANY, cmd), FIELD_REST_ONLY, .shape = COMMAND_SHAPE,
     .rest = "A string for /bin/sh -c, with `args` the program's name; a list is argv."},
    {"command", AT(ANY, command), FIELD_REST_ONLY, .shape = COMMAND_SHAPE,
     .rest = "The same as cmd."},
    {"args", AT(ARRAY, args), FIELD_REST_ONLY, .max = EXEC_ARGV_MAX - 1,
     .rest = "Arguments of the program that `cmd` names; no shell."},
    {"argv", AT(ARRAY, argv), FIELD_REST_ONLY, 1, EXEC_ARGV_MAX},
    {"timeout_seconds", AT(NUMBER, timeout_seconds), FIELD_REST_ONLY, .max = EXEC_TIMEOUT_MAX,
     .rest = "0 = none."},
    {"timeout_seconds", AT(NUMBER, timeout_seconds), FIELD_MCP_ONLY, .max = EXEC_TIMEOUT_MCP_MAX,
     .mcp = "Kill it after this long. Default: never."},
    {"timeout_ms", AT(NUMBER, timeout_ms), FIELD_REST_ONLY, .max = UINT32_MAX,
     .rest = "The same in milliseconds; one of both."},
    {"cwd", AT(TEXT, spec.cwd), .min = 1, .max = GUEST_PATH_MAX - 1},
    {"user", AT(TEXT, spec.user), FIELD_REST_ONLY, 1, 63},
    {"env", AT(PAIRS, env), .max = EXEC_ENV_MAX},
    {"stdin", AT(ANY, input), FIELD_REST_ONLY, .shape = "\"type\":[\"string\",\"boolean\"]",
     .rest = "Text; or true: it comes later, with POST .../stdin or over the stream."},
    {"stdin", AT(TEXT, input_text), FIELD_MCP_ONLY},
    {"stdin_base64", AT(TEXT, input_base64), FIELD_REST_ONLY},
    {"tty", AT(BIT, spec.flags), FIELD_REST_ONLY, .bit = EXEC_TTY},
    {"rows", AT(UINT, spec.rows), FIELD_REST_ONLY, 1, TERMINAL_SIZE_MAX},
    {"cols", AT(UINT, spec.columns), FIELD_REST_ONLY, 1, TERMINAL_SIZE_MAX},
    {"limits", AT(OBJECT, limits), FIELD_REST_ONLY, .inner = limit_fields},
    {"rlimits", AT(OBJECT, rlimits), FIELD_REST_ONLY, .inner = limit_fields,
     .rest = "The same as limits."},
    {"output", FIELD_STRUCT_AT(struct exec_fields, spec, struct exec_spec), FIELD_REST_ONLY,
     .inner = output_fields,
     .rest = "What is kept of each stream: its first and its last bytes, together at most what the "
	     "host allows (`output_max`, 128 MiB unless configured). A command gets less where the "
	     "commands that run leave less of the sandbox's `log_max`; nothing is refused for "
	     "that."},
    {"lossless", AT(BIT, spec.flags), FIELD_REST_ONLY, .bit = EXEC_LOSSLESS,
     .rest = "The command waits for its reader rather than lose output; with background or a "
	     "stream."},
    {"background", AT(BOOL, background), FIELD_REST_ONLY, .rest = "Answer 202 at once."},
    {"max_output_bytes", AT(UINT, answer_max), FIELD_REST_ONLY, 1, EXEC_ANSWER_MAX,
     .fallback = EXEC_ANSWER_DEFAULT, .rest = "Of each stream in this answer. Default: 1048576."},
    {"max_output_bytes", AT(UINT, answer_max), FIELD_MCP_ONLY, 1, EXEC_ANSWER_MCP_MAX,
     .fallback = EXEC_ANSWER_MCP_DEFAULT, .mcp = "Default 16384."},
    {0},
};

void exec_fields_done(struct exec_fields *fields)
{
	free(fields->words);
	free(fields->environment);
	free(fields->stdin_data);
	*fields = (struct exec_fields){0};
}

static void exec_words_of_shell(struct exec_fields *fields, const char *command)
{
	fields->spec.argv = fields->words = calloc(4, sizeof(*fields->words));
	if (!fields->words)
		abort();
	shell_argv(command, fields->words);
	fields->spec.argc = 3;
}

/* The command in any of its spellings: a text is for the shell, a list is argv, a text with `args`
 * is a program and its arguments. */
static int exec_words_check(struct exec_fields *fields, struct error *error)
{
	const json_t *command = fields->cmd ? fields->cmd : fields->command;
	const json_t *list = fields->argv, *args = fields->args;
	if (command && json_is_array(command) && !list) {
		list = command;
		command = NULL;
	}
	if (!command == !list)
		return error_set(error, ERROR_INVALID,
				 "give `cmd` (a string for /bin/sh -c) or `argv` (a list)%s",
				 command ? ", not both" : "");
	if (command && (!json_is_string(command) || json_string_length(command) == 0))
		return error_set(error, ERROR_INVALID,
				 "field `cmd` must be a text that is not empty, or a list");
	if (args && list)
		return error_set(error, ERROR_INVALID,
				 "`args` goes with `cmd` as the program's name, not with a list");
	if (command && !args) {
		exec_words_of_shell(fields, json_string_value(command));
		return 0;
	}
	size_t count = list ? json_array_size(list) : 1 + json_array_size(args);
	if (count == 0 || count > EXEC_ARGV_MAX)
		return error_set(error, ERROR_INVALID, "field `argv` must have 1 to %d entries",
				 EXEC_ARGV_MAX);
	fields->spec.argv = fields->words = calloc(count, sizeof(*fields->words));
	if (!fields->words)
		abort();
	if (command)
		fields->words[fields->spec.argc++] = json_string_value(command);
	const json_t *rest = list ? list : args;
	for (size_t i = 0; i < json_array_size(rest); i++) {
		const char *word = json_string_value(json_array_get(rest, i));
		if (!word)
			return error_set(error, ERROR_INVALID, "field `%s` must hold strings",
					 list ? "argv" : "args");
		fields->words[fields->spec.argc++] = word;
	}
	if (fields->words[0][0] == '\0')
		return error_set(error, ERROR_INVALID, "field `argv`: the program's name is empty");
	return 0;
}

static int exec_stdin_check(struct exec_fields *fields, struct error *error)
{
	const json_t *given = fields->input;
	const char *text = fields->input_text, *base64 = fields->input_base64;
	if (given && base64)
		return error_set(error, ERROR_INVALID, "give `stdin` or `stdin_base64`, not both");
	if (given && json_is_boolean(given)) {
		fields->stdin_said = true;
		fields->stdin_kind = json_is_true(given) ? STDIN_OPEN : STDIN_NONE;
	} else if (given && !json_is_string(given)) {
		return error_set(error, ERROR_INVALID,
				 "field `stdin` must be a string, true or false");
	} else if (given || text) {
		text = given ? json_string_value(given) : text;
		fields->stdin_kind = STDIN_GIVEN;
		fields->stdin_data = text_duplicate(text);
		fields->stdin_size = strlen(text);
	} else if (base64) {
		size_t size = strlen(base64);
		fields->stdin_data = malloc(size + 1);
		if (!fields->stdin_data)
			abort();
		ssize_t decoded = base64_decode(base64, size, fields->stdin_data);
		if (decoded < 0)
			return error_set(error, ERROR_INVALID,
					 "field `stdin_base64` is not base64 (RFC 4648)");
		fields->stdin_kind = STDIN_GIVEN;
		fields->stdin_size = (size_t)decoded;
	}
	if (fields->stdin_kind != STDIN_NONE)
		fields->spec.flags |= EXEC_STDIN;
	return 0;
}

static int exec_limit_check(const char *name, const json_t *value, struct exec_limit *limit,
			    struct error *error)
{
	const struct field *row = field_find(limit_fields, FIELDS_REST, name, strlen(name));
	if (!row) {
		struct buffer known DONE_BUFFER = BUFFER(KIB);
		fields_names(limit_fields, FIELDS_REST, &known);
		return error_set(error, ERROR_INVALID, "limits: unknown limit `%.50s`; known: %s",
				 name, buffer_text(&known));
	}
	limit->resource = (uint32_t)(row->at / sizeof(json_t *));
	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		limit->soft = limit->hard = (uint64_t)json_integer_value(value);
		return 0;
	}
	if (!json_is_object(value))
		return error_set(error, ERROR_INVALID,
				 "limits: `%s` must be a number, or {\"soft\":N,\"hard\":N}", name);
	if (fields_parse(value, limit_pair_fields, FIELDS_REST, NULL, limit, error) < 0)
		return error_prepend(error, "limits: %s", name);
	if (limit->soft > limit->hard)
		return error_set(error, ERROR_INVALID, "limits: `%s`: soft is above hard", name);
	return 0;
}

int exec_timeout_check(double seconds, double ms, uint32_t max_ms, enum field_form form,
		       uint32_t *ret_ms, struct error *error)
{
	ms += seconds * 1000;
	if (ms > max_ms && form == FIELDS_MCP)
		return error_set(error, ERROR_INVALID,
				 "field `timeout_seconds` must be at most %u; leave it out for "
				 "none",
				 max_ms / 1000);
	if (ms > max_ms)
		return error_set(error, ERROR_INVALID, "field `timeout_seconds` must be 0 to %u",
				 max_ms / 1000);
	/* Rounded up: a time-out that was asked for is never none. */
	*ret_ms = ms > 0 ? MAX((uint32_t)(ms + 0.999), 1u) : 0;
	return 0;
}

int exec_fields_check(struct exec_fields *fields, enum field_form form, struct error *error)
{
	struct exec_spec *spec = &fields->spec;
	json_t *limits = fields->limits ? fields->limits : fields->rlimits, *value;
	const char *name;
	uint32_t max_ms = form == FIELDS_MCP ? EXEC_TIMEOUT_MCP_MAX * 1000 : UINT32_MAX;
	if (fields->cmd && fields->command)
		return error_set(error, ERROR_INVALID, "`cmd` and `command` are the same field");
	if (fields->limits && fields->rlimits)
		return error_set(error, ERROR_INVALID, "`limits` and `rlimits` are the same field");
	if (fields->shell)
		exec_words_of_shell(fields, fields->shell);
	else if (exec_words_check(fields, error) < 0)
		return -1;
	if (fields->timeout_seconds > 0 && fields->timeout_ms > 0)
		return error_set(error, ERROR_INVALID,
				 "give `timeout_seconds` or `timeout_ms`, not both");
	if (exec_timeout_check(fields->timeout_seconds, fields->timeout_ms, max_ms, form,
			       &spec->timeout_ms, error) < 0 ||
	    exec_stdin_check(fields, error) < 0)
		return -1;
	if (json_object_size(limits) > EXEC_RUNLIMITS_MAX)
		return error_set(error, ERROR_INVALID, "limits: at most %d", EXEC_RUNLIMITS_MAX);
	spec->limits = fields->run_limits;
	json_object_foreach(limits, name, value)
	{
		if (exec_limit_check(name, value, &fields->run_limits[spec->limit_count++], error) <
		    0)
			return -1;
	}
	int result = json_environment("env", fields->env, EXEC_REQUEST_BYTES_MAX,
				      &fields->environment, &spec->environment_count, error);
	spec->environment = fields->environment;
	return result;
}
