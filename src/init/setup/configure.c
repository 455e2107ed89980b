/* CONFIGURE, and the configuration that every process forked later inherits. Called once, by
 * connection.c. */
#include "init/setup/configure.h"

#include <stdio.h>
#include <string.h>

#include "init/setup/configuration.h"
#include "init/runner/launcher.h"
#include "init/loop.h"
#include "init/setup/setup.h"

struct configuration configuration;

static int trees_place(const struct configure *message, struct failure *ret_failure)
{
	char path[GUEST_PATH_MAX];
	for (uint32_t i = 0; i < message->mount_count; i++) {
		struct bytes given = message->mounts[i].path;
		memcpy(path, given.data, given.size);
		path[given.size] = '\0';
		if (message->mounts[i].index >= configuration.setup.tree_count) {
			*ret_failure =
			    (struct failure){.kind = ERROR_INVALID, .message = "an unknown mount"};
			return -1;
		}
		if (setup_place_tree(&configuration.setup, message->mounts[i].index, path,
				     ret_failure) < 0)
			return -1;
	}
	return 0;
}

int configure(const struct configure *message, struct failure *ret_failure)
{
	if (message->hostname[0] && setup_hostname(message->hostname, ret_failure) < 0)
		return -1;
	if (trees_place(message, ret_failure) < 0)
		return -1;
	setup_close_trees(&configuration.setup);
	memcpy(configuration.environment_room, message->environment.data,
	       message->environment.size);
	configuration.environment = (struct bytes){.data = configuration.environment_room,
						   .size = message->environment.size};
	configuration.environment_count = message->environment_count;
	if (setup_harden(&configuration.setup, ret_failure) < 0)
		return -1;
	int result = launcher_begin_runners();
	if (result < 0) {
		*ret_failure =
		    (struct failure){.kind = ERROR_RESOURCE_LIMIT, .errnum = (uint32_t)-result};
		snprintf(ret_failure->message, sizeof(ret_failure->message),
			 "the launcher cannot be forked: %s", strerror(-result));
		return -1;
	}
	loop_set_deadline(message->deadline ? message->deadline : NEVER);
	configuration.configured = true;
	return 0;
}
