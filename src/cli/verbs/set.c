/* `caisson set`, `wait` and `drain`: one request about one existing sandbox. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

static struct {
	const char *name, *cpu, *memory, *pids, *timeout, *idle_timeout, *auto_pause;
	const char *wait_for, *wait_timeout, *drain_timeout;
	struct text_list labels, metadata;
	bool no_name, wake_on_read, no_wake_on_read, persistent, no_persistent, delete, cancel;
} options;

/* "K=V" sets, "K-" removes. */
static int body_merge_pairs(const struct text_list *list, json_t *body, const char *field,
			    struct error *error)
{
	if (list->count == 0)
		return 0;
	json_t *object = json_object();
	json_object_set_new(body, field, object);
	for (size_t i = 0; i < list->count; i++) {
		const char *item = list->items[i], *equals = strchr(item, '=');
		size_t size = equals ? (size_t)(equals - item) : strlen(item);
		bool removed = !equals && size > 1 && item[size - 1] == '-';
		FREE_TEXT char *key = strndup(item, removed ? size - 1 : size);
		if (!key || !*key || (!equals && !removed) ||
		    json_object_set_new(object, key,
					removed ? json_null() : json_string(equals + 1)) < 0)
			return error_set(error, ERROR_USAGE,
					 "\"%s\" is neither K=V nor K- (which removes it)", item);
	}
	return 0;
}

static void body_set_flag(json_t *body, const char *field, bool yes, bool no)
{
	if (yes || no)
		json_object_set_new(body, field, json_boolean(yes));
}

static int set_body_fill(json_t *body, struct error *error)
{
	uint64_t pids;
	if (options.name && options.no_name)
		return error_set(error, ERROR_USAGE, "--name and --no-name exclude each other");
	if ((options.persistent && options.no_persistent) ||
	    (options.wake_on_read && options.no_wake_on_read))
		return error_set(error, ERROR_USAGE, "an option and its opposite are given");
	if (options.name && json_object_set_new(body, "name", json_string(options.name)) < 0)
		return error_set(error, ERROR_USAGE, "--name is not valid UTF-8");
	if (options.no_name)
		json_object_set_new(body, "name", json_null());
	if (options.pids) {
		if (text_to_u64(options.pids, 1, SANDBOX_PIDS_MAX, &pids) < 0)
			return error_set(error, ERROR_USAGE,
					 "--pids: invalid number `%s`; use 1 to %u", options.pids,
					 SANDBOX_PIDS_MAX);
		json_object_set_new(body, "pids", json_integer((json_int_t)pids));
	}
	body_set_flag(body, "persistent", options.persistent, options.no_persistent);
	body_set_flag(body, "wake_on_read", options.wake_on_read, options.no_wake_on_read);
	if (body_set_cpus(body, options.cpu, error) < 0 ||
	    body_set_megabytes(body, "memory_mb", options.memory, error) < 0 ||
	    body_set_seconds(body, "timeout_seconds", options.timeout, error) < 0 ||
	    body_set_seconds(body, "idle_timeout_seconds", options.idle_timeout, error) < 0 ||
	    body_set_seconds(body, "auto_pause_seconds", options.auto_pause, error) < 0 ||
	    body_merge_pairs(&options.labels, body, "labels", error) < 0 ||
	    body_merge_pairs(&options.metadata, body, "metadata", error) < 0)
		return -1;
	if (json_object_size(body) == 0)
		return error_set(error, ERROR_USAGE, "set needs something to change: --memory 1G");
	return 0;
}

/* Sends one request about one sandbox and prints its record. */
static int sandbox_request_print(struct client *client, const char *method, const char *sandbox,
				 const char *rest, json_t *body, struct error *error)
{
	json_t *record = NULL;
	if (client_sandbox_call(client, method, sandbox, rest, body, &record, error) < 0)
		return -1;
	if (cli_json)
		json_print(record);
	else
		printf("%s %s\n", sandbox, member_text(record, "status"));
	json_decref(record);
	return 0;
}

static int set_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "set takes one sandbox");
	json_t *body = json_object();
	int result = set_body_fill(body, error);
	if (result == 0)
		result = sandbox_request_print(client, "PATCH", argv[1], "", body, error);
	json_decref(body);
	return result;
}

