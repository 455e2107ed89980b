/* `caisson set`, `wait` and `drain`: one request about one existing sandbox. */
#include <stdio.h>

#include "cli/cli.h"

static struct {
	const char *name, *cpu, *memory, *pids, *timeout, *idle_timeout, *auto_pause;
	const char *wait_for, *wait_timeout, *drain_timeout;
	struct text_list labels, metadata;
	bool no_name, wake_on_read, no_wake_on_read, persistent, no_persistent, delete, cancel;
} options;

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

static const struct option_spec set_specs[] = {
    {"name", 0, OPTION_TEXT, &options.name, "NAME", "another name", "name"},
    {"no-name", 0, OPTION_FLAG, &options.no_name, NULL, "remove its name", "name", NULL, "null"},
    {"cpu", 0, OPTION_NUMBER, &options.cpu, "N", "cpus, like 0.5 or 2", "cpu"},
    {"memory", 'm', OPTION_TEXT, &options.memory, "SIZE", "memory, like 512M or 2G", "memory_mb"},
    {"pids", 0, OPTION_NUMBER, &options.pids, "N", "processes and threads", "pids"},
    {"timeout", 'T', OPTION_TEXT, &options.timeout, "TIME",
     "how long it lives from now on; 0 = no end", "timeout_seconds"},
    {"idle-timeout", 0, OPTION_TEXT, &options.idle_timeout, "TIME",
     "end it after this time without activity; 0 = off", "idle_timeout_seconds"},
    {"auto-pause", 0, OPTION_TEXT, &options.auto_pause, "TIME",
     "pause it after this time without activity; 0 = off", "auto_pause_seconds"},
    {"label", 'l', OPTION_CHANGES, &options.labels, "K=V",
     "sets a label; K- removes it (repeatable)", "labels"},
    {"metadata", 0, OPTION_CHANGES, &options.metadata, "K=V",
     "sets a note; K- removes it (repeatable)", "metadata"},
    {"persistent", 0, OPTION_FLAG, &options.persistent, NULL,
     "its idle time-out pauses it instead of ending it", "persistent"},
    {"no-persistent", 0, OPTION_FLAG, &options.no_persistent, NULL, "its idle time-out ends it",
     "persistent", NULL, "false"},
    {"wake-on-read", 0, OPTION_FLAG, &options.wake_on_read, NULL,
     "requests with a read-only token wake it too", "wake_on_read"},
    {"no-wake-on-read", 0, OPTION_FLAG, &options.no_wake_on_read, NULL, "it does not",
     "wake_on_read", NULL, "false"},
    {0},
};

static int set_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "set takes one sandbox");
	json_t *body = json_object();
	int result = options_to_body(set_specs, body, error);
	if (result == 0 && json_object_size(body) == 0)
		result =
		    error_set(error, ERROR_USAGE, "set needs something to change: --memory 1G");
	if (result == 0)
		result = sandbox_request_print(client, "PATCH", argv[1], "", body, error);
	json_decref(body);
	return result;
}

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

static const struct option_spec wait_specs[] = {
    {"for", 0, OPTION_TEXT, &options.wait_for, "STATE",
     "running, stopped, paused, ended or idle: no command runs in it (default: ended)", "for",
     "running,stopped,paused,ended,idle"},
    {"timeout", 'T', OPTION_TEXT, &options.wait_timeout, "TIME",
     "how long at most, up to 1h (default: 1m)", "timeout_seconds"},
    {0},
};

static int wait_run(struct client *client, int argc, char **argv, struct error *error)
{
	DONE_BUFFER struct buffer rest = BUFFER(4096);
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "wait takes one sandbox");
	if (!options.wait_for)
		options.wait_for = "ended";
	if (buffer_append_text(&rest, "/wait") < 0 || options_to_path(wait_specs, &rest, error) < 0)
		return -1;
	return sandbox_request_print(client, "GET", argv[1], rest.data, NULL, error);
}

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

static const struct option_spec drain_specs[] = {
    {"timeout", 'T', OPTION_TEXT, &options.drain_timeout, "TIME",
     "stop it after this time even if commands run (default: 5m)", "timeout_seconds"},
    {"delete", 0, OPTION_FLAG, &options.delete, NULL, "remove it at the end instead of stopping it",
     "then", NULL, "delete"},
    {"cancel", 0, OPTION_FLAG, &options.cancel, NULL, "cancel a drain", "cancel"},
    {0},
};

static int drain_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "drain takes one sandbox");
	json_t *body = json_object();
	int result = options_to_body(drain_specs, body, error);
	if (result == 0)
		result = sandbox_request_print(client, "POST", argv[1], "/drain", body, error);
	json_decref(body);
	return result;
}

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
