/* Converts tables of fields to JSON schemas (fields.h): MCP lists them, and the gate of the OpenAPI
 * document compares them. Pure. */
#include "edge/fields/fields.h"

#include <string.h>

#include "base/text.h"

static void put_words(struct json_writer *writer, const char *words)
{
	put_array(writer, "enum");
	for (const char *at = words; *at;) {
		size_t size = strcspn(at, ",");
		put_text_size(writer, NULL, at, size);
		at += size + (at[size] == ',');
	}
	put_array_end(writer);
}

static void put_milli(struct json_writer *writer, const char *key, uint64_t milli)
{
	char text[32];
	(void)!text_format(text, sizeof(text), "%g", (double)milli / 1000);
	put_json(writer, key, text, strlen(text));
}

static void put_bounds(struct json_writer *writer, const struct field *field, const char *min,
		       const char *max)
{
	if (field->min || field->type == FIELD_UINT || field->type == FIELD_NUMBER)
		put_uint(writer, min, field->min);
	if (field->max)
		put_uint(writer, max, field->max);
}

static void put_items(struct json_writer *writer, const struct field *field, enum field_form form)
{
	if (field->inner) {
		put_fields(writer, "items", field->inner, form);
		return;
	}
	put_object(writer, "items");
	put_text(writer, "type", "string");
	if (field->words)
		put_words(writer, field->words);
	put_object_end(writer);
}

static void put_members(struct json_writer *writer, const struct field *fields,
			enum field_form form)
{
	const struct field *field;
	bool required = false;
	put_text(writer, "type", "object");
	put_object(writer, "properties");
	for (struct field_walk walk = {form, fields}; (field = field_next(&walk));)
		put_field(writer, field->name, field, form);
	put_object_end(writer);
	for (struct field_walk walk = {form, fields}; (field = field_next(&walk));) {
		if (!(field->flags & (FIELD_REQUIRED | FIELD_REQUIRED_TOLD)))
			continue;
		if (!required)
			put_array(writer, "required");
		required = true;
		put_text(writer, NULL, field->name);
	}
	if (required)
		put_array_end(writer);
	if (form != FIELDS_MCP)
		put_bool(writer, "additionalProperties", false);
}

void put_fields(struct json_writer *writer, const char *key, const struct field *fields,
		enum field_form form)
{
	put_object(writer, key);
	put_members(writer, fields, form);
	put_object_end(writer);
}

/* MCP's schemas have types, words and sentences; bounds only appear in errors. */
static void put_shape(struct json_writer *writer, const struct field *field, enum field_form form)
{
	static const char *const types[FIELD_QUERY_PAIRS + 1] = {
	    [FIELD_TEXT] = "string",   [FIELD_BOOL] = "boolean",  [FIELD_UINT] = "integer",
	    [FIELD_INT] = "integer",   [FIELD_NUMBER] = "number", [FIELD_MILLI] = "number",
	    [FIELD_OBJECT] = "object", [FIELD_PAIRS] = "object",  [FIELD_ARRAY] = "array",
	    [FIELD_TIME] = "string",
	};
	bool bounds = form != FIELDS_MCP;
	if (field->type != FIELD_ARRAY && field->inner) {
		put_members(writer, field->inner, form);
		return;
	}
	if (field->type == FIELD_BOOL && form == FIELDS_QUERY) {
		put_text(writer, "type", "string");
		put_words(writer, "0,1,true,false");
		return;
	}
	if (types[field->type])
		put_text(writer, "type", types[field->type]);
	if (field->type == FIELD_ARRAY)
		put_items(writer, field, form);
	else if (field->words)
		put_words(writer, field->words);
	if (field->type == FIELD_PAIRS) {
		const char *type = field->flags & FIELD_NULLS ? "{\"type\":[\"string\",\"null\"]}"
							      : "{\"type\":\"string\"}";
		put_json(writer, "additionalProperties", type, strlen(type));
	}
	if (field->flags & FIELD_MCP_MIN && form == FIELDS_MCP)
		put_uint(writer, "minimum", field->min);
	if (!bounds)
		return;
	if ((field->type == FIELD_TEXT && !field->words) || field->type == FIELD_TIME)
		put_bounds(writer, field, "minLength", "maxLength");
	else if (field->type == FIELD_ARRAY)
		put_bounds(writer, field, "minItems", "maxItems");
	else if (field->type == FIELD_PAIRS)
		put_bounds(writer, field, "minProperties", "maxProperties");
	else if (field->type == FIELD_UINT || field->type == FIELD_NUMBER)
		put_bounds(writer, field, "minimum", "maximum");
	else if (field->type == FIELD_MILLI) {
		put_milli(writer, "minimum", field->min);
		put_milli(writer, "maximum", field->max);
	}
	if (form == FIELDS_QUERY && field->fallback)
		put_uint(writer, "default", field->fallback);
	if (form == FIELDS_QUERY && field->fallback_text)
		put_text(writer, "default", field->fallback_text);
}

void put_field(struct json_writer *writer, const char *key, const struct field *field,
	       enum field_form form)
{
	const char *sentence = form == FIELDS_MCP ? field->mcp : field->rest;
	put_object(writer, key);
	if (field->shape && form != FIELDS_MCP)
		put_json(writer, NULL, field->shape, strlen(field->shape));
	else
		put_shape(writer, field, form);
	/* For a parameter it is beside the schema. */
	if (sentence && form != FIELDS_QUERY)
		put_text(writer, "description", sentence);
	put_object_end(writer);
}
