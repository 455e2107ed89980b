/* The API's edges that need no daemon: strict JSON in, JSON out, base64, the body of an exec, and
 * the table of routes against the OpenAPI document. */
#include "test.h"

#include <errno.h>

#include "api/api.h"
#include "api/openapi.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/text.h"
#include "edge/call.h"
#include "edge/fields/exec_fields.h"

TEST_MAIN

static int parse(const char *text, struct error *error)
{
	json_t *json = NULL;
	int result = json_parse(text, strlen(text), &json, error);
	json_decref(json);
	return result;
}

TEST(body_is_one_strict_object)
{
	struct error error;
	static const char *const bad[] = {
	    "",           "[]",
	    "1",          "{",
	    "{} x",       "{\"a\":1,\"a\":2}",
	    "{a:1}",      "{\"a\":\"\xff\"}",
	    "{\"a\":1,}", "{\"a\":\"\\u0000\"}",
	    "\"text\"",   "{\"a\":NaN}",
	};
	CHECK_INT(parse("{}", &error), 0);
	CHECK_INT(parse(" {\"a\":{\"b\":[1,2,{\"c\":null}]}} ", &error), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		error.kind = ERROR_NONE;
		CHECK_INT(parse(bad[i], &error), -1);
		CHECK_INT(error.kind, ERROR_MALFORMED);
	}
}

TEST(depth_is_bounded)
{
	struct error error;
	char text[4096] = "";
	size_t at = 0;
	for (int i = 0; i < HTTP_JSON_DEPTH_MAX; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "{\"a\":");
	size_t inner = at;
	at += (size_t)snprintf(text + at, sizeof(text) - at, "\"[[[[{{{{\\\"[[[[\"");
	for (int i = 0; i < HTTP_JSON_DEPTH_MAX; i++)
		text[at++] = '}';
	text[at] = '\0';
	CHECK_INT(parse(text, &error), 0);
	memset(text + inner, '[', 2000);
	text[inner + 2000] = '\0';
	CHECK_INT(parse(text, &error), -1);
	CHECK(strstr(error.message, "nested"));
}

TEST(values_are_bounded)
{
	struct error error;
	struct buffer text DONE_BUFFER = BUFFER(1 * MIB);
	CHECK_INT(buffer_append_text(&text, "{\"a\":[0"), 0);
	for (int i = 0; i < HTTP_JSON_VALUES_MAX - 3; i++)
		CHECK_INT(buffer_append_text(&text, ",0"), 0);
	size_t size = text.size;
	CHECK_INT(buffer_append_text(&text, "]}"), 0);
	CHECK_INT(parse(text.data, &error), 0);
	text.size = size;
	CHECK_INT(buffer_append_text(&text, ",0]}"), 0);
	CHECK_INT(parse(text.data, &error), -1);
	CHECK(strstr(error.message, "too many values"));
	/* A message of a socket is read on the loop: much fewer. */
	json_t *json;
	CHECK_INT(json_parse_message(text.data, text.size / 8, &json, &error), -1);
	CHECK(strstr(error.message, "too many values"));
	CHECK_INT(json_parse_message("{\"a\":[0,0]}", 11, &json, &error), 0);
	json_decref(json);
}

static const struct json_bounds bounds = {.depth = 3, .values = 8};

/* Where it is wrong, and what. */
static void check_wrong(const char *text, unsigned line, unsigned column, const char *what)
{
	struct json_wrong wrong;
	CHECK(!json_read(text, strlen(text), &bounds, &wrong));
	CHECK_INT(wrong.line, line);
	CHECK_INT(wrong.column, column);
	CHECK_TEXT(wrong.text, what);
}

TEST(what_is_wrong_and_where)
{
	check_wrong("", 1, 1, "it ends too early");
	check_wrong("{\n \"a\" 1}", 2, 6, "expected ':'");
	check_wrong("[1,\n2,\n]", 3, 1, "not a JSON value");
	check_wrong("[1 2]", 1, 4, "expected ',' or ']'");
	check_wrong("{\"a\":1 2}", 1, 8, "expected ',' or '}'");
	check_wrong("{1}", 1, 2, "expected a member's name");
	check_wrong("{\"a\":1,\"\\u0061\":2}", 1, 16, "a duplicate name");
	check_wrong("\"abc", 1, 5, "a string does not end");
	check_wrong("\"a\tb\"", 1, 3, "a control character in a string");
	check_wrong("\"\\x\"", 1, 3, "invalid escape");
	check_wrong("\"\\u00g0\"", 1, 7, "invalid Unicode escape");
	check_wrong("\"\\ud800\"", 1, 8, "half of a surrogate pair in a string");
	check_wrong("\"\\udc00\"", 1, 8, "half of a surrogate pair in a string");
	check_wrong("\"a\\u0000\"", 1, 9, "a NUL (\\u0000) in a string");
	check_wrong("\"\xe9\"", 1, 3, "a string is not UTF-8");
	check_wrong("9223372036854775808", 1, 1, "a number is too large");
	check_wrong("1e999", 1, 1, "a number is too large");
	check_wrong("{} {}", 1, 4, "there is more behind it");
	check_wrong("[[[[", 1, 4, "it is nested too deeply");
	check_wrong("[1,2,3,4,5,6,7,8]", 1, 16, "it has too many values");
}

