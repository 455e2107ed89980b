/* The environment of a command: the sandbox's, the request's, and defaults for its user. */
#pragma once

#include "init/exec/user.h"
#include "proto/init_messages.h"

/* NULL-terminated, in static memory, until the next call. */
char **environment_make(const struct exec_request *request, const struct user *user);
const char *environment_get(char *const *environment, const char *name);
