/* Tables of fields as parsers (fields.h). Called by every handler with input; works on memory,
 * nothing blocks. */
#include "edge/fields/fields.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/text.h"
#include "http/target.h"

/* --- one value --- */

static int field_refuse_type(const struct field *field, struct error *error)
{
	static const char *const names[] = {
	    [FIELD_TEXT] = "a string",
	    [FIELD_BOOL] = "true or false",
	    [FIELD_UINT] = "a whole number, 0 or more",
	    [FIELD_INT] = "a whole number",
	    [FIELD_NUMBER] = "a number, 0 or more",
	    [FIELD_MILLI] = "a number, 0 or more",
	    [FIELD_OBJECT] = "an object",
	    [FIELD_STRUCT] = "an object",
	    [FIELD_PAIRS] = "an object",
	    [FIELD_ARRAY] = "an array",
	    [FIELD_ANY] = "a value",
	    [FIELD_ROWS] = "a value",
	    [FIELD_TIME] = "of a query",
	    [FIELD_QUERY_PAIRS] = "of a query",
	};
	return error_set(error, ERROR_INVALID, "field `%s` must be %s", field->name,
			 names[field->type]);
}

/* "must be a, b or c" */
static int field_refuse_word(const char *what, const struct field *field, struct error *error)
{
	char list[256] = "";
	for (const char *at = field->words; *at;) {
		size_t size = strcspn(at, ","), used = strlen(list);
		const char *between = used == 0 ? "" : at[size] ? ", " : " or ";
		(void)!text_format(list + used, sizeof(list) - used, "%s%.*s", between, (int)size,
				   at);
		at += size + (at[size] == ',');
	}
	return error_set(error, ERROR_INVALID, "%s `%s` must be %s", what, field->name, list);
}

static bool field_word_known(const struct field *field, const char *word)
{
	size_t length = strlen(word);
	if (!field->words || field->flags & FIELD_WORDS_TOLD)
		return true;
	for (const char *at = field->words; *at;) {
		size_t size = strcspn(at, ",");
		if (size == length && memcmp(at, word, size) == 0)
			return true;
		at += size + (at[size] == ',');
	}
	return false;
}

static int field_take_text(const struct field *field, const json_t *value, const char **to,
			   struct error *error)
{
	size_t size = json_string_length(value);
	const char *text = json_string_value(value);
	if (!field_word_known(field, text))
		return field_refuse_word("field", field, error);
	if (size < field->min)
		return error_set(error, ERROR_INVALID, "field `%s` must not be empty", field->name);
	if (field->max && size > field->max)
		return error_set(error, ERROR_INVALID, "field `%s` is longer than %llu bytes",
				 field->name, (unsigned long long)field->max);
	*to = text;
	return 0;
}

static void field_keep_uint(const struct field *field, uint64_t number, void *to)
{
	number *= field->unit ? field->unit : 1;
	if (field->size == sizeof(uint64_t))
		*(uint64_t *)to = number;
	else if (field->size == sizeof(uint32_t))
		*(uint32_t *)to = (uint32_t)number;
	else
		*(uint16_t *)to = (uint16_t)number;
}

static void field_keep_bool(const struct field *field, bool truth, void *to)
{
	if (!field->bit)
		*(bool *)to = truth;
	else if (truth)
		*(uint32_t *)to |= field->bit;
	else
		*(uint32_t *)to &= ~field->bit;
}

static int field_take_uint(const struct field *field, const json_t *value,
			   const struct config *config, void *to, struct error *error)
{
	json_int_t number = json_integer_value(value);
	uint64_t here = config && field->max_here ? field->max_here(config) : 0;
	if (number < 0 || (uint64_t)number < field->min ||
	    (field->max && (uint64_t)number > field->max)) {
		if (!field->max)
			return error_set(error, ERROR_INVALID, "field `%s` must be at least %llu",
					 field->name, (unsigned long long)field->min);
		return error_set(error, ERROR_INVALID,
				 "field `%s` is %lld; it must be %llu to %llu", field->name,
				 (long long)number, (unsigned long long)field->min,
				 (unsigned long long)(here ? here : field->max));
	}
	field_keep_uint(field, (uint64_t)number, to);
	return 0;
}

static int field_take_milli(const struct field *field, double number, uint32_t *to,
			    struct error *error)
{
	double milli = floor(number * 1000 + 0.5);
	if (milli < (double)field->min || milli > (double)field->max)
		return error_set(error, ERROR_INVALID, "field `%s` must be %g to %g (%s)",
				 field->name, (double)field->min / 1000, (double)field->max / 1000,
				 field->of);
	*to = (uint32_t)milli;
	return 0;
}

