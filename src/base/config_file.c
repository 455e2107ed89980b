/* The configuration file: names, types, bounds and destinations of its keys.
 *
 * Reads one small file. libinih parses the syntax; we also refuse what it accepts silently: unknown
 * and repeated keys, lines that are too long, text behind a section's bracket. */
#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"

/* For default budgets: larger than any real one, and as seconds it still fits nanoseconds. */
#define BUDGET_MAX 1000000000ULL
#define QUEUE_MAX 1024

enum value_type {
	VALUE_TEXT,
	VALUE_PATHS, /* separated by ':'; repeated lines are appended */
	VALUE_SECONDS,
	VALUE_BYTES,
	VALUE_CPUS, /* "0.5" is 500 */
	VALUE_COUNT32,
	VALUE_COUNT64,
	VALUE_LEVEL,
	VALUE_BOOL,
};

struct key {
	const char *section, *name;
	enum value_type type;
	size_t offset, size;
	uint64_t min, max;
};

#define PLACE(member) offsetof(struct config, member), sizeof(((struct config *)0)->member)

static const struct key keys[] = {
    {"server", "listen", VALUE_TEXT, PLACE(listen)},
    {"server", "state", VALUE_TEXT, PLACE(state)},
    {"server", "runtime", VALUE_TEXT, PLACE(runtime)},
    {"server", "user", VALUE_TEXT, PLACE(user)},
    {"server", "tls_certificate", VALUE_TEXT, PLACE(tls_certificate)},
    {"server", "tls_key", VALUE_TEXT, PLACE(tls_key)},
    {"server", "hosts", VALUE_TEXT, PLACE(hosts)},
    {"server", "origins", VALUE_TEXT, PLACE(origins)},
    {"server", "idle_exit", VALUE_SECONDS, PLACE(idle_exit_seconds), 0, SANDBOX_TIMEOUT_MAX},
    {"server", "log_level", VALUE_LEVEL, PLACE(log_level)},
    {"server", "log_json", VALUE_BOOL, PLACE(log_json)},
    {"server", "metrics_open", VALUE_BOOL, PLACE(metrics_open)},
    {"sandbox", "cpu", VALUE_CPUS, PLACE(defaults.cpu_millis), SANDBOX_CPU_MILLIS_MIN,
     SANDBOX_CPU_MILLIS_MAX},
    {"sandbox", "cpu_max", VALUE_CPUS, PLACE(maximum.cpu_millis), SANDBOX_CPU_MILLIS_MIN,
     SANDBOX_CPU_MILLIS_MAX},
    {"sandbox", "memory", VALUE_BYTES, PLACE(defaults.memory), SANDBOX_MEMORY_MIN,
     SANDBOX_MEMORY_MAX},
    {"sandbox", "memory_max", VALUE_BYTES, PLACE(maximum.memory), SANDBOX_MEMORY_MIN,
     SANDBOX_MEMORY_MAX},
    {"sandbox", "disk", VALUE_BYTES, PLACE(defaults.disk), SANDBOX_DISK_MIN, SANDBOX_DISK_MAX},
    {"sandbox", "disk_max", VALUE_BYTES, PLACE(maximum.disk), SANDBOX_DISK_MIN, SANDBOX_DISK_MAX},
    {"sandbox", "inodes", VALUE_COUNT64, PLACE(defaults.inodes), SANDBOX_INODES_MIN,
     SANDBOX_INODES_MAX},
    {"sandbox", "inodes_max", VALUE_COUNT64, PLACE(maximum.inodes), SANDBOX_INODES_MIN,
     SANDBOX_INODES_MAX},
    {"sandbox", "pids", VALUE_COUNT32, PLACE(defaults.pids), SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
    {"sandbox", "pids_max", VALUE_COUNT32, PLACE(maximum.pids), SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
    {"sandbox", "files", VALUE_COUNT32, PLACE(defaults.files), SANDBOX_FILES_MIN,
     SANDBOX_FILES_MAX},
    {"sandbox", "files_max", VALUE_COUNT32, PLACE(maximum.files), SANDBOX_FILES_MIN,
     SANDBOX_FILES_MAX},
    {"sandbox", "timeout", VALUE_SECONDS, PLACE(timeout_seconds), 0, SANDBOX_TIMEOUT_MAX},
    {"sandbox", "timeout_max", VALUE_SECONDS, PLACE(timeout_seconds_max), 1, SANDBOX_TIMEOUT_MAX},
    {"sandbox", "idle_timeout", VALUE_SECONDS, PLACE(idle_timeout_seconds), 0, SANDBOX_TIMEOUT_MAX},
    {"sandbox", "auto_pause_seconds", VALUE_SECONDS, PLACE(auto_pause_seconds), 0,
     SANDBOX_TIMEOUT_MAX},
    {"sandbox", "output_head", VALUE_BYTES, PLACE(output_head), 0, OUTPUT_KEEP_MAX},
    {"sandbox", "output_tail", VALUE_BYTES, PLACE(output_tail), 4 * KIB, OUTPUT_KEEP_MAX},
    {"sandbox", "output_max", VALUE_BYTES, PLACE(output_max), OUTPUT_LEAST, 2 * OUTPUT_KEEP_MAX},
    {"sandbox", "log_max", VALUE_BYTES, PLACE(log_bytes_max), 64 * KIB, 1024 * GIB},
    {"sandbox", "count_max", VALUE_COUNT32, PLACE(sandboxes_max), 1, SANDBOX_COUNT_PER_STATE_MAX},
    {"sandbox", "tombstone_days", VALUE_COUNT32, PLACE(tombstone_days), 0, 36500},
    {"budget", "sandboxes", VALUE_COUNT64, PLACE(budget.sandboxes), 0, 1000000},
    {"budget", "vcpus", VALUE_CPUS, PLACE(budget.cpu_millis), 0, 1000000000},
    {"budget", "memory", VALUE_BYTES, PLACE(budget.memory), 0, SANDBOX_MEMORY_MAX * 1024},
    {"budget", "disk", VALUE_BYTES, PLACE(budget.disk), 0, SANDBOX_DISK_MAX * 1024},
    {"budget", "creates_per_minute", VALUE_COUNT64, PLACE(budget.creates[0]), 0, BUDGET_MAX},
    {"budget", "creates_per_day", VALUE_COUNT64, PLACE(budget.creates[1]), 0, BUDGET_MAX},
    {"budget", "creates_per_month", VALUE_COUNT64, PLACE(budget.creates[2]), 0, BUDGET_MAX},
    {"budget", "execs_per_minute", VALUE_COUNT64, PLACE(budget.execs[0]), 0, BUDGET_MAX},
    {"budget", "execs_per_day", VALUE_COUNT64, PLACE(budget.execs[1]), 0, BUDGET_MAX},
    {"budget", "execs_per_month", VALUE_COUNT64, PLACE(budget.execs[2]), 0, BUDGET_MAX},
    {"budget", "wall_per_minute", VALUE_SECONDS, PLACE(budget.wall_seconds[0]), 0, BUDGET_MAX},
    {"budget", "wall_per_day", VALUE_SECONDS, PLACE(budget.wall_seconds[1]), 0, BUDGET_MAX},
    {"budget", "wall_per_month", VALUE_SECONDS, PLACE(budget.wall_seconds[2]), 0, BUDGET_MAX},
    {"budget", "cpu_per_minute", VALUE_SECONDS, PLACE(budget.cpu_seconds[0]), 0, BUDGET_MAX},
    {"budget", "cpu_per_day", VALUE_SECONDS, PLACE(budget.cpu_seconds[1]), 0, BUDGET_MAX},
    {"budget", "cpu_per_month", VALUE_SECONDS, PLACE(budget.cpu_seconds[2]), 0, BUDGET_MAX},
    {"budget", "queue", VALUE_COUNT32, PLACE(queue_max), 0, QUEUE_MAX},
    {"host", "memory_reserve", VALUE_BYTES, PLACE(memory_reserve), 0, SANDBOX_MEMORY_MAX},
    {"host", "memory_overcommit", VALUE_COUNT32, PLACE(memory_overcommit), 0, 10000},
    {"host", "disk_reserve", VALUE_BYTES, PLACE(disk_reserve), 0, SANDBOX_DISK_MAX},
    {"usage", "interval", VALUE_SECONDS, PLACE(usage_interval_seconds), 1, 3600},
    {"usage", "days", VALUE_COUNT32, PLACE(usage_days), 0, 36500},
    {"pool", "size", VALUE_COUNT32, PLACE(pool_size), 0, POOL_SIZE_MAX},
    {"pool", "max", VALUE_COUNT32, PLACE(pool_max), 0, POOL_SIZE_MAX},
    {"templates", "substitute", VALUE_BOOL, PLACE(templates_substitute)},
    {"activity", "days", VALUE_COUNT32, PLACE(activity_days), 0, 36500},
    {"activity", "entries", VALUE_COUNT32, PLACE(activity_entries), 0, 10000000},
    {"activity", "redact", VALUE_TEXT, PLACE(activity_redact)},
    {"activity", "reads", VALUE_BOOL, PLACE(activity_reads)},
    {"mcp", "block_seconds", VALUE_SECONDS, PLACE(mcp_block_seconds), 1, 3600},
    {"mounts", "allow", VALUE_PATHS, PLACE(mounts_allow)},
};

/* The state of reading a file. */
struct config_reading {
	struct config *config;
	FILE *file;
	int line;
	bool seen[ARRAY_SIZE(keys)];
	bool failed; /* with message */
	char message[ERROR_MESSAGE_MAX];
};

static int bool_parse(const char *value, bool *ret)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = {{"yes", true}, {"true", true},   {"on", true},   {"1", true},
		     {"no", false}, {"false", false}, {"off", false}, {"0", false}};
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcasecmp(value, words[i].word) == 0) {
			*ret = words[i].value;
			return 0;
		}
	}
	return -EINVAL;
}

