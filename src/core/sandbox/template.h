/* Templates: the initial files and defaults of a sandbox. One table of all known names, installed
 * or not. Names of other services for the same kind of machine are known too, so that their clients
 * get a clear answer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/codec.h"
#include "proto/spawner_messages.h"

struct config;

#define TEMPLATE_HOST "host"
#define TEMPLATE_TOOLS_MAX 6

struct template
{
	const char *name;
	const char *description;
	const char *category;
	const char *tools[TEMPLATE_TOOLS_MAX + 1]; /* its programs, for people; NULL at the end */
	uint32_t cpu_millis;                       /* the default of this template; */
	uint64_t memory;                           /* 0: the configured default */
	bool installed;
	struct spawn_rootfs rootfs; /* what its sandboxes begin with, if installed */
	/* The default environment of every process in it: "K=V\0K=V\0". */
	struct bytes environment;
};

/* Every template, `host` first; one without a name ends it. */
extern const struct template templates[];
/* NULL when the name is not known. */
const struct template *template_find(const char *name);

/* The installed template for a request for `name` (NULL: the default). If a known template is not
 * installed, it is replaced by `host` if the request or the configuration ([templates] substitute)
 * allows a substitute, else TEMPLATE_UNAVAILABLE with advice. */
NODISCARD int template_resolve(const struct config *config, const char *name, bool allow_substitute,
			       const struct template **ret_template, struct error *error);
/* Changes when the template's files change: for `host`, when programs of this machine are installed
 * or removed. NULL is fine. */
uint64_t template_stamp(const struct template *template);
/* Does the configuration allow `host` as a substitute? */
bool template_substituted(const struct config *config, const struct template *template);
/* The warning for a client that asked for `asked` and got `host`. */
#define TEMPLATE_WARNING                                                                           \
	"template `%s` is not installed; `host` stands for it: this machine's own /usr, with "     \
	"whatever versions are on it"
