/* Reading JSON requests strictly. Called by the router (parse) and by every handler with a body
 * (fields). Works on memory; nothing blocks. */
#include "edge/json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"

/* Values of a tree that is freed on the loop. */
#define FREED_INLINE_MAX 500

/* All arguments and variables that a command may have, and some. */
#define MESSAGE_VALUES_MAX (EXEC_ARGV_MAX + EXEC_ENV_MAX + 256)

static int parse_object(const char *data, size_t size, size_t values, json_t **ret_object,
			struct error *error)
{
	const struct json_bounds bounds = {.depth = HTTP_JSON_DEPTH_MAX, .values = values};
	struct json_wrong wrong;
	json_t *json = json_read(data, size, &bounds, &wrong);
	if (!json)
		return error_set(error, ERROR_MALFORMED, "body: line %u, column %u: %s", wrong.line,
				 wrong.column, wrong.text);
	if (!json_is_object(json)) {
		json_decref(json);
		return error_set(error, ERROR_MALFORMED, "body: must be a JSON object");
	}
	*ret_object = json;
	return 0;
}

int json_parse(const char *data, size_t size, json_t **ret_object, struct error *error)
{
	return parse_object(data, size, HTTP_JSON_VALUES_MAX, ret_object, error);
}

int json_parse_message(const char *data, size_t size, json_t **ret_object, struct error *error)
{
	return parse_object(data, size, MESSAGE_VALUES_MAX, ret_object, error);
}

struct discarded {
	struct work_task task;
	json_t *json;
};

static void discarded_free(struct work_task *task)
{
	json_decref(container_of(task, struct discarded, task)->json);
}

static void discarded_done(struct work_task *task)
{
	free(container_of(task, struct discarded, task));
}

/* Counts down the values of a tree; less than 0: there are more. */
static int values_below(const json_t *json, int most)
{
	const char *key;
	size_t index;
	json_t *value;
	json_object_foreach((json_t *)json, key, value)
	{
		if (--most < 0 || (most = values_below(value, most)) < 0)
			return -1;
	}
	json_array_foreach(json, index, value)
	{
		if (--most < 0 || (most = values_below(value, most)) < 0)
			return -1;
	}
	return most;
}

void json_release(json_t *json, struct work_share *share)
{
	if (!share || values_below(json, FREED_INLINE_MAX) >= 0) {
		json_decref(json);
		return;
	}
	struct discarded *discarded = calloc(1, sizeof(*discarded));
	if (!discarded)
		abort();
	discarded->json = json;
	discarded->task.in_thread = discarded_free;
	discarded->task.done = discarded_done;
	work_in_thread(&discarded->task, share);
}

static int wrong_type(const struct field *field, struct error *error)
{
	static const char *const names[] = {
	    [FIELD_TEXT] = "a string",
	    [FIELD_BOOL] = "true or false",
	    [FIELD_UINT] = "a whole number, 0 or more",
	    [FIELD_INT] = "a whole number",
	    [FIELD_NUMBER] = "a number, 0 or more",
	    [FIELD_OBJECT] = "an object",
	    [FIELD_ARRAY] = "an array",
	    [FIELD_ANY] = "a value",
	};
	return error_set(error, ERROR_INVALID, "field `%s` must be %s", field->name,
			 names[field->type]);
}

static int take_text(const struct field *field, const json_t *value, struct error *error)
{
	size_t size = json_string_length(value);
	if (size < field->min)
		return error_set(error, ERROR_INVALID, "field `%s` must not be empty", field->name);
	if (field->max && size > field->max)
		return error_set(error, ERROR_INVALID, "field `%s` is longer than %llu bytes",
				 field->name, (unsigned long long)field->max);
	*(const char **)field->to = json_string_value(value);
	return 0;
}

static int take_uint(const struct field *field, const json_t *value, struct error *error)
{
	json_int_t number = json_integer_value(value);
	if (number < 0 || (uint64_t)number < field->min ||
	    (field->max && (uint64_t)number > field->max)) {
		if (!field->max)
			return error_set(error, ERROR_INVALID, "field `%s` must be at least %llu",
					 field->name, (unsigned long long)field->min);
		return error_set(
		    error, ERROR_INVALID, "field `%s` is %lld; it must be %llu to %llu",
		    field->name, (long long)number, (unsigned long long)field->min,
		    (unsigned long long)(field->max_here ? field->max_here : field->max));
	}
	*(uint64_t *)field->to = (uint64_t)number;
	return 0;
}

