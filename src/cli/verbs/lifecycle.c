/* The verbs that change the state of sandboxes: stop, start, pause, resume, rm. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"

static struct {
	bool force;
	struct selection selection;
} options;

/* Prints its name and, on a terminal only, the memory that a pause gave back to the host. */
static void sandbox_done_print(const char *sandbox, const json_t *answer)
{
	const json_t *pause = json_object_get(answer, "pause");
	char got[32], before[32];
	printf("%s", sandbox);
	if (json_object_get(pause, "reclaimed_bytes") && isatty(STDOUT_FILENO)) {
		bytes_to_text((uint64_t)member_integer(pause, "reclaimed_bytes"), got);
		bytes_to_text((uint64_t)member_integer(pause, "memory_before_bytes"), before);
		printf("  (%s of %s went back to the host)", got, before);
	}
	printf("\n");
}

/* Sends one request per sandbox. Continues after a failure, and fails at the end if any failed. */
static int sandboxes_act(struct client *client, int argc, char **argv, const char *method,
			 const char *rest, struct error *error)
{
	const struct selection *selection = &options.selection;
	if (selection->all || selection->labels.count > 0 || selection->state) {
		if (argc > 1)
			return error_set(error, ERROR_USAGE,
					 "name sandboxes, or select them with --label, --state or "
					 "--all; not both");
		return selection_apply(client, argv[0], *rest ? rest + 1 : "delete", selection,
				       error);
	}
	if (argc < 2)
		return error_set(error, ERROR_USAGE, "%s needs a sandbox, or --label K=V, or --all",
				 argv[0]);
	int failed = 0;
	struct error last = {0};
	json_t *answers = json_array();
	for (int i = 1; i < argc; i++) {
		struct error one;
		json_t *answer = NULL;
		if (client_sandbox_call(client, method, argv[i], rest, NULL, &answer, &one) < 0) {
			if (options.force && (one.kind == ERROR_SANDBOX_NOT_FOUND ||
					      one.kind == ERROR_SANDBOX_ENDED))
				continue;
			if (failed++ > 0)
				error_print("caisson %s: %s", argv[0], last.message);
			last = one;
		} else {
			json_array_append_new(answers, answer ? answer : json_string(argv[i]));
			if (!cli_json)
				sandbox_done_print(argv[i], answer);
		}
	}
	if (cli_json)
		json_print(answers);
	json_decref(answers);
	if (failed == 0)
		return 0;
	*error = last;
	return -1;
}

static int rm_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "DELETE", "", error);
}

static int stop_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "POST", "/stop", error);
}

/* Folders belong to one sandbox: the ones that it was created with. */
static int sandbox_start_with_folders(struct client *client, int argc, char **argv,
				      struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	int fds[CREATE_MOUNTS_MAX];
	size_t count = 0;
	json_t *record = NULL;
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "start with -v takes one sandbox");
	json_t *body = json_object();
	int result = create_mounts_open(body, fds, &count, error);
	if (result == 0)
		result = sandbox_path(&path, argv[1], "/start", error);
	if (result == 0)
		result = client_call(client, "POST", path.data, body, fds, count, &record, error);
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
	json_decref(body);
	if (result < 0)
		return -1;
	json_t *records = json_pack("[o]", record);
	if (cli_json)
		json_print(records);
	else
		printf("%s\n", argv[1]);
	json_decref(records);
	return 0;
}

static int start_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (create_options.mounts.count > 0)
		return sandbox_start_with_folders(client, argc, argv, error);
	return sandboxes_act(client, argc, argv, "POST", "/start", error);
}

static int pause_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "POST", "/pause", error);
}

static int resume_run(struct client *client, int argc, char **argv, struct error *error)
{
	return sandboxes_act(client, argc, argv, "POST", "/resume", error);
}

static const struct option_spec select_specs[] = {
    {"label", 'l', OPTION_PAIRS, &options.selection.labels, "K=V",
     "those with this label (repeatable: all must hold)", "labels"},
    {"state", 's', OPTION_TEXT, &options.selection.state, "STATE",
     "those that are running, paused, stopped, ...", "status", WORDS_STATES},
    {"all", 'a', OPTION_FLAG, &options.selection.all, NULL, "every sandbox", "all"},
    {0},
};

static const struct option_spec rm_specs[] = {
    {"force", 'f', OPTION_FLAG, &options.force, NULL, "a missing sandbox is no error"},
    OPTION_ROWS_OF(select_specs),
    {0},
};

const struct verb verb_rm = {
    .name = "rm",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Remove sandboxes and everything in them",
    .help = "Kills every process of each sandbox and removes its files. A tombstone stays:\n"
	    "`caisson inspect` still says when and why it ended.\n\n"
	    "  caisson rm mybox\n"
	    "  caisson rm --label team=red --state stopped",
    .options = rm_specs,
    .run = rm_run,
};

const struct verb verb_stop = {
    .name = "stop",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "End a sandbox's processes, keep its files",
    .help =
	"Sends SIGTERM, two seconds later SIGKILL. `caisson start` starts it with the same files.\n"
	"Its time-out still counts: when it is over the sandbox is removed, stopped or not.\n"
	"`caisson ls` shows how long it has left, `caisson extend` gives it more.",
    .options = select_specs,
    .run = stop_run,
};

const struct verb verb_start = {
    .name = "start",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Start a stopped sandbox again",
    .help = "It has the files it had when it was stopped. If the daemon was restarted since, the "
	    "folders\n"
	    "that it was created with (-v) must be given again, the same ones:\n"
	    "  caisson start -v .:/workspace:rw SANDBOX",
    .options = volume_rows,
    .run = start_run,
};

const struct verb verb_pause = {
    .name = "pause",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Freeze a sandbox's processes",
    .help =
	"They use no cpu and time-outs stand still; memory that is also on disk is given back to\n"
	"the host. The next exec resumes it.",
    .options = select_specs,
    .run = pause_run,
};

const struct verb verb_resume = {
    .name = "resume",
    .sandboxes = true,
    .arguments = "[options] SANDBOX ...",
    .summary = "Resume a paused sandbox",
    .help = "Its processes continue where `caisson pause` froze them.",
    .options = select_specs,
    .run = resume_run,
};
