/* The index of routes, and the writing of what every answer is made of. */
#include "edge/route_index.h"

#include <time.h>

#include "base/clock.h"
#include "test.h"

TEST_MAIN

static const struct route first[] = {
    {"GET", "/v1/boxes"},
    {"POST", "/v1/boxes"},
    {"GET", "/v1/boxes/{box}"},
    {"DELETE", "/v1/boxes/{box}"},
    {"GET", "/v1/boxes/{box}/parts/{part}"},
    {0},
};
static const struct route second[] = {
    {"GET", "/v1/boxes/all"}, {"GET", "/v1/boxes/all/parts"}, {"GET", "/health"}, {"PUT", "/"}, {0},
};
static const struct route *const tables[] = {first, second, NULL};

static char parameters[CALL_PARAMETERS_MAX][CALL_PARAMETER_MAX];
static char allow[CALL_ALLOW_MAX];

static const char *found(const char *method, const char *path)
{
	memset(parameters, 0, sizeof(parameters));
	memset(allow, 0, sizeof(allow));
	const struct route *route = route_index_find(method, path, parameters, allow);
	return route ? route->pattern : "";
}

TEST(paths)
{
	route_index_build(tables);
	CHECK_TEXT(found("GET", "/v1/boxes"), "/v1/boxes");
	CHECK_TEXT(found("HEAD", "/v1/boxes"), "/v1/boxes");
	CHECK_TEXT(found("GET", "/v1/boxes/x"), "/v1/boxes/{box}");
	CHECK_TEXT(parameters[0], "x");
	CHECK_TEXT(found("GET", "/v1/boxes/x/parts/y z"), "/v1/boxes/{box}/parts/{part}");
	CHECK_TEXT(parameters[0], "x");
	CHECK_TEXT(parameters[1], "y z");
	CHECK_TEXT(found("PUT", "/"), "/");
	for (size_t i = 0; i < 6; i++) {
		static const char *const none[] = {"/v1/boxes/",   "/v1//boxes",
						   "/v1/boxes/x/", "/v1/boxes/x/y/z/a",
						   "/v1",          "/v1/boxe"};
		CHECK_TEXT(found("GET", none[i]), "");
		CHECK_TEXT(allow, "");
	}
}

TEST(words_win)
{
	route_index_build(tables);
	CHECK_TEXT(found("GET", "/v1/boxes/all"), "/v1/boxes/all");
	/* ... where they have the method; a box may be called so. */
	CHECK_TEXT(found("DELETE", "/v1/boxes/all"), "/v1/boxes/{box}");
	CHECK_TEXT(parameters[0], "all");
	CHECK_TEXT(found("GET", "/v1/boxes/all/parts/1"), "/v1/boxes/{box}/parts/{part}");
}

TEST(methods)
{
	route_index_build(tables);
	CHECK_TEXT(found("PATCH", "/v1/boxes"), "");
	CHECK_TEXT(allow, "GET, POST");
	CHECK_TEXT(found("PATCH", "/v1/boxes/all"), "");
	CHECK_TEXT(allow, "GET, DELETE");
}

TEST(long_segments)
{
	char path[64 + CALL_PARAMETER_MAX] = "/v1/boxes/";
	route_index_build(tables);
	memset(path + strlen(path), 'x', CALL_PARAMETER_MAX - 1);
	CHECK_TEXT(found("GET", path), "/v1/boxes/{box}");
	path[strlen(path)] = 'x';
	CHECK_TEXT(found("GET", path), "");
}

TEST(numbers)
{
	static const struct {
		double value;
		const char *text;
	} numbers[] = {
	    {0, "0.0"},
	    {1, "1.0"},
	    {0.5, "0.5"},
	    {0.05, "0.05"},
	    {0.125, "0.125"},
	    {12.3456, "12.346"},
	    {0.0004, "0.0"},
	    {0.9996, "1.0"},
	    {1000, "1000.0"},
	    {1010.01, "1010.01"},
	    {-1.5, "-1.5"},
	    {0.1, "0.1"},
	    {99.999, "99.999"},
	    {1e15, "1000000000000000.0"},
	    {123456789.25, "123456789.25"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		DONE_BUFFER struct buffer buffer = BUFFER(4096);
		struct json_writer writer = json_writer_on(&buffer);
		put_number(&writer, NULL, numbers[i].value);
		CHECK_TEXT(buffer_text(&buffer), numbers[i].text);
	}
	DONE_BUFFER struct buffer buffer = BUFFER(4096);
	struct json_writer writer = json_writer_on(&buffer);
	put_array(&writer, NULL);
	put_int(&writer, NULL, INT64_MIN);
	put_int(&writer, NULL, -1);
	put_uint(&writer, NULL, UINT64_MAX);
	put_uint(&writer, NULL, 0);
	put_array_end(&writer);
	CHECK_TEXT(buffer_text(&buffer), "[-9223372036854775808,-1,18446744073709551615,0]");
}

TEST(a_full_buffer_is_said)
{
	for (size_t maximum = 0; maximum < 40; maximum++) {
		DONE_BUFFER struct buffer buffer = BUFFER(maximum);
		struct json_writer writer = json_writer_on(&buffer);
		put_object(&writer, NULL);
		put_text(&writer, "key", "a \"quoted\" text");
		put_uint(&writer, "n", 7);
		put_object_end(&writer);
		CHECK(buffer.size <= maximum);
		CHECK_INT(writer.full,
			  maximum < strlen("{\"key\":\"a \\\"quoted\\\" text\",\"n\":7}"));
	}
}

TEST(times)
{
	/* Every 11 days and some from 1970 to 2262, against the C library. */
	for (int64_t seconds = 0; seconds < 9214646400; seconds += 999983) {
		char ours[CLOCK_TEXT_SIZE], theirs[CLOCK_TEXT_SIZE];
		time_t time = (time_t)seconds;
		struct tm parts;
		gmtime_r(&time, &parts);
		strftime(theirs, sizeof(theirs), "%Y-%m-%dT%H:%M:%S.042Z", &parts);
		clock_text(seconds * NSEC_PER_SEC + 42 * NSEC_PER_MSEC, ours);
		if (strcmp(ours, theirs) != 0) {
			CHECK_TEXT(ours, theirs);
			break;
		}
	}
}