/* "2", "0.5", "1.25" cpus in thousandths, by text_to_bytes() with a unit of 1000 and without its
 * suffixes. */
static int cpus_parse(const char *value, uint64_t *ret)
{
	if (value[strspn(value, "0123456789.")])
		return -EINVAL;
	return text_to_bytes(value, 1000, ret);
}

static int paths_append(char *place, size_t size, const char *value)
{
	size_t used = strlen(place);
	return text_format(place + used, size - used, "%s%s", used ? ":" : "", value);
}

static const char *value_type_help(enum value_type type)
{
	switch (type) {
	case VALUE_TEXT:
	case VALUE_PATHS:
		return "shorter text";
	case VALUE_SECONDS:
		return "a duration such as 90s, 15m, 24h or 7d";
	case VALUE_BYTES:
		return "a size such as 512M or 1.5G";
	case VALUE_CPUS:
		return "a number of cpus such as 0.5 or 2";
	case VALUE_COUNT32:
	case VALUE_COUNT64:
		return "a whole number";
	case VALUE_LEVEL:
		return "error, warning, info or debug";
	case VALUE_BOOL:
		return "yes or no";
	}
	return "";
}

/* 0; -EINVAL: wrong type; -ERANGE: not between min and max; -ENAMETOOLONG: no room. */
static int config_set_value(struct config *config, const struct key *key, const char *value)
{
	char *place = (char *)config + key->offset;
	uint64_t number = 0;
	int result = 0;
	switch (key->type) {
	case VALUE_TEXT:
		return text_copy(place, key->size, value);
	case VALUE_PATHS:
		return paths_append(place, key->size, value);
	case VALUE_LEVEL:
		return log_level_parse(value, (enum log_level *)(void *)place);
	case VALUE_BOOL:
		return bool_parse(value, (bool *)place);
	case VALUE_SECONDS:
		result = text_to_seconds(value, &number);
		break;
	case VALUE_BYTES:
		result = text_to_bytes(value, 1, &number);
		break;
	case VALUE_CPUS:
		result = cpus_parse(value, &number);
		break;
	case VALUE_COUNT32:
	case VALUE_COUNT64:
		result = text_to_u64(value, 0, UINT64_MAX, &number);
		break;
	}
	if (result < 0)
		return result;
	if (number < key->min || number > key->max)
		return -ERANGE;
	uint32_t narrow = (uint32_t)number;
	if (key->size == sizeof(narrow))
		memcpy(place, &narrow, sizeof(narrow));
	else
		memcpy(place, &number, sizeof(number));
	return 0;
}

