/* Configuration: the file's grammar and its complaints, the environment, the checks. */
#include "base/config.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "test.h"

TEST_MAIN

static char path[64];

static int read_text(struct config *config, const char *text, struct error *error)
{
	(void)!snprintf(path, sizeof(path), "/tmp/caisson-test-config-%d", (int)getpid());
	FILE *file = fopen(path, "w");
	if (!file)
		return -1;
	fputs(text, file);
	fclose(file);
	chmod(path, 0644);
	config_defaults(config);
	*error = (struct error){0};
	int result = config_read_file(config, path, true, error);
	unlink(path);
	return result;
}

/* Refused as CONFIG, and the message has these words in it. */
static void check_refused(const char *text, const char *words)
{
	struct config config, before;
	struct error error;
	config_defaults(&before);
	CHECK_INT(read_text(&config, text, &error), -1);
	CHECK_INT(error.kind, ERROR_CONFIG);
	if (!strstr(error.message, words))
		test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, words);
	CHECK(memcmp(&config, &before, sizeof(config)) == 0);
}

TEST(defaults_pass_their_own_check)
{
	struct config config;
	struct error error = {0};
	config_defaults(&config);
	CHECK_INT(config_check(&config, &error), 0);
	CHECK_TEXT(error.message, "");
	CHECK_TEXT(config.listen, "127.0.0.1:7878");
	CHECK_INT(config.timeout_seconds, 600);
	CHECK_INT(config.defaults.disk, 1 * GIB);
}

static void set_variables(const char *home, const char *state, const char *runtime)
{
	const struct {
		const char *name, *value;
	} variables[] = {{"HOME", home}, {"XDG_STATE_HOME", state}, {"XDG_RUNTIME_DIR", runtime}};
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		if (variables[i].value)
			setenv(variables[i].name, variables[i].value, 1);
		else
			unsetenv(variables[i].name);
	}
}

/* An ordinary user's directories: nobody else can have made them, and a socket's name fits. */
TEST(directories_of_an_ordinary_user)
{
	struct config config;
	struct error error = {0};
	char home[200] = "/home/";
	memset(home + 6, 'x', 100);
	if (geteuid() != 0)
		return;
	config_defaults(&config);
	CHECK_TEXT(config.state, "/var/lib/caisson");
	CHECK_TEXT(config.runtime, "/run/caisson");
	CHECK(seteuid(64999) == 0);
	set_variables("/home/u", "/s", "/r");
	config_defaults(&config);
	CHECK_TEXT(config.state, "/s/caisson");
	CHECK_TEXT(config.runtime, "/r/caisson");
	set_variables("/home/u", NULL, NULL);
	config_defaults(&config);
	CHECK_TEXT(config.state, "/home/u/.local/state/caisson");
	CHECK_TEXT(config.runtime, "/home/u/.local/state/caisson/run");
	CHECK_INT(config_check(&config, &error), 0);
	set_variables(home, NULL, NULL);
	config_defaults(&config);
	CHECK_TEXT(config.runtime, "/tmp/caisson-64999");
	CHECK_INT(config_check(&config, &error), 0);
	set_variables(NULL, NULL, NULL);
	config_defaults(&config);
	CHECK_TEXT(config.state, "/var/tmp/caisson-64999");
	CHECK(seteuid(0) == 0);
}

TEST(file_sets_every_type)
{
	struct config config;
	struct error error;
	CHECK_INT(read_text(&config,
			    "# comment\n[server]\nlisten = [::1]:99\nstate=/a/b ; inline\n"
			    "log_level = debug\nlog_json = yes\nidle_exit = 5m\n"
			    "[sandbox]\nmemory = 1.5G\ncpu_max = 16\ncpu = 0.25\npids = 77\n"
			    "inodes = 123456\ntimeout = 2h\n[mounts]\nallow = /srv:/home\n  /opt\n",
			    &error),
		  0);
	CHECK_TEXT(error.message, "");
	CHECK_TEXT(config.listen, "[::1]:99");
	CHECK_TEXT(config.state, "/a/b");
	CHECK_INT(config.log_level, LOG_DEBUG);
	CHECK(config.log_json);
	CHECK_INT(config.idle_exit_seconds, 300);
	CHECK_INT(config.defaults.memory, 1536 * MIB);
	CHECK_INT(config.defaults.cpu_millis, 250);
	CHECK_INT(config.maximum.cpu_millis, 16000);
	CHECK_INT(config.defaults.pids, 77);
	CHECK_INT(config.defaults.inodes, 123456);
	CHECK_INT(config.timeout_seconds, 7200);
	CHECK_TEXT(config.mounts_allow, "/srv:/home:/opt");
}

TEST(mistakes_are_named_with_their_line)
{
	check_refused("[server]\nlistn = x\n", ":2: unknown key listn in section [server]");
	check_refused("[sevrer]\n", ":1: unknown section [sevrer]");
	check_refused("[server] x\n", ":1: unknown section [server] x");
	check_refused("listen = x\n", ":1: listen stands before");
	check_refused("[server]\nrubbish\n", ":2: neither");
	check_refused("[server]\nuser = a\n\nuser = b\n", ":4: user is given twice");
	check_refused("[server]\nuser = a\n  state = /b\n", ":3: user is given twice");
	check_refused("[sandbox]\nmemory = much\n", "a size such as");
	check_refused("[sandbox]\nmemory = 1K\n", "out of range: from 16M");
	check_refused("[sandbox]\ntimeout = 400d\n", "out of range: from 0s to 366d");
	check_refused("[sandbox]\ncpu = 2k\n", "a number of cpus");
	check_refused("[sandbox]\ncpu = 0.001\n", "from 0.010 to 256.000");
	check_refused("[sandbox]\npids = -1\n", "a whole number");
	check_refused("[sandbox]\npids = 99999999999999999999999\n", "out of range");
	check_refused("[sandbox]\ncount_max = 257\n", "from 1 to 256");
	check_refused("[server]\nlog_level = loud\n", "error, warning, info or debug");
	check_refused("[server]\nlog_json = perhaps\n", "yes or no");
}

