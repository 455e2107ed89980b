/* The folders of users that a sandbox was given: kept as long as the daemon lives, for a start
 * after a stop; after a restart of the daemon they are given again, the same ones, since nobody
 * else may open them. Called by the edges and by the boots; never blocks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "core/core_private.h"
#include "proto/folder_grant.h"

/* Of a command that gives them again so much is shown. */
#define COMMAND_MAX 320

/* One of those that are in the record. */
struct folder {
	const char *mode, *path, *host_path;
};

static bool next_folder(const struct sandbox_row *row, size_t *at, struct folder *ret_folder)
{
	struct bytes packed = {(const uint8_t *)row->mounts, row->mounts_size};
	ret_folder->mode = packed_next(packed, at);
	ret_folder->path = packed_next(packed, at);
	ret_folder->host_path = packed_next(packed, at);
	return ret_folder->mode && ret_folder->path && ret_folder->host_path;
}

static void forget(struct sandbox_life *life)
{
	for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
		fd_close(&life->mount_fds[i]);
	life->mount_count = 0;
}

int folders_keep(struct sandbox *sandbox, const struct mount_spec *mounts, size_t count,
		 struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	forget(life);
	for (size_t i = 0; i < count; i++) {
		life->mount_fds[i] = fcntl(mounts[i].fd, F_DUPFD_CLOEXEC, 0);
		if (life->mount_fds[i] < 0) {
			error_set_errno(error, error_kind_of_errno(errno), errno,
					"mounts: entry %zu", i);
			forget(life);
			return -1;
		}
		life->mount_count++;
	}
	return 0;
}

/* "-v HOST:GUEST:MODE" for each. */
static void options_text(const struct sandbox_row *row, char text[COMMAND_MAX])
{
	struct folder folder;
	size_t at = 0, used = 0;
	text[0] = '\0';
	while (next_folder(row, &at, &folder) && used < COMMAND_MAX) {
		int length = snprintf(
		    text + used, COMMAND_MAX - used, "%s-v %s:%s:%s", used ? " " : "",
		    *folder.host_path ? folder.host_path : "FOLDER", folder.path, folder.mode);
		if (length < 0 || (size_t)length >= COMMAND_MAX - used) {
			snprintf(text + used, COMMAND_MAX - used, "%s-v ...", used ? " " : "");
			return;
		}
		used += (size_t)length;
	}
}

int folders_check(const struct sandbox *sandbox, struct error *error)
{
	char options[COMMAND_MAX];
	if (sandbox->row.mounts_size == 0 || sandbox->life->mount_count > 0)
		return 0;
	options_text(&sandbox->row, options);
	return error_set(error, ERROR_SANDBOX_STATE,
			 "the folders of sandbox `%s` have to be given again, since the daemon "
			 "was restarted: `caisson start %s %s`",
			 sandbox->row.id.text, options, sandbox->row.id.text);
}

static bool is_same(const struct mount_spec *mount, const struct folder *folder)
{
	const char *mode = mount_mode_name((uint32_t)mount->mode);
	const char *host_path = mount->host_path ? mount->host_path : "";
	return mode && strcmp(mode, folder->mode) == 0 && strcmp(mount->path, folder->path) == 0 &&
	       strcmp(host_path, folder->host_path) == 0;
}

/* In the order of the record; false when they are not the same ones. */
static bool put_in_order(const struct sandbox_row *row, const struct mount_spec *mounts,
			 size_t count, struct mount_spec ordered[SANDBOX_MOUNTS_MAX])
{
	bool used[SANDBOX_MOUNTS_MAX] = {false};
	struct folder folder;
	size_t at = 0, found = 0;
	while (next_folder(row, &at, &folder)) {
		size_t i = 0;
		while (i < count && (used[i] || !is_same(&mounts[i], &folder)))
			i++;
		if (i == count || found == SANDBOX_MOUNTS_MAX)
			return false;
		used[i] = true;
		ordered[found++] = mounts[i];
	}
	return found == count;
}

int sandbox_give_folders(struct sandbox *sandbox, const struct principal *principal,
			 const struct mount_spec *mounts, size_t count, struct error *error)
{
	struct mount_spec ordered[SANDBOX_MOUNTS_MAX];
	char options[COMMAND_MAX];
	if (count == 0)
		return 0;
	if (!principal->local)
		return error_set(error, ERROR_FORBIDDEN,
				 "a folder of the host can be given over the Unix socket only");
	if (count <= SANDBOX_MOUNTS_MAX && put_in_order(&sandbox->row, mounts, count, ordered))
		return folders_keep(sandbox, ordered, count, error);
	options_text(&sandbox->row, options);
	return error_set(error, ERROR_INVALID,
			 "mounts: not the folders that sandbox `%s` was created with: %s",
			 sandbox->row.id.text, *options ? options : "none");
}
