/* Puts an environment together. Called by a runner for each command; static memory, never blocks.
 */
#include "init/exec/environment.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "init/setup/configuration.h"

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define IMPLIED_MAX 11
/* An address for documentation, which no host has (RFC 5737). */
#define ELSEWHERE 0xc0000201

static char *variables[2 * EXEC_ENV_MAX + POOL_ENVIRONMENT_MAX + IMPLIED_MAX + 1];
static size_t variable_count;
static char defaults[2 * GUEST_PATH_MAX]; /* texts of variables that were not given */
static size_t defaults_used;

/* Replaces the variable of the same name, or adds it. */
static void variable_set(const char *variable)
{
	size_t name = (size_t)(strchr(variable, '=') - variable) + 1;
	size_t at = 0;
	while (at < variable_count && strncmp(variables[at], variable, name) != 0)
		at++;
	variables[at] = (char *)variable;
	variable_count = MAX(variable_count, at + 1);
}

const char *environment_get(char *const *environment, const char *name)
{
	size_t length = strlen(name);
	for (; *environment; environment++)
		if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

/* Sets a variable that is missing, as a login would. */
static void variable_set_default(const char *name, const char *value)
{
	char *room = defaults + defaults_used;
	if (!value[0] || environment_get(variables, name))
		return;
	int length = snprintf(room, sizeof(defaults) - defaults_used, "%s=%s", name, value);
	if (length < 0 || (size_t)length >= sizeof(defaults) - defaults_used)
		return;
	variable_set(room);
	defaults_used += (size_t)length + 1;
}

/* Without a network a package manager should fail at once: npm retries for more than a minute. */
static void variable_set_no_retries(void)
{
	static const char *const names[] = {"NPM_CONFIG_FETCH_RETRIES", "PIP_RETRIES",
					    "UV_HTTP_RETRIES", "YARN_HTTP_RETRY",
					    "CARGO_NET_RETRY"};
	/* Connecting a datagram socket sends nothing; it fails if there is no route. */
	const struct sockaddr_in elsewhere = {
	    .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(ELSEWHERE)};
	int fd CLOSE_FD = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&elsewhere, sizeof(elsewhere)) == 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		variable_set_default(names[i], "0");
}

char **environment_make(const struct exec_request *request, const struct user *user)
{
	const struct bytes given[] = {configuration.environment, request->environment};
	memset(variables, 0, variable_count * sizeof(variables[0]));
	variable_count = defaults_used = 0;
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		size_t at = 0;
		const char *variable;
		while ((variable = packed_next(given[i], &at)))
			variable_set(variable);
	}
	variable_set_default("PATH", PATH_DEFAULT);
	variable_set_default("HOME", user->home);
	variable_set_default("USER", user->name);
	variable_set_default("LOGNAME", user->name);
	variable_set_default("SHELL", user->shell);
	if (request->flags & EXEC_TTY)
		variable_set_default("TERM", "xterm-256color");
	variable_set_no_retries();
	return variables;
}
