/* See instance.h. Called by verbs that use the state directory. Reads the lock files that the
 * spawner writes (spawner/locks.c) and does not block. */
#include "cli/client/instance.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/text.h"

#define RUNTIME_WORD "runtime "

/* The pid that holds a directory's lock, 0 if none. We read /proc/locks rather than try the lock:
 * trying it could disturb a daemon that is just starting. */
static int lock_holder_pid(const char *path)
{
	char line[256];
	struct stat info;
	int holder = 0;
	if (stat(path, &info) < 0)
		return 0;
	FILE *locks = fopen("/proc/locks", "re");
	while (locks && !holder && fgets(line, sizeof(line), locks)) {
		unsigned major_number, minor_number;
		unsigned long long inode;
		int pid;
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number,
			   &minor_number, &inode) == 4 &&
		    inode == (unsigned long long)info.st_ino &&
		    makedev(major_number, minor_number) == info.st_dev)
			holder = pid;
	}
	if (locks)
		fclose(locks);
	return holder;
}

void instance_read(const char *directory, struct instance *ret_instance)
{
	char path[300], text[1024], *rest = text;
	*ret_instance = (struct instance){0};
	if (text_format(path, sizeof(path), "%s/lock", directory) < 0)
		return;
	ret_instance->pid = lock_holder_pid(path);
	if (fd_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return;
	/* The file holds the pid, the state directory, then lines that begin with a word. */
	strsep(&rest, "\n");
	const char *state = strsep(&rest, "\n");
	if (state && text_copy(ret_instance->state, sizeof(ret_instance->state), state) < 0)
		ret_instance->state[0] = '\0';
	const char *line = strsep(&rest, "\n");
	while (line && !text_starts(line, RUNTIME_WORD))
		line = strsep(&rest, "\n");
	/* Only the first one counts: remains of a longer, older text may follow. */
	if (line && text_copy(ret_instance->runtime, sizeof(ret_instance->runtime),
			      line + strlen(RUNTIME_WORD)) < 0)
		ret_instance->runtime[0] = '\0';
}

bool instance_same_directory(const char *a, const char *b)
{
	struct stat first, second;
	if (strcmp(a, b) == 0)
		return true;
	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

int instance_find_state(struct client *client, struct error *error)
{
	struct instance serving;
	const char *runtime = client->config.runtime;
	if (client->remote)
		return error_set(error, ERROR_USAGE,
				 "CAISSON_URL names a daemon that is reached over the network: its "
				 "state directory is not known here");
	instance_read(runtime, &serving);
	if (serving.pid == 0)
		return 0;
	if (serving.state[0] == '\0')
		return error_set(error, ERROR_NO_PERMISSION,
				 "the daemon at %s (pid %d) belongs to another user, who alone "
				 "may know its state directory",
				 runtime, serving.pid);
	if (instance_same_directory(serving.state, client->config.state))
		return 0;
	if (getenv("CAISSON_STATE"))
		return error_set(error, ERROR_DAEMON_CONFLICT,
				 "the daemon at %s (pid %d) serves %s, and CAISSON_STATE is %s",
				 runtime, serving.pid, serving.state, client->config.state);
	return text_copy(client->config.state, sizeof(client->config.state), serving.state) < 0
		   ? error_set(error, ERROR_CONFIG, "the state directory's path is too long")
		   : 0;
}

int instance_use_state(struct client *client, const char *state, struct error *error)
{
	struct instance instance, mine;
	instance_read(state, &instance);
	if (instance.runtime[0]) {
		/* A token belongs to the daemon that issued it; the owner of the state directory
		 * needs none. */
		if (client->remote ||
		    !instance_same_directory(client->config.runtime, instance.runtime))
			client->token[0] = '\0';
		memcpy(client->config.runtime, instance.runtime, sizeof(instance.runtime));
	} else if (instance.pid != 0) {
		/* The lock file of an older version does not name the runtime directory. */
		instance_read(client->config.runtime, &mine);
		if (client->remote || mine.pid != instance.pid)
			return error_set(error, ERROR_DAEMON_CONFLICT,
					 "pid %d serves %s, and its runtime directory is not "
					 "known: name it with CAISSON_RUNTIME, without CAISSON_URL",
					 instance.pid, state);
	}
	client->remote = false;
	client->no_start = true;
	if (config_socket_path(&client->config, client->socket, sizeof(client->socket)) < 0)
		return error_set(error, ERROR_CONFIG,
				 "the runtime directory's path is too long for a Unix socket: %s",
				 client->config.runtime);
	return instance.pid != 0;
}
