/* Templates: what a sandbox begins with. One table of every name that is known here, whether it is
 * installed or not; a name of another service that stands for the same kind of machine is known
 * too, so that its clients get a clear answer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/codec.h"

struct config;

#define TEMPLATE_HOST "host"
#define TEMPLATE_TOOLS_MAX 6

struct template
{
	const char *name;
	const char *description;
	const char *category;
	const char *tools[TEMPLATE_TOOLS_MAX + 1]; /* what is in it, for people; NULL at the end */
	uint32_t cpu_millis;                       /* what one gets that does not say; */
	uint64_t memory;                           /* 0: the configured default */
	bool installed;
	uint32_t rootfs; /* of an installed one: enum rootfs_kind */
	/* What every process in it finds in its environment unless told otherwise: "K=V\0K=V\0".
	 */
	struct bytes environment;
};

/* Every template, `host` first; one without a name ends it. */
extern const struct template templates[];
/* NULL when the name is not known. */
const struct template *template_find(const char *name);

/* The installed template that a request for `name` (NULL: the default) gets. One that is known and
 * not installed is `host` where a substitute is allowed, by the request or by the configuration
 * ([templates] substitute), else TEMPLATE_UNAVAILABLE with what would help. */
NODISCARD int template_resolve(const struct config *config, const char *name, bool allow_substitute,
			       const struct template **ret_template, struct error *error);
/* Changes when what a sandbox of it sees does: of `host`, when programs of this machine are
 * installed or removed. NULL is fine. */
uint64_t template_stamp(const struct template *template);
/* Whether the configuration lets `host` stand for it. */
bool template_substituted(const struct config *config, const struct template *template);
/* What somebody should know who asked for `asked` and got `host` instead. */
#define TEMPLATE_WARNING                                                                           \
	"template `%s` is not installed; `host` stands for it: this machine's own /usr, with "     \
	"whatever versions are on it"
