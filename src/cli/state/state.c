/* `caisson state`: backup, restore and removal of what a daemon keeps. Works on the state directory
 * itself, as its owner; the daemon is asked only to stop sandboxes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/client/instance.h"
#include "cli/state/state.h"
#include "spawner/internal.h"
#include "spawner/rootless.h"

static struct state_options options;

enum error_kind state_error_kind(int errnum)
{
	enum error_kind kind = error_kind_of_errno(errnum);
	if (kind != ERROR_INTERNAL && kind != ERROR_NO_PERMISSION)
		return kind;
	return error_kind_of_file_errno(errnum);
}

/* The files of an ordinary user's daemon belong to ids of its own user namespace: we enter a
 * namespace like it, where we are root. */
static int state_take_rights(const struct client *client, enum rights *ret_rights,
			     struct error *error)
{
	log_setup("state", LOG_ERROR, false);
	struct spawner *spawner = spawner_new(&client->config);
	int result = rootless_enter(spawner, error);
	*ret_rights = spawner->host.rights;
	spawner_free(spawner);
	return result;
}

static int state_check_owner(const char *state, struct error *error)
{
	struct stat info;
	if (stat(state, &info) == 0 && info.st_uid != geteuid())
		return error_set(error, ERROR_NO_PERMISSION,
				 "state directory %s belongs to uid %u: run this as that user",
				 state, (unsigned)info.st_uid);
	return 0;
}

static int state_run(struct client *client, int argc, char **argv, struct error *error)
{
	const char *what = argc > 1 ? argv[1] : "";
	bool backup = strcmp(what, "backup") == 0, restore = strcmp(what, "restore") == 0;
	bool removal = strcmp(what, "remove") == 0;
	if (!backup && !restore && !removal)
		return error_set(error, ERROR_USAGE,
				 "state needs a word: backup, restore or remove");
	if (removal && argc != 2)
		return error_set(
		    error, ERROR_USAGE,
		    "state remove takes no argument (\"%s\"); it removes the state "
		    "directory of this user's daemon, or the one that --state DIR names",
		    argv[2]);
	if (!removal && argc != 3)
		return error_set(error, ERROR_USAGE,
				 "state %s needs one file, or - for standard %s", what,
				 backup ? "output" : "input");
	if (!backup && (options.stop || options.database_only))
		return error_set(error, ERROR_USAGE, "--stop and --database-only are for backup");
	if (backup && options.force)
		return error_set(error, ERROR_USAGE, "--force is for restore and remove");
	bool named = options.state != NULL;
	if (!named) {
		if (instance_find_state(client, error) < 0)
			return -1;
		options.state = client->config.state;
	}
	if (options.state[0] != '/')
		return error_set(error, ERROR_USAGE, "%s is \"%s\"; it must be an absolute path",
				 named ? "--state" : "the configured state directory",
				 options.state);
	int served = instance_use_state(client, options.state, error);
	if (served < 0)
		return -1;
	options.served = served > 0;
	if (state_take_rights(client, &options.rights, error) < 0 ||
	    state_check_owner(options.state, error) < 0)
		return -1;
	int result = backup    ? state_backup(client, &options, argv[2], error)
		     : restore ? state_restore(client, &options, argv[2], error)
			       : state_remove(client, &options, error);
	return result < 0 ? -1 : 0;
}

static const struct option_spec state_options[] = {
    {"state", 0, OPTION_TEXT, &options.state, "DIR",
     "the state directory (default: the one that the daemon serves, else as configured)"},
    {"stop", 0, OPTION_FLAG, &options.stop, NULL,
     "backup: first stop the sandboxes that run, in every workspace"},
    {"database-only", 0, OPTION_FLAG, &options.database_only, NULL,
     "backup: records and tokens, no files of sandboxes; works while they run"},
    {"force", 'f', OPTION_FLAG, &options.force, NULL,
     "restore: replace what is in the state directory; remove: sandboxes too"},
    {0},
};

const struct verb verb_state = {
    .name = "state",
    .json = "errors as JSON",
    .words = "backup restore remove",
    .arguments = "backup|restore FILE [options], or remove [options]",
    .summary = "Back up, restore or remove the daemon's state",
    .help =
	"  caisson state backup caisson.tar.zst      all sandboxes must be stopped, or: --stop\n"
	"  caisson state backup - --database-only | ssh other 'cat > caisson.db.tar.zst'\n"
	"  caisson state restore caisson.tar.zst     no daemon may run; on this or another host\n"
	"  caisson state remove                      no daemon may run; the whole directory\n\n"
	"A backup holds the database (tokens as hashes only), the sandboxes' disks and the output\n"
	"of their execs. After a restore every sandbox is stopped, with its files, and starts "
	"with\n"
	"`caisson start`. A restore checks everything before it changes anything.",
    .options = state_options,
    .configuration = CONFIGURATION_ALWAYS,
    .run = state_run,
};
