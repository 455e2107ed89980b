/* `caisson create`, and the request that `run` makes too. The calling user opens the folders here
 * and their descriptors are sent along: the daemon opens no path of ours. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"
#include "proto/folder_grant.h"

struct create_options create_options;

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

const struct option_spec volume_rows[] = {
    {"volume", 'v', OPTION_LIST, &create_options.mounts, "HOST:GUEST[:ro|rw|cow]",
     "mount a folder of yours: read-only, read-write, or copy-on-write (default: ro)", "mounts"},
    {0},
};

const struct option_spec create_rows[] = {
    {"template", 0, OPTION_TEXT, &create_options.template, "NAME",
     "what is in it (default: host, this machine's own /usr, read-only)", "template",
     WORDS_TEMPLATES},
    {"isolation", 0, OPTION_TEXT, &create_options.isolation, "TIER",
     "auto, namespace, gvisor or vm (default: auto, the strongest that it may choose; see doctor)",
     "isolation", "auto,namespace,gvisor,vm"},
    {"name", 0, OPTION_TEXT, &create_options.name, "NAME", "a name in addition to its id", "name"},
    {"cpu", 0, OPTION_NUMBER, &create_options.cpu, "N", "cpus, like 0.5 or 2 (default: 1)", "cpu"},
    {"memory", 'm', OPTION_TEXT, &create_options.memory, "SIZE",
     "memory, like 512M or 2G (default: 512M)", "memory_mb"},
    {"disk", 0, OPTION_TEXT, &create_options.disk, "SIZE", "disk space, like 1G (default: 1G)",
     "disk_mb"},
    {"pids", 0, OPTION_NUMBER, &create_options.pids, "N", "processes and threads (default: 512)",
     "pids"},
    {"env", 'e', OPTION_ENVIRONMENT, &create_options.environment, "K[=V]",
     "environment of all its commands; K alone passes yours on (repeatable)", "env"},
    {"wait", 0, OPTION_TEXT, &create_options.wait, "TIME",
     "how long to wait for room (default: do not wait)", "wait_ms"},
    {"size", 0, OPTION_TEXT, &create_options.size, "NAME",
     "cpu and memory by name: small, medium or large; --cpu and --memory win", "size",
     "small,medium,large"},
    {"label", 'l', OPTION_PAIRS, &create_options.labels, "K=V",
     "a label to find it by: `caisson ls --label K=V` (repeatable)", "labels"},
    {"allow-substitute", 0, OPTION_FLAG, &create_options.allow_substitute, NULL,
     "use host in place of a template that is not installed", "allow_substitute"},
    OPTION_ROWS_OF(volume_rows),
    {"metadata", 0, OPTION_PAIRS, &create_options.metadata, "K=V",
     "a note kept with the sandbox (repeatable)", "metadata"},
    {"nested-userns", 0, OPTION_FLAG, &create_options.nested_userns, NULL,
     "allow user namespaces inside (widens the kernel that it can reach)", "nested_userns"},
    {0},
};

static const struct option_spec create_specs[] = {
    OPTION_ROWS_OF(create_rows),
    {"timeout", 'T', OPTION_TEXT, &create_options.timeout, "TIME",
     "how long it lives, running or stopped, like 90s, 15m or 2h; 0 = no end (default: 10m, or no "
     "end with --idle-timeout or --persistent)",
     "timeout_seconds"},
    {"idle-timeout", 0, OPTION_TEXT, &create_options.idle_timeout, "TIME",
     "end it after this time without activity (default: off)", "idle_timeout_seconds"},
    {"auto-pause", 0, OPTION_TEXT, &create_options.auto_pause, "TIME",
     "pause it after this time without activity (default: off)", "auto_pause_seconds"},
    {"persistent", 0, OPTION_FLAG, &create_options.persistent, NULL, "its idle time-out pauses it",
     "persistent"},
    {"wake-on-read", 0, OPTION_FLAG, &create_options.wake_on_read, NULL,
     "requests with a read-only token wake it too", "wake_on_read"},
    {0},
};

int client_sandbox_create(struct client *client, json_t **ret_json, struct error *error)
{
	json_t *body = json_object();
	int fds[CREATE_MOUNTS_MAX];
	size_t fd_count = 0;
	int result = options_to_body(create_specs, body, error);
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
	if (client_sandbox_create(client, &record, error) < 0)
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
