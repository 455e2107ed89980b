/* The options of the command line against the tables of fields of the requests that they make: an
 * option sets a field that is there, in its form and unit; it offers the words that are accepted,
 * and its help tells the default and the maximum that hold; an error about a field names the
 * option. Every option and every field is listed here that has no counterpart. */
#include "test.h"

#include "api/api.h"
#include "base/text.h"
#include "cli/cli.h"
#include "edge/fields/fields.h"
#include "edge/route.h"

TEST_MAIN

#define SB "/v1/sandboxes/{sandbox}"
#define NOT_YET "from_snapshot,volumes,image,ports,network_policy,network,region,"
#define CREATE(more)                                                                               \
	{                                                                                          \
		"POST", "/v1/sandboxes", NOT_YET "disk_gb,ttl_seconds" more                        \
	}
/* `run` and `wrap` choose when it ends. */
#define CREATE_FRESH(more)                                                                         \
	CREATE(",idle_timeout_seconds,auto_pause_seconds,persistent,wake_on_read" more)
#define EXEC(more)                                                                                 \
	{                                                                                          \
		"POST", SB "/exec",                                                                \
		    "cmd,command,args,argv,timeout_ms,stdin,stdin_base64,tty,rows,cols,limits,"    \
		    "rlimits,head_bytes,tail_bytes,lossless,background,max_output_bytes" more      \
	}
#define BULK                                                                                       \
	{                                                                                          \
		"POST", "/v1/sandboxes/bulk", "action,ids,names,dry_run,timeout_seconds,then"      \
	}

static const struct pairing {
	const struct verb *verb;
	const char *options; /* that set no field */
	struct {
		const char *method, *path;
		const char *fields; /* that no option sets */
	} requests[3];
} pairings[] = {
    {&verb_create, "", {CREATE("")}},
    {&verb_run, "tty,interactive,no-tty,keep,rm", {CREATE_FRESH(""), EXEC("")}},
    {&verb_wrap, "", {CREATE_FRESH(",timeout_seconds"), EXEC(",timeout_seconds")}},
    {&verb_exec, "tty,interactive,no-tty,detach", {EXEC("")}},
    {&verb_shell, "tty,interactive,no-tty,detach", {EXEC("")}},
    {&verb_start, "", {{"POST", SB "/start", ""}}},
    {&verb_set, "", {{"PATCH", SB, "ttl_seconds,size,disk_mb"}}},
    {&verb_wait, "", {{"GET", SB "/wait", ""}}},
    {&verb_drain, "", {{"POST", SB "/drain", ""}}},
    {&verb_stop, "", {BULK}},
    {&verb_pause, "", {BULK}},
    {&verb_resume, "", {BULK}},
    {&verb_rm, "force", {BULK}},
    {&verb_ls,
     "quiet,names",
     {{"GET", "/v1/sandboxes", "status,name,name_prefix,limit,cursor,metadata"}}},
    {&verb_code,
     "new-context",
     {{"POST", SB "/code", "code,timeout_ms,max_output_bytes,env,cwd,user"},
      {"POST", SB "/contexts", "env,cwd,user"}}},
    {&verb_sign, "", {{"POST", SB "/files/sign", "path"}}},
    {&verb_jobs, "quiet,kill,rm", {{"GET", SB "/jobs", "cursor"}}},
    {&verb_logs,
     "all",
     {{"GET", SB "/logs", "limit,cursor"},
      {"GET", SB "/execs/{exec}/output", "format,from_stderr,limit,wait_ms"}}},
    {&verb_attach, "", {{"GET", SB "/jobs/{exec}/tty", "rows,cols,replay,detach"}}},
    {&verb_activity, "", {{"GET", SB "/activity", "cursor,order"}}},
    {&verb_events, "follow", {{"GET", "/v1/events", "follow,limit"}}},
    {&verb_token, "", {{"POST", "/v1/tokens", ""}}},
    {&verb_usage, "", {{"GET", "/v1/usage", "cursor,limit"}}},
};

/* Verbs that also make other requests by hand, or read a configuration: its errors name these
 * options. */
static const struct verb *const elsewhere[] = {&verb_budget, &verb_selftest, &verb_mcp,
					       &verb_serve};