/* One past what may be read at once, so that the end of what is read eight bytes at a time is met
 * in every place; ASan sees the rest. */
TEST(texts_of_every_length)
{
	for (size_t size = 0; size < 40; size++) {
		struct json_wrong wrong;
		char *text = malloc(size + 2), *escaped = malloc(size + 4);
		memset(text, 'x', size + 1);
		memset(escaped, 'y', size + 3);
		text[0] = text[size + 1] = escaped[0] = escaped[size + 3] = '"';
		memcpy(escaped + 1 + size / 2, "\\n", 2);
		json_t *plain = json_read(text, size + 2, &bounds, &wrong);
		json_t *other = json_read(escaped, size + 4, &bounds, &wrong);
		CHECK_INT(json_string_length(plain), size);
		CHECK_INT(json_string_length(other), size + 1);
		CHECK_INT(json_string_value(other)[size / 2], '\n');
		CHECK(!json_read(text, size + 1, &bounds, &wrong));
		json_decref(plain);
		json_decref(other);
		free(text);
		free(escaped);
	}
}

struct asked {
	bool given; /* at offset 0 */
	bool flag;
	const char *name, *word;
	uint16_t count;
	uint32_t cpu, bits, mask;
	uint64_t bytes;
	double number;
	json_t *object, *pairs;
};

static uint64_t most_here(const struct config *config)
{
	return config->maximum.pids;
}

static const struct field asked_fields[] = {
    {"name", FIELD_TEXT_AT(struct asked, name), FIELD_REQUIRED, 1, 5},
    {"flag", FIELD_BOOL_AT(struct asked, flag)},
    {"count", FIELD_UINT_AT(struct asked, count), .min = 2, .max = 9, .fallback = 3,
     .given = FIELD_GIVEN(struct asked, given)},
    {"number", FIELD_NUMBER_AT(struct asked, number)},
    {"object", FIELD_OBJECT_AT(struct asked, object)},
    {"word", FIELD_TEXT_AT(struct asked, word), .words = "small,medium,large"},
    {"cpu", FIELD_MILLI_AT(struct asked, cpu), .min = 10, .max = 256000, .of = "vCPUs"},
    {"kept", FIELD_BIT_AT(struct asked, bits), .bit = 4,
     .given = FIELD_GIVEN_BIT(struct asked, mask)},
    {"mib", FIELD_UINT_AT(struct asked, bytes), .max = 16, .unit = MIB, .max_here = most_here},
    {"pairs", FIELD_PAIRS_AT(struct asked, pairs), FIELD_MCP_ONLY},
    {0},
};

static int fields(const char *text, struct error *error)
{
	json_t *json = NULL;
	struct asked asked = {0};
	struct config config = {.maximum.pids = 7};
	if (json_parse(text, strlen(text), &json, error) < 0)
		return -2;
	int result = fields_parse(json, asked_fields, FIELDS_REST, &config, &asked, error);
	json_decref(json);
	return result;
}

TEST(fields_fill_their_members)
{
	struct error error;
	static const char text[] = "{\"name\":\"n\",\"cpu\":256,\"kept\":true,\"mib\":2,"
				   "\"word\":\"large\",\"flag\":null}";
	json_t *json = NULL;
	struct asked asked = {.bits = 1};
	CHECK_INT(json_parse(text, strlen(text), &json, &error), 0);
	CHECK_INT(fields_parse(json, asked_fields, FIELDS_REST, NULL, &asked, &error), 0);
	CHECK_TEXT(asked.name, "n");
	CHECK_TEXT(asked.word, "large");
	CHECK_INT(asked.cpu, 256000);
	CHECK_INT(asked.bits, 5);
	CHECK_INT(asked.mask, 4);
	CHECK_INT(asked.bytes, 2 * MIB);
	CHECK_INT(asked.count, 3);
	CHECK(!asked.given && !asked.flag);
	json_decref(json);
}

