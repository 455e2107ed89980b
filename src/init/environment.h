/* The environment of a command: the sandbox's own, what its user implies, the request's. */
#pragma once

#include "init/user.h"
#include "proto/init_messages.h"

/* NULL-terminated, in static memory: for the one command that a runner starts. */
char **environment_make(const struct exec_request *request, const struct user *user);
const char *environment_get(char *const *environment, const char *name);
