/* The body of POST .../exec, field by field. Pure; nothing blocks. */
#include "api/exec/ask.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "base/base64.h"
#include "base/text.h"
#include "edge/json_pairs.h"

void exec_ask_done(struct exec_ask *ask)
{
	free(ask->argv);
	free(ask->environment);
	free(ask->stdin_data);
	*ask = (struct exec_ask){0};
}

int signal_parse(const json_t *json, int *ret_signal, struct error *error)
{
	json_int_t number = json_integer_value(json);
	const char *text = json_string_value(json);
	char digits[24];
	if (json_is_integer(json)) {
		snprintf(digits, sizeof(digits), "%lld", (long long)number);
		text = digits;
	}
	*ret_signal = text ? signal_by_name(text) : -1;
	if (*ret_signal > 0)
		return 0;
	return error_set(error, ERROR_INVALID,
			 "field `signal` must be a name like TERM or a number from 1 to 64");
}

/* Appends the strings of a list to argv. */
static int add_words(struct exec_ask *ask, const char *name, const json_t *list,
		     struct error *error)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *word = json_string_value(json_array_get(list, i));
		if (!word)
			return error_set(error, ERROR_INVALID, "field `%s` must hold strings",
					 name);
		ask->argv[ask->spec.argc++] = word;
	}
	return 0;
}

/* The command in any notation: a text is for the shell, a list is argv, a text with `args` is a
 * program and its arguments. */
static int parse_argv(struct exec_ask *ask, const json_t *command, const json_t *list,
		      const json_t *args, struct error *error)
{
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
	size_t count = list ? json_array_size(list) : args ? 1 + json_array_size(args) : 3;
	if (count == 0 || count > EXEC_ARGV_MAX)
		return error_set(error, ERROR_INVALID, "field `argv` must have 1 to %d entries",
				 EXEC_ARGV_MAX);
	/* The argv of a shell command ends with NULL. */
	ask->argv = calloc(count + 1, sizeof(*ask->argv));
	if (!ask->argv)
		abort();
	ask->spec.argv = ask->argv;
	if (command && !args) {
		shell_argv(json_string_value(command), ask->argv);
		ask->spec.argc = 3;
		return 0;
	}
	if (command)
		ask->argv[ask->spec.argc++] = json_string_value(command);
	if (add_words(ask, list ? "argv" : "args", list ? list : args, error) < 0)
		return -1;
	if (ask->argv[0][0] == '\0')
		return error_set(error, ERROR_INVALID, "field `argv`: the program's name is empty");
	return 0;
}

static int parse_stdin(struct exec_ask *ask, const json_t *given, const char *base64,
		       struct error *error)
{
	if (given && base64)
		return error_set(error, ERROR_INVALID, "give `stdin` or `stdin_base64`, not both");
	if (given && json_is_boolean(given)) {
		ask->stdin_said = true;
		ask->stdin_kind = json_is_true(given) ? STDIN_OPEN : STDIN_NONE;
	} else if (given && json_is_string(given)) {
		ask->stdin_kind = STDIN_GIVEN;
		ask->stdin_data = text_duplicate(json_string_value(given));
		ask->stdin_size = json_string_length(given);
	} else if (given) {
		return error_set(error, ERROR_INVALID,
				 "field `stdin` must be a string, true or false");
	} else if (base64) {
		size_t size = strlen(base64);
		ask->stdin_data = malloc(size + 1);
		if (!ask->stdin_data)
			abort();
		ssize_t decoded = base64_decode(base64, size, ask->stdin_data);
		if (decoded < 0)
			return error_set(error, ERROR_INVALID,
					 "field `stdin_base64` is not base64 (RFC 4648)");
		ask->stdin_kind = STDIN_GIVEN;
		ask->stdin_size = (size_t)decoded;
	}
	if (ask->stdin_kind != STDIN_NONE)
		ask->spec.flags |= EXEC_STDIN;
	return 0;
}

static int parse_limit(const char *name, const json_t *value, struct exec_limit *limit,
		       struct error *error)
{
	static const struct {
		const char *name;
		uint32_t resource;
	} resources[] = {
	    {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}, {"fsize", RLIMIT_FSIZE},
	    {"cpu", RLIMIT_CPU},       {"as", RLIMIT_AS},       {"data", RLIMIT_DATA},
	    {"stack", RLIMIT_STACK},   {"core", RLIMIT_CORE},   {"memlock", RLIMIT_MEMLOCK},
	    {"rss", RLIMIT_RSS},       {"locks", RLIMIT_LOCKS}, {"sigpending", RLIMIT_SIGPENDING},
	};
	size_t at = 0;
	while (at < ARRAY_SIZE(resources) && strcmp(resources[at].name, name) != 0)
		at++;
	if (at == ARRAY_SIZE(resources))
		return error_set(error, ERROR_INVALID,
				 "limits: unknown limit `%.50s`; known: nofile, nproc, fsize, cpu, "
				 "as, data, stack, core, memlock, rss, locks, sigpending",
				 name);
	limit->resource = resources[at].resource;
	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		limit->soft = limit->hard = (uint64_t)json_integer_value(value);
		return 0;
	}
	struct field_to fields[] = {
	    {"soft", FIELD_UINT, &limit->soft, true},
	    {"hard", FIELD_UINT, &limit->hard, true},
	};
	if (!json_is_object(value))
		return error_set(error, ERROR_INVALID,
				 "limits: `%s` must be a number, or {\"soft\":N,\"hard\":N}", name);
	if (json_fields(value, fields, ARRAY_SIZE(fields), FIELDS_REST, error) < 0)
		return error_prepend(error, "limits: %s", name);
	if (limit->soft > limit->hard)
		return error_set(error, ERROR_INVALID, "limits: `%s`: soft is above hard", name);
	return 0;
}

