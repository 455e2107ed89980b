/* The fields of a create, with the folders that come with its request. Called by the handlers of
 * create and run. Pure; nothing blocks. */
#include "api/sandbox/ask.h"

#include "api/sandbox/mounts.h"

void sandbox_ask_done(struct sandbox_ask *ask)
{
	sandbox_fields_done(&ask->fields);
}

int sandbox_ask_parse(struct call *call, const json_t *body, struct sandbox_ask *ask,
		      struct error *error)
{
	const struct config *config = &call->core->config;
	struct sandbox_fields *fields = &ask->fields;
	if (fields_parse(body, sandbox_create_fields, FIELDS_REST, config, fields, error) < 0 ||
	    sandbox_fields_check(fields, FIELDS_REST, config, error) < 0 ||
	    parse_mounts(call, fields->mounts, ask->mounts, &fields->spec.mount_count, error) < 0)
		return -1;
	fields->spec.mounts = ask->mounts;
	return 0;
}