static int field_take(const struct field *field, json_t *value, const struct config *config,
		      void *to, struct error *error)
{
	double number = json_number_value(value);
	bool is_number = json_is_number(value) && isfinite(number) && number >= 0;
	switch (field->type) {
	case FIELD_TEXT:
		return json_is_string(value) ? field_take_text(field, value, to, error)
					     : field_refuse_type(field, error);
	case FIELD_UINT:
		return json_is_integer(value) ? field_take_uint(field, value, config, to, error)
					      : field_refuse_type(field, error);
	case FIELD_MILLI:
		return is_number ? field_take_milli(field, number, to, error)
				 : field_refuse_type(field, error);
	case FIELD_BOOL:
		if (!json_is_boolean(value))
			return field_refuse_type(field, error);
		field_keep_bool(field, json_is_true(value), to);
		return 0;
	case FIELD_INT:
		if (!json_is_integer(value))
			return field_refuse_type(field, error);
		*(int64_t *)to = json_integer_value(value);
		return 0;
	case FIELD_NUMBER:
		if (!is_number)
			return field_refuse_type(field, error);
		*(double *)to = number;
		return 0;
	case FIELD_OBJECT:
	case FIELD_PAIRS:
		if (!json_is_object(value))
			return field_refuse_type(field, error);
		break;
	case FIELD_ARRAY:
		if (!json_is_array(value))
			return field_refuse_type(field, error);
		break;
	case FIELD_TIME:
	case FIELD_QUERY_PAIRS:
		return field_refuse_type(field, error);
	case FIELD_ANY:
	case FIELD_STRUCT:
	case FIELD_ROWS:
		break;
	}
	*(json_t **)to = value;
	return 0;
}

/* --- what was meant --- */

/* Names that users of other systems know, and our names for them. */
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

const struct field *field_next(struct field_walk *walk)
{
	uint32_t others = walk->form == FIELDS_MCP ? FIELD_REST_ONLY : FIELD_MCP_ONLY;
	while (walk->next) {
		const struct field *field = walk->next++, *outer = walk->outer;
		if (!field->name) {
			walk->next = outer ? outer + 1 : NULL;
			walk->outer = NULL;
		} else if (field->type == FIELD_ROWS) {
			walk->next = field->inner;
			walk->outer = field;
		} else if (!(field->flags & others) &&
			   !(outer && outer->words && field_word_known(outer, field->name))) {
			return field;
		}
	}
	return NULL;
}

const struct field *field_find(const struct field *fields, enum field_form form, const char *name,
			       size_t size)
{
	const struct field *field;
	for (struct field_walk walk = {form, fields}; (field = field_next(&walk));)
		if (strlen(field->name) == size && memcmp(field->name, name, size) == 0)
			break;
	return field;
}

/* How many letters must be inserted, removed or changed, ignoring case. */
static size_t names_edits_between(const char *a, const char *b)
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
static const struct field *field_meant(const struct field *fields, enum field_form form,
				       const char *name)
{
	const struct field *field, *nearest = NULL;
	size_t distance = 3;
	for (size_t i = 0; i < ARRAY_SIZE(known_elsewhere); i++) {
		const char *ours = known_elsewhere[i].ours;
		field = field_find(fields, form, ours, strlen(ours));
		if (field && strcasecmp(known_elsewhere[i].theirs, name) == 0)
			return field;
	}
	for (struct field_walk walk = {form, fields}; (field = field_next(&walk));) {
		size_t edits = names_edits_between(name, field->name);
		/* Two different letters of three are not a misspelling. */
		if (edits < distance && edits * 2 < strlen(field->name)) {
			nearest = field;
			distance = edits;
		}
	}
	return nearest;
}

static int fields_refuse_unknown(const struct field *fields, enum field_form form, const char *name,
				 struct error *error)
{
	const struct field *meant = field_meant(fields, form, name);
	if (meant)
		return error_set(error, ERROR_INVALID, "unknown field `%.100s`; did you mean `%s`?",
				 name, meant->name);
	return error_set(error, ERROR_INVALID, "unknown field `%.100s`", name);
}

