/* See mounts.h. Runs on the loop; nothing blocks. */
#include "api/sandbox/mounts.h"

#include "edge/sandbox_fields.h"
#include "proto/folder_grant.h"

static int mount_parse(const json_t *json, struct mount_spec *mount, struct error *error)
{
	struct mount_fields fields = {.mode = "ro", .host_path = ""};
	if (!json_is_object(json))
		return error_set(error, ERROR_INVALID, "field `mounts` must hold objects");
	if (fields_parse(json, mount_fields, FIELDS_REST, NULL, &fields, error) < 0)
		return error_prepend(error, "mounts");
	mount->path = fields.path;
	mount->host_path = fields.host_path;
	if (mount->path[0] != '/')
		return error_set(error, ERROR_INVALID, "mounts: `path` must be absolute");
	if (mount_mode_parse(fields.mode, &mount->mode) < 0)
		return error_set(error, ERROR_INVALID, "mounts: `mode` must be ro, rw or cow");
	return 0;
}

/* A mount is a directory that the client itself opened and passed on: no path of the host is ever
 * resolved on behalf of a client. */
int parse_mounts(struct call *call, const json_t *json,
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
