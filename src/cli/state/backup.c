/* `caisson state backup`: copies the database, the sandboxes' images and their execs' logs into one
 * archive, which appears under its name when it is complete. Works beside a running daemon: the
 * image of a stopped sandbox is locked, as a boot locks it, until its files are copied. This file
 * decides which files are included; backup_archive.c writes them. Blocks for as long as the copying
 * takes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doctor/doctor.h"
#include "cli/state/backup.h"
#include "cli/state/libarchive.h"
#include "store/copy.h"

#define PATH_ROOM 600
#define LIST_MAX 65536
#define COPY_TIMEOUT_MS 600000
/* After a stop, the loop device is released a moment later. */
#define RELEASE_TIMEOUT (10 * NSEC_PER_SEC)
#define COPY_PREFIX ".copy-"

/* The file that a signal handler removes. */
static char unfinished_path[PATH_ROOM];

static void signal_remove_unfinished(int number)
{
	if (unfinished_path[0])
		unlink(unfinished_path);
	_exit(128 + number);
}

/* The database is copied by a child that runs as the daemon's user, in the daemon's directory: so
 * root opens no file that this user may have put there. */
struct copy_job {
	char directory[PATH_ROOM], path[PATH_ROOM];
	uid_t uid;
	gid_t gid;
	char *list;
	size_t used;
	int version;
};

static bool copy_list_sandbox(void *data, const struct id *id, const char *workspace, bool stopped)
{
	struct copy_job *job = data;
	int length = snprintf(job->list + job->used, LIST_MAX - job->used, "%s %c %.*s\n", id->text,
			      stopped ? 's' : 'r', WORKSPACE_MAX, workspace);
	job->used += (size_t)length;
	return job->used + ID_LENGTH + WORKSPACE_MAX + 5 < LIST_MAX;
}

static int database_copy_in_child(void *data, char *text, size_t room)
{
	struct copy_job *job = data;
	struct error error = {0};
	umask(077);
	/* The child sees only its own directory, so the directories above it need not be accessible
	 * to that user. */
	doctor_close_all_but(NULL, 0);
	bool others = job->uid != geteuid();
	if (chdir(job->directory) < 0 || chroot(".") < 0 || (others && setgroups(0, NULL) < 0) ||
	    setresgid(job->gid, job->gid, job->gid) < 0 ||
	    setresuid(job->uid, job->uid, job->uid) < 0) {
		snprintf(text, room, "!becoming uid %u: %s", (unsigned)job->uid, strerror(errno));
		return 1;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing ids has cleared it */
	job->list = text;
	job->used = (size_t)snprintf(text, room, "0000000000\n");
	const char *copy = job->path + strlen(job->directory);
	if (store_copy("", copy, &error) < 0 ||
	    store_copy_examine(copy, &job->version, &error) < 0 ||
	    store_copy_each(copy, copy_list_sandbox, job, &error) < 0) {
		unlink(copy);
		snprintf(text, room, "!%s", error.message);
		return 1;
	}
	char number[16];
	snprintf(number, sizeof(number), "%010d", job->version);
	memcpy(text, number, 10);
	return 0;
}

/* Removes copies of interrupted backups. */
static void old_copies_remove(const char *directory)
{
	DIR *entries = opendir(directory);
	for (struct dirent *entry; entries && (entry = readdir(entries));)
		if (text_starts(entry->d_name, COPY_PREFIX))
			unlinkat(dirfd(entries), entry->d_name, 0);
	if (entries)
		closedir(entries);
}

static int backup_open_database(struct backup *backup, struct error *error)
{
	struct copy_job job = {0};
	struct stat info;
	if (text_format(job.directory, sizeof(job.directory), "%s/db", backup->state) < 0 ||
	    text_format(job.path, sizeof(job.path), "%s/" COPY_PREFIX "%d", job.directory,
			(int)getpid()) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	if (stat(job.directory, &info) < 0)
		return error_set_errno(error, state_error_kind(errno), errno,
				       "there is nothing to back up: %s", job.directory);
	job.uid = info.st_uid;
	job.gid = info.st_gid;
	old_copies_remove(job.directory);
	fd_close(&backup->database);
	free(backup->list);
	backup->list = malloc(LIST_MAX);
	if (!backup->list)
		return error_set(error, ERROR_NO_MEMORY, "no memory");
	(void)!text_copy(unfinished_path, sizeof(unfinished_path), job.path);
	int result =
	    doctor_run_child(database_copy_in_child, &job, COPY_TIMEOUT_MS, backup->list, LIST_MAX);
	unfinished_path[0] = '\0';
	if (result != 0) {
		unlink(job.path);
		return error_set(error, ERROR_STORE, "copying the database: %s",
				 backup->list[0] == '!' ? backup->list + 1
				 : result == -ETIMEDOUT ? "it takes too long"
							: "the copying process was ended");
	}
	backup->database = open(job.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int saved = errno;
	unlink(job.path);
	if (backup->database < 0 || fstat(backup->database, &info) < 0 || !S_ISREG(info.st_mode))
		return error_set_errno(error, ERROR_STORE, saved, "the database's copy");
	backup->manifest.schema = (int)strtol(backup->list, NULL, 10);
	return 0;
}

/* A file's size, and how much of it is data, not holes. */
static int file_measure(int fd, uint64_t *ret_size, uint64_t *ret_data)
{
	struct stat info;
	if (fstat(fd, &info) < 0)
		return -errno;
	if (!S_ISREG(info.st_mode))
		return -EINVAL;
	uint64_t start, end, data = 0, size = (uint64_t)info.st_size;
	for (uint64_t at = 0; at < size; at = end) {
		int result = file_next_data(fd, at, size, &start, &end);
		if (result < 0)
			return result;
		data += end - start;
	}
	*ret_size = size;
	*ret_data = data;
	return 0;
}

static int backup_add_file(struct backup *backup, int fd, const char *path, struct error *error)
{
	uint64_t size = 0, data = 0;
	int result = file_measure(fd, &size, &data);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "%s", path);
	return state_manifest_add(&backup->manifest, path, size, data, error);
}

/* Locks an image the way a boot does: while we hold the lock, the sandbox does not run. */
static int image_lock(int fd, int64_t until)
{
	while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (clock_monotonic() > until)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = 20 * NSEC_PER_MSEC}, NULL);
	}
	return 0;
}