static int take(const struct field *field, json_t *value, struct error *error)
{
	switch (field->type) {
	case FIELD_TEXT:
		return json_is_string(value) ? take_text(field, value, error)
					     : wrong_type(field, error);
	case FIELD_UINT:
		return json_is_integer(value) ? take_uint(field, value, error)
					      : wrong_type(field, error);
	case FIELD_BOOL:
		if (!json_is_boolean(value))
			return wrong_type(field, error);
		*(bool *)field->to = json_is_true(value);
		return 0;
	case FIELD_INT:
		if (!json_is_integer(value))
			return wrong_type(field, error);
		*(int64_t *)field->to = json_integer_value(value);
		return 0;
	case FIELD_NUMBER: {
		double number = json_number_value(value);
		if (!json_is_number(value) || !isfinite(number) || number < 0)
			return wrong_type(field, error);
		*(double *)field->to = number;
		return 0;
	}
	case FIELD_OBJECT:
		if (!json_is_object(value))
			return wrong_type(field, error);
		break;
	case FIELD_ARRAY:
		if (!json_is_array(value))
			return wrong_type(field, error);
		break;
	case FIELD_ANY:
		break;
	}
	*(json_t **)field->to = value;
	return 0;
}

/* What a name is called here by those who know it from another system. */
static const struct {
	const char *theirs, *ours;
} known_elsewhere[] = {
    {"timeout", "timeout_seconds"},
    {"timeoutMs", "timeout_ms"},
    {"lifetime", "timeout_seconds"},
    {"expires_in", "expires_seconds"},
    {"idle_timeout", "idle_timeout_seconds"},
    {"ttl", "ttl_seconds"},
    {"auto_pause", "auto_pause_seconds"},
    {"autoPause", "auto_pause_seconds"},
    {"memory", "memory_mb"},
    {"memoryMB", "memory_mb"},
    {"mem", "memory_mb"},
    {"ram", "memory_mb"},
    {"disk", "disk_mb"},
    {"diskGB", "disk_gb"},
    {"storage", "disk_mb"},
    {"cpus", "cpu"},
    {"vcpu", "cpu"},
    {"vcpus", "cpu"},
    {"cpu_count", "cpu"},
    {"cpuCount", "cpu"},
    {"envs", "env"},
    {"envVars", "env"},
    {"env_vars", "env"},
    {"environment", "env"},
    {"templateID", "template"},
    {"template_id", "template"},
    {"internet_access", "network"},
    {"allow_internet_access", "network"},
    {"tags", "labels"},
    {"workdir", "cwd"},
    {"workingDir", "cwd"},
    {"working_dir", "cwd"},
    {"code", "cmd"},
    {"script", "cmd"},
    {"cmd", "command"},
    {"script", "command"},
    {"code", "command"},
    {"username", "user"},
    {"input", "stdin"},
    {"src", "from"},
    {"source", "from"},
    {"dst", "to"},
    {"destination", "to"},
    {"lang", "language"},
};

static const struct field *field_find(const struct field *fields, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

/* How many letters have to be put in, taken out or changed; the case does not count. */
static size_t edits_between(const char *a, const char *b)
{
	enum { LENGTH_MAX = 32 };
	size_t row[LENGTH_MAX + 1], length = strlen(b);
	if (strlen(a) > LENGTH_MAX || length > LENGTH_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= length; j++) {
			int x = tolower((unsigned char)a[i - 1]);
			size_t change = diagonal + (x != tolower((unsigned char)b[j - 1]));
			diagonal = row[j];
			row[j] = MIN(MIN(row[j], row[j - 1]) + 1, change);
		}
	}
	return row[length];
}

/* The field that was probably meant, or NULL. */
static const struct field *field_meant(const struct field *fields, size_t count, const char *name)
{
	const struct field *nearest = NULL;
	size_t distance = 3;
	for (size_t i = 0; i < ARRAY_SIZE(known_elsewhere); i++) {
		const struct field *field = field_find(fields, count, known_elsewhere[i].ours);
		if (field && strcasecmp(known_elsewhere[i].theirs, name) == 0)
			return field;
	}
	for (size_t i = 0; i < count; i++) {
		size_t edits = edits_between(name, fields[i].name);
		/* Two letters of three are no misspelling. */
		if (edits < distance && edits * 2 < strlen(fields[i].name)) {
			nearest = &fields[i];
			distance = edits;
		}
	}
	return nearest;
}

static int unknown_field(const struct field *fields, size_t count, const char *name,
			 struct error *error)
{
	const struct field *meant = field_meant(fields, count, name);
	if (meant)
		return error_set(error, ERROR_INVALID, "unknown field `%.100s`; did you mean `%s`?",
				 name, meant->name);
	return error_set(error, ERROR_INVALID, "unknown field `%.100s`", name);
}

int json_fields(const json_t *object, const struct field *fields, size_t count, struct error *error)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)object, name, value)
	{
		if (!field_find(fields, count, name))
			return unknown_field(fields, count, name, error);
	}
	for (size_t i = 0; i < count; i++) {
		value = json_object_get(object, fields[i].name);
		bool present = value && !json_is_null(value);
		if (fields[i].present)
			*fields[i].present = present;
		if (!present && fields[i].required)
			return error_set(error, ERROR_INVALID, "field `%s` is missing",
					 fields[i].name);
		if (present && take(&fields[i], value, error) < 0)
			return -1;
	}
	return 0;
}