TEST(models_write_numbers_as_text)
{
	struct error error;
	static const char text[] =
	    "{\"name\":\"n\",\"cpu\":\"0.5\",\"count\":4.0,\"flag\":\"true\","
	    "\"pairs\":{\"A\":1,\"B\":true},\"object\":\"{}\"}";
	json_t *json = NULL;
	struct asked asked = {0};
	CHECK_INT(json_parse(text, strlen(text), &json, &error), 0);
	CHECK_INT(fields_parse(json, asked_fields, FIELDS_MCP, NULL, &asked, &error), 0);
	CHECK_INT(asked.cpu, 500);
	CHECK_INT(asked.count, 4);
	CHECK(asked.given && asked.flag);
	CHECK_TEXT(json_string_value(json_object_get(asked.pairs, "A")), "1");
	CHECK_TEXT(json_string_value(json_object_get(asked.pairs, "B")), "true");
	CHECK_INT(json_object_size(asked.object), 0);
	json_decref(json);
}

TEST(fields_are_named_in_errors)
{
	struct error error;
	static const struct {
		const char *body, *says;
	} bad[] = {
	    {"{}", "`name` is missing"},
	    {"{\"name\":null}", "`name` is missing"},
	    {"{\"name\":\"n\",\"word\":\"tiny\"}", "`word` must be small, medium or large"},
	    {"{\"name\":\"n\",\"cpu\":256.01}", "`cpu` must be 0.01 to 256 (vCPUs)"},
	    {"{\"name\":\"n\",\"cpu\":0}", "`cpu` must be 0.01 to 256 (vCPUs)"},
	    {"{\"name\":\"n\",\"mib\":17}", "`mib` is 17; it must be 0 to 7"},
	    {"{\"name\":\"n\",\"pairs\":{}}", "unknown field `pairs`"},
	    {"{\"name\":1}", "`name` must be a string"},
	    {"{\"name\":\"\"}", "`name` must not be empty"},
	    {"{\"name\":\"123456\"}", "`name` is longer than 5"},
	    {"{\"name\":\"a\",\"nam\":1}", "unknown field `nam`"},
	    {"{\"name\":\"a\",\"flag\":1}", "`flag` must be true or false"},
	    {"{\"name\":\"a\",\"count\":1}", "`count` is 1; it must be 2 to 9"},
	    {"{\"name\":\"a\",\"count\":10}", "`count` is 10"},
	    {"{\"name\":\"a\",\"count\":-1}", "`count` is -1"},
	    {"{\"name\":\"a\",\"count\":2.0}", "`count` must be a whole number"},
	    {"{\"name\":\"a\",\"number\":-0.5}", "`number` must be a number"},
	    {"{\"name\":\"a\",\"object\":[]}", "`object` must be an object"},
	};
	CHECK_INT(
	    fields("{\"name\":\"abc\",\"flag\":true,\"count\":2,\"number\":0.5,\"object\":{}}",
		   &error),
	    0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(fields(bad[i].body, &error), -1);
		CHECK_INT(error.kind, ERROR_INVALID);
		if (!strstr(error.message, bad[i].says))
			test_fail(__FILE__, __LINE__, "%s: %s", bad[i].body, error.message);
	}
}

struct within {
	const char *name;
	uint32_t count;
};
static const struct field within_fields[] = {
    {"name", FIELD_TEXT_AT(struct within, name), FIELD_REQUIRED},
    {"count", FIELD_UINT_AT(struct within, count), .min = 1, .fallback = 7},
    {0},
};

struct around {
	uint64_t count;
	bool said;
	json_t *value;
	struct within rows, object;
};
static const struct field around_fields[] = {
    {"count", FIELD_UINT_AT(struct around, count), FIELD_REST_ONLY},
    {FIELD_ROWS_AT(struct around, rows, struct within), .inner = within_fields, .words = "count"},
    {"value", FIELD_ANY_AT(struct around, value), FIELD_NULLS,
     .given = FIELD_GIVEN(struct around, said)},
    {"object", FIELD_STRUCT_AT(struct around, object, struct within), .inner = within_fields},
    {0},
};

static int around(const char *text, enum field_form form, struct around *into, struct error *error)
{
	json_t *json = NULL;
	if (json_parse(text, strlen(text), &json, error) < 0)
		return -2;
	int result = fields_parse(json, around_fields, form, NULL, into, error);
	/* Texts are the JSON's. */
	if (into->rows.name)
		CHECK_TEXT(into->rows.name, "a");
	json_decref(json);
	return result;
}

