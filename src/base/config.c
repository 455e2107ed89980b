/* Configuration: defaults, environment and checks. config_file.c reads the file.
 *
 * Called once at the start of each role (and on SIGHUP by the daemon). Does not block. */
#include "base/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"

/* Longest runtime directory for which <runtime>/guests/<id>/init.sock fits sun_path. */
#define RUNTIME_LENGTH_MAX (108 - 1 - 8 - ID_LENGTH - 10)

bool config_user_is_root(unsigned *ret_uid)
{
	char text[256];
	unsigned inside, outside, count;
	*ret_uid = geteuid();
	if (geteuid() != 0)
		return false;
	if (fd_read_small(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) > 0 &&
	    sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0)
		*ret_uid = outside;
	return *ret_uid == 0;
}

static void state_default(struct config *config)
{
	const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *to = config->state;
	size_t room = sizeof(config->state);
	unsigned uid;
	if (config_user_is_root(&uid))
		(void)!text_copy(to, room, "/var/lib/caisson");
	else if (base && base[0] == '/')
		(void)!text_format(to, room, "%s/caisson", base);
	else if (home && home[0] == '/' && home[1])
		(void)!text_format(to, room, "%s/.local/state/caisson", home);
	else
		(void)!text_format(to, room, "/var/tmp/caisson-%u", uid);
}

/* Must follow state_default(). /tmp is the last resort: another user can create the directory there
 * first. We refuse such a directory, so that user can prevent a start. */
static void runtime_default(struct config *config)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	char *to = config->runtime, own[64];
	size_t room = sizeof(config->runtime);
	struct stat info;
	unsigned uid;
	if (config_user_is_root(&uid)) {
		(void)!text_copy(to, room, "/run/caisson");
		return;
	}
	if (base && base[0] == '/') {
		(void)!text_format(to, room, "%s/caisson", base);
		return;
	}
	(void)!text_format(own, sizeof(own), "/run/user/%u", uid);
	if (stat(own, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid())
		(void)!text_format(to, room, "%s/caisson", own);
	else if (strlen(config->state) + strlen("/run") <= RUNTIME_LENGTH_MAX &&
		 !text_starts(config->state, "/var/tmp/"))
		(void)!text_format(to, room, "%s/run", config->state);
	else
		(void)!text_format(to, room, "/tmp/caisson-%u", uid);
}

void config_defaults(struct config *config)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
	uint64_t memory = (uint64_t)MAX(pages, 1L) * (uint64_t)sysconf(_SC_PAGESIZE);
	*config = (struct config){
	    .listen = CONFIG_LISTEN_DEFAULT,
	    .pool_size = POOL_SIZE_DEFAULT,
	    .pool_max = POOL_MAX_DEFAULT,
	    .log_level = LOG_INFO,
	    .maximum =
		{
		    .memory = MAX(MIN(memory, SANDBOX_MEMORY_MAX), SANDBOX_MEMORY_MIN),
		    .disk = 256 * GIB,
		    .inodes = 256 * GIB / (16 * KIB),
		    .cpu_millis = (uint32_t)MIN(MAX(cpus, 1L) * 1000L, SANDBOX_CPU_MILLIS_MAX),
		    .pids = SANDBOX_PIDS_MAX,
		    .files = SANDBOX_FILES_MAX,
		},
	    .timeout_seconds = SANDBOX_TIMEOUT_DEFAULT,
	    .timeout_seconds_max = SANDBOX_TIMEOUT_MAX,
	    .output_head = OUTPUT_HEAD_DEFAULT,
	    .output_tail = OUTPUT_TAIL_DEFAULT,
	    .output_max = OUTPUT_MAX_DEFAULT,
	    .log_bytes_max = 256 * MIB,
	    .sandboxes_max = 256,
	    .tombstone_days = 30,
	    .queue_max = 64,
	    .memory_overcommit = 8,
	    .usage_interval_seconds = 10,
	    .usage_days = 400,
	    .activity_days = 30,
	    .activity_entries = 20000,
	    .activity_redact = CONFIG_REDACT_DEFAULT,
	    .mcp_block_seconds = CONFIG_MCP_BLOCK_DEFAULT,
	};
	config->defaults = (struct limits){
	    .memory = MIN(SANDBOX_MEMORY_DEFAULT, config->maximum.memory),
	    .disk = SANDBOX_DISK_DEFAULT,
	    .inodes = SANDBOX_INODES_DEFAULT,
	    .cpu_millis = MIN(SANDBOX_CPU_MILLIS_DEFAULT, config->maximum.cpu_millis),
	    .pids = SANDBOX_PIDS_DEFAULT,
	    .files = SANDBOX_FILES_DEFAULT,
	};
	state_default(config);
	runtime_default(config);
}