static bool list_has(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (size_t size; *list; list += size + (list[size] == ',')) {
		size = strcspn(list, ",");
		if (size == length && memcmp(list, name, size) == 0)
			return true;
	}
	return false;
}

static const struct field *request_fields(const char *method, const char *path,
					  enum field_form *ret_form)
{
	for (const struct route *const *table = rest_surface.tables; *table; table++)
		for (const struct route *route = *table; route->method; route++) {
			if (strcmp(route->method, method) != 0 || strcmp(route->pattern, path) != 0)
				continue;
			*ret_form = route->body ? FIELDS_REST : FIELDS_QUERY;
			return route->body ? route->body : route->query;
		}
	test_fail(__FILE__, __LINE__, "there is no %s %s", method, path);
	return NULL;
}

/* Also one in an object that is a field. */
static const struct field *field_within(const struct field *fields, const char *name)
{
	const struct field *field, *found = field_find(fields, FIELDS_REST, name, strlen(name));
	for (struct field_walk walk = {FIELDS_REST, fields}; !found && (field = field_next(&walk));)
		if (field->type == FIELD_STRUCT)
			found = field_find(field->inner, FIELDS_REST, name, strlen(name));
	return found;
}

static const struct option_spec *option_of_field(const struct verb *verb, const char *field)
{
	const struct option_spec *option;
	for (struct option_walk walk = {verb->options}; (option = option_next(&walk));)
		if (option->field && strcmp(option->field, field) == 0)
			break;
	return option;
}

/* --- one option and its field --- */

static bool option_fits(const struct option_spec *option, const struct field *field,
			enum field_form form)
{
	const char *unit = field_unit(field->name), *sends = option->sends;
	enum field_type type = field->type;
	bool number = type == FIELD_UINT || type == FIELD_NUMBER || type == FIELD_MILLI;
	if (unit && option->kind != OPTION_FLAG)
		return option->kind == OPTION_TEXT && number &&
		       (field->unit == MIB) == (strcmp(unit, "MiB") == 0);
	switch (option->kind) {
	case OPTION_FLAG:
		if (!sends || strcmp(sends, "false") == 0)
			return type == FIELD_BOOL;
		return strcmp(sends, "null") == 0 ? field->flags & FIELD_NULLS
						  : field->words && list_has(field->words, sends);
	case OPTION_TEXT: /* ANY: of a text or null. Of a query, which is text, numbers too. */
		return type == FIELD_TEXT || type == FIELD_TIME || type == FIELD_ANY ||
		       (type == FIELD_UINT && form == FIELDS_QUERY);
	case OPTION_NUMBER:
		return number;
	case OPTION_WORDS:
		return type == FIELD_ARRAY && field->words;
	case OPTION_LIST:
		return type == FIELD_QUERY_PAIRS || type == FIELD_ARRAY;
	case OPTION_PAIRS:
	case OPTION_ENVIRONMENT:
	case OPTION_CHANGES:
		return type == FIELD_PAIRS || type == FIELD_OBJECT;
	case OPTION_ROWS:
	case OPTION_END:
		break;
	}
	return false;
}

/* Fields that accept other words too, or whose words only the running daemon knows. */
#define WORDS_OPEN "language,template,exec"

static bool option_words_are(const struct option_spec *option, const struct field *field)
{
	if (option->kind == OPTION_FLAG || list_has(WORDS_OPEN, field->name))
		return true;
	if (!field->words || !option->words)
		return field->words == option->words;
	/* "..." stands for those that few ask for. */
	for (const char *at = field->words; *at && !strstr(option->help, "..."); at++) {
		char word[64];
		size_t size = strcspn(at, ",");
		snprintf(word, sizeof(word), "%.*s", (int)size, at);
		if (!strstr(option->help, word))
			return false;
		at += size - (at[size] == '\0');
	}
	return strcmp(field->words, option->words) == 0;
}