TEST(tables_within_tables)
{
	struct error error;
	struct around into = {0};
	CHECK_INT(around("{\"name\":\"a\",\"count\":0,\"value\":null,\"object\":{\"name\":\"b\"}}",
			 FIELDS_REST, &into, &error),
		  0);
	/* `count` is the outer table's; the inner one's is left out, with its default. */
	CHECK_INT(into.count, 0);
	CHECK_INT(into.rows.count, 0);
	CHECK_INT(into.object.count, 7);
	CHECK(into.said && !into.value);
	into = (struct around){0};
	CHECK_INT(around("{\"name\":\"a\"}", FIELDS_MCP, &into, &error), 0);
	CHECK(!into.said);
	static const struct {
		const char *body;
		enum field_form form;
		const char *says;
	} bad[] = {
	    {"{}", FIELDS_REST, "field `name` is missing"},
	    {"{\"name\":\"a\",\"count\":1}", FIELDS_MCP, "unknown field `count`"},
	    {"{\"name\":\"a\",\"nam\":1}", FIELDS_REST, "did you mean `name`"},
	    {"{\"name\":\"a\",\"object\":{}}", FIELDS_REST, "object: field `name` is missing"},
	    {"{\"name\":\"a\",\"object\":[]}", FIELDS_REST, "field `object` must be an object"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		into = (struct around){0};
		CHECK_INT(around(bad[i].body, bad[i].form, &into, &error), -1);
		if (!strstr(error.message, bad[i].says))
			test_fail(__FILE__, __LINE__, "%s: %s", bad[i].body, error.message);
	}
	DONE_BUFFER struct buffer names = BUFFER(KIB);
	fields_names(around_fields, FIELDS_MCP, &names);
	CHECK_TEXT(buffer_text(&names), "name (required), value, object");
}

struct queried {
	const char *name, *word;
	uint32_t bits;
	uint16_t count;
	bool flag, given;
	int64_t time;
	struct query_pairs pairs;
};

static const struct field queried_fields[] = {
    {"name", FIELD_TEXT_AT(struct queried, name), FIELD_REQUIRED, 1, 5},
    {"word", FIELD_TEXT_AT(struct queried, word), .max = 6, .words = "small,large",
     .fallback_text = "small"},
    {"bit", FIELD_BIT_AT(struct queried, bits), .bit = 4},
    {"count", FIELD_UINT_AT(struct queried, count), .min = 2, .max = 9, .fallback = 3},
    {"flag", FIELD_BOOL_AT(struct queried, flag), .given = FIELD_GIVEN(struct queried, given)},
    {"time", FIELD_TIME_AT(struct queried, time), .max = 39},
    {"pair", FIELD_QUERY_PAIRS_AT(struct queried, pairs)},
    {0},
};

/* `room` has exactly the size that the parser is promised: sanitizers see one byte more. */
static int query(const char *text, char **ret_room, struct queried *ret_queried,
		 struct error *error)
{
	*ret_queried = (struct queried){.bits = 1, .flag = true};
	*ret_room = malloc(strlen(text) + 1);
	return fields_parse_query(text, queried_fields, *ret_room, ret_queried, error);
}

TEST(queries_fill_their_members)
{
	struct error error;
	struct queried queried;
	char *room;
	CHECK_INT(query("pair=a%3Db&name=%6e+%2B&bit=true&count=9&pair=a=c=d&word=large&flag=0",
			&room, &queried, &error),
		  0);
	CHECK_TEXT(queried.name, "n +");
	CHECK_TEXT(queried.word, "large");
	CHECK_INT(queried.bits, 5);
	CHECK_INT(queried.count, 9);
	CHECK(!queried.flag && queried.given);
	CHECK_INT(queried.pairs.count, 2);
	CHECK_TEXT(queried.pairs.pairs[0].key, "a");
	CHECK_TEXT(queried.pairs.pairs[0].value, "b");
	CHECK_TEXT(queried.pairs.pairs[1].value, "c=d");
	free(room);
	/* An empty one is as good as none. */
	CHECK_INT(query("name=n&word=&bit=&count&flag=", &room, &queried, &error), 0);
	CHECK_TEXT(queried.word, "small");
	CHECK_INT(queried.bits, 1);
	CHECK_INT(queried.count, 3);
	CHECK(queried.flag && !queried.given);
	CHECK_INT(queried.pairs.count, 0);
	free(room);
}

TEST(times_have_many_forms)
{
	static const struct {
		const char *text;
		int64_t wall;
	} times[] = {
	    {"2026-11-15T08:00:00Z", 1794729600 * NSEC_PER_SEC},
	    {"2026-11-15T08:00:00.25z", 1794729600 * NSEC_PER_SEC + NSEC_PER_SEC / 4},
	    {"2026-11-15T09:30:00+01:30", 1794729600 * NSEC_PER_SEC},
	    {"2026-11-15T07:00:00.5-01:00", 1794729600 * NSEC_PER_SEC + NSEC_PER_SEC / 2},
	    {"2026-11-15", 1794700800 * NSEC_PER_SEC},
	    {"1794729600", 1794729600 * NSEC_PER_SEC},
	    {"9999-12-31", 9000000000 * NSEC_PER_SEC},
	    {"1960-01-01", 1},
	    {"0", 1},
	    {"9000000001s", 1},
	};
	int64_t wall;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		wall = 0;
		CHECK_INT(field_time_parse(times[i].text, &wall), 0);
		if (wall != times[i].wall)
			test_fail(__FILE__, __LINE__, "%s is %lld", times[i].text, (long long)wall);
	}
	int64_t before = clock_wall();
	CHECK_INT(field_time_parse("10m", &wall), 0);
	CHECK(wall + 600 * NSEC_PER_SEC >= before && wall + 600 * NSEC_PER_SEC <= clock_wall());
}

