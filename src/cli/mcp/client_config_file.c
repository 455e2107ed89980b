/* The clients' configuration files: a missing one is created, an existing one is never changed.
 * Called by client_config.c; blocks on the disk. */
#include "cli/mcp/client_config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

#define FILE_MAX (16 * MIB)

int mcp_config_file_path(const struct mcp_client *client, char *path, size_t room,
			 struct error *error)
{
	const char *directory = client->environment ? getenv(client->environment) : NULL;
	const char *home = getenv("HOME");
	int result;
	if (directory && *directory)
		result = text_format(path, room, "%s/%s", directory, client->base);
	else if (home && *home)
		result = text_format(path, room, "%s/%s", home, client->file);
	else
		return error_set(error, ERROR_USAGE,
				 "HOME is not set, so the client's configuration cannot be found");
	return result < 0 ? error_set(error, ERROR_USAGE, "the file's path is too long") : 0;
}

/* --- a new file --- */

/* A directory that root creates in a user's directory must belong to that user. */
static int directory_give_to_owner(const char *path, const struct stat *above)
{
	if (geteuid() != 0)
		return 0;
	CLOSE_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 || fchown(fd, above->st_uid, above->st_gid) < 0 ? -errno : 0;
}

static int config_directories_make(const char *path, struct stat *ret_directory)
{
	char part[PATH_MAX];
	struct stat info = {.st_uid = geteuid(), .st_gid = getegid()};
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int result = text_format(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (result < 0)
			return result;
		if (mkdir(part, 0700) == 0) {
			result = directory_give_to_owner(part, &info);
			if (result < 0)
				return result;
		} else if (errno != EEXIST || stat(part, &info) < 0) {
			return -errno;
		}
	}
	*ret_directory = info;
	return 0;
}

/* Writes a temporary file and links it to its name, so that it is complete when it appears. link()
 * replaces nothing: -EEXIST if the name is taken by then, also by a symbolic link. The file may
 * hold a token, so only its owner may read it. */
static int config_file_create(const char *path, const struct stat *directory,
			      const struct buffer *text)
{
	char temporary[PATH_MAX];
	int result = text_format(temporary, sizeof(temporary), "%s.caisson-XXXXXX", path);
	if (result < 0)
		return result;
	CLOSE_FD int fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
	if (fd < 0)
		return -errno;
	result = fd_write_full(fd, text->data, text->size);
	if (result == 0 && geteuid() == 0 && fchown(fd, directory->st_uid, directory->st_gid) < 0)
		result = -errno;
	if (result == 0 && fsync(fd) < 0)
		result = -errno;
	if (result == 0 && link(temporary, path) < 0) {
		/* A file system without hard links may support this instead. */
		bool no_links = errno == EPERM || errno == EOPNOTSUPP;
		result = -errno;
		if (no_links &&
		    renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
			return 0;
	}
	unlink(temporary);
	return result;
}

/* --- an existing file --- */

/* True if the file is exactly what we would write, or strict JSON with this entry. Anything else
 * counts as no: TOML, comments, duplicate keys. */
static bool config_file_has_entry(const char *path, const struct mcp_client *client,
				  const char *name, const json_t *entry,
				  const struct buffer *snippet)
{
	struct stat info;
	CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) ||
	    info.st_size > (off_t)FILE_MAX)
		return false;
	size_t size = (size_t)info.st_size;
	FREE_TEXT char *text = malloc(size + 1);
	if (!text || fd_read_full(fd, text, size) < 0)
		return false;
	if (size == snippet->size && memcmp(text, snippet->data, size) == 0)
		return true;
	json_t *whole = client->key ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
	const json_t *old = json_object_get(json_object_get(whole, client->key), name);
	bool has = json_equal(old, entry);
	json_decref(whole);
	return has;
}

static int config_file_leave(const char *path, const struct mcp_client *client, const char *name,
			     const json_t *entry, const struct buffer *snippet)
{
	if (config_file_has_entry(path, client, name, entry, snippet)) {
		fprintf(stderr, "%s already has this entry.\n", path);
		return 0;
	}
	printf("%s", snippet->data);
	fflush(stdout);
	fprintf(stderr, "%s exists and was not changed. ", path);
	if (client->key)
		fprintf(stderr, "Put the entry \"%s\" above into its \"%s\"", name, client->key);
	else
		fprintf(stderr, "Put the table [mcp_servers.%s] above at its end", name);
	fprintf(stderr, ", and replace any existing one of that name.\n");
	return MCP_CONFIG_BY_HAND;
}

int mcp_config_file_write(const struct mcp_client *client, const char *name, const json_t *entry,
			  const struct buffer *snippet, struct error *error)
{
	char path[512];
	struct stat directory = {0};
	if (mcp_config_file_path(client, path, sizeof(path), error) < 0)
		return -1;
	/* Checked first: the directory of an existing file need not be writable. */
	int result = faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? -EEXIST : 0;
	if (result == 0)
		result = config_directories_make(path, &directory);
	if (result == 0)
		result = config_file_create(path, &directory, snippet);
	if (result == -EEXIST)
		return config_file_leave(path, client, name, entry, snippet);
	if (result < 0)
		return error_set_errno(error, ERROR_USAGE, result, "%s", path);
	fprintf(stderr, "%s was created.\n", path);
	return 0;
}
