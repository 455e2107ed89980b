/* The folders that users granted to a sandbox. The daemon keeps their descriptors for a start after
 * a stop. After a restart of the daemon users must give the same folders again, since only they can
 * open them. Called by the edges and by boots; never blocks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "core/core_private.h"
#include "proto/folder_grant.h"

/* The maximum that an error shows of the command that gives the folders again. */
#define COMMAND_MAX 320

bool sandbox_mount_next(const struct sandbox_row *row, size_t *at, struct sandbox_mount *ret_mount)
{
	struct bytes packed = {(const uint8_t *)row->mounts, row->mounts_size};
	const char *mode = packed_next(packed, at);
	ret_mount->source = MOUNT_FOLDER;
	ret_mount->path = packed_next(packed, at);
	ret_mount->host_path = packed_next(packed, at);
	return ret_mount->host_path && mount_mode_parse(mode, &ret_mount->mode) == 0;
}

static void folders_forget(struct sandbox_life *life)
{
	for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
		fd_close(&life->mount_fds[i]);
	life->mount_count = 0;
}

int folders_keep(struct sandbox *sandbox, const struct mount_spec *mounts, size_t count,
		 struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	folders_forget(life);
	for (size_t i = 0; i < count; i++) {
		life->mount_fds[i] = fcntl(mounts[i].fd, F_DUPFD_CLOEXEC, 0);
		if (life->mount_fds[i] < 0) {
			error_set_errno(error, error_kind_of_errno(errno), errno,
					"mounts: entry %zu", i);
			folders_forget(life);
			return -1;
		}
		life->mount_count++;
	}
	return 0;
}

/* "-v HOST:GUEST:MODE" for each. */
static void folders_options_text(const struct sandbox_row *row, char text[COMMAND_MAX])
{
	struct sandbox_mount mount;
	size_t at = 0, used = 0;
	text[0] = '\0';
	while (sandbox_mount_next(row, &at, &mount) && used < COMMAND_MAX) {
		int length =
		    snprintf(text + used, COMMAND_MAX - used, "%s-v %s:%s:%s", used ? " " : "",
			     *mount.host_path ? mount.host_path : "FOLDER", mount.path,
			     mount_mode_name(mount.mode));
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
	folders_options_text(&sandbox->row, options);
	return error_set(error, ERROR_SANDBOX_STATE,
			 "the folders of sandbox `%s` have to be given again, since the daemon "
			 "was restarted: `caisson start %s %s`",
			 sandbox->row.id.text, options, sandbox->row.id.text);
}

static bool folder_same(const struct mount_spec *mount, const struct sandbox_mount *kept)
{
	const char *host_path = mount->host_path ? mount->host_path : "";
	return mount->mode == kept->mode && strcmp(mount->path, kept->path) == 0 &&
	       strcmp(host_path, kept->host_path) == 0;
}

/* Sorts them into the order of the row; false when they are not the same folders. */
static bool folders_sort(const struct sandbox_row *row, const struct mount_spec *mounts,
			 size_t count, struct mount_spec ordered[SANDBOX_MOUNTS_MAX])
{
	bool used[SANDBOX_MOUNTS_MAX] = {false};
	struct sandbox_mount mount;
	size_t at = 0, found = 0;
	while (sandbox_mount_next(row, &at, &mount)) {
		size_t i = 0;
		while (i < count && (used[i] || !folder_same(&mounts[i], &mount)))
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
	if (count <= SANDBOX_MOUNTS_MAX && folders_sort(&sandbox->row, mounts, count, ordered))
		return folders_keep(sandbox, ordered, count, error);
	folders_options_text(&sandbox->row, options);
	return error_set(error, ERROR_INVALID,
			 "mounts: not the folders that sandbox `%s` was created with: %s",
			 sandbox->row.id.text, *options ? options : "none");
}