TEST(parameters_are_named_in_errors)
{
	static const struct {
		const char *query, *says;
	} bad[] = {
	    {"", "`name` is missing"},
	    {"name=", "`name` is empty"},
	    {"name=123456", "`name` is given twice, is longer than 5 bytes, or has a bad escape"},
	    {"name=a&name=b", "`name` is given twice"},
	    {"name=%zz", "has a bad escape"},
	    {"name=a%00", "has a bad escape"},
	    {"name=a&word=tiny", "`word` must be small or large"},
	    {"name=a&count=1", "`count` must be a number from 2 to 9"},
	    {"name=a&count=2x", "`count` must be a number"},
	    {"name=a&count=000000000000000000000002", "`count` is given twice, is longer than 23"},
	    {"name=a&flag=yes", "`flag` must be 1 or 0"},
	    {"name=a&bit=12345678", "`bit` is given twice, is longer than 7"},
	    {"name=a&time=yesterday", "`time` must be a time like"},
	    {"name=a&time=2026-13-01", "`time` must be a time like"},
	    {"name=a&time=2026-11-15x", "`time` must be a time like"},
	    {"name=a&time=2026-11-15T08:00", "`time` must be a time like"},
	    {"name=a&time=2026-11-15T08:00:00", "`time` must be a time like"},
	    {"name=a&time=2026-11-15T08:00:00Zx", "`time` must be a time like"},
	    {"name=a&time=2026-11-15T08:00:00%2B1:00", "`time` must be a time like"},
	    {"name=a&time=1763539200000", "`time` must be a time like"},
	    {"name=a&pair", "`pair` must be of the form KEY=VALUE"},
	    {"name=a&pair=b", "`pair` must be of the form KEY=VALUE"},
	    {"name=a&pair==b", "`pair` must be of the form KEY=VALUE"},
	    {"name=a&pair=b=%", "`pair` is longer than 511 bytes or has a bad escape"},
	    {"name=a&pair=1=1&pair=2=1&pair=3=1&pair=4=1&pair=5=1&pair=6=1&pair=7=1&pair=8=1&"
	     "pair=9=1&pair=10=1&pair=11=1&pair=12=1&pair=13=1&pair=14=1&pair=15=1&pair=16=1&"
	     "pair=17=1",
	     "`pair`: at most 16"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct error error;
		struct queried queried;
		char *room;
		CHECK_INT(query(bad[i].query, &room, &queried, &error), -1);
		CHECK_INT(error.kind, ERROR_INVALID);
		if (!strstr(error.message, bad[i].says))
			test_fail(__FILE__, __LINE__, "%s: %s", bad[i].query, error.message);
		free(room);
	}
}

TEST(base64_both_ways)
{
	static const char *const pairs[][2] = {
	    {"", ""},
	    {"f", "Zg=="},
	    {"fo", "Zm8="},
	    {"foo", "Zm9v"},
	    {"foob", "Zm9vYg=="},
	    {"fooba", "Zm9vYmE="},
	    {"foobar", "Zm9vYmFy"},
	};
	static const char *const bad[] = {"Z",    "Zg",   "Zg=",  "Zh==",  "Zm9=", "Zg==Zg==",
					  "Z===", "====", "Zm 9", "Zm9\n", "Zm-_", "=m9v"};
	char text[64], back[64];
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		size_t size = strlen(pairs[i][0]);
		base64_encode(pairs[i][0], size, text);
		text[BASE64_SIZE(size)] = '\0';
		CHECK_TEXT(text, pairs[i][1]);
		CHECK_INT(base64_decode(text, strlen(text), back), size);
		CHECK(memcmp(back, pairs[i][0], size) == 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (base64_decode(bad[i], strlen(bad[i]), back) != -EINVAL)
			test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
}

TEST(writer_escapes)
{
	DONE_BUFFER struct buffer buffer = BUFFER(4096);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "a", "\"\\\n\t\x01\x7f\xc3\xa9");
	put_text_size(&writer, "b", "a\0b", 3);
	put_text(&writer, "c", "\xff\xc3(\xf0\x9f\x98");
	put_bytes(&writer, "d", "\xff", 1);
	put_bytes(&writer, "e", "ok", 2);
	put_array(&writer, "f");
	put_number(&writer, NULL, 1);
	put_number(&writer, NULL, 0.125);
	put_number(&writer, NULL, 1.5);
	put_int(&writer, NULL, -3);
	put_null(&writer, NULL);
	put_bool(&writer, NULL, true);
	put_array_end(&writer);
	put_key(&writer, "k\"");
	put_text(&writer, NULL, "v");
	put_object_end(&writer);
	CHECK(!writer.full);
	CHECK_TEXT(buffer.data,
		   "{\"a\":\"\\\"\\\\\\n\\t\\u0001\\u007f\xc3\xa9\",\"b\":\"a\\u0000b\","
		   "\"c\":\"\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\","
		   "\"d_base64\":\"/w==\",\"e\":\"ok\",\"f\":[1.0,0.125,1.5,-3,null,true],"
		   "\"k\\\"\":\"v\"}");
}

/* Text is escaped in pieces: where they end must not matter. */
TEST(writer_escapes_long_text)
{
	static const char pattern[] = "\x01\xc3\xa4x\"\n\xf0\x9f\x98\x80\x7f\xe2\x82\xac";
	size_t size = 300 * (sizeof(pattern) - 1);
	char *text = malloc(size + 1);
	for (size_t i = 0; i < size; i++)
		text[i] = pattern[i % (sizeof(pattern) - 1)];
	text[size] = '\0';
	for (size_t plain = 0; plain < 9; plain++) {
		DONE_BUFFER struct buffer buffer = BUFFER(64 * 1024);
		struct json_writer writer = json_writer_on(&buffer);
		memset(text, 'p', plain * 14);
		CHECK(text_is_utf8(text, size));
		CHECK(!text_is_utf8(text, size - 1));
		put_text_size(&writer, NULL, text, size);
		CHECK(!writer.full);
		json_t *read = json_loadb(buffer.data, buffer.size, JSON_DECODE_ANY, NULL);
		CHECK_INT(json_string_length(read), size);
		CHECK_TEXT(json_string_value(read), text);
		json_decref(read);
	}
	free(text);
}

TEST(writer_says_when_full)
{
	DONE_BUFFER struct buffer buffer = BUFFER(16);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "a", "0123456789abcdef");
	put_object_end(&writer);
	CHECK(writer.full);
}