static int parse_limits(struct exec_ask *ask, const json_t *limits, struct error *error)
{
	const char *name;
	json_t *value;
	if (json_object_size(limits) > EXEC_RUNLIMITS_MAX)
		return error_set(error, ERROR_INVALID, "limits: at most %d", EXEC_RUNLIMITS_MAX);
	json_object_foreach((json_t *)limits, name, value)
	{
		if (parse_limit(name, value, &ask->limits[ask->spec.limit_count], error) < 0)
			return -1;
		ask->spec.limit_count++;
	}
	ask->spec.limits = ask->limits;
	return 0;
}

static int parse_output(struct exec_ask *ask, const json_t *output, struct error *error)
{
	struct field_to fields[] = {
	    {"head_bytes", FIELD_UINT, &ask->spec.head, false, 1, OUTPUT_KEEP_MAX},
	    {"tail_bytes", FIELD_UINT, &ask->spec.tail, false, 1, OUTPUT_KEEP_MAX},
	};
	if (json_fields(output, fields, ARRAY_SIZE(fields), FIELDS_REST, error) < 0)
		return error_prepend(error, "output");
	return 0;
}

struct shape {
	double timeout, timeout_ms;
	uint64_t rows, columns;
	bool tty, lossless;
};

static int parse_shape(struct exec_ask *ask, const struct shape *shape, struct error *error)
{
	if (shape->timeout > 0 && shape->timeout_ms > 0)
		return error_set(error, ERROR_INVALID,
				 "give `timeout_seconds` or `timeout_ms`, not both");
	/* Rounded up: a requested time-out never becomes none. */
	double ms = shape->timeout * 1000 + shape->timeout_ms;
	ms += ms > 0 ? 0.999 : 0;
	if (ms > (double)SANDBOX_TIMEOUT_MAX * 1000 || ms > UINT32_MAX)
		return error_set(error, ERROR_INVALID, "field `timeout_seconds` must be 0 to %u",
				 UINT32_MAX / 1000);
	ask->spec.timeout_ms = (uint32_t)ms;
	ask->spec.rows = (uint16_t)shape->rows;
	ask->spec.columns = (uint16_t)shape->columns;
	if (shape->tty)
		ask->spec.flags |= EXEC_TTY;
	if (shape->lossless)
		ask->spec.flags |= EXEC_LOSSLESS;
	return 0;
}

int exec_ask_parse(const json_t *body, struct exec_ask *ask, struct error *error)
{
	struct shape shape = {0};
	const char *base64 = NULL;
	json_t *cmd = NULL, *command = NULL, *args = NULL;
	json_t *argv = NULL, *environment = NULL, *given = NULL, *limits = NULL, *output = NULL;
	json_t *rlimits = NULL;
	*ask = (struct exec_ask){.answer_max = EXEC_ANSWER_DEFAULT};
	struct field_to fields[] = {
	    {"cmd", FIELD_ANY, &cmd},
	    {"command", FIELD_ANY, &command},
	    {"args", FIELD_ARRAY, &args},
	    {"argv", FIELD_ARRAY, &argv},
	    {"env", FIELD_OBJECT, &environment},
	    {"cwd", FIELD_TEXT, &ask->spec.cwd, false, 1, GUEST_PATH_MAX - 1},
	    {"user", FIELD_TEXT, &ask->spec.user, false, 1, 63},
	    {"stdin", FIELD_ANY, &given},
	    {"stdin_base64", FIELD_TEXT, &base64},
	    {"timeout_seconds", FIELD_NUMBER, &shape.timeout},
	    {"timeout_ms", FIELD_NUMBER, &shape.timeout_ms},
	    {"tty", FIELD_BOOL, &shape.tty},
	    {"rows", FIELD_UINT, &shape.rows, false, 1, 10000},
	    {"cols", FIELD_UINT, &shape.columns, false, 1, 10000},
	    {"limits", FIELD_OBJECT, &limits},
	    {"rlimits", FIELD_OBJECT, &rlimits},
	    {"output", FIELD_OBJECT, &output},
	    {"lossless", FIELD_BOOL, &shape.lossless},
	    {"background", FIELD_BOOL, &ask->background},
	    {"max_output_bytes", FIELD_UINT, &ask->answer_max, false, 1, EXEC_ANSWER_MAX},
	};
	if (json_fields(body, fields, ARRAY_SIZE(fields), FIELDS_REST, error) < 0)
		return -1;
	if (cmd && command)
		return error_set(error, ERROR_INVALID, "`cmd` and `command` are the same field");
	if (limits && rlimits)
		return error_set(error, ERROR_INVALID, "`limits` and `rlimits` are the same field");
	if (parse_argv(ask, cmd ? cmd : command, argv, args, error) < 0 ||
	    parse_shape(ask, &shape, error) < 0 ||
	    ((given || base64) && parse_stdin(ask, given, base64, error) < 0) ||
	    ((limits || rlimits) && parse_limits(ask, limits ? limits : rlimits, error) < 0) ||
	    (output && parse_output(ask, output, error) < 0) ||
	    json_environment("env", environment, EXEC_REQUEST_BYTES_MAX, &ask->environment,
			     &ask->spec.environment_count, error) < 0)
		return -1;
	ask->spec.environment = ask->environment;
	return 0;
}