int config_path(const char *explicit_path, char *path, size_t room)
{
	const char *named = explicit_path ? explicit_path : getenv("CAISSON_CONFIG");
	const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	unsigned uid;
	if (named && *named)
		return text_copy(path, room, named);
	if (config_user_is_root(&uid))
		return text_copy(path, room, "/etc/caisson/caisson.conf");
	if (base && base[0] == '/')
		return text_format(path, room, "%s/caisson/caisson.conf", base);
	return text_format(path, room, "%s/.config/caisson/caisson.conf",
			   home && home[0] == '/' ? home : "");
}

/* CAISSON_LOG is a level, "json", or both, separated by a comma. */
static int environment_read_log(struct config *config, const char *value, struct error *error)
{
	char text[64];
	if (text_copy(text, sizeof(text), value) < 0)
		return error_set(error, ERROR_CONFIG, "CAISSON_LOG is too long");
	for (char *word = text; word;) {
		char *comma = strchr(word, ',');
		if (comma)
			*comma = '\0';
		if (strcmp(word, "json") == 0)
			config->log_json = true;
		else if (strcmp(word, "text") == 0)
			config->log_json = false;
		else if (log_level_parse(word, &config->log_level) == 0)
			config->log_level_fixed = true;
		else
			return error_set(error, ERROR_CONFIG,
					 "CAISSON_LOG=%s is not understood: it takes error, "
					 "warning, info or debug, and json, as in \"debug,json\"",
					 value);
		word = comma ? comma + 1 : NULL;
	}
	return 0;
}

int config_read_environment(struct config *config, struct error *error)
{
	const struct {
		const char *name;
		char *place;
		size_t room;
	} variables[] = {
	    {"CAISSON_LISTEN", config->listen, sizeof(config->listen)},
	    {"CAISSON_STATE", config->state, sizeof(config->state)},
	    {"CAISSON_RUNTIME", config->runtime, sizeof(config->runtime)},
	};
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *value = getenv(variables[i].name);
		if (value && *value && text_copy(variables[i].place, variables[i].room, value) < 0)
			return error_set(error, ERROR_CONFIG, "%s is longer than %zu characters",
					 variables[i].name, variables[i].room - 1);
	}
	const char *log = getenv("CAISSON_LOG");
	return log && *log ? environment_read_log(config, log, error) : 0;
}

int config_split_listen(const char *listen, char host[CONFIG_HOST_MAX], uint16_t *ret_port)
{
	unsigned char address[sizeof(struct in6_addr)];
	if (strcmp(listen, "none") == 0)
		return -ENOENT;
	bool bracket = listen[0] == '[';
	const char *end = bracket ? strchr(listen, ']') : strchr(listen, ':');
	const char *begin = listen + bracket;
	if (!end || (bracket && end[1] != ':') || end - begin >= CONFIG_HOST_MAX)
		return -EINVAL;
	memcpy(host, begin, (size_t)(end - begin));
	host[end - begin] = '\0';
	if (strcmp(host, "localhost") == 0 && !bracket)
		(void)!text_copy(host, CONFIG_HOST_MAX, "127.0.0.1");
	uint64_t port;
	if (inet_pton(bracket ? AF_INET6 : AF_INET, host, address) != 1 ||
	    text_to_u64(end + 1 + bracket, 0, UINT16_MAX, &port) < 0)
		return -EINVAL;
	*ret_port = (uint16_t)port;
	return 0;
}