static int ask(const char *text, struct error *error, void (*look)(const struct exec_fields *ask))
{
	json_t *json = NULL;
	struct exec_fields parsed = {0};
	if (json_parse(text, strlen(text), &json, error) < 0)
		return -2;
	int result = fields_parse(json, exec_fields, FIELDS_REST, NULL, &parsed, error);
	if (result == 0)
		result = exec_fields_check(&parsed, FIELDS_REST, error);
	if (result == 0 && look)
		look(&parsed);
	exec_fields_done(&parsed);
	json_decref(json);
	return result;
}

static void look_shell(const struct exec_fields *parsed)
{
	CHECK_INT(parsed->spec.argc, 3);
	CHECK_TEXT(parsed->spec.argv[0], "/bin/sh");
	CHECK_TEXT(parsed->spec.argv[2], "exit 3");
	CHECK_INT(parsed->spec.timeout_ms, 1500);
	CHECK_INT(parsed->spec.flags, EXEC_STDIN | EXEC_TTY);
	CHECK_INT(parsed->stdin_size, 3);
	CHECK_INT(parsed->spec.limit_count, 2);
	CHECK_INT(parsed->spec.environment_count, 1);
}

TEST(exec_bodies)
{
	struct error error;
	uint32_t ms;
	/* A time-out that was asked for is never none. */
	CHECK_INT(exec_timeout_check(1e-7, 0, UINT32_MAX, FIELDS_REST, &ms, &error), 0);
	CHECK_INT(ms, 1);
	CHECK_INT(exec_timeout_check(1.5, 0.25, UINT32_MAX, FIELDS_REST, &ms, &error), 0);
	CHECK_INT(ms, 1501);
	CHECK_INT(exec_timeout_check(0, 0, UINT32_MAX, FIELDS_REST, &ms, &error), 0);
	CHECK_INT(ms, 0);
	CHECK_INT(ask("{\"cmd\":\"exit 3\",\"timeout_seconds\":1.5,\"stdin_base64\":\"Zm9v\","
		      "\"tty\":true,\"env\":{\"A\":\"b\"},"
		      "\"limits\":{\"nofile\":64,\"core\":{\"soft\":0,\"hard\":1}}}",
		      &error, look_shell),
		  0);
	CHECK_INT(ask("{\"argv\":[\"ls\",\"-l\",\"\"]}", &error, NULL), 0);
	static const char *const bad[] = {
	    "{}",
	    "{\"cmd\":\"a\",\"argv\":[\"a\"]}",
	    "{\"cmd\":\"a\",\"command\":\"a\"}",
	    "{\"argv\":[]}",
	    "{\"argv\":[\"\"]}",
	    "{\"argv\":[1]}",
	    "{\"cmd\":\"\"}",
	    "{\"cmd\":\"a\",\"env\":{\"A=\":\"b\"}}",
	    "{\"cmd\":\"a\",\"env\":{\"\":\"b\"}}",
	    "{\"cmd\":\"a\",\"env\":{\"A\":1}}",
	    "{\"cmd\":\"a\",\"stdin\":1}",
	    "{\"cmd\":\"a\",\"stdin\":\"a\",\"stdin_base64\":\"\"}",
	    "{\"cmd\":\"a\",\"stdin_base64\":\"?\"}",
	    "{\"cmd\":\"a\",\"limits\":{\"nofiles\":1}}",
	    "{\"cmd\":\"a\",\"limits\":{\"nofile\":{\"soft\":2,\"hard\":1}}}",
	    "{\"cmd\":\"a\",\"limits\":{\"nofile\":-1}}",
	    "{\"cmd\":\"a\",\"rows\":0}",
	    "{\"cmd\":\"a\",\"timeout_seconds\":1e12}",
	    "{\"cmd\":\"a\",\"output\":{\"head\":1}}",
	    "{\"cmd\":\"a\",\"max_output_bytes\":0}",
	};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (ask(bad[i], &error, NULL) != -1 || error.kind != ERROR_INVALID)
			test_fail(__FILE__, __LINE__, "%s was taken", bad[i]);
}

