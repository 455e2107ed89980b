/* Options as fields of a request: each row of a verb's table names the field that it sets. Here the
 * request is made from the rows. A value only changes its form, by the row's kind and by the unit
 * that ends the field's name: which words and numbers are accepted, the daemon says, from its
 * tables of fields (edge/fields/fields.h). tests/unit/test_option_fields.c holds the rows against
 * them. Works on memory only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

static const struct unit {
	const char *suffix, *name, *what, *example;
	uint64_t bytes;   /* of a size */
	uint64_t seconds; /* of a time: its units in one second */
} units[] = {
    {"_mb", "MiB", "size", "512M or 2G", .bytes = MIB},
    {"_bytes", "bytes", "size", "512K, 10M or 1G", .bytes = 1},
    {"_seconds", "seconds", "time", "90, 15m, 2h or 7d", .seconds = 1},
    {"_ms", "milliseconds", "time", "30s or 5m", .seconds = 1000},
};

static const struct unit *unit_find(const char *field)
{
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t size = strlen(units[i].suffix), length = strlen(field);
		if (length > size && strcmp(field + length - size, units[i].suffix) == 0)
			return &units[i];
	}
	return NULL;
}

const char *field_unit(const char *field)
{
	const struct unit *unit = unit_find(field);
	return unit ? unit->name : NULL;
}

int pairs_to_json(const struct text_list *list, enum option_kind kind, json_t **ret_json,
		  struct error *error)
{
	json_t *object = json_object();
	for (size_t i = 0; i < list->count; i++) {
		const char *item = list->items[i], *equals = strchr(item, '=');
		size_t size = equals ? (size_t)(equals - item) : strlen(item);
		bool removed =
		    kind == OPTION_CHANGES && !equals && size > 1 && item[size - 1] == '-';
		FREE_TEXT char *key = text_duplicate(item);
		key[removed ? size - 1 : size] = '\0';
		const char *value = equals                       ? equals + 1
				    : kind == OPTION_ENVIRONMENT ? getenv(item)
								 : NULL;
		/* A variable that is not set here is not passed on, as with other tools. */
		if (*key && !value && kind == OPTION_ENVIRONMENT)
			continue;
		if (!*key || (!value && !removed)) {
			json_decref(object);
			return error_set(error, ERROR_USAGE,
					 kind == OPTION_CHANGES
					     ? "\"%s\" is neither K=V nor K- (which removes it)"
					     : "\"%s\" is not of the form K=V",
					 item);
		}
		if (json_object_set_new(object, key, value ? json_string(value) : json_null()) <
		    0) {
			json_decref(object);
			return error_set(error, ERROR_USAGE, "\"%s\" is not valid UTF-8", item);
		}
	}
	*ret_json = object;
	return 0;
}

/* A size or a time in the field's unit. */
static int option_quantity(const struct option_spec *option, const struct unit *unit,
			   const char *text, json_t **ret_json, struct error *error)
{
	uint64_t number = 0, times = MAX(unit->seconds, 1u);
	int result = unit->bytes ? text_to_bytes(text, unit->bytes, &number)
				 : text_to_seconds(text, &number);
	if (result < 0 || number > INT64_MAX / times)
		return error_set(error, ERROR_USAGE, "--%s: invalid %s `%s`; use for example %s",
				 option->name, unit->what, text, unit->example);
	*ret_json = json_integer((json_int_t)(unit->bytes ? number / unit->bytes : number * times));
	return 0;
}

static int option_number(const struct option_spec *option, const char *text, json_t **ret_json,
			 struct error *error)
{
	char *end;
	double number = strtod(text, &end);
	if (*end || end == text || !isfinite(number))
		return error_set(error, ERROR_USAGE, "--%s: invalid number `%s`", option->name,
				 text);
	bool whole = floor(number) == number && fabs(number) < 9e15;
	*ret_json = whole ? json_integer((json_int_t)number) : json_real(number);
	return 0;
}