/* A directory in which we make files: absolute and normalised, so that one directory has one
 * spelling. */
static int directory_check(const char *what, const char *path, size_t length_max,
			   struct error *error)
{
	size_t length = strlen(path);
	if (path[0] != '/' || length < 2)
		return error_set(error, ERROR_CONFIG,
				 "the %s directory must be an absolute path below /, not \"%s\"",
				 what, path);
	if (length > length_max)
		return error_set(error, ERROR_CONFIG,
				 "the %s directory %s is too long: at most %zu characters", what,
				 path, length_max);
	for (const char *part = path; part; part = strchr(part + 1, '/')) {
		size_t size = strcspn(part + 1, "/");
		if (size == 0 || (size == 1 && part[1] == '.') ||
		    (size == 2 && part[1] == '.' && part[2] == '.'))
			return error_set(error, ERROR_CONFIG,
					 "the %s directory %s must have no empty, '.' or '..' "
					 "part and no '/' at its end",
					 what, path);
	}
	return 0;
}

static int limits_check(const struct config *config, struct error *error)
{
	const struct limits *defaults = &config->defaults, *maximum = &config->maximum;
	const struct {
		const char *name;
		uint64_t value, maximum;
	} pairs[] = {
	    {"cpu", defaults->cpu_millis, maximum->cpu_millis},
	    {"memory", defaults->memory, maximum->memory},
	    {"disk", defaults->disk, maximum->disk},
	    {"inodes", defaults->inodes, maximum->inodes},
	    {"pids", defaults->pids, maximum->pids},
	    {"files", defaults->files, maximum->files},
	    {"timeout", config->timeout_seconds, config->timeout_seconds_max},
	};
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		if (pairs[i].value > pairs[i].maximum)
			return error_set(error, ERROR_CONFIG,
					 "[sandbox] %s is more than %s_max allows", pairs[i].name,
					 pairs[i].name);
	if (config->pool_size > config->pool_max)
		return error_set(error, ERROR_CONFIG, "[pool] size = %u is more than max = %u",
				 config->pool_size, config->pool_max);
	return 0;
}

static int mounts_check(const struct config *config, struct error *error)
{
	for (const char *path = config->mounts_allow; *path;) {
		size_t length = strcspn(path, ":");
		if (length == 0 || path[0] != '/')
			return error_set(error, ERROR_CONFIG,
					 "[mounts] allow takes absolute paths with ':' between, "
					 "not \"%.*s\"",
					 (int)MIN(length, (size_t)100), path);
		path += length + (path[length] == ':');
	}
	return 0;
}

int config_check(const struct config *config, struct error *error)
{
	char host[CONFIG_HOST_MAX];
	uint16_t port;
	if (directory_check("state", config->state, sizeof(config->state) - 80, error) < 0 ||
	    directory_check("runtime", config->runtime, RUNTIME_LENGTH_MAX, error) < 0)
		return -1;
	if (config_split_listen(config->listen, host, &port) == -EINVAL)
		return error_set(error, ERROR_CONFIG,
				 "listen = %s is not understood: it takes HOST:PORT with a numeric "
				 "address, such as 127.0.0.1:7878 or [::1]:7878, or none",
				 config->listen);
	if (strchr(config->user, ':') || strchr(config->user, '/'))
		return error_set(error, ERROR_CONFIG, "user = %s is not a user's name",
				 config->user);
	if (!config->tls_certificate[0] != !config->tls_key[0])
		return error_set(error, ERROR_CONFIG,
				 "`tls_certificate` and `tls_key` must be given together");
	if (limits_check(config, error) < 0)
		return -1;
	return mounts_check(config, error);
}

int config_socket_path(const struct config *config, char *path, size_t room)
{
	return text_format(path, room, "%s/caisson.sock", config->runtime);
}