static const struct option_spec set_specs[] = {
    {"name", 0, OPTION_TEXT, &options.name, "NAME", "another name"},
    {"no-name", 0, OPTION_FLAG, &options.no_name, NULL, "remove its name"},
    {"cpu", 0, OPTION_TEXT, &options.cpu, "N", "cpus, like 0.5 or 2"},
    {"memory", 'm', OPTION_TEXT, &options.memory, "SIZE", "memory, like 512M or 2G"},
    {"pids", 0, OPTION_TEXT, &options.pids, "N", "processes and threads"},
    {"timeout", 'T', OPTION_TEXT, &options.timeout, "TIME",
     "how long it lives from now on; 0 = no end"},
    {"idle-timeout", 0, OPTION_TEXT, &options.idle_timeout, "TIME",
     "end it after this time without activity; 0 = off"},
    {"auto-pause", 0, OPTION_TEXT, &options.auto_pause, "TIME",
     "pause it after this time without activity; 0 = off"},
    {"label", 'l', OPTION_LIST, &options.labels, "K=V", "sets a label; K- removes it (repeatable)"},
    {"metadata", 0, OPTION_LIST, &options.metadata, "K=V",
     "sets a note; K- removes it (repeatable)"},
    {"persistent", 0, OPTION_FLAG, &options.persistent, NULL,
     "its idle time-out pauses it instead of ending it"},
    {"no-persistent", 0, OPTION_FLAG, &options.no_persistent, NULL, "its idle time-out ends it"},
    {"wake-on-read", 0, OPTION_FLAG, &options.wake_on_read, NULL,
     "requests with a read-only token wake it too"},
    {"no-wake-on-read", 0, OPTION_FLAG, &options.no_wake_on_read, NULL, "it does not"},
    {0},
};

const struct verb verb_set = {
    .name = "set",
    .sandboxes = true,
    .arguments = "[options] SANDBOX",
    .summary = "Change a sandbox's name, labels, times or limits",
    .help =
	"Changes everything or nothing. New limits of a running sandbox apply at once; the disk\n"
	"keeps its size.\n"
	"\n"
	"  caisson set --memory 2G --cpu 2 mybox\n"
	"  caisson set --label stage=test --label old- --name other mybox",
    .options = set_specs,
    .run = set_run,
};

static int wait_run(struct client *client, int argc, char **argv, struct error *error)
{
	uint64_t seconds = 60;
	char rest[96];
	const char *what = options.wait_for ? options.wait_for : "ended";
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "wait takes one sandbox");
	if (options.wait_timeout &&
	    (text_to_seconds(options.wait_timeout, &seconds) < 0 || seconds > 3600))
		return error_set(error, ERROR_USAGE,
				 "--timeout: invalid time `%s`; use for example 90s, at most 1h",
				 options.wait_timeout);
	if (strlen(what) > 16 || strspn(what, "abcdefghijklmnopqrstuvwxyz") != strlen(what))
		return error_set(error, ERROR_USAGE,
				 "--for takes running, stopped, paused, ended or idle");
	snprintf(rest, sizeof(rest), "/wait?for=%s&timeout_seconds=%llu", what,
		 (unsigned long long)seconds);
	return sandbox_request_print(client, "GET", argv[1], rest, NULL, error);
}

static const struct option_spec wait_specs[] = {
    {"for", 0, OPTION_TEXT, &options.wait_for, "STATE",
     "running, stopped, paused, ended or idle: no command runs in it (default: ended)"},
    {"timeout", 'T', OPTION_TEXT, &options.wait_timeout, "TIME",
     "how long at most, up to 1h (default: 1m)"},
    {0},
};

const struct verb verb_wait = {
    .name = "wait",
    .sandboxes = true,
    .arguments = "[options] SANDBOX",
    .summary = "Wait until a sandbox reaches a state",
    .help = "Exits with 124 if it does not reach the state in time.\n"
	    "\n"
	    "  caisson wait --for idle --timeout 10m mybox",
    .options = wait_specs,
    .run = wait_run,
};

static int drain_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "drain takes one sandbox");
	json_t *body = json_object();
	int result = body_set_seconds(body, "timeout_seconds", options.drain_timeout, error);
	if (options.delete)
		json_object_set_new(body, "then", json_string("delete"));
	if (options.cancel)
		json_object_set_new(body, "cancel", json_true());
	if (result == 0)
		result = sandbox_request_print(client, "POST", argv[1], "/drain", body, error);
	json_decref(body);
	return result;
}

static const struct option_spec drain_specs[] = {
    {"timeout", 'T', OPTION_TEXT, &options.drain_timeout, "TIME",
     "stop it after this time even if commands run (default: 5m)"},
    {"delete", 0, OPTION_FLAG, &options.delete, NULL,
     "remove it at the end instead of stopping it"},
    {"cancel", 0, OPTION_FLAG, &options.cancel, NULL, "cancel a drain"},
    {0},
};

const struct verb verb_drain = {
    .name = "drain",
    .sandboxes = true,
    .arguments = "[options] SANDBOX",
    .summary = "Wait for a sandbox's commands to end, then stop it",
    .help = "It accepts no new commands from now on. The drain continues if this command is\n"
	    "interrupted.",
    .options = drain_specs,
    .run = drain_run,
};