TEST(long_lines_are_refused_not_cut)
{
	char text[4096];
	int used = snprintf(text, sizeof(text), "[server]\nstate = /");
	memset(text + used, 'a', 3000);
	text[used + 3000] = '\0';
	check_refused(text, ":2: the line is longer");
}

TEST(absent_file)
{
	struct config config;
	struct error error = {0};
	config_defaults(&config);
	CHECK_INT(config_read_file(&config, "/nonexistent/caisson.conf", false, &error), 0);
	CHECK_INT(config_read_file(&config, "/nonexistent/caisson.conf", true, &error), -1);
	CHECK_INT(error.kind, ERROR_CONFIG);
	CHECK_INT(config_read_file(&config, "/tmp", true, &error), -1);
	CHECK_INT(config_read_file(&config, "/dev/null", true, &error), -1);
}

TEST(root_obeys_only_its_own_file)
{
	struct config config;
	struct error error = {0};
	if (geteuid() != 0)
		return;
	config_defaults(&config);
	FILE *file = fopen(path, "w");
	fputs("[server]\n", file);
	fclose(file);
	CHECK_INT(chmod(path, 0666), 0);
	CHECK_INT(config_read_file(&config, path, true, &error), -1);
	CHECK_INT(chmod(path, 0644), 0);
	CHECK_INT(chown(path, 1234, 0), 0);
	CHECK_INT(config_read_file(&config, path, true, &error), -1);
	unlink(path);
}

TEST(environment)
{
	struct config config;
	struct error error = {0};
	config_defaults(&config);
	setenv("CAISSON_LISTEN", "none", 1);
	setenv("CAISSON_STATE", "/s", 1);
	setenv("CAISSON_RUNTIME", "/r", 1);
	setenv("CAISSON_LOG", "debug,json", 1);
	CHECK_INT(config_read_environment(&config, &error), 0);
	CHECK_TEXT(config.listen, "none");
	CHECK_TEXT(config.state, "/s");
	CHECK_TEXT(config.runtime, "/r");
	CHECK(config.log_json && config.log_level == LOG_DEBUG);
	setenv("CAISSON_LOG", "debug,xml", 1);
	CHECK_INT(config_read_environment(&config, &error), -1);
	CHECK_INT(error.kind, ERROR_CONFIG);
	unsetenv("CAISSON_LOG");
	unsetenv("CAISSON_LISTEN");
	unsetenv("CAISSON_STATE");
	unsetenv("CAISSON_RUNTIME");
}

TEST(listen_forms)
{
	char host[CONFIG_HOST_MAX];
	uint16_t port;
	CHECK_INT(config_split_listen("127.0.0.1:80", host, &port), 0);
	CHECK_TEXT(host, "127.0.0.1");
	CHECK_INT(port, 80);
	CHECK_INT(config_split_listen("[::]:0", host, &port), 0);
	CHECK_TEXT(host, "::");
	CHECK_INT(config_split_listen("localhost:65535", host, &port), 0);
	CHECK_TEXT(host, "127.0.0.1");
	CHECK_INT(config_split_listen("none", host, &port), -ENOENT);
	const char *bad[] = {
	    "",           ":80",     "1.2.3.4",      "1.2.3.4:",       "1.2.3.4:65536",
	    "::1:80",     "[::1]80", "[1.2.3.4]:80", "example.org:80", "1.2.3.4:8 ",
	    "1.2.3.4:-1", "[::1",    "[localhost]:1"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_INT(config_split_listen(bad[i], host, &port), -EINVAL);
}

static void check_bad(void (*spoil)(struct config *config), const char *words)
{
	struct config config;
	struct error error = {0};
	config_defaults(&config);
	spoil(&config);
	CHECK_INT(config_check(&config, &error), -1);
	CHECK_INT(error.kind, ERROR_CONFIG);
	if (!strstr(error.message, words))
		test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.message, words);
}

static void relative_state(struct config *config)
{
	snprintf(config->state, sizeof(config->state), "here");
}
static void dotted_state(struct config *config)
{
	snprintf(config->state, sizeof(config->state), "/a/../b");
}
static void slash_state(struct config *config)
{
	snprintf(config->state, sizeof(config->state), "/a/");
}
static void long_runtime(struct config *config)
{
	memset(config->runtime + 1, 'a', 80);
	config->runtime[81] = '\0';
}
static void default_above_maximum(struct config *config)
{
	config->maximum.disk = config->defaults.disk - 1;
}
static void key_without_certificate(struct config *config)
{
	snprintf(config->tls_key, sizeof(config->tls_key), "/k");
}
static void relative_mounts(struct config *config)
{
	snprintf(config->mounts_allow, sizeof(config->mounts_allow), "/a:b");
}

static void pool_above_maximum(struct config *config)
{
	config->pool_size = config->pool_max + 1;
}

TEST(check_refuses)
{
	check_bad(relative_state, "absolute");
	check_bad(dotted_state, "'..'");
	check_bad(slash_state, "at its end");
	check_bad(long_runtime, "too long");
	check_bad(default_above_maximum, "disk_max");
	check_bad(key_without_certificate, "together");
	check_bad(relative_mounts, "allow");
	check_bad(pool_above_maximum, "[pool] size = 17 is more than max = 16");
}
