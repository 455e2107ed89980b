/* The fields of a create, and the folders that come with its request or with that of a start.
 * Called by the handlers of create, run and start, on the loop; nothing blocks. */
#include "api/sandbox/create_fields.h"

#include "proto/folder_grant.h"

static int mount_parse(const json_t *json, struct mount_spec *mount, struct error *error)
{
	struct mount_fields asked = {.mode = "ro", .host_path = ""};
	if (!json_is_object(json))
		return error_set(error, ERROR_INVALID, "field `mounts` must hold objects");
	if (fields_parse(json, mount_fields, FIELDS_REST, NULL, &asked, error) < 0)
		return error_prepend(error, "mounts");
	mount->path = asked.path;
	mount->host_path = asked.host_path;
	if (mount->path[0] != '/')
		return error_set(error, ERROR_INVALID, "mounts: `path` must be absolute");
	if (mount_mode_parse(asked.mode, &mount->mode) < 0)
		return error_set(error, ERROR_INVALID, "mounts: `mode` must be ro, rw or cow");
	return 0;
}

/* A mount is a directory that the client itself opened and passed on: no path of the host is ever
 * resolved on behalf of a client. */
int mounts_parse(struct call *call, const json_t *json,
		 struct mount_spec mounts[SANDBOX_MOUNTS_MAX], size_t *ret_count,
		 struct error *error)
{
	const struct http_request *request = http_request(call->exchange);
	size_t count = json ? json_array_size(json) : 0;
	if (count > 0 && !request->peer.is_unix)
		return error_set(error, ERROR_INVALID,
				 "mounts: possible over the Unix socket only, where the client "
				 "passes the open directories");
	if (count > SANDBOX_MOUNTS_MAX)
		return error_set(error, ERROR_INVALID, "mounts: at most %d", SANDBOX_MOUNTS_MAX);
	if (count != request->fd_count)
		return error_set(error, ERROR_INVALID,
				 "mounts: %zu of them, but %zu descriptors came with the request",
				 count, request->fd_count);
	for (size_t i = 0; i < count; i++) {
		if (mount_parse(json_array_get(json, i), &mounts[i], error) < 0)
			return -1;
		mounts[i].fd = request->fds[i];
	}
	*ret_count = count;
	return 0;
}

int create_fields_check(struct call *call, struct create_fields *create, struct error *error)
{
	struct sandbox_fields *fields = &create->fields;
	if (sandbox_fields_check(fields, FIELDS_REST, &call->core->config, error) < 0 ||
	    mounts_parse(call, fields->mounts, create->mounts, &fields->spec.mount_count, error) <
		0)
		return -1;
	fields->spec.mounts = create->mounts;
	return 0;
}