static json_t *operation_of(json_t *document, const struct route *route)
{
	char method[8];
	size_t size = strlen(route->method);
	for (size_t i = 0; i <= size; i++)
		method[i] = (char)(route->method[i] | (i < size ? 0x20 : 0));
	json_t *paths = json_object_get(document, "paths");
	return json_object_get(json_object_get(paths, route->pattern), method);
}

/* What a schema says, without what the rows of a table do not: sentences for the whole, and a least
 * length of 0. */
static void strip_schema(json_t *schema)
{
	const char *name;
	json_t *value;
	size_t index;
	json_t *least = json_object_get(schema, "minLength");
	if (json_is_integer(least) && json_integer_value(least) == 0)
		json_object_del(schema, "minLength");
	json_object_foreach(schema, name, value)
	{
		strip_schema(value);
	}
	json_array_foreach(schema, index, value)
	{
		strip_schema(value);
	}
}

static json_t *described_body(json_t *document, json_t *operation)
{
	json_t *schema = NULL;
	const char *reference = NULL;
	if (json_unpack(operation, "{s:{s:{s:{s:o}}}}", "requestBody", "content",
			"application/json", "schema", &schema) < 0)
		return NULL;
	if (json_unpack(schema, "{s:s}", "$ref", &reference) == 0)
		json_unpack(document, "{s:{s:{s:o}}}", "components", "schemas",
			    strrchr(reference, '/') + 1, &schema);
	schema = json_deep_copy(schema);
	json_object_del(schema, "description");
	strip_schema(schema);
	return schema;
}

