/* What the configuration says of the TCP listener: names and origins. */
#include "daemon/tcp_access.h"

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
	static struct tcp_access access;
	struct error error;
	struct config config = configured("127.0.0.1:7878", "", "");
	CHECK_INT(tcp_access_configure(&access, &config, &error), 0);
	CHECK(has(access.hosts, "localhost") && has(access.hosts, "127.0.0.1") &&
	      has(access.hosts, "[::1]"));
	CHECK(access.origins && !access.origins[0]);
	config = configured("[fd00::5]:1", "a.example,  [fd00::1] ,b", "https://x.example");
	CHECK_INT(tcp_access_configure(&access, &config, &error), 0);
	CHECK(has(access.hosts, "a.example") && has(access.hosts, "b") &&
	      has(access.hosts, "[fd00::1]"));
	CHECK(has(access.hosts, "[fd00::5]") && has(access.hosts, "localhost"));
	CHECK(has(access.origins, "https://x.example") && !access.origins[1]);
}

TEST(every_address)
{
	static struct tcp_access access;
	struct error error;
	struct config config = configured("0.0.0.0:7878", "", "");
	CHECK_INT(tcp_access_configure(&access, &config, &error), 0);
	CHECK(!access.hosts);
	config = configured("[::]:7878", "caisson.example", "");
	CHECK_INT(tcp_access_configure(&access, &config, &error), 0);
	CHECK(has(access.hosts, "caisson.example") && has(access.hosts, "localhost") &&
	      !has(access.hosts, "[::]"));
}

TEST(what_is_refused)
{
	static const char *const hosts[] = {"a/b", "name:80", "[::1", "[]", "[g::1]", "a b,c\"d"};
	static const char *const origins[] = {
	    "*",          "null",         "https://x/",    "x.example",
	    "ftp://x",    "https://",     "https://x:0",   "https://x:99999",
	    "https://x:", "https://[::1", "https://user@x"};
	static struct tcp_access access;
	struct error error;
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct config config = configured("none", hosts[i], "");
		CHECK_INT(tcp_access_configure(&access, &config, &error), -1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(origins); i++) {
		struct config config = configured("none", "", origins[i]);
		CHECK_INT(tcp_access_configure(&access, &config, &error), -1);
	}
	char many[1024] = "";
	for (int i = 0; i < 40; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "h%d ", i);
	struct config config = configured("none", many, "");
	CHECK_INT(tcp_access_configure(&access, &config, &error), -1);
}