/* Reads the file "SLOT TIER" that the spawner wrote, and the owner of the ids in the image. */
static int backup_read_sandbox(const struct backup *backup, const char *directory,
			       struct state_sandbox *sandbox, struct error *error)
{
	char path[PATH_ROOM + 16], text[64];
	uint64_t slot, owner, block;
	snprintf(path, sizeof(path), "%s/slot", directory);
	ssize_t length = fd_read_small(AT_FDCWD, path, text, sizeof(text));
	text[length > 0 ? strcspn(text, "\n") : 0] = '\0';
	char *tier = strchr(text, ' ');
	if (tier)
		*tier++ = '\0';
	if (tier)
		tier[strcspn(tier, " ")] = '\0';
	if (!tier || text_to_u64(text, 0, STATE_SLOTS - 1, &slot) < 0 ||
	    text_copy(sandbox->tier, sizeof(sandbox->tier), tier) < 0)
		return error_set(error, ERROR_INTERNAL, "%s: it is damaged", path);
	sandbox->slot = (uint32_t)slot;
	snprintf(path, sizeof(path), "%s/owner", directory);
	int64_t kept = doctor_read_number(path);
	if (kept >= 0) {
		sandbox->owner = (uint32_t)kept;
		return 0;
	}
	snprintf(path, sizeof(path), "%s/uid-block", backup->state);
	int64_t number = doctor_read_number(path);
	block = number < 0 ? 0 : (uint64_t)number;
	owner = UID_RANGE_BASE + (block * STATE_SLOTS + slot) * UID_RANGE_SIZE;
	sandbox->owner = (uint32_t)MIN(owner, UINT32_MAX - UID_RANGE_SIZE);
	return 0;
}

/* Packs the sandbox's files into a tar file without a name. The tree stays locked against a start.
 */
