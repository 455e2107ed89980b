/* The table of templates and the lookup by name. Called by spec.c for every create and by the edges
 * that list them. Pure; nothing blocks. */
#include "core/sandbox/template.h"

#include <string.h>
#include <sys/stat.h>

#include "base/config.h"
#include "base/limits.h"

/* /opt/venv and /opt/npm come first: packages installed inside are found before the host's.
 * NODE_PATH: node, unlike python, does not search globally installed packages by itself. */
static const char host_environment[] =
    "PATH=/opt/venv/bin:/opt/npm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\0"
    "VIRTUAL_ENV=/opt/venv\0"
    "NPM_CONFIG_PREFIX=/opt/npm\0"
    "NPM_CONFIG_UPDATE_NOTIFIER=false\0"
    "NODE_PATH=/opt/npm/lib/node_modules\0"
    "LANG=C.UTF-8\0";

const struct template templates[] = {
    {.name = TEMPLATE_HOST,
     .description = "This machine's own /usr, read-only, with files of its own over it",
     .category = "system",
     .tools = {"sh", "whatever is installed on this machine"},
     .installed = true,
     .rootfs.kind = ROOTFS_HOST,
     /* Without the NUL that the compiler adds after the last one. */
     .environment = {(const uint8_t *)host_environment, sizeof(host_environment) - 1}},
    {.name = "python-3.12",
     .description = "Python 3.12 with pip and common libraries",
     .category = "language",
     .tools = {"python3", "pip"}},
    {.name = "python-3.12-bare",
     .description = "Python 3.12 and nothing else",
     .category = "language",
     .tools = {"python3"}},
    {.name = "node-22",
     .description = "Node.js 22 with npm",
     .category = "language",
     .tools = {"node", "npm"}},
    {.name = "ubuntu-24.04",
     .description = "Ubuntu 24.04",
     .category = "system",
     .tools = {"sh", "apt"}},
    {.name = "base", .description = "A small Linux system", .category = "system", .tools = {"sh"}},
    {.name = "code-interpreter",
     .description = "Python with the libraries of data analysis",
     .category = "language",
     .tools = {"python3", "pip"}},
    {.name = "agent",
     .description = "A system for coding agents",
     .category = "agent",
     .tools = {"python3", "node", "git"}},
    {.name = "claude-agent",
     .description = "A system for coding agents, with Claude Code",
     .category = "agent",
     .tools = {"node", "git", "claude"}},
    {.name = "browser",
     .description = "A browser without a screen",
     .category = "browser",
     .tools = {"chromium"}},
    {.name = "postgres-16",
     .description = "A PostgreSQL 16 server",
     .category = "database",
     .tools = {"psql"}},
    {0},
};

const struct template *template_find(const char *name)
{
	for (const struct template *template = templates; template->name; template ++)
		if (strcmp(template->name, name) == 0)
			return template;
	return NULL;
}

/* A package manager changes at least one of these. */
static const char *const host_marks[] = {
    "/usr",           "/usr/bin",         "/usr/sbin",           "/usr/lib",
    "/usr/local/bin", "/etc/ld.so.cache", "/var/lib/dpkg/status"};

uint64_t template_stamp(const struct template *template)
{
	uint64_t stamp = 0;
	if (!template)
		return stamp;
	for (const char *digit = template->rootfs.digest; *digit; digit++)
		stamp = (stamp ^ (unsigned char)*digit) * 1099511628211u;
	if (template->rootfs.kind != ROOTFS_HOST)
		return stamp;
	for (size_t i = 0; i < ARRAY_SIZE(host_marks); i++) {
		struct stat status;
		if (stat(host_marks[i], &status) < 0)
			continue;
		const uint64_t parts[] = {status.st_dev, status.st_ino,
					  (uint64_t)status.st_ctim.tv_sec,
					  (uint64_t)status.st_ctim.tv_nsec};
		for (size_t part = 0; part < ARRAY_SIZE(parts); part++)
			stamp = (stamp ^ parts[part]) * 1099511628211u + i;
	}
	return stamp;
}

bool template_substituted(const struct config *config, const struct template *template)
{
	return !template->installed && config->templates_substitute;
}

int template_resolve(const struct config *config, const char *name, bool allow_substitute,
		     const struct template **ret_template, struct error *error)
{
	const struct template *asked = template_find(name ? name : TEMPLATE_HOST);
	if (!asked)
		return error_set(error, ERROR_TEMPLATE_UNAVAILABLE,
				 "template `%.64s` is not known; known are host, python-3.12, "
				 "python-3.12-bare, node-22, ubuntu-24.04, base, code-interpreter, "
				 "agent, claude-agent, browser, postgres-16",
				 name);
	if (!asked->installed && !allow_substitute && !template_substituted(config, asked))
		return error_set(
		    error, ERROR_TEMPLATE_UNAVAILABLE,
		    "template `%s` is not installed. To use this machine's own programs in its "
		    "place, ask with \"allow_substitute\": true (`caisson create --template %s "
		    "--allow-substitute`), or for every request write `substitute = yes` below "
		    "`[templates]` in caisson.conf",
		    asked->name, asked->name);
	*ret_template = asked->installed ? asked : template_find(TEMPLATE_HOST);
	return 0;
}