/* The value that the help tells behind these words, in the field's unit. */
static bool help_value(const struct option_spec *option, const char *words, char text[32],
		       uint64_t *ret_value)
{
	const char *at = strstr(option->help, words), *unit = field_unit(option->field);
	if (!at)
		return false;
	at += strlen(words);
	snprintf(text, 32, "%.*s", (int)strcspn(at, ",) "), at);
	if (!unit)
		return text_to_u64(text, 0, UINT64_MAX, ret_value) == 0;
	if (strcmp(unit, "MiB") != 0 && strcmp(unit, "bytes") != 0)
		return text_to_seconds(text, ret_value) == 0;
	bool found = text_to_bytes(text, 1, ret_value) == 0;
	*ret_value /= *unit == 'M' ? MIB : 1;
	return found;
}

/* Defaults of the configuration, which no table has. */
static const struct {
	const char *field;
	uint64_t value;
} configured[] = {
    {"cpu", SANDBOX_CPU_MILLIS_DEFAULT / 1000},   {"memory_mb", SANDBOX_MEMORY_DEFAULT / MIB},
    {"disk_mb", SANDBOX_DISK_DEFAULT / MIB},      {"pids", SANDBOX_PIDS_DEFAULT},
    {"timeout_seconds", SANDBOX_TIMEOUT_DEFAULT},
};
/* The handler's own, or (`for`) the verb's. */
#define DEFAULTS_OPEN "for,tail,from"

static bool option_help_holds(const struct option_spec *option, const struct field *field)
{
	char text[32];
	uint64_t value, fallback = field->fallback;
	if ((help_value(option, "at most ", text, &value) ||
	     help_value(option, "up to ", text, &value)) &&
	    value != field->max)
		return false;
	for (size_t i = 0; !fallback && i < ARRAY_SIZE(configured); i++)
		if (strcmp(configured[i].field, field->name) == 0)
			fallback = configured[i].value;
	if (list_has(DEFAULTS_OPEN, field->name))
		return true;
	if (help_value(option, "(default: ", text, &value))
		return value == fallback;
	return !field->fallback_text || strcmp(text, field->fallback_text) == 0;
}

static void check_option(const struct verb *verb, const struct option_spec *option,
			 const struct field *field, enum field_form form)
{
	struct error error;
	char flag[80];
	const char *wrong = NULL;
	if (!option_fits(option, field, form))
		wrong = "is of another form or unit than";
	else if (!option_words_are(option, field))
		wrong = "offers other words than";
	else if (!option_help_holds(option, field))
		wrong = "tells another default or maximum than";
	if (wrong)
		test_fail(__FILE__, __LINE__, "%s --%s %s `%s`", verb->name, option->name, wrong,
			  field->name);
	error_set(&error, ERROR_INVALID, "field `%s` must be another", field->name);
	error_name_flags(verb->options, &error);
	snprintf(flag, sizeof(flag), "--%s", option_of_field(verb, field->name)->name);
	if (!text_starts(error.message, flag))
		test_fail(__FILE__, __LINE__, "%s: an error about `%s` is \"%s\"", verb->name,
			  field->name, error.message);
}

/* --- all of them --- */

static void check_fields(const struct pairing *pairing, const struct field *fields,
			 const char *without)
{
	const struct field *field;
	for (struct field_walk walk = {FIELDS_REST, fields}; (field = field_next(&walk));) {
		if (field->type == FIELD_STRUCT) {
			check_fields(pairing, field->inner, without);
			continue;
		}
		bool is_set = option_of_field(pairing->verb, field->name);
		if (is_set == list_has(without, field->name))
			test_fail(__FILE__, __LINE__, "%s: `%s` %s", pairing->verb->name,
				  field->name, is_set ? "has an option" : "has no option");
	}
}

static void check_pairing(const struct pairing *pairing)
{
	const struct option_spec *option;
	const struct field *tables[ARRAY_SIZE(pairing->requests)] = {0}, *field;
	enum field_form forms[ARRAY_SIZE(pairing->requests)];
	for (size_t i = 0; pairing->requests[i].method; i++) {
		tables[i] = request_fields(pairing->requests[i].method, pairing->requests[i].path,
					   &forms[i]);
		check_fields(pairing, tables[i], pairing->requests[i].fields);
	}
	for (struct option_walk walk = {pairing->verb->options}; (option = option_next(&walk));) {
		bool found = false;
		for (size_t i = 0; option->field && tables[i]; i++) {
			field = field_within(tables[i], option->field);
			if (!field || list_has(pairing->requests[i].fields, field->name))
				continue;
			check_option(pairing->verb, option, field, forms[i]);
			found = true;
		}
		if (found == list_has(pairing->options, option->name))
			test_fail(__FILE__, __LINE__, "%s --%s sets %s", pairing->verb->name,
				  option->name, found ? "a field" : "no field");
	}
}

