/* `caisson create`, and the request that `run` makes too. The calling user opens the folders here
 * and their descriptors are sent along: the daemon opens no path of ours. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"
#include "proto/folder_grant.h"

struct create_options create_options;

int pairs_to_json(const struct text_list *list, bool inherit, json_t **ret_json,
		  struct error *error)
{
	json_t *object = json_object();
	for (size_t i = 0; i < list->count; i++) {
		const char *item = list->items[i];
		const char *equals = strchr(item, '=');
		FREE_TEXT char *key =
		    strndup(item, equals ? (size_t)(equals - item) : strlen(item));
		const char *value = equals ? equals + 1 : inherit ? getenv(item) : NULL;
		if (!key || !*key || (!value && !inherit)) {
			json_decref(object);
			return error_set(error, ERROR_USAGE, "\"%s\" is not of the form K=V", item);
		}
		/* A variable that is not set here is not passed on, as with other tools. */
		if (value && json_object_set_new(object, key, json_string(value)) < 0) {
			json_decref(object);
			return error_set(error, ERROR_USAGE, "\"%s\" is not valid UTF-8", item);
		}
	}
	*ret_json = object;
	return 0;
}

int body_set_megabytes(json_t *body, const char *field, const char *text, struct error *error)
{
	uint64_t bytes;
	if (!text)
		return 0;
	uint64_t least = strcmp(field, "disk_mb") == 0 ? SANDBOX_DISK_MIN : SANDBOX_MEMORY_MIN;
	if (text_to_bytes(text, MIB, &bytes) < 0 || bytes < MIB)
		return error_set(error, ERROR_USAGE,
				 "--%s: invalid size `%s`; use for example 512M or 2G, at least "
				 "%lluM",
				 field_flag(field), text, (unsigned long long)(least / MIB));
	json_object_set_new(body, field, json_integer((json_int_t)(bytes / MIB)));
	return 0;
}

int body_set_seconds(json_t *body, const char *field, const char *text, struct error *error)
{
	uint64_t seconds;
	if (!text)
		return 0;
	if (text_to_seconds(text, &seconds) < 0 || seconds > SANDBOX_TIMEOUT_MAX)
		return error_set(error, ERROR_USAGE,
				 "--%s: invalid time `%s`; use for example 90, 15m, 2h or 7d",
				 field_flag(field), text);
	json_object_set_new(body, field, json_integer((json_int_t)seconds));
	return 0;
}

int body_set_cpus(json_t *body, const char *text, struct error *error)
{
	char *end;
	if (!text)
		return 0;
	double cpu = strtod(text, &end);
	if (*end || end == text || !isfinite(cpu) || cpu <= 0)
		return error_set(error, ERROR_USAGE,
				 "--cpu: invalid number `%s`; use for example 0.5 or 2", text);
	json_object_set_new(body, "cpu", json_real(cpu));
	return 0;
}

static int create_body_set_numbers(json_t *body, struct error *error)
{
	if (body_set_cpus(body, create_options.cpu, error) < 0)
		return -1;
	uint64_t pids;
	if (create_options.pids) {
		if (text_to_u64(create_options.pids, 1, SANDBOX_PIDS_MAX, &pids) < 0)
			return error_set(error, ERROR_USAGE,
					 "--pids: invalid number `%s`; use 1 to %u",
					 create_options.pids, SANDBOX_PIDS_MAX);
		json_object_set_new(body, "pids", json_integer((json_int_t)pids));
	}
	if (body_set_megabytes(body, "memory_mb", create_options.memory, error) < 0 ||
	    body_set_megabytes(body, "disk_mb", create_options.disk, error) < 0 ||
	    body_set_seconds(body, "timeout_seconds", create_options.timeout, error) < 0 ||
	    body_set_seconds(body, "idle_timeout_seconds", create_options.idle_timeout, error) <
		0 ||
	    body_set_seconds(body, "auto_pause_seconds", create_options.auto_pause, error) < 0)
		return -1;
	uint64_t wait = 0;
	if (create_options.wait && (text_to_seconds(create_options.wait, &wait) < 0 || wait > 600))
		return error_set(error, ERROR_USAGE,
				 "--wait: invalid time `%s`; use for example 30s, at most 10m",
				 create_options.wait);
	if (wait)
		json_object_set_new(body, "wait_ms", json_integer((json_int_t)(wait * 1000)));
	return 0;
}

