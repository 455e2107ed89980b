/* `caisson cp`: copies files and directories between this machine and a sandbox. This process does
 * it as the calling user, streaming through the API; the daemon opens no path of ours.
 *
 * Downloads: names and types that a sandbox reports are hostile. Every name is one path component,
 * every directory is entered by descriptor without following links, every file is created under a
 * temporary name beside its target and renamed into place. So nothing outside the target directory
 * can be written. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/verbs/cp.h"

#define COPY_DEPTH_MAX 128
/* The path that `SANDBOX:` alone means; commands start there too. */
#define GUEST_HOME "/workspace"

static struct {
	bool recursive;
} options;

void copy_skip(struct copy *copy, const char *path)
{
	progress_clear(&copy->progress);
	error_print("caisson cp: %s is a device, socket or pipe: skipped", path);
	copy->skipped++;
}

int copy_url(struct copy *copy, struct buffer *url, const char *rest, const char *guest_path,
	     struct error *error)
{
	if (sandbox_path(url, copy->sandbox, rest, error) < 0)
		return -1;
	if (buffer_append_encoded(url, guest_path) < 0)
		return error_set(error, ERROR_FILE_INVALID, "%s: the path is too long", guest_path);
	return 0;
}

static int path_join(char *to, size_t room, const char *directory, const char *name,
		     struct error *error)
{
	bool slash = *directory && directory[strlen(directory) - 1] == '/';
	if (text_format(to, room, "%s%s%s", directory, slash ? "" : "/", name) < 0)
		return error_set(error, ERROR_FILE_INVALID, "%s/%s: the path is too long",
				 directory, name);
	return 0;
}

/* ---- Upload ---- */

static int copy_send_body(struct copy *copy, int fd, struct exchange *exchange, const char *name,
			  struct error *error)
{
	char data[65536];
	for (;;) {
		ssize_t got = read(fd, data, sizeof(data));
		if (got < 0)
			return error_set_errno(error, ERROR_FILE_INVALID, errno, "reading %s",
					       name);
		if (got == 0)
			return exchange_write_end(exchange, true, error);
		if (exchange_write(exchange, true, data, (size_t)got, error) < 0) {
			/* The daemon may have sent the reason before it closed the connection. */
			struct error answer;
			if (exchange_read_head(exchange, &answer) < 0 &&
			    answer.kind != ERROR_DAEMON_RESTARTING)
				*error = answer;
			return -1;
		}
		progress_add(&copy->progress, (uint64_t)got);
	}
}

