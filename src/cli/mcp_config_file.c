/* The clients' own files: an entry is merged in, everything else stays byte for byte, the file as
 * it was is kept beside it, and the new one takes its place at once. What we do not understand
 * (JSON with comments, two keys of one name, broken TOML) is left alone, with the snippet to put in
 * by hand. */
#include "cli/mcp_config.h"

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
#include "cli/json_edit.h"
#include "cli/toml_names.h"
#include "cli/toml_scan.h"

#define FILE_MAX (16 * MIB)
#define BACKUPS_MAX 1000

int config_path_of(const struct mcp_client *client, char *path, size_t room, struct error *error)
{
	const char *directory = client->environment ? getenv(client->environment) : NULL;
	const char *home = getenv("HOME");
	int result;
	if (directory && *directory)
		result = text_format(path, room, "%s/%s", directory, client->base);
	else if (home && *home)
		result = text_format(path, room, "%s/%s", home, client->file);
	else
		return error_set(error, ERROR_USAGE, "HOME is not set: whose configuration is it?");
	return result < 0 ? error_set(error, ERROR_USAGE, "the file's path is too long") : 0;
}

/* --- the file --- */

struct target {
	char path[PATH_MAX]; /* links followed: they stay */
	bool exists, secret; /* a token goes into it */
	mode_t mode;
	uid_t uid; /* whose it is, and what root writes for them */
	gid_t gid;
	struct buffer text;
};

static int read_target(struct target *target, const char *path, struct error *error)
{
	struct stat info;
	target->text = BUFFER(FILE_MAX);
	target->mode = 0600;
	if (!realpath(path, target->path))
		snprintf(target->path, sizeof(target->path), "%s", path);
	CLOSE_FD int fd = open(target->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &info) < 0)
		return error_set_errno(error, ERROR_USAGE, errno, "%s", path);
	if (!S_ISREG(info.st_mode))
		return error_set(error, ERROR_USAGE, "%s is no file", path);
	if (info.st_size > (off_t)FILE_MAX)
		return error_set(error, ERROR_TOO_LARGE, "%s is too large", path);
	target->exists = true;
	target->mode = info.st_mode & 0777;
	target->uid = info.st_uid;
	target->gid = info.st_gid;
	for (;;) {
		char piece[16384];
		ssize_t got = read(fd, piece, sizeof(piece));
		if (got < 0)
			return error_set_errno(error, ERROR_USAGE, errno, "%s", path);
		if (got == 0)
			return 0;
		if (buffer_append(&target->text, piece, (size_t)got) < 0)
			return error_set(error, ERROR_TOO_LARGE, "%s is too large", path);
	}
}

/* What root makes in a user's directory is that user's. */
static int give_directory(const char *path, const struct stat *above)
{
	if (geteuid() != 0)
		return 0;
	CLOSE_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 || fchown(fd, above->st_uid, above->st_gid) < 0 ? -errno : 0;
}

/* Whose a new file is: its directory's owner's. */
static int make_directories(struct target *target)
{
	const char *path = target->path;
	char part[PATH_MAX];
	struct stat info = {.st_uid = geteuid(), .st_gid = getegid()};
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int result = text_format(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (result < 0)
			return result;
		if (mkdir(part, 0700) == 0) {
			result = give_directory(part, &info);
			if (result < 0)
				return result;
		} else if (errno != EEXIST || stat(part, &info) < 0) {
			return -errno;
		}
	}
	if (!target->exists) {
		target->uid = info.st_uid;
		target->gid = info.st_gid;
	}
	return 0;
}

/* A new file beside it, then its name: whoever reads it reads the old one or the new one. */
static int put_file(const struct target *target, const char *path, mode_t mode, const char *data,
		    size_t size)
{
	char temporary[PATH_MAX];
	int result = text_format(temporary, sizeof(temporary), "%s.caisson-XXXXXX", path);
	if (result < 0)
		return result;
	CLOSE_FD int fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	result = fd_write_full(fd, data, size);
	if (result == 0 && geteuid() == 0 && fchown(fd, target->uid, target->gid) < 0)
		result = -errno;
	if (result == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(temporary, path) < 0))
		result = -errno;
	if (result < 0)
		unlink(temporary);
	return result;
}