/* A number, boolean or list that was written as text, as models do. NULL: it is not one. */
static json_t *value_meant(const struct field *field, const char *text, size_t size)
{
	struct error ignored;
	json_t *value = NULL, *inner;
	uint64_t number;
	bool negative;
	struct buffer wrapped DONE_BUFFER = BUFFER(HTTP_JSON_BODY_MAX + 16);
	switch (field->type) {
	case FIELD_UINT:
		if (text_to_u64(text, 0, INT64_MAX, &number) == 0)
			value = json_integer((json_int_t)number);
		break;
	case FIELD_INT:
		negative = text[0] == '-';
		if (text_to_u64(text + negative, 0, INT64_MAX, &number) == 0)
			value = json_integer(negative ? -(json_int_t)number : (json_int_t)number);
		break;
	case FIELD_BOOL:
		if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
			value = json_boolean(text[0] == 't');
		break;
	case FIELD_NUMBER:
	case FIELD_MILLI:
	case FIELD_OBJECT:
	case FIELD_STRUCT:
	case FIELD_PAIRS:
	case FIELD_ARRAY:
		/* The strict reader reads objects, so the text is made a member of one. */
		if (buffer_printf(&wrapped, "{\"v\":%.*s}", (int)size, text) == 0 &&
		    json_parse(wrapped.data, wrapped.size, &inner, &ignored) == 0) {
			value = json_incref(json_object_get(inner, "v"));
			if (json_object_size(inner) != 1) {
				json_decref(value);
				value = NULL;
			}
			json_decref(inner);
		}
		break;
	case FIELD_TEXT:
	case FIELD_TIME:
	case FIELD_QUERY_PAIRS:
	case FIELD_ANY:
	case FIELD_ROWS:
		break;
	}
	return value;
}

/* Converts numbers and booleans to the text of a shell variable. */
static void pairs_to_text(json_t *json)
{
	const char *key;
	json_t *value;
	void *next;
	json_object_foreach_safe(json, next, key, value)
	{
		char text[32];
		if (json_is_integer(value))
			(void)!text_format(text, sizeof(text), "%lld",
					   (long long)json_integer_value(value));
		else if (json_is_boolean(value))
			(void)!text_copy(text, sizeof(text),
					 json_is_true(value) ? "true" : "false");
		else
			continue;
		if (json_object_set_new_nocheck(json, key, json_string(text)) < 0)
			abort();
	}
}

static void field_take_as_meant(json_t *object, const struct field *field)
{
	json_t *given = json_object_get(object, field->name);
	/* 30.0 is 30. */
	double real = json_real_value(given);
	json_t *value = NULL;
	if (json_is_string(given))
		value = value_meant(field, json_string_value(given), json_string_length(given));
	else if (json_is_real(given) && fabs(real) < 9e15 && floor(real) == real &&
		 (field->type == FIELD_INT || (field->type == FIELD_UINT && real >= 0)))
		value = json_integer((json_int_t)real);
	if (value && json_object_set_new(object, field->name, value) < 0)
		abort();
	if (field->type == FIELD_PAIRS)
		pairs_to_text(json_object_get(object, field->name));
}

/* --- an object --- */

static void field_tell_given(const struct field *field, bool given, char *into)
{
	if (!field->given)
		return;
	char *told = into + field->given - 1;
	if (!field->bit)
		*(bool *)told = given;
	else if (given)
		*(uint32_t *)told |= field->bit;
}

static void field_fall_back(const struct field *field, void *to)
{
	if (field->fallback)
		field_keep_uint(field, field->fallback, to);
	if (field->fallback_text)
		*(const char **)to = field->fallback_text;
}

static int fields_check_names(const json_t *object, const struct field *fields,
			      enum field_form form, struct error *error)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)object, name, value)
	{
		if (!field_find(fields, form, name, strlen(name)))
			return fields_refuse_unknown(fields, form, name, error);
	}
	return 0;
}

int field_parse(json_t *object, const struct field *field, enum field_form form,
		const struct config *config, void *into, struct error *error)
{
	char *to = (char *)into + field->at;
	if (form == FIELDS_MCP)
		field_take_as_meant(object, field);
	json_t *value = json_object_get(object, field->name);
	bool given = value && !json_is_null(value);
	field_tell_given(field, given || (value && field->flags & FIELD_NULLS), into);
	if (given && field->type == FIELD_STRUCT) {
		if (!json_is_object(value))
			return field_refuse_type(field, error);
		if (fields_parse(value, field->inner, form, config, to, error) < 0)
			return error_prepend(error, "%s", field->name);
		return 0;
	}
	if (given)
		return field_take(field, value, config, to, error);
	if (field->flags & FIELD_REQUIRED)
		return error_set(error, ERROR_INVALID, "field `%s` is missing", field->name);
	field_fall_back(field, to);
	return 0;
}

int fields_parse(const json_t *object, const struct field *fields, enum field_form form,
		 const struct config *config, void *into, struct error *error)
{
	const struct field *field;
	if (fields_check_names(object, fields, form, error) < 0)
		return -1;
	for (struct field_walk walk = {form, fields}; (field = field_next(&walk));)
		if (field_parse((json_t *)object, field, form, config,
				(char *)into + (walk.outer ? walk.outer->at : 0), error) < 0)
			return -1;
	return 0;
}