/* info: the file's mode and time, which are kept; NULL for standard input, which has none. */
static int copy_put_file(struct copy *copy, int fd, const struct stat *info, const char *guest_path,
			 struct error *error)
{
	DONE_BUFFER struct buffer url = BUFFER(16384);
	char rest[128], mode[16] = "", time[48] = "";
	if (info)
		snprintf(mode, sizeof(mode), "&mode=%04o", (unsigned)(info->st_mode & 0777));
	if (info && info->st_mtim.tv_sec > 0)
		snprintf(time, sizeof(time), "&mtime_ns=%lld%09ld", (long long)info->st_mtim.tv_sec,
			 info->st_mtim.tv_nsec);
	snprintf(rest, sizeof(rest), "/files?parents=1%s%s&path=", mode, time);
	if (copy_url(copy, &url, rest, guest_path, error) < 0)
		return -1;
	struct request request = {
	    .method = "PUT", .path = url.data, .type = "application/octet-stream", .length = -1};
	struct exchange *exchange = exchange_new();
	int result = exchange_begin(copy->client, &request, exchange, error);
	if (result == 0)
		result = copy_send_body(copy, fd, exchange, guest_path, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	exchange_free(exchange);
	copy->files += result == 0;
	return result;
}

/* A path that the user named: a link is followed, as cp does. A directory is copied with everything
 * below it. */
static int copy_put_named(struct copy *copy, const char *host, const char *guest_path,
			  struct error *error)
{
	struct stat info;
	if (stat(host, &info) < 0)
		return error_set_errno(error, ERROR_FILE_NOT_FOUND, errno, "%s", host);
	if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
		copy_skip(copy, host);
		return 0;
	}
	int fd = open(host, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", host);
	if (S_ISDIR(info.st_mode))
		return copy_up_archive(copy, fd, guest_path, error); /* takes fd */
	int result = copy_put_file(copy, fd, &info, guest_path, error);
	close(fd);
	return result;
}

/* ---- Download ---- */

static int copy_stat_guest(struct copy *copy, const char *guest_path, json_t **ret_entry,
			   struct error *error)
{
	DONE_BUFFER struct buffer url = BUFFER(16384);
	if (copy_url(copy, &url, "/files/stat?path=", guest_path, error) < 0)
		return -1;
	return client_call(copy->client, "GET", url.data, NULL, NULL, 0, ret_entry, error);
}

/* Time of the last change, which the API gives in milliseconds ("...T08:00:00.123Z"). */
static struct timespec entry_time(const json_t *entry)
{
	const char *point = strrchr(member_text(entry, "modified_at"), '.');
	long milliseconds = point ? strtol(point + 1, NULL, 10) : 0;
	return (struct timespec){
	    .tv_sec = (time_t)member_integer(entry, "mtime"),
	    .tv_nsec = milliseconds >= 0 && milliseconds < 1000 ? milliseconds * 1000000 : 0};
}

static int copy_receive_body(struct copy *copy, struct exchange *exchange, int fd,
			     struct error *error)
{
	char data[65536];
	for (;;) {
		ssize_t got = exchange_read(exchange, data, sizeof(data), error);
		if (got <= 0)
			return (int)got;
		int result = fd_write_full(fd, data, (size_t)got);
		if (result < 0)
			return error_set_errno(error, ERROR_NO_SPACE, result, "writing");
		progress_add(&copy->progress, (uint64_t)got);
	}
}

static int copy_get_file_body(struct copy *copy, const char *guest_path, int fd,
			      struct error *error)
{
	DONE_BUFFER struct buffer url = BUFFER(16384);
	if (copy_url(copy, &url, "/files?path=", guest_path, error) < 0)
		return -1;
	struct request request = {.method = "GET", .path = url.data};
	struct exchange *exchange = exchange_new();
	int result = exchange_begin(copy->client, &request, exchange, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	if (result == 0)
		result = copy_receive_body(copy, exchange, fd, error);
	exchange_free(exchange);
	return result;
}

/* Sets mode and time of an entry on the copy. The set-user-id bits are dropped: they would mean
 * something else here. A time that this file system cannot store is ignored. */
static int entry_apply_attributes(const json_t *entry, int fd)
{
	mode_t mode = (mode_t)strtoul(member_text(entry, "mode"), NULL, 8);
	mode_t mask = umask(0);
	umask(mask);
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry_time(entry)};
	(void)!futimens(fd, times);
	return fchmod(fd, mode & 0777 & ~mask);
}

static int copy_get_file(struct copy *copy, const json_t *entry, const char *guest_path,
			 int directory, const char *name, struct error *error)
{
	char temporary[64];
	snprintf(temporary, sizeof(temporary), ".caisson-%016llx",
		 (unsigned long long)random_u64());
	CLOSE_FD int fd = openat(directory, temporary,
				 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", name);
	int result = copy_get_file_body(copy, guest_path, fd, error);
	if (result == 0 && (entry_apply_attributes(entry, fd) < 0 ||
			    renameat(directory, temporary, directory, name) < 0))
		result = error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", name);
	if (result < 0)
		unlinkat(directory, temporary, 0);
	copy->files += result == 0;
	return result;
}

static int copy_get_link(struct copy *copy, const json_t *entry, int directory, const char *name,
			 struct error *error)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry_time(entry)};
	if ((unlinkat(directory, name, 0) < 0 && errno != ENOENT) ||
	    symlinkat(member_text(entry, "target"), directory, name) < 0)
		return error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", name);
	(void)!utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
	copy->files++;
	return 0;
}

