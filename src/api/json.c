/* Reading JSON requests strictly. Called by the router (parse) and by every handler with a body
 * (fields). jansson refuses bad UTF-8, NULs and trailing bytes; the depth is bounded before it sees
 * anything. Works on memory; nothing blocks. */
#include "api/json.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"

/* jansson recurses up to its own, much larger depth. */
static bool depth_within(const char *data, size_t size, int maximum)
{
	int depth = 0;
	bool text = false;
	for (size_t i = 0; i < size; i++) {
		char c = data[i];
		if (text) {
			if (c == '\\')
				i++;
			else if (c == '"')
				text = false;
		} else if (c == '"') {
			text = true;
		} else if (c == '{' || c == '[') {
			if (++depth > maximum)
				return false;
		} else if (c == '}' || c == ']') {
			depth--;
		}
	}
	return true;
}

int json_parse(const char *data, size_t size, json_t **ret_object, struct error *error)
{
	if (!depth_within(data, size, HTTP_JSON_DEPTH_MAX))
		return error_set(error, ERROR_MALFORMED, "body: nested deeper than %d levels",
				 HTTP_JSON_DEPTH_MAX);
	json_error_t problem;
	json_t *json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &problem);
	if (!json)
		return error_set(error, ERROR_MALFORMED, "body: line %d, column %d: %s",
				 problem.line, problem.column, problem.text);
	if (!json_is_object(json)) {
		json_decref(json);
		return error_set(error, ERROR_MALFORMED, "body: must be a JSON object");
	}
	*ret_object = json;
	return 0;
}

static int wrong_type(const struct field *field, struct error *error)
{
	static const char *const names[] = {
	    [FIELD_TEXT] = "a string",
	    [FIELD_BOOL] = "true or false",
	    [FIELD_UINT] = "a whole number, 0 or more",
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
		return error_set(error, ERROR_INVALID,
				 "field `%s` is %lld; it must be %llu to %llu", field->name,
				 (long long)number, (unsigned long long)field->min,
				 (unsigned long long)field->max);
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

int json_fields(const json_t *object, const struct field *fields, size_t count, struct error *error)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)object, name, value)
	{
		size_t at = 0;
		while (at < count && strcmp(fields[at].name, name) != 0)
			at++;
		if (at == count)
			return error_set(error, ERROR_INVALID, "unknown field `%.100s`", name);
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
