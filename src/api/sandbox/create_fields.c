/* The fields of a create, with the folders that come with its request. Called by the handlers of
 * create and run. Pure; nothing blocks. */
#include "api/sandbox/create_fields.h"

#include "api/sandbox/mounts.h"

void create_fields_done(struct create_fields *create)
{
	sandbox_fields_done(&create->fields);
}

int create_fields_check(struct call *call, struct create_fields *create, struct error *error)
{
	struct sandbox_fields *fields = &create->fields;
	if (sandbox_fields_check(fields, FIELDS_REST, &call->core->config, error) < 0 ||
	    parse_mounts(call, fields->mounts, create->mounts, &fields->spec.mount_count, error) <
		0)
		return -1;
	fields->spec.mounts = create->mounts;
	return 0;
}