/* Parses "HOST:GUEST[:mode]" and opens the folder; *ret_fd is its grant. */
static int create_mount_open(const char *text, json_t *mounts, int *ret_fd, struct error *error)
{
	FREE_TEXT char *host = text_duplicate(text);
	char *guest = strchr(host, ':');
	if (!guest || guest == host || guest[1] != '/')
		return error_set(error, ERROR_USAGE,
				 "\"%s\": a folder is given as HOST:GUEST[:ro|rw|cow] with GUEST "
				 "absolute, like .:/workspace:rw",
				 text);
	*guest++ = '\0';
	const char *mode = "ro";
	char *colon = strrchr(guest, ':');
	if (colon) {
		*colon = '\0';
		mode = colon + 1;
	}
	enum mount_mode number;
	if (mount_mode_parse(mode, &number) < 0)
		return error_set(error, ERROR_USAGE,
				 "\"%s\": the mode is ro (read-only), rw (read-write) or cow "
				 "(copy-on-write), not \"%s\"",
				 text, mode);
	/* Not O_PATH: an open directory proves that this user may read it. */
	CLOSE_FD int directory = open(host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0 && errno == ENOTDIR)
		return error_set(error, ERROR_USAGE,
				 "%s is not a folder, and only folders can be given; a file is "
				 "copied: caisson cp %s SANDBOX:%s",
				 host, host, guest);
	if (directory < 0)
		return error_set_errno(error, ERROR_USAGE, errno, "the folder %s", host);
	*ret_fd = folder_grant_make(directory, number);
	if (*ret_fd < 0)
		return error_set_errno(error, ERROR_INTERNAL, *ret_fd, "giving the folder %s",
				       host);
	FREE_TEXT char *real = realpath(host, NULL);
	json_array_append_new(mounts, json_pack("{s:s, s:s, s:s}", "path", guest, "mode", mode,
						"host_path", real ? real : host));
	return 0;
}

int create_mounts_open(json_t *body, int fds[CREATE_MOUNTS_MAX], size_t *ret_count,
		       struct error *error)
{
	const struct text_list *list = &create_options.mounts;
	*ret_count = 0;
	for (size_t i = 0; i < CREATE_MOUNTS_MAX; i++)
		fds[i] = -1;
	if (list->count == 0)
		return 0;
	if (list->count > CREATE_MOUNTS_MAX)
		return error_set(error, ERROR_USAGE, "at most %d folders can be given",
				 CREATE_MOUNTS_MAX);
	json_t *mounts = json_array();
	json_object_set_new(body, "mounts", mounts);
	for (size_t i = 0; i < list->count; i++) {
		if (create_mount_open(list->items[i], mounts, &fds[i], error) < 0)
			return -1;
		(*ret_count)++;
	}
	return 0;
}

static int create_body_fill(json_t *body, uint32_t default_idle_timeout, struct error *error)
{
	const struct {
		const char *name, *value;
	} texts[] = {{"template", create_options.template},
		     {"isolation", create_options.isolation},
		     {"name", create_options.name},
		     {"size", create_options.size}};
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].value &&
		    json_object_set_new(body, texts[i].name, json_string(texts[i].value)) < 0)
			return error_set(error, ERROR_USAGE, "--%s is not valid UTF-8",
					 texts[i].name);
	if (default_idle_timeout && !create_options.idle_timeout)
		json_object_set_new(body, "idle_timeout_seconds",
				    json_integer(default_idle_timeout));
	if (create_body_set_numbers(body, error) < 0)
		return -1;
	json_t *pairs;
	if (pairs_to_json(&create_options.environment, true, &pairs, error) < 0)
		return -1;
	json_object_set_new(body, "env", pairs);
	if (pairs_to_json(&create_options.metadata, false, &pairs, error) < 0)
		return -1;
	json_object_set_new(body, "metadata", pairs);
	if (pairs_to_json(&create_options.labels, false, &pairs, error) < 0)
		return -1;
	json_object_set_new(body, "labels", pairs);
	const struct {
		const char *name;
		bool value;
	} flags[] = {{"nested_userns", create_options.nested_userns},
		     {"allow_substitute", create_options.allow_substitute},
		     {"persistent", create_options.persistent},
		     {"wake_on_read", create_options.wake_on_read}};
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (flags[i].value)
			json_object_set_new(body, flags[i].name, json_true());
	return 0;
}