/* The parser's table says what docs/openapi says. */
static void check_same(const struct route *route, const char *what, json_t *made, json_t *described)
{
	if (!json_equal(made, described)) {
		char *has = json_dumps(made, JSON_SORT_KEYS | JSON_ENCODE_ANY);
		char *should = json_dumps(described, JSON_SORT_KEYS | JSON_ENCODE_ANY);
		test_fail(__FILE__, __LINE__, "%s %s, %s:\n%s\nis described as\n%s", route->method,
			  route->pattern, what, has ? has : "nothing", should ? should : "nothing");
		free(has);
		free(should);
	}
	json_decref(made);
	json_decref(described);
}

static void check_body(json_t *document, const struct route *route, json_t *operation)
{
	struct buffer text DONE_BUFFER = BUFFER(MIB);
	struct json_writer writer = json_writer_on(&text);
	if (!route->body)
		return;
	put_fields(&writer, NULL, route->body, FIELDS_REST);
	json_t *made = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
	strip_schema(made);
	check_same(route, "the body", made, described_body(document, operation));
}

/* The query parameter of that name: its schema, and whether it is required. */
static json_t *described_parameter(json_t *operation, const char *name)
{
	size_t index;
	json_t *parameter;
	json_array_foreach(json_object_get(operation, "parameters"), index, parameter)
	{
		if (strcmp(json_string_value(json_object_get(parameter, "in")), "query") != 0 ||
		    strcmp(json_string_value(json_object_get(parameter, "name")), name) != 0)
			continue;
		json_t *schema = json_deep_copy(json_object_get(parameter, "schema"));
		strip_schema(schema);
		return json_pack("[o, b]", schema,
				 json_is_true(json_object_get(parameter, "required")));
	}
	return NULL;
}

static void check_parameter(const struct route *route, const struct field *field, json_t *operation)
{
	struct buffer text DONE_BUFFER = BUFFER(MIB);
	struct json_writer writer = json_writer_on(&text);
	put_field(&writer, NULL, field, FIELDS_QUERY);
	json_t *schema = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
	strip_schema(schema);
	bool required = field->flags & (FIELD_REQUIRED | FIELD_REQUIRED_TOLD);
	check_same(route, field->name, json_pack("[o, b]", schema, required),
		   described_parameter(operation, field->name));
}

/* Each parameter of the table is in the document, and the other way round. */
static void check_query(const struct route *route, json_t *operation)
{
	size_t index, described = 0, served = 0;
	json_t *parameter;
	json_array_foreach(json_object_get(operation, "parameters"), index, parameter)
	{
		described +=
		    strcmp(json_string_value(json_object_get(parameter, "in")), "query") == 0;
	}
	for (const struct field *field = route->query; field && field->name; field++) {
		/* The types that a query has. */
		CHECK(
		    field->type == FIELD_BOOL || field->type == FIELD_UINT ||
		    ((field->type == FIELD_TEXT || field->type == FIELD_TIME) && field->max > 0) ||
		    (field->type == FIELD_QUERY_PAIRS && field->shape));
		check_parameter(route, field, operation);
		served++;
	}
	CHECK_INT(described, served);
}

static void check_described(json_t *document, const struct route *route)
{
	json_t *operation = operation_of(document, route);
	if (!operation) {
		test_fail(__FILE__, __LINE__, "%s %s is not described", route->method,
			  route->pattern);
		return;
	}
	check_query(route, operation);
	check_body(document, route, operation);
	const char *scope = json_string_value(json_object_get(operation, "x-caisson-scope"));
	if (route->flags & ROUTE_OPEN)
		CHECK(scope == NULL);
	else
		CHECK_TEXT(scope, scope_name(route->scope));
	if (route->flags & ROUTE_JSON)
		CHECK(json_object_get(operation, "requestBody") != NULL);
}

TEST(openapi_is_what_is_served)
{
	json_error_t problem;
	json_t *document =
	    json_loadb(openapi_json, openapi_json_size, JSON_REJECT_DUPLICATES, &problem);
	CHECK(document != NULL);
	size_t served = 0, described = 0;
	for (const struct route *const *table = rest_surface.tables; *table; table++)
		for (const struct route *route = *table; route->method; route++, served++)
			check_described(document, route);
	const char *path, *method;
	json_t *item, *operation;
	json_object_foreach(json_object_get(document, "paths"), path, item)
	{
		json_object_foreach(item, method, operation)
		{
			described += strcmp(method, "parameters") != 0;
		}
	}
	CHECK_INT(served, described);
	json_decref(document);
}