static void range_bound_text(const struct key *key, uint64_t value, char *text, size_t room)
{
	if (key->type == VALUE_CPUS)
		(void)!text_format(text, room, "%llu.%03llu", (unsigned long long)value / 1000,
				   (unsigned long long)value % 1000);
	else if (key->type == VALUE_BYTES && value >= MIB && value % MIB == 0)
		(void)!text_format(text, room, "%lluM", (unsigned long long)(value / MIB));
	else if (key->type == VALUE_SECONDS && value >= 86400 && value % 86400 == 0)
		(void)!text_format(text, room, "%llud", (unsigned long long)(value / 86400));
	else
		(void)!text_format(text, room, "%llu%s", (unsigned long long)value,
				   key->type == VALUE_SECONDS ? "s" : "");
}

static void value_error_text(const struct key *key, const char *value, int result, char *message)
{
	char low[32], high[32];
	if (result == -ERANGE) {
		range_bound_text(key, key->min, low, sizeof(low));
		range_bound_text(key, key->max, high, sizeof(high));
		snprintf(message, ERROR_MESSAGE_MAX, "%s = %.60s is out of range: from %s to %s",
			 key->name, value, low, high);
		return;
	}
	snprintf(message, ERROR_MESSAGE_MAX, "%s = %.60s is not understood: it takes %s", key->name,
		 value, value_type_help(key->type));
}

