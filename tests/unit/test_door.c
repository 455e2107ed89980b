/* What the configuration says of the TCP door: names and origins. */
#include "daemon/door.h"

#include "test.h"

TEST_MAIN

static struct config configured(const char *listen, const char *hosts, const char *origins)
{
	struct config config;
	config_defaults(&config);
	snprintf(config.listen, sizeof(config.listen), "%s", listen);
	snprintf(config.hosts, sizeof(config.hosts), "%s", hosts);
	snprintf(config.origins, sizeof(config.origins), "%s", origins);
	return config;
}

static bool has(const char *const *list, const char *word)
{
	for (; list && *list; list++)
		if (strcmp(*list, word) == 0)
			return true;
	return false;
}

TEST(names)
{
	static struct door door;
	struct error error;
	struct config config = configured("127.0.0.1:7878", "", "");
	CHECK_INT(door_configure(&door, &config, &error), 0);
	CHECK(has(door.hosts, "localhost") && has(door.hosts, "127.0.0.1") &&
	      has(door.hosts, "[::1]"));
	CHECK(door.origins && !door.origins[0]);
	config = configured("[fd00::5]:1", "a.example,  [fd00::1] ,b", "https://x.example");
	CHECK_INT(door_configure(&door, &config, &error), 0);
	CHECK(has(door.hosts, "a.example") && has(door.hosts, "b") && has(door.hosts, "[fd00::1]"));
	CHECK(has(door.hosts, "[fd00::5]") && has(door.hosts, "localhost"));
	CHECK(has(door.origins, "https://x.example") && !door.origins[1]);
}

TEST(every_address)
{
	static struct door door;
	struct error error;
	struct config config = configured("0.0.0.0:7878", "", "");
	CHECK_INT(door_configure(&door, &config, &error), 0);
	CHECK(!door.hosts);
	config = configured("[::]:7878", "caisson.example", "");
	CHECK_INT(door_configure(&door, &config, &error), 0);
	CHECK(has(door.hosts, "caisson.example") && has(door.hosts, "localhost") &&
	      !has(door.hosts, "[::]"));
}

TEST(what_is_refused)
{
	static const char *const hosts[] = {"a/b", "name:80", "[::1", "[]", "[g::1]", "a b,c\"d"};
	static const char *const origins[] = {
	    "*",          "null",         "https://x/",    "x.example",
	    "ftp://x",    "https://",     "https://x:0",   "https://x:99999",
	    "https://x:", "https://[::1", "https://user@x"};
	static struct door door;
	struct error error;
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct config config = configured("none", hosts[i], "");
		CHECK_INT(door_configure(&door, &config, &error), -1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(origins); i++) {
		struct config config = configured("none", "", origins[i]);
		CHECK_INT(door_configure(&door, &config, &error), -1);
	}
	char many[1024] = "";
	for (int i = 0; i < 40; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "h%d ", i);
	struct config config = configured("none", many, "");
	CHECK_INT(door_configure(&door, &config, &error), -1);
}