static int backup_pack_tree(struct backup *backup, const char *directory, size_t at,
			    struct error *error)
{
	char path[PATH_ROOM + 16];
	snprintf(path, sizeof(path), "%s/files", directory);
	backup->trees[at] = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (backup->trees[at] < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s", path);
	if (flock(backup->trees[at], LOCK_EX | LOCK_NB) < 0)
		return error_set(error, ERROR_BUSY, "%s is being started", path);
	backup->images[at] = open(backup->state, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (backup->images[at] < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s",
				       backup->state);
	return state_tree_pack(backup->trees[at], backup->images[at], error);
}

/* 1: its files are in images[at]; 0: it has no files; 2: it runs; -1: error. */
static int backup_open_files(struct backup *backup, const char *directory, bool stopped, size_t at,
			     struct error *error)
{
	char path[PATH_ROOM + 16];
	snprintf(path, sizeof(path), "%s/files", directory);
	if (access(path, F_OK) == 0)
		return !stopped ? 2 : backup_pack_tree(backup, directory, at, error) < 0 ? -1 : 1;
	snprintf(path, sizeof(path), "%s/disk.img", directory);
	CLOSE_FD int image = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (image < 0 && errno == ENOENT)
		return 0;
	int result = image < 0 ? -errno : image_lock(image, stopped ? backup->wait_until : 0);
	if (result == -EBUSY)
		return 2;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "%s", path);
	backup->images[at] = TAKE_FD(image);
	return 1;
}

/* 1: it is included; 0: it runs or has no files; -1: error. The ids of running ones are appended to
 * `running`. */
static int backup_add_sandbox(struct backup *backup, const char *id, bool stopped,
			      struct buffer *running, struct error *error)
{
	char directory[PATH_ROOM], inside[64];
	size_t at = backup->manifest.sandbox_count;
	if (at == STATE_SLOTS || id_parse(id, &backup->manifest.sandboxes[at].id) < 0 ||
	    text_format(directory, sizeof(directory), "%s/sandboxes/%s", backup->state, id) < 0)
		return error_set(error, ERROR_INTERNAL, "sandbox %s", id);
	int found = backup_open_files(backup, directory, stopped, at, error);
	if (found == 2)
		return buffer_printf(running, "%s%s", running->size ? ", " : "", id) < 0 ? -1 : 0;
	if (found <= 0)
		return found;
	snprintf(inside, sizeof(inside), "sandboxes/%s/%s", id,
		 backup->trees[at] >= 0 ? "files.tar" : "disk.img");
	if (backup_read_sandbox(backup, directory, &backup->manifest.sandboxes[at], error) < 0 ||
	    backup_add_file(backup, backup->images[at], inside, error) < 0)
		return -1;
	backup->manifest.sandbox_count++;
	return 1;
}

static int backup_add_logs(struct backup *backup, const char *id, struct error *error)
{
	char directory[PATH_ROOM], inside[PATH_ROOM];
	if (text_format(directory, sizeof(directory), "%s/logs/%s", backup->state, id) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	if (!entries) {
		fd_close(&fd);
		return 0;
	}
	int result = 0;
	for (struct dirent *entry; result == 0 && (entry = readdir(entries));) {
		snprintf(inside, sizeof(inside), "logs/%s/%s", id, entry->d_name);
		if (!state_path_valid(inside))
			continue;
		/* The daemon's user may have put a FIFO or a device into its directory: do not
		 * block on it. */
		CLOSE_FD int log = openat(dirfd(entries), entry->d_name,
					  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		struct stat info;
		if (log >= 0 && fstat(log, &info) == 0 && S_ISREG(info.st_mode))
			result = backup_add_file(backup, log, inside, error);
	}
	closedir(entries);
	return result;
}

static int backup_add_sandboxes(struct backup *backup, struct error *error)
{
	DONE_BUFFER struct buffer running = BUFFER(8192);
	backup->wait_until = clock_monotonic() + RELEASE_TIMEOUT;
	char *rest = strchr(backup->list, '\n') + 1, *line;
	while ((line = strsep(&rest, "\n"))) {
		char *state = strchr(line, ' ');
		if (!state)
			continue;
		*state++ = '\0';
		int taken = backup_add_sandbox(backup, line, *state == 's', &running, error);
		if (taken < 0)
			return -1;
		if (taken > 0 && backup_add_logs(backup, line, error) < 0)
			return -1;
	}
	if (running.size == 0)
		return 0;
	return error_set(error, ERROR_SANDBOX_STATE,
			 "these sandboxes are not stopped: %.300s. Stop them first (`caisson "
			 "stop`), or let --stop do it; --database-only includes no files",
			 running.data);
}

/* Writes to another name first: FILE is always complete. */
static int backup_write_named(struct backup *backup, const char *file, struct error *error)
{
	char draft[PATH_ROOM];
	struct stat info;
	if (text_format(draft, sizeof(draft), "%s.part-%d", file, (int)getpid()) < 0)
		return error_set(error, ERROR_USAGE, "that file name is too long");
	if (lstat(file, &info) == 0 && !S_ISREG(info.st_mode))
		return error_set(error, ERROR_USAGE,
				 "%s exists and is not a regular file; - writes to standard output",
				 file);
	CLOSE_FD int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set_errno(error, state_error_kind(errno), errno, "%s", draft);
	(void)!text_copy(unfinished_path, sizeof(unfinished_path), draft);
	int result = backup_write_archive(backup, fd, error);
	if (result == 0 && (fsync(fd) < 0 || rename(draft, file) < 0))
		result = error_set_errno(error, error_kind_of_errno(errno), errno, "%s", file);
	if (result < 0)
		unlink(draft);
	unfinished_path[0] = '\0';
	return result;
}

/* --- stopping --- */

struct running_sandbox {
	char id[ID_LENGTH + 1], workspace[WORKSPACE_MAX + 1];
	char token[64], token_id[ID_LENGTH + 1]; /* for it alone; "": none is needed */
};

/* Those that the list of the database's copy does not call stopped. */
static size_t running_sandboxes_read(const struct backup *backup, struct running_sandbox *running)
{
	_Static_assert(ID_LENGTH == 16 && WORKSPACE_MAX == 63, "the sizes below");
	const char *line = strchr(backup->list, '\n');
	size_t count = 0;
	char state;
	for (; line && line[1] && count < STATE_SLOTS; line = strchr(line + 1, '\n'))
		if (sscanf(line, " %16s %c %63s", running[count].id, &state,
			   running[count].workspace) == 3 &&
		    state != 's')
			count++;
	return count;
}

/* "2 in team, 1 in other" */
static void running_sandboxes_count(const struct running_sandbox *running, size_t count,
				    struct buffer *to)
{
	for (size_t i = 0; i < count; i++) {
		size_t same = 0, before = 0;
		for (size_t other = 0; other < count; other++)
			if (strcmp(running[i].workspace, running[other].workspace) == 0) {
				same++;
				before += other < i;
			}
		if (before == 0)
			(void)!buffer_printf(to, "%s%zu in %s", to->size > 0 ? ", " : "", same,
					     running[i].workspace);
	}
}

/* Without a token we act in the workspace `default`; an administrator may make tokens for others.
 */
static int sandbox_token_create(struct client *client, struct running_sandbox *sandbox,
				struct error *error)
{
	json_t *answer = NULL;
	if (strcmp(sandbox->workspace, "default") == 0)
		return 0;
	json_t *body = json_pack("{s:s, s:s, s:[s], s:i, s:s}", "workspace", sandbox->workspace,
				 "sandbox", sandbox->id, "scopes", "sandboxes:write",
				 "expires_seconds", 600, "label", "caisson state backup --stop");
	int result = client_call(client, "POST", "/v1/tokens", body, NULL, 0, &answer, error);
	json_decref(body);
	if (result == 0)
		result = text_copy(sandbox->token, sizeof(sandbox->token),
				   member_text(answer, "token")) < 0 ||
				 text_copy(sandbox->token_id, sizeof(sandbox->token_id),
					   member_text(answer, "id")) < 0
			     ? error_set(error, ERROR_INTERNAL, "the daemon's token is too long")
			     : 0;
	json_decref(answer);
	return result < 0 && error->kind != ERROR_SANDBOX_ENDED &&
		       error->kind != ERROR_SANDBOX_NOT_FOUND
		   ? -1
		   : 0;
}

static void sandbox_token_revoke(struct client *client, const struct running_sandbox *sandbox)
{
	char path[64];
	struct error ignored; /* it expires */
	snprintf(path, sizeof(path), "/v1/tokens/%s", sandbox->token_id);
	if (sandbox->token_id[0])
		(void)!client_call(client, "DELETE", path, NULL, NULL, 0, NULL, &ignored);
}

static int sandbox_stop_one(struct client *client, const struct running_sandbox *sandbox,
			    struct error *error)
{
	(void)!text_copy(client->token, sizeof(client->token), sandbox->token);
	int result = client_sandbox_call(client, "POST", sandbox->id, "/stop", NULL, NULL, error);
	client->token[0] = '\0';
	if (result < 0)
		return error->kind == ERROR_SANDBOX_ENDED || error->kind == ERROR_SANDBOX_NOT_FOUND
			   ? 0
			   : -1;
	fprintf(stderr, "caisson state backup: %s is stopped\n", sandbox->id);
	return 0;
}

/* Stops all sandboxes, of every workspace, through the daemon that serves this state directory. If
 * one of them cannot be reached, none is stopped. Returns their number or -1. */
static int sandboxes_stop_all(const struct backup *backup, struct client *client,
			      struct error *error)
{
	struct running_sandbox *running = calloc(STATE_SLOTS, sizeof(*running));
	if (!running)
		return error_set(error, ERROR_NO_MEMORY, "no memory");
	size_t count = running_sandboxes_read(backup, running);
	int result = 0;
	/* The owner of the state directory needs none; it might be another workspace's. */
	client->token[0] = '\0';
	for (size_t i = 0; result == 0 && i < count; i++)
		result = sandbox_token_create(client, &running[i], error);
	if (result < 0) {
		DONE_BUFFER struct buffer text = BUFFER(256);
		running_sandboxes_count(running, count, &text);
		error_prepend(error,
			      "nothing was stopped: sandboxes run in several workspaces (%s), and "
			      "not all can be stopped from here; stop them with tokens of these "
			      "workspaces",
			      buffer_text(&text));
	}
	for (size_t i = 0; result == 0 && i < count; i++)
		result = sandbox_stop_one(client, &running[i], error);
	for (size_t i = 0; i < count; i++)
		sandbox_token_revoke(client, &running[i]);
	explicit_bzero(running, STATE_SLOTS * sizeof(*running));
	free(running);
	return result < 0 ? -1 : (int)count;
}

static int backup_run(struct backup *backup, struct client *client, const char *file,
		      struct error *error)
{
	/* One backup at a time: otherwise interrupted copies cannot be told from one in use. */
	CLOSE_FD int directory = open(backup->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return error_set_errno(error, state_error_kind(errno), errno, "state directory %s",
				       backup->state);
	if (flock(directory, LOCK_EX | LOCK_NB) < 0)
		return error_set(error, ERROR_BUSY, "another backup of %s is being made",
				 backup->state);
	if (libarchive_load(error) < 0)
		return -1;
	bool whole = !backup->options->database_only;
	if (backup_open_database(backup, error) < 0)
		return -1;
	int stopped = whole && backup->options->stop && backup->options->served
			  ? sandboxes_stop_all(backup, client, error)
			  : 0;
	/* What the database says changes when sandboxes stop. */
	if (stopped < 0 || (stopped > 0 && backup_open_database(backup, error) < 0) ||
	    backup_add_file(backup, backup->database, STATE_DATABASE, error) < 0 ||
	    (whole && backup_add_sandboxes(backup, error) < 0))
		return -1;
	if (strcmp(file, "-") == 0) {
		if (isatty(STDOUT_FILENO))
			return error_set(error, ERROR_USAGE,
					 "a backup is not written to a terminal");
		return backup_write_archive(backup, STDOUT_FILENO, error);
	}
	return backup_write_named(backup, file, error);
}

int state_backup(struct client *client, const struct state_options *options, const char *file,
		 struct error *error)
{
	struct backup *backup = calloc(1, sizeof(*backup));
	if (!backup)
		return error_set(error, ERROR_NO_MEMORY, "no memory");
	backup->options = options;
	backup->database = -1;
	backup->manifest.database_only = options->database_only;
	backup->manifest.created = clock_wall();
	backup->manifest.rights = options->rights;
	for (size_t i = 0; i < STATE_SLOTS; i++)
		backup->images[i] = backup->trees[i] = -1;
	signal(SIGINT, signal_remove_unfinished);
	signal(SIGTERM, signal_remove_unfinished);
	signal(SIGHUP, signal_remove_unfinished);
	signal(SIGPIPE, SIG_IGN);
	int result = text_copy(backup->state, sizeof(backup->state), options->state);
	if (result == 0)
		result = backup_run(backup, client, file, error);
	if (result == 0) {
		char size[32];
		bytes_to_text(backup->manifest.data, size);
		size_t sandboxes = backup->manifest.sandbox_count;
		size_t files = backup->manifest.file_count;
		if (options->database_only)
			fprintf(stderr, "caisson state backup: the database, %s\n", size);
		else
			fprintf(stderr, "caisson state backup: %zu sandbox%s, %zu file%s, %s\n",
				sandboxes, sandboxes == 1 ? "" : "es", files, files == 1 ? "" : "s",
				size);
	}
	for (size_t i = 0; i < STATE_SLOTS; i++) {
		fd_close(&backup->images[i]);
		fd_close(&backup->trees[i]);
	}
	fd_close(&backup->database);
	state_manifest_done(&backup->manifest);
	free(backup->list);
	free(backup);
	return result;
}