static int config_reading_fail(struct config_reading *reading, const char *format, ...)
    PRINTF_LIKE(2, 3);
static int config_reading_fail(struct config_reading *reading, const char *format, ...)
{
	if (reading->failed)
		return 0;
	va_list args;
	va_start(args, format);
	vsnprintf(reading->message, sizeof(reading->message), format, args);
	va_end(args);
	reading->failed = true;
	return 0;
}

/* Called by libinih for each value; 0 means "refused". */
static int config_reading_handle_value(void *user, const char *section, const char *name,
				       const char *value)
{
	struct config_reading *reading = user;
	char message[ERROR_MESSAGE_MAX];
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct key *key = &keys[i];
		if (strcmp(section, key->section) != 0 || strcmp(name, key->name) != 0)
			continue;
		if (reading->seen[i] && key->type != VALUE_PATHS)
			return config_reading_fail(
			    reading,
			    "%s is given twice (an indented line continues the one "
			    "above it)",
			    name);
		reading->seen[i] = true;
		int result = config_set_value(reading->config, key, value);
		if (result < 0) {
			value_error_text(key, value, result, message);
			return config_reading_fail(reading, "%s", message);
		}
		return 1;
	}
	if (!*section)
		return config_reading_fail(reading, "%.50s stands before the first [section]",
					   name);
	return config_reading_fail(reading, "unknown key %.50s in section [%.50s]", name, section);
}

/* Checks a "[section]" line. libinih accepts any name and any text behind it. */
static bool section_line_valid(const char *line)
{
	const char *end = strchr(line, ']');
	if (!end)
		return false;
	size_t length = (size_t)(end - line) - 1;
	const char *rest = end + 1 + strspn(end + 1, " \t\r\n");
	if (*rest && *rest != ';' && *rest != '#')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strlen(keys[i].section) == length &&
		    strncmp(line + 1, keys[i].section, length) == 0)
			return true;
	return false;
}

/* The fgets for libinih: counts lines, and refuses what libinih would silently cut or ignore.
 * NULL ends the parse. */
static char *config_reading_read_line(char *line, int room, void *stream)
{
	struct config_reading *reading = stream;
	if (reading->failed || !fgets(line, room, reading->file))
		return NULL;
	reading->line++;
	if (!strchr(line, '\n') && !feof(reading->file)) {
		config_reading_fail(
		    reading, "the line is longer than %d characters, or holds a NUL", room - 2);
		return NULL;
	}
	const char *start = line + strspn(line, " \t");
	if (*start == '[' && start == line && !section_line_valid(start)) {
		config_reading_fail(reading, "unknown section %.60s", start);
		reading->message[strcspn(reading->message, "\r\n")] = '\0';
		return NULL;
	}
	return line;
}

/* Root's configuration must belong to root: it names the directories that may be given to
 * sandboxes. */
static int file_check_owner(int fd, const char *path, struct error *error)
{
	struct stat info;
	unsigned uid;
	if (fstat(fd, &info) < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "%s", path);
	if (!S_ISREG(info.st_mode))
		return error_set(error, ERROR_CONFIG, "%s is not a regular file", path);
	if (config_user_is_root(&uid) && (info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH))))
		return error_set(error, ERROR_CONFIG,
				 "%s must belong to root and be writable by root alone; "
				 "`chown root %s && chmod go-w %s`",
				 path, path, path);
	return 0;
}

int config_read_file(struct config *config, const char *path, bool must_exist, struct error *error)
{
	CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !must_exist)
		return 0;
	if (fd < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "configuration file %s", path);
	if (file_check_owner(fd, path, error) < 0)
		return -1;
	struct config changed = *config;
	struct config_reading reading = {.config = &changed, .file = fdopen(fd, "r")};
	if (!reading.file)
		return error_set_errno(error, ERROR_CONFIG, errno, "configuration file %s", path);
	fd = -1;
	/* A list in the file replaces the default, instead of adding to it. */
	changed.mounts_allow[0] = '\0';
	int result = ini_parse_stream(config_reading_read_line, &reading,
				      config_reading_handle_value, &reading);
	bool broken = ferror(reading.file) != 0;
	fclose(reading.file);
	if (broken)
		return error_set(error, ERROR_CONFIG, "configuration file %s cannot be read", path);
	if (reading.failed)
		return error_set(error, ERROR_CONFIG, "%s:%d: %s", path, reading.line,
				 reading.message);
	if (result > 0)
		return error_set(error, ERROR_CONFIG, "%s:%d: neither a [section] nor KEY = VALUE",
				 path, result);
	if (result < 0)
		return error_set(error, ERROR_CONFIG, "configuration file %s cannot be parsed",
				 path);
	*config = changed;
	return 0;
}