static bool name_is_plain(const char *name)
{
	return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

static int copy_get_tree(struct copy *copy, const json_t *entry, const char *guest_path,
			 int directory, const char *name, int depth, struct error *error);

static int copy_get_entries(struct copy *copy, const char *guest_path, int fd, int depth,
			    struct error *error)
{
	DONE_BUFFER struct buffer url = BUFFER(16384);
	json_t *answer = NULL;
	if (copy_url(copy, &url, "/files/list?limit=100000&path=", guest_path, error) < 0 ||
	    client_call(copy->client, "GET", url.data, NULL, NULL, 0, &answer, error) < 0)
		return -1;
	int result = 0;
	size_t at;
	json_t *entry;
	json_array_foreach(json_object_get(answer, "entries"), at, entry)
	{
		const char *name = member_text(entry, "name");
		char path[GUEST_PATH_MAX];
		if (!name_is_plain(name)) {
			error_print(
			    "caisson cp: a name in %s is not UTF-8 and cannot be copied (its "
			    "base64: %s): skipped",
			    guest_path, member_text(entry, "name_base64"));
			copy->skipped++;
			continue;
		}
		result = path_join(path, sizeof(path), guest_path, name, error);
		if (result == 0)
			result = copy_get_tree(copy, entry, path, fd, name, depth + 1, error);
		if (result < 0)
			break;
	}
	if (result == 0 && json_is_true(json_object_get(answer, "truncated")))
		result = error_set(error, ERROR_FILE_TOO_LARGE,
				   "%s has more entries than one listing holds", guest_path);
	json_decref(answer);
	return result;
}

static int copy_get_tree(struct copy *copy, const json_t *entry, const char *guest_path,
			 int directory, const char *name, int depth, struct error *error)
{
	const char *type = member_text(entry, "type");
	if (depth > COPY_DEPTH_MAX)
		return error_set(error, ERROR_FILE_INVALID, "%s: nested too deeply", guest_path);
	if (strcmp(type, "file") == 0)
		return copy_get_file(copy, entry, guest_path, directory, name, error);
	if (strcmp(type, "symlink") == 0)
		return copy_get_link(copy, entry, directory, name, error);
	if (strcmp(type, "directory") != 0) {
		copy_skip(copy, guest_path);
		return 0;
	}
	bool made = mkdirat(directory, name, 0700) == 0;
	if (!made && errno != EEXIST)
		return error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", name);
	CLOSE_FD int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", name);
	int result = copy_get_entries(copy, guest_path, fd, depth, error);
	/* Last: each new entry changes the directory's time, and the mode may forbid new entries.
	 */
	if (made && entry_apply_attributes(entry, fd) < 0 && result == 0)
		result = error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", name);
	return result;
}

/* ---- The verb ---- */

static const char *path_last_component(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : slash ? "" : path;
}

/* Copies to standard output. A directory is refused first: a GET of it would answer with its list.
 */
static int copy_to_output(struct copy *copy, const char *guest_path, struct error *error)
{
	json_t *entry = NULL;
	if (copy_stat_guest(copy, guest_path, &entry, error) < 0)
		return -1;
	bool is_file = strcmp(member_text(entry, "type"), "file") == 0;
	json_decref(entry);
	if (!is_file)
		return error_set(error, ERROR_FILE_WRONG_TYPE,
				 "%s is not a regular file: standard output takes one file",
				 guest_path);
	copy->files++;
	return copy_get_file_body(copy, guest_path, STDOUT_FILENO, error);
}

static int copy_down(struct copy *copy, const char *guest_path, const char *host,
		     struct error *error)
{
	json_t *entry = NULL;
	if (strcmp(host, "-") == 0)
		return copy_to_output(copy, guest_path, error);
	if (copy_stat_guest(copy, guest_path, &entry, error) < 0)
		return -1;
	char parent[GUEST_PATH_MAX], name[256];
	struct stat info;
	const char *leaf = path_last_component(guest_path);
	bool into = stat(host, &info) == 0 && S_ISDIR(info.st_mode);
	const char *slash = strrchr(host, '/');
	int result = 0;
	if (copy->several && !into) {
		json_decref(entry);
		return error_set(error, ERROR_USAGE,
				 "several sources need a directory as target; %s is not one", host);
	}
	if (into)
		result = text_copy(parent, sizeof(parent), host) |
			 text_copy(name, sizeof(name), name_is_plain(leaf) ? leaf : "root");
	else if (slash)
		result =
		    text_format(parent, sizeof(parent), "%.*s", (int)MAX(slash - host, 1L), host) |
		    text_copy(name, sizeof(name), slash + 1);
	else
		result =
		    text_copy(parent, sizeof(parent), ".") | text_copy(name, sizeof(name), host);
	CLOSE_FD int directory = result < 0 ? -1 : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		result = error_set_errno(error, ERROR_FILE_NOT_FOUND,
					 result < 0 ? ENAMETOOLONG : errno, "%s", host);
	else {
		if (!copy->several && strcmp(member_text(entry, "type"), "file") == 0)
			copy->progress.total = (uint64_t)member_integer(entry, "size");
		result = copy_get_tree(copy, entry, guest_path, directory, name, 0, error);
	}
	json_decref(entry);
	return result;
}

/* The target of something named `name` (NULL: no name): inside `guest_path` if that is a directory
 * or ends in a slash, else `guest_path` itself. */
static int copy_find_target(struct copy *copy, const char *guest_path, const char *name,
			    char target[GUEST_PATH_MAX], struct error *error)
{
	json_t *entry = NULL;
	struct error ignored;
	bool directory = guest_path[strlen(guest_path) - 1] == '/';
	if (copy_stat_guest(copy, guest_path, &entry, &ignored) == 0)
		directory = directory || strcmp(member_text(entry, "type"), "directory") == 0;
	else if (ignored.kind != ERROR_FILE_NOT_FOUND)
		return error_set(error, ignored.kind, "%s", ignored.message);
	json_decref(entry);
	if (copy->several && !directory)
		return error_set(error, ERROR_USAGE,
				 "several sources need a directory as target; %s is not one",
				 guest_path);
	if (directory && !name)
		return error_set(
		    error, ERROR_USAGE,
		    "%s is a directory, and standard input has no name; give the file's path",
		    guest_path);
	if (directory)
		return path_join(target, GUEST_PATH_MAX, guest_path, name, error);
	if (text_copy(target, GUEST_PATH_MAX, guest_path) < 0)
		return error_set(error, ERROR_FILE_INVALID, "%s: too long", guest_path);
	return 0;
}

static int copy_up(struct copy *copy, const char *host, const char *guest_path, struct error *error)
{
	char target[GUEST_PATH_MAX];
	if (strcmp(host, "-") == 0)
		return copy_find_target(copy, guest_path, NULL, target, error) < 0
			   ? -1
			   : copy_put_file(copy, STDIN_FILENO, NULL, target, error);
	FREE_TEXT char *real = realpath(host, NULL);
	if (!real)
		return error_set_errno(error, ERROR_FILE_NOT_FOUND, errno, "%s", host);
	if (copy_find_target(copy, guest_path, path_last_component(real), target, error) < 0)
		return -1;
	return copy_put_named(copy, host, target, error);
}

/* Copies from one sandbox into another; the daemon does it. copy->sandbox is the target. */
static int copy_between(struct copy *copy, const char *from_sandbox, const char *from,
			const char *to, struct error *error)
{
	DONE_BUFFER struct buffer url = BUFFER(4096);
	char target[GUEST_PATH_MAX];
	json_t *answer = NULL;
	if (copy_find_target(copy, to, path_last_component(from), target, error) < 0 ||
	    sandbox_path(&url, copy->sandbox, "/files/copy", error) < 0)
		return -1;
	json_t *body = json_pack("{s:s, s:s, s:s, s:b, s:b}", "from", from, "to", target,
				 "from_sandbox", from_sandbox, "recursive", 1, "parents", 1);
	int result = client_call(copy->client, "POST", url.data, body, NULL, 0, &answer, error);
	json_decref(body);
	if (result == 0) {
		copy->progress.done += (uint64_t)member_integer(answer, "bytes");
		copy->files++;
	}
	json_decref(answer);
	return result;
}

/* Splits "SANDBOX:PATH". In a path of this machine, a '/' or '.' comes before any ':'. */
static char *word_split_guest(char *word)
{
	char *colon = strchr(word, ':');
	if (!colon || colon == word || memchr(word, '/', (size_t)(colon - word)) || word[0] == '.')
		return NULL;
	*colon = '\0';
	return colon + 1;
}

/* `to`: the path after the target's sandbox, or NULL. */
static int copy_one(struct copy *copy, char *source, const char *target, const char *to,
		    struct error *error)
{
	const char *from = word_split_guest(source);
	if (!from && !to)
		return error_set(error, ERROR_USAGE, "one of the two, or both, is SANDBOX:PATH");
	if (from && !*from)
		from = GUEST_HOME;
	if (to && !*to)
		to = GUEST_HOME "/";
	copy->sandbox = to ? target : source;
	if (from && to)
		return copy_between(copy, source, from, to, error);
	return from ? copy_down(copy, from, target, error) : copy_up(copy, source, to, error);
}

/* The total size; 0 (unknown) if one is not a regular file. */
static uint64_t files_total_size(int count, char **paths)
{
	uint64_t size = 0;
	for (int i = 0; i < count; i++) {
		struct stat info;
		if (stat(paths[i], &info) < 0 || !S_ISREG(info.st_mode))
			return 0;
		size += (uint64_t)info.st_size;
	}
	return size;
}

static int cp_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc < 3)
		return error_set(error, ERROR_USAGE, "cp needs a source and a target");
	char *target = argv[argc - 1], *to = word_split_guest(target);
	bool to_output = !to && strcmp(target, "-") == 0;
	struct copy copy = {.client = client, .several = argc > 3};
	if (to_output && copy.several)
		return error_set(error, ERROR_USAGE, "standard output takes one file");
	progress_begin(&copy.progress, "cp", to ? files_total_size(argc - 2, argv + 1) : 0);
	/* The reader of standard output may write to the same terminal. */
	copy.progress.terminal = copy.progress.terminal && !to_output;
	int result = 0;
	for (int i = 1; i < argc - 1 && result == 0; i++)
		result = copy_one(&copy, argv[i], target, to, error);
	progress_clear(&copy.progress);
	if (result < 0)
		return -1;
	if (cli_json && !to_output)
		printf("{\"files\": %llu, \"bytes\": %llu, \"skipped\": %llu}\n",
		       (unsigned long long)copy.files, (unsigned long long)copy.progress.done,
		       (unsigned long long)copy.skipped);
	return copy.skipped > 0 ? 1 : 0;
}

static const struct option_spec cp_specs[] = {
    {"recursive", 'r', OPTION_FLAG, &options.recursive, NULL,
     "no effect: directories are always copied whole"},
    {0},
};

const struct verb verb_cp = {
    .name = "cp",
    .json = "how much was copied, and errors, as JSON",
    .arguments = "SOURCE ... TARGET",
    .summary = "Copy files and directories into, out of, or between sandboxes",
    .help =
	"One of the two, or both, is SANDBOX:PATH; SANDBOX: alone is its /workspace. Directories\n"
	"are copied with everything in them; modes (without set-user-id bits) and modification\n"
	"times are kept, links stay links. On this machine it runs as you. Several sources go\n"
	"into a directory. `-` is standard input or output (a file of that name is ./-). Exits\n"
	"with 1 when something was skipped: devices, sockets, pipes, names that are not UTF-8.\n"
	"\n"
	"  caisson cp ./project mybox:\n"
	"  caisson cp a.csv b.csv mybox:/workspace/data/\n"
	"  caisson cp mybox:/workspace/report.pdf .\n"
	"  caisson cp mybox:/workspace/data other:/workspace\n"
	"  tar c src | caisson cp - mybox:/tmp/src.tar",
    .options = cp_specs,
    .run = cp_run,
};