int client_sandbox_create(struct client *client, uint32_t default_idle_timeout, json_t **ret_json,
			  struct error *error)
{
	json_t *body = json_object();
	int fds[CREATE_MOUNTS_MAX];
	size_t fd_count = 0;
	int result = create_body_fill(body, default_idle_timeout, error);
	if (result == 0)
		result = create_mounts_open(body, fds, &fd_count, error);
	if (result == 0)
		result = client_call(client, "POST", "/v1/sandboxes", body, fds, fd_count, ret_json,
				     error);
	for (size_t i = 0; i < fd_count; i++)
		fd_close(&fds[i]);
	json_decref(body);
	return result;
}

void unenforced_limits_warn(const char *verb, const json_t *record)
{
	const struct {
		const char *name, *asked;
	} limits[] = {{"memory", create_options.memory},
		      {"cpu", create_options.cpu},
		      {"disk", create_options.disk},
		      {"pids", create_options.pids}};
	for (size_t i = 0; i < ARRAY_SIZE(limits) && !cli_json; i++) {
		const json_t *limit =
		    json_object_get(json_object_get(record, "limits"), limits[i].name);
		if (limits[i].asked && json_is_false(json_object_get(limit, "enforced")))
			error_print("caisson %s: --%s %s is not enforced: %s", verb, limits[i].name,
				    limits[i].asked, member_text(limit, "reason"));
	}
}

void unenforced_limits_print(json_t *limits, const char *prefix)
{
	char names[256] = "";
	const char *name, *reason = "";
	json_t *limit;
	json_object_foreach(limits, name, limit)
	{
		const char *next = member_text(limit, "reason");
		if (json_is_true(json_object_get(limit, "enforced")))
			continue;
		if (*names && strcmp(next, reason) != 0) {
			printf("%s%s: %s\n", prefix, names, reason);
			names[0] = '\0';
		}
		size_t used = strlen(names);
		snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", name);
		reason = next;
	}
	if (*names)
		printf("%s%s: %s\n", prefix, names, reason);
}

static int create_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "create takes no argument (\"%s\")", argv[1]);
	json_t *record = NULL;
	if (client_sandbox_create(client, 0, &record, error) < 0)
		return -1;
	unenforced_limits_warn(argv[0], record);
	const json_t *warnings = json_object_get(record, "warnings");
	for (size_t i = 0; i < json_array_size(warnings) && !cli_json; i++)
		error_print("caisson %s: %s", argv[0],
			    json_string_value(json_array_get(warnings, i)));
	if (cli_json)
		json_print(record);
	else
		printf("%s\n", member_text(record, "id"));
	json_decref(record);
	return 0;
}

static const struct option_spec create_specs[] = {
    CREATE_OPTION_ROWS,
    {"timeout", 'T', OPTION_TEXT, &create_options.timeout, "TIME",
     "how long it lives, running or stopped, like 90s, 15m or 2h; 0 = no end (default: 10m, or no "
     "end with --idle-timeout or --persistent)"},
    {"idle-timeout", 0, OPTION_TEXT, &create_options.idle_timeout, "TIME",
     "end it after this time without activity (default: off)"},
    {"auto-pause", 0, OPTION_TEXT, &create_options.auto_pause, "TIME",
     "pause it after this time without activity (default: off)"},
    {"persistent", 0, OPTION_FLAG, &create_options.persistent, NULL, "its idle time-out pauses it"},
    {"wake-on-read", 0, OPTION_FLAG, &create_options.wake_on_read, NULL,
     "requests with a read-only token wake it too"},
    {0},
};

const struct verb verb_create = {
    .name = "create",
    .arguments = "[options]",
    .summary = "Create a sandbox and print its id",
    .help =
	"Creates a sandbox that stays until it is removed or its time is over; then it is removed\n"
	"with its files. `caisson extend` gives it more time.\n"
	"\n"
	"  id=$(caisson create --memory 1G --timeout 2h)\n"
	"  caisson exec $id -- python3 -c 'print(1 + 1)'\n"
	"  caisson rm $id",
    .options = create_specs,
    .run = create_run,
};