static json_t *words_to_json(const char *words)
{
	json_t *array = json_array();
	for (size_t size; *words; words += size + (words[size] == ',')) {
		size = strcspn(words, ",");
		json_array_append_new(array, json_stringn(words, size));
	}
	return array;
}

static int option_text(const struct option_spec *option, const char *text, json_t **ret_json,
		       struct error *error)
{
	const struct unit *unit = unit_find(option->field);
	if (unit)
		return option_quantity(option, unit, text, ret_json, error);
	if (option->kind == OPTION_NUMBER)
		return option_number(option, text, ret_json, error);
	/* What cannot be sent is an error: without it the command might run as another user. */
	json_t *json = json_string(text);
	if (!json)
		return error_set(error, ERROR_USAGE, "--%s is not valid UTF-8", option->name);
	if (option->kind == OPTION_WORDS) {
		json_decref(json);
		json = words_to_json(text);
	}
	*ret_json = json;
	return 0;
}

static json_t *flag_to_json(const struct option_spec *option)
{
	const char *sends = option->sends ? option->sends : "true";
	json_t *json = json_loads(sends, JSON_DECODE_ANY, NULL);
	return json ? json : json_string(sends);
}

/* *ret_json stays NULL if the option is not given, or its verb makes the field. */
static int option_to_json(const struct option_spec *option, json_t **ret_json, struct error *error)
{
	switch (option->kind) {
	case OPTION_FLAG:
		if (*(bool *)option->target)
			*ret_json = flag_to_json(option);
		break;
	case OPTION_TEXT:
	case OPTION_NUMBER:
	case OPTION_WORDS:
		if (*(const char **)option->target)
			return option_text(option, *(const char **)option->target, ret_json, error);
		break;
	case OPTION_PAIRS:
	case OPTION_ENVIRONMENT:
	case OPTION_CHANGES:
		if (((struct text_list *)option->target)->count > 0)
			return pairs_to_json(option->target, option->kind, ret_json, error);
		break;
	case OPTION_LIST:
	case OPTION_ROWS:
	case OPTION_END:
		break;
	}
	return 0;
}

int options_to_body(const struct option_spec *options, json_t *body, struct error *error)
{
	const struct option_spec *option;
	for (struct option_walk walk = {options}; (option = option_next(&walk));) {
		json_t *value = NULL;
		if (!option->field)
			continue;
		if (option_to_json(option, &value, error) < 0)
			return -1;
		if (value && json_object_get(body, option->field)) {
			json_decref(value);
			return error_set(error, ERROR_USAGE, "--%s contradicts another option",
					 option->name);
		}
		if (value)
			json_object_set_new(body, option->field, value);
	}
	return 0;
}

/* A list is one parameter for each of its items. */
static int option_to_path(const struct option_spec *option, struct buffer *path,
			  struct error *error)
{
	json_t *value = NULL;
	int result = 0;
	if (option->kind == OPTION_LIST) {
		const struct text_list *list = option->target;
		for (size_t i = 0; result == 0 && i < list->count; i++)
			result = buffer_append_parameter(path, option->field, list->items[i]);
	} else {
		if (option_to_json(option, &value, error) < 0)
			return -1;
		FREE_TEXT char *number =
		    json_is_string(value) || !value ? NULL : json_dumps(value, JSON_ENCODE_ANY);
		result = buffer_append_parameter(path, option->field,
						 number ? number : json_string_value(value));
		json_decref(value);
	}
	if (result < 0)
		return error_set(error, ERROR_USAGE, "--%s is too long", option->name);
	return 0;
}

int options_to_path(const struct option_spec *options, struct buffer *path, struct error *error)
{
	const struct option_spec *option;
	for (struct option_walk walk = {options}; (option = option_next(&walk));)
		if (option->field && option_to_path(option, path, error) < 0)
			return -1;
	return 0;
}