void fields_names(const struct field *fields, enum field_form form, struct buffer *to)
{
	const struct field *field;
	for (struct field_walk walk = {form, fields}; (field = field_next(&walk));)
		(void)!buffer_printf(to, "%s%s%s", to->size > 0 ? ", " : "", field->name,
				     field->flags & FIELD_REQUIRED ? " (required)" : "");
}

/* --- a query --- */

static int field_refuse_parameter(const struct field *field, const char *why, struct error *error)
{
	return error_set(error, ERROR_INVALID, "query parameter `%s` %s", field->name, why);
}

static int field_take_parameter(const char *query, const struct field *field, char **room,
				void *into, struct error *error)
{
	enum { UINT_TEXT_MAX = 23, BOOL_TEXT_MAX = 7 };
	bool is_text = field->type == FIELD_TEXT, is_uint = field->type == FIELD_UINT;
	bool is_time = field->type == FIELD_TIME;
	char *text = *room, *to = (char *)into + field->at;
	size_t longest = is_text || is_time ? field->max : is_uint ? UINT_TEXT_MAX : BOOL_TEXT_MAX;
	uint64_t number, most = field->max ? field->max : INT64_MAX;
	ssize_t size = http_query_find(query, field->name, text, longest + 1);
	if (size < 0 && size != -ENOENT)
		return error_set(error, ERROR_INVALID,
				 "query parameter `%s` is given twice, is longer than %zu bytes, "
				 "or has a bad escape",
				 field->name, longest);
	bool given = size > 0 || (size == 0 && is_text && field->min > 0);
	field_tell_given(field, given, into);
	if (!given && field->flags & FIELD_REQUIRED)
		return field_refuse_parameter(field, "is missing", error);
	if (!given) {
		field_fall_back(field, to);
	} else if (is_text) {
		if (!field_word_known(field, text))
			return field_refuse_word("query parameter", field, error);
		if (size == 0)
			return field_refuse_parameter(field, "is empty", error);
		*(const char **)to = text;
		*room += size + 1;
	} else if (is_uint) {
		if (text_to_u64(text, field->min, most, &number) < 0)
			return error_set(error, ERROR_INVALID,
					 "query parameter `%s` must be a number from %llu to %llu",
					 field->name, (unsigned long long)field->min,
					 (unsigned long long)most);
		field_keep_uint(field, number, to);
	} else if (is_time) {
		if (field_time_parse(text, (int64_t *)to) < 0)
			return field_refuse_parameter(
			    field,
			    "must be a time like 2026-11-15T08:00:00Z or "
			    "2026-11-15, seconds since 1970, or an age like 10m",
			    error);
	} else {
		bool truth = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
		if (!truth && strcmp(text, "0") != 0 && strcmp(text, "false") != 0)
			return field_refuse_parameter(field, "must be 1 or 0", error);
		field_keep_bool(field, truth, to);
	}
	return 0;
}

static int field_take_pairs(const char *query, const struct field *field, char **room,
			    struct query_pairs *pairs, struct error *error)
{
	size_t length = strlen(field->name), size;
	for (; *query; query += size + (query[size] == '&')) {
		size = strcspn(query, "&");
		if (strcspn(query, "=&") != length || memcmp(query, field->name, length) != 0)
			continue;
		if (pairs->count == QUERY_PAIRS_MAX)
			return error_set(error, ERROR_INVALID, "query parameter `%s`: at most %d",
					 field->name, QUERY_PAIRS_MAX);
		const char *value = query + MIN(length + 1, size);
		char *text = *room;
		ssize_t decoded = http_query_decode(value, (size_t)(query + size - value), text,
						    QUERY_PAIR_MAX + 1);
		if (decoded < 0)
			return error_set(
			    error, ERROR_INVALID,
			    "query parameter `%s` is longer than %d bytes or has a bad escape",
			    field->name, QUERY_PAIR_MAX);
		char *equals = strchr(text, '=');
		if (!equals || equals == text)
			return field_refuse_parameter(field, "must be of the form KEY=VALUE",
						      error);
		*equals = '\0';
		pairs->pairs[pairs->count++] = (struct pair){text, equals + 1};
		*room += decoded + 1;
	}
	return 0;
}

int fields_parse_query(const char *query, const struct field *fields, char *room, void *into,
		       struct error *error)
{
	int result = 0;
	for (const struct field *field = fields; result == 0 && field && field->name; field++)
		result =
		    field->type == FIELD_QUERY_PAIRS
			? field_take_pairs(query, field, &room,
					   (struct query_pairs *)((char *)into + field->at), error)
			: field_take_parameter(query, field, &room, into, error);
	return result;
}