TEST(options_and_fields_are_the_same)
{
	for (size_t i = 0; i < ARRAY_SIZE(pairings); i++)
		check_pairing(&pairings[i]);
}

TEST(verbs_that_set_fields_are_known)
{
	for (const struct verb *const *verb = verbs; *verb; verb++) {
		const struct option_spec *option;
		bool known = false;
		for (size_t i = 0; i < ARRAY_SIZE(pairings); i++)
			known |= pairings[i].verb == *verb;
		for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
			known |= elsewhere[i] == *verb;
		for (struct option_walk walk = {(*verb)->options}; (option = option_next(&walk));)
			if (option->field && !known)
				test_fail(__FILE__, __LINE__, "%s --%s sets a field", (*verb)->name,
					  option->name);
	}
}

/* --- the values --- */

#define PARSE(verb, error, ...)                                                                    \
	({                                                                                         \
		char *words[] = {"", __VA_ARGS__, NULL};                                           \
		CHECK_INT(                                                                         \
		    options_parse((verb).options, ARRAY_SIZE(words) - 1, words, false, error), 1); \
	})

TEST(values_become_fields)
{
	struct error error;
	json_t *body = json_object();
	json_t *expected =
	    json_pack("{s:i, s:i, s:f, s:i, s:i, s:{s:s, s:n}, s:n, s:b}", "memory_mb", 1536,
		      "pids", 100, "cpu", 0.5, "timeout_seconds", 900, "auto_pause_seconds", 0,
		      "labels", "a", "b=c", "d", "name", "persistent", 0);
	PARSE(verb_set, &error, "--memory", "1.5G", "--pids=100", "--cpu", ".5", "-T15m",
	      "--auto-pause", "0", "-l", "a=b=c", "-l", "d-", "--no-name", "--no-persistent");
	CHECK_INT(options_to_body(verb_set.options, body, &error), 0);
	CHECK(json_equal(body, expected));
	json_decref(expected);
	/* Twice: the second time the same fields are set already. */
	CHECK_INT(options_to_body(verb_set.options, body, &error), -1);
	CHECK_TEXT(error.message, "--no-name contradicts another option");
	json_decref(body);
}

TEST(values_become_parameters)
{
	struct error error;
	struct buffer path DONE_BUFFER = BUFFER(4096);
	PARSE(verb_ls, &error, "-a", "-q", "-l", "a=1", "-l", "a=2", "--state", "run ning");
	CHECK_INT(buffer_append_text(&path, "/v1/sandboxes?limit=200"), 0);
	CHECK_INT(options_to_path(verb_ls.options, &path, &error), 0);
	CHECK_TEXT(path.data, "/v1/sandboxes?limit=200&all=true&label=a%3D1&label=a%3D2"
			      "&state=run%20ning");
}

TEST(what_cannot_be_a_value_is_refused)
{
	static char *const cases[][3] = {
	    {"--memory", "lots", "--memory: invalid size `lots`; use for example 512M or 2G"},
	    {"--timeout", "soon",
	     "--timeout: invalid time `soon`; use for example 90, 15m, 2h or 7d"},
	    {"--wait", "9e18s", "--wait: invalid time `9e18s`; use for example 30s or 5m"},
	    {"--cpu", "two", "--cpu: invalid number `two`"},
	    {"--cpu", "inf", "--cpu: invalid number `inf`"},
	    {"--name", "\xff", "--name is not valid UTF-8"},
	    {"--label", "a", "\"a\" is not of the form K=V"},
	    {"--label", "=a", "\"=a\" is not of the form K=V"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct error error = {0};
		json_t *body = json_object();
		create_options = (struct create_options){0};
		PARSE(verb_create, &error, cases[i][0], cases[i][1]);
		CHECK_INT(options_to_body(verb_create.options, body, &error), -1);
		CHECK_INT(error.kind, ERROR_USAGE);
		CHECK_TEXT(error.message, cases[i][2]);
		json_decref(body);
	}
}