/* A name of its own for each: the first is the file that was the user's alone. */
static int backup_name(const struct target *target, char backup[PATH_MAX])
{
	for (int number = 0; number < BACKUPS_MAX; number++) {
		char suffix[16] = "";
		if (number > 0)
			snprintf(suffix, sizeof(suffix), ".%d", number);
		int result =
		    text_format(backup, PATH_MAX, "%s.caisson-backup%s", target->path, suffix);
		if (result < 0)
			return result;
		if (faccessat(AT_FDCWD, backup, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : -errno;
	}
	return -EEXIST;
}

/* Others read no token; a backup may have one, of an earlier entry. */
static mode_t mode_of(const struct target *target, bool backup)
{
	return target->secret || backup ? target->mode & 0700 : target->mode;
}

static void say_closed(const struct target *target)
{
	if (mode_of(target, false) != target->mode)
		fprintf(stderr, "It has a token: others cannot read it any more (mode %03o).\n",
			(unsigned)mode_of(target, false));
}

static int save(struct target *target, const char *text, struct error *error)
{
	char backup[PATH_MAX];
	int result = make_directories(target);
	if (result == 0 && target->exists) {
		result = backup_name(target, backup);
		if (result == 0)
			result = put_file(target, backup, mode_of(target, true),
					  buffer_text(&target->text), target->text.size);
	}
	if (result == 0)
		result = put_file(target, target->path, mode_of(target, false), text, strlen(text));
	if (result < 0)
		return error_set_errno(error, ERROR_USAGE, result, "%s", target->path);
	fprintf(stderr,
		target->exists ? "Written into %s; as it was it is in %s.\n" : "%s was made.\n",
		target->path, backup);
	say_closed(target);
	return 0;
}

/* It has the entry already, where others read it. */
static int close_target(const struct target *target, struct error *error)
{
	if (mode_of(target, false) == target->mode)
		return 0;
	int result = put_file(target, target->path, mode_of(target, false),
			      buffer_text(&target->text), target->text.size);
	if (result < 0)
		return error_set_errno(error, ERROR_USAGE, result, "%s", target->path);
	say_closed(target);
	return 0;
}

static bool has_token(const json_t *entry)
{
	const json_t *variables = json_object_get(entry, "env");
	return json_object_get(entry, "headers") || json_object_get(entry, "http_headers") ||
	       json_object_get(variables, "CAISSON_TOKEN") ||
	       json_object_get(variables, "CAISSON_AUTHORIZATION");
}

/* --- JSON --- */

static bool is_blank(const struct buffer *text)
{
	return strspn(buffer_text(text), " \t\r\n") == text->size;
}

static int refuse_file(const struct mcp_client *client, const char *name, const json_t *entry,
		       const char *path, const char *why, struct error *error)
{
	config_print(client, name, entry);
	return error_set(error, ERROR_USAGE,
			 "%s %s, and was left as it is; put the above into it by hand", path, why);
}

/* The first file of that client: as we would write it ourselves. */
static int new_json(const struct mcp_client *client, const char *name, json_t *entry,
		    char **ret_text)
{
	DONE_BUFFER struct buffer text = BUFFER(MIB);
	json_t *whole = json_pack("{s:{s:O}}", client->key, name, entry);
	FREE_TEXT char *dumped = json_dumps(whole, JSON_INDENT(2));
	json_decref(whole);
	if (!dumped || buffer_printf(&text, "%s\n", dumped) < 0)
		return -1;
	*ret_text = TAKE_PTR(text.data);
	return 0;
}

static int merge_json(const struct mcp_client *client, const char *name, json_t *entry,
		      const struct target *target, char **ret_text, struct error *error)
{
	DONE_BUFFER struct buffer edited = BUFFER(FILE_MAX + MIB);
	json_t *whole = NULL;
	struct error wrong;
	*ret_text = NULL;
	if (is_blank(&target->text))
		return new_json(client, name, entry, ret_text) < 0
			   ? error_set(error, ERROR_USAGE, "the entry is too long")
			   : 0;
	if (json_edit_load(&target->text, &whole, &wrong) < 0)
		return refuse_file(client, name, entry, target->path, wrong.message, error);
	const json_t *servers = json_object_get(whole, client->key);
	const json_t *old = json_object_get(servers, name);
	int result = 0;
	if (servers && !json_is_object(servers)) {
		char why[96];
		snprintf(why, sizeof(why), "has a \"%s\" that is not an object", client->key);
		result = refuse_file(client, name, entry, target->path, why, error);
	} else if (old && json_equal(old, entry)) {
		fprintf(stderr, "%s has it already.\n", target->path);
	} else if (old && !mcp_options.force) {
		result =
		    refuse_file(client, name, entry, target->path,
				"has another server of that name (--force replaces it)", error);
	} else if (json_edit_set(&target->text, client->key, name, entry, &edited) < 0) {
		result = error_set(error, ERROR_TOO_LARGE, "%s is too large", target->path);
	} else {
		*ret_text = TAKE_PTR(edited.data);
	}
	json_decref(whole);
	return result;
}

/* --- TOML --- */

/* Is this line the head of a table of that server's: its own, or one below it? */
static bool is_own_table(const char *line, const char *name)
{
	char forms[2][96];
	snprintf(forms[0], sizeof(forms[0]), "[mcp_servers.%s", name);
	snprintf(forms[1], sizeof(forms[1]), "[mcp_servers.\"%s\"", name);
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		const char *rest = line + strlen(forms[i]);
		if (text_starts(line, forms[i]) && (*rest == ']' || *rest == '.'))
			return true;
	}
	return false;
}

/* [begin, end) of the server's tables; false: it has none. What is between them and the next table
 * is not theirs; `scattered`: other tables stand between them. */
static bool find_tables(const char *text, const char *name, size_t *ret_begin, size_t *ret_end,
			bool *ret_scattered)
{
	bool inside = false, found = false;
	*ret_scattered = false;
	struct toml scan = TOML(text);
	for (enum toml_kind kind; (kind = toml_next(&scan)) != TOML_END && kind != TOML_PROBLEM;) {
		if (kind == TOML_TABLE) {
			bool before = inside;
			inside = is_own_table(scan.first, name);
			*ret_scattered |= inside && found && !before;
			if (inside && !found)
				*ret_begin = (size_t)(scan.begin - text);
			found |= inside;
		}
		if (inside)
			*ret_end = (size_t)(scan.at - text);
	}
	return found;
}

static int check_statements(const char *text, struct toml_names *names, struct error *error)
{
	struct toml scan = TOML(text);
	scan.names = names;
	for (enum toml_kind kind; (kind = toml_next(&scan)) != TOML_END;) {
		const char *first = scan.first;
		if (kind == TOML_PROBLEM)
			return error_set(error, ERROR_USAGE, "is not TOML (line %u: %s)", scan.line,
					 scan.problem);
		if (text_starts(first, "mcp_servers") || text_starts(first, "[mcp_servers]") ||
		    text_starts(first, "[[mcp_servers") || text_starts(first, "[[\"mcp_servers") ||
		    text_starts(first, "[['mcp_servers") || text_starts(first, "\"mcp_servers\"") ||
		    text_starts(first, "[ "))
			return error_set(error, ERROR_USAGE,
					 "has its servers in a form that is not understood here "
					 "(line %u)",
					 scan.line);
	}
	return 0;
}

/* Broken, or with tables written another way than we would find them. */
static int check_toml(const char *text, struct error *error)
{
	if (!text_is_utf8(text, strlen(text)))
		return error_set(error, ERROR_USAGE, "is not TOML (it is not UTF-8)");
	struct toml_names *names = toml_names_new();
	int result = check_statements(text, names, error);
	toml_names_free(names);
	return result;
}

static bool same_text(const char *a, size_t a_size, const struct buffer *b)
{
	while (a_size > 0 && strchr(" \t\r\n", a[a_size - 1]))
		a_size--;
	return a_size + 1 == b->size && memcmp(a, b->data, a_size) == 0;
}

static int merge_toml(const struct mcp_client *client, const char *name, json_t *entry,
		      const struct target *target, char **ret_text, struct error *error)
{
	DONE_BUFFER struct buffer section = BUFFER(64 * KIB), whole = BUFFER(FILE_MAX + 128 * KIB);
	const char *text = buffer_text(&target->text);
	size_t begin = target->text.size, end = begin;
	struct error wrong;
	*ret_text = NULL;
	if (config_toml(name, entry, &section) < 0)
		return error_set(error, ERROR_USAGE, "the entry is too long");
	if (strlen(text) != target->text.size)
		return refuse_file(client, name, entry, target->path, "has a NUL", error);
	if (check_toml(text, &wrong) < 0)
		return refuse_file(client, name, entry, target->path, wrong.message, error);
	bool scattered, found = find_tables(text, name, &begin, &end, &scattered);
	if (found && same_text(text + begin, end - begin, &section)) {
		fprintf(stderr, "%s has it already.\n", target->path);
		return 0;
	}
	if (found && !mcp_options.force)
		return refuse_file(client, name, entry, target->path,
				   "has another server of that name (--force replaces it)", error);
	if (scattered)
		return refuse_file(client, name, entry, target->path,
				   "has other tables between those of that server", error);
	bool gap = begin > 0 && text[begin - 1] != '\n';
	if (buffer_append(&whole, text, begin) < 0 ||
	    buffer_append_text(&whole, gap                   ? "\n\n"
				       : found || begin == 0 ? ""
							     : "\n") < 0 ||
	    buffer_append(&whole, section.data, section.size) < 0 ||
	    buffer_append(&whole, text + end, target->text.size - end) < 0)
		return error_set(error, ERROR_TOO_LARGE, "%s is too large", target->path);
	/* Its servers may stand there in one of many other ways. */
	if (check_toml(buffer_text(&whole), &wrong) < 0)
		return refuse_file(client, name, entry, target->path,
				   "has its servers in a form that is not understood here", error);
	*ret_text = TAKE_PTR(whole.data);
	return 0;
}

int config_write(const struct mcp_client *client, const char *name, json_t *entry,
		 struct error *error)
{
	char path[512];
	FREE_TEXT char *text = NULL;
	struct target *target = calloc(1, sizeof(*target));
	if (!target)
		abort();
	int result = config_path_of(client, path, sizeof(path), error);
	target->secret = has_token(entry);
	if (result == 0)
		result = read_target(target, path, error);
	if (result == 0)
		result = (client->key ? merge_json : merge_toml)(client, name, entry, target, &text,
								 error);
	if (result == 0)
		result = text ? save(target, text, error) : close_target(target, error);
	buffer_done(&target->text);
	free(target);
	return result;
}
