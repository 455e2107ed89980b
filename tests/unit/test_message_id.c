/* The id of a message that cannot be read: found wherever the message is cut into pieces. */
#include "base/message_id.h"

#include "test.h"

TEST_MAIN

#define LONG 5000

static struct message_id scan(const char *text, size_t piece)
{
	struct message_id id = {0};
	size_t size = strlen(text);
	for (size_t at = 0; at < size; at += piece) {
		size_t part = size - at < piece ? size - at : piece;
		/* A copy of exactly that size, so that ASan sees a read behind it. */
		char *copy = malloc(part);
		memcpy(copy, text + at, part);
		message_id_feed(&id, copy, part);
		free(copy);
	}
	return id;
}

/* wanted: NULL for none. */
static void check_id(const char *text, const char *wanted)
{
	static const size_t pieces[] = {1, 2, 3, 7, 8, 9, 64, 1000000};
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		struct message_id id = scan(text, pieces[i]);
		size_t size = message_id_size(&id);
		CHECK_INT(size, wanted ? strlen(wanted) : 0);
		CHECK(!wanted || memcmp(id.text, wanted, size) == 0);
	}
}

TEST(ids_wherever_they_stand)
{
	check_id("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"x\"}", "5");
	check_id("{\"method\":\"x\",\"id\":-12}", "-12");
	check_id(" \t{ \"method\" : \"x\" , \"id\" : \"a b\" }", "\"a b\"");
	check_id("{\"method\":\"x\",\"params\":{\"id\":7,\"x\":[\"}\",{\"id\":8}]},\"id\":9}", "9");
	check_id("{\"id\":\"a\\\"b\\\\\",\"method\":\"x\"}", "\"a\\\"b\\\\\"");
	check_id("{\"x\":\"\\\"id\\\":1,\",\"method\":\"id\",\"id\":2}", "2");
	check_id("{\"method\":\"\\u0000\",\"params\":{\"a\":\"\\ud800\"},\"id\":3}", "3");
	/* Of what follows nothing is known. */
	check_id("{\"id\":4,\"method\":\"x\",\"params\":{\"a\":\"never en", "4");
}

TEST(no_id_of_a_request)
{
	static const char *const texts[] = {
	    "",
	    "garbage \"id\":1",
	    "7",
	    "{\"id\":1}",
	    "{\"id\":1,\"result\":{\"method\":\"x\"}}", /* an answer: its id is ours */
	    "{\"method\":\"x\"}",
	    "{\"method\":\"x\",\"params\":{\"id\":1}}",
	    "{\"method\":\"x\",\"id\":1.5}",
	    "{\"method\":\"x\",\"id\":{\"id\":1}}",
	    "{\"method\":\"x\",\"id\":null}",
	    "{\"method\":\"x\",\"ids\":1,\"id_\":2,\"i\":3}",
	    "{\"method\":\"x\",\"id\":1", /* it may go on */
	    "[{\"method\":\"x\",\"id\":1}]",
	    "}{\"method\":\"x\",\"id\":1}",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		check_id(texts[i], NULL);
}

TEST(long_ones)
{
	char text[LONG + 64], id[LONG], filling[LONG];
	memset(filling, 'x', sizeof(filling) - 1);
	filling[sizeof(filling) - 1] = '\0';
	snprintf(text, sizeof(text), "{\"method\":\"x\",\"params\":\"%s\",\"id\":6}", filling);
	check_id(text, "6");
	for (int size = MESSAGE_ID_MAX - 4; size < MESSAGE_ID_MAX + 4; size++) {
		snprintf(id, sizeof(id), "\"%.*s\"", size - 2, filling);
		snprintf(text, sizeof(text), "{\"method\":\"x\",\"id\":%s}", id);
		check_id(text, size <= MESSAGE_ID_MAX ? id : NULL);
	}
}
