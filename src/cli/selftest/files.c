/* The file items: every file operation of the API on every kind of path that has ever led out of a
 * sandbox, as root and as an ordinary user, and while a process inside swaps files with links. A
 * marker on the host, which everybody may read and change, must not be read and must not change.
 * Blocks; some hundred requests. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/selftest/selftest.h"

#define LINKS "/workspace/links"
#define SWAPS "/workspace/swaps"
#define SWAP_SECONDS "4"
#define SWAP_ROUNDS 25
#define ANSWER_MAX (64 * KIB)

/* One operation on one path. */
struct path_attempt {
	struct selftest *test;
	const char *id, *user;
	char way[256];    /* path to the marker */
	char folder[256]; /* path to the marker's folder */
};

/* True if the marker has the content, mode and owner that we gave it, and nothing is beside it. */
static bool marker_is_untouched(const struct selftest *test)
{
	char text[64] = "";
	struct stat status;
	ssize_t size = fd_read_small(AT_FDCWD, test->marker, text, sizeof(text));
	if (size < 0 || strcmp(text, test->secret) != 0 || stat(test->marker, &status) < 0 ||
	    (status.st_mode & 07777) != 0666 || status.st_uid != geteuid())
		return false;
	size_t entries = 0;
	DIR *directory = opendir(test->folder);
	if (!directory)
		return false;
	while (readdir(directory))
		entries++;
	closedir(directory);
	return entries == 3; /* with "." and ".." */
}

/* Sends a request. Up to ANSWER_MAX bytes of the answer, error or not, are appended as text.
 * Returns the status, or -1. */
static int attempt_request(const struct path_attempt *attempt, const char *method, const char *path,
			   const char *body, bool json, struct buffer *answer)
{
	struct error ignored;
	struct request request = {.method = method,
				  .path = path,
				  .type = json ? "application/json" : NULL,
				  .length = body ? (int64_t)strlen(body) : 0};
	struct exchange *exchange = exchange_new();
	int status = -1;
	if (exchange_begin(attempt->test->client, &request, exchange, &ignored) == 0 &&
	    (!body || exchange_write(exchange, false, body, strlen(body), &ignored) == 0)) {
		if (exchange_read_head(exchange, &ignored) == 0) {
			char piece[4096];
			/* A watch never ends: its first event is enough. */
			bool endless = strstr(path, "/files/watch") != NULL;
			for (ssize_t got;
			     (got = exchange_read(exchange, piece, sizeof(piece), &ignored)) > 0;)
				if (buffer_append(answer, piece, (size_t)got) < 0 || endless)
					break;
		} else {
			(void)!buffer_append_text(answer, ignored.message);
		}
		status = exchange->status;
	}
	exchange_free(exchange);
	return status;
}

/* Checks the result of every attempt: nothing of the host was shown or changed, and the daemon did
 * not fail. */
static void attempt_judge(const struct path_attempt *attempt, const char *operation, int status,
			  const struct buffer *answer)
{
	struct selftest *test = attempt->test;
	const char *text = answer->data ? answer->data : "";
	bool told = memmem(text, answer->size, test->secret, strlen(test->secret)) != NULL;
	bool touched = !marker_is_untouched(test);
	bool broken = status < 0 || status >= 500;
	selftest_note_result(test, attempt->id, !told && !touched && !broken,
			     "%s of %s as uid %s: %s (status %d)", operation, attempt->way,
			     attempt->user,
			     told      ? "the host's file was read"
			     : touched ? "the host's file was changed"
				       : "no proper answer",
			     status);
}

static int attempt_query(const struct path_attempt *attempt, const char *method, const char *rest,
			 const char *name, const char *value, const char *more,
			 const char *more_value, const char *body, struct buffer *answer)
{
	DONE_BUFFER struct buffer path = BUFFER(16 * KIB);
	struct error ignored;
	const char *const pairs[] = {name, value, "user", attempt->user, more, more_value, NULL};
	if (selftest_request_path(&path, attempt->test->boxes.main, rest, pairs, &ignored) < 0)
		return -1;
	return attempt_request(attempt, method, path.data, body, false, answer);
}

/* Sends a POST whose fields are text. */
static int attempt_post(const struct path_attempt *attempt, const char *rest, json_t *body,
			struct buffer *answer)
{
	DONE_BUFFER struct buffer path = BUFFER(16 * KIB);
	struct error ignored;
	json_object_set_new(body, "user", json_string(attempt->user));
	FREE_TEXT char *text = json_dumps(body, 0);
	json_decref(body);
	if (!text ||
	    selftest_request_path(&path, attempt->test->boxes.main, rest, NULL, &ignored) < 0)
		return -1;
	return attempt_request(attempt, "POST", path.data, text, true, answer);
}

static int file_read_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_query(attempt, "GET", "/files", "path", attempt->way, NULL, NULL, NULL,
			     answer);
}

static int file_write_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_query(attempt, "PUT", "/files", "path", attempt->way, NULL, NULL, "broken",
			     answer);
}

static int file_append_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_query(attempt, "PUT", "/files", "path", attempt->way, "append", "1",
			     "broken", answer);
}

static int file_stat_try(const struct path_attempt *attempt, struct buffer *answer)
{
	struct stat status;
	char inode[48];
	int result = attempt_query(attempt, "GET", "/files/stat", "path", attempt->way, NULL, NULL,
				   NULL, answer);
	if (stat(attempt->test->marker, &status) < 0)
		return -1;
	snprintf(inode, sizeof(inode), "\"inode\":%llu,", (unsigned long long)status.st_ino);
	if (result == 200 && strstr(buffer_text(answer), inode))
		selftest_note_result(attempt->test, attempt->id, false,
				     "stat of %s shows the host's file", attempt->way);
	return result;
}

/* The answer must not have a name that exists only in the host's folder. */
static int attempt_judge_names(const struct path_attempt *attempt, int status,
			       const struct buffer *answer)
{
	if (status == 200 && answer->data && memmem(answer->data, answer->size, "marker\"", 7))
		selftest_note_result(attempt->test, attempt->id, false,
				     "%s shows the host's folder", attempt->folder);
	return status;
}

static int file_list_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_judge_names(attempt,
				   attempt_query(attempt, "GET", "/files/list", "path",
						 attempt->folder, NULL, NULL, NULL, answer),
				   answer);
}

static int file_glob_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_judge_names(attempt,
				   attempt_query(attempt, "GET", "/files/glob", "path",
						 attempt->folder, "pattern", "**", NULL, answer),
				   answer);
}

static int file_grep_try(const struct path_attempt *attempt, struct buffer *answer)
{
	/* An error's text would repeat the whole secret; half of it is enough to be found. */
	char half[17];
	snprintf(half, sizeof(half), "%.16s", attempt->test->secret);
	return attempt_query(attempt, "GET", "/files/grep", "path", attempt->folder, "pattern",
			     half, NULL, answer);
}

static int file_readlink_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_query(attempt, "GET", "/files/readlink", "path", attempt->way, NULL, NULL,
			     NULL, answer);
}

static int file_watch_try(const struct path_attempt *attempt, struct buffer *answer)
{
	int status = attempt_query(attempt, "GET", "/files/watch", "path", attempt->folder, NULL,
				   NULL, NULL, answer);
	if (status == 200)
		selftest_note_result(attempt->test, attempt->id, false, "%s can be watched",
				     attempt->folder);
	return status;
}

static int file_remove_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_query(attempt, "DELETE", "/files", "path", attempt->way, "recursive", "1",
			     NULL, answer);
}

static int file_mkdir_try(const struct path_attempt *attempt, struct buffer *answer)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/made", attempt->folder);
	return attempt_post(attempt, "/files/mkdir", json_pack("{s:s}", "path", path), answer);
}

static int file_symlink_try(const struct path_attempt *attempt, struct buffer *answer)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/made", attempt->folder);
	return attempt_post(attempt, "/files/symlink",
			    json_pack("{s:s, s:s}", "path", path, "target", "/etc"), answer);
}

static int file_rename_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_post(attempt, "/files/rename",
			    json_pack("{s:s, s:s}", "from", attempt->way, "to", LINKS "/taken"),
			    answer);
}

static int file_rename_over_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_post(attempt, "/files/rename",
			    json_pack("{s:s, s:s}", "from", LINKS "/plain", "to", attempt->way),
			    answer);
}

static int file_copy_try(const struct path_attempt *attempt, struct buffer *answer)
{
	int status = attempt_post(
	    attempt, "/files/copy",
	    json_pack("{s:s, s:s, s:b}", "from", attempt->way, "to", "/tmp/copied", "recursive", 1),
	    answer);
	if (status >= 400)
		return status;
	return attempt_query(attempt, "GET", "/files", "path", "/tmp/copied", NULL, NULL, NULL,
			     answer);
}

static int file_copy_over_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_post(attempt, "/files/copy",
			    json_pack("{s:s, s:s}", "from", "/etc/hostname", "to", attempt->way),
			    answer);
}

static int file_chmod_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_post(attempt, "/files/chmod",
			    json_pack("{s:s, s:s}", "path", attempt->way, "mode", "0600"), answer);
}

static int file_chown_try(const struct path_attempt *attempt, struct buffer *answer)
{
	return attempt_post(attempt, "/files/chown",
			    json_pack("{s:s, s:s}", "path", attempt->way, "owner", "1:1"), answer);
}

static int file_replace_try(const struct path_attempt *attempt, struct buffer *answer)
{
	char half[17];
	snprintf(half, sizeof(half), "%.16s", attempt->test->secret);
	return attempt_post(
	    attempt, "/files/replace",
	    json_pack("{s:s, s:s, s:s}", "path", attempt->way, "old", half, "new", "x"), answer);
}

static const struct file_operation {
	const char *name;
	int (*try)(const struct path_attempt *attempt, struct buffer *answer);
	bool raced; /* also tried while files are swapped with links */
} operations[] = {
    {"read", file_read_try, true},        {"stat", file_stat_try, true},
    {"list", file_list_try, true},        {"glob", file_glob_try, false},
    {"grep", file_grep_try, true},        {"readlink", file_readlink_try, false},
    {"watch", file_watch_try, false},     {"write", file_write_try, true},
    {"append", file_append_try, true},    {"replace", file_replace_try, false},
    {"chmod", file_chmod_try, true},      {"chown", file_chown_try, false},
    {"rename", file_rename_try, false},   {"rename_over", file_rename_over_try, false},
    {"copy", file_copy_try, true},        {"copy_over", file_copy_over_try, true},
    {"symlink", file_symlink_try, false}, {"mkdir", file_mkdir_try, false},
    {"remove", file_remove_try, true},
};

/* %s stands for the marker's folder. */
static const char *const path_ways[] = {
    "%s",
    "../../../../../../../../..%s",
    "/../../..%s",
    "/workspace/../../../..%s",
    "/proc/1/root%s",
    "/proc/self/root%s",
    "/proc/thread-self/root/../..%s",
    "/proc/self/cwd/../../../..%s",
    "/proc/1/cwd%s",
    "/proc/self/fd/0/../../..%s",
    "/proc/self/task/../root%s",
    "/dev/fd/3%s",
    LINKS "/root%s",
    LINKS "/root-of-init%s",
    LINKS "/up%s",
    LINKS "/absolute",
    LINKS "/relative",
    LINKS "/chain",
};

/* Makes the links as the user in the sandbox would; operations that remove or move take some away.
 * "/." because gVisor's kernel of 2022 drops what follows a link to "/". */
static int links_make(struct selftest *test, struct error *error)
{
	DONE_BUFFER struct buffer script = BUFFER(8 * KIB);
	const char *f = test->folder;
	json_t *result = NULL;
	if (buffer_printf(&script,
			  "rm -rf " LINKS " && mkdir -m 777 " LINKS " && cd " LINKS
			  " && ln -s /. root && ln -s /proc/1/root root-of-init && "
			  "ln -s ../../../../.. up && ln -s %s absolute && "
			  "ln -s ../../../../../../..%s relative && ln -s absolute c1 && "
			  "ln -s c1 chain && ln -s /proc/self/fd/3 magic && echo x > plain && "
			  "chmod 666 plain && rm -rf /tmp/copied",
			  f, f) < 0)
		return error_set(error, ERROR_INTERNAL, "the links' script is too long");
	if (selftest_shell(test, test->boxes.main, script.data, &result, error) < 0)
		return -1;
	long long code = (long long)member_integer(result, "exit_code");
	json_decref(result);
	return code == 0 ? 0 : error_set(error, ERROR_INTERNAL, "the links could not be made");
}

static int operation_run(struct selftest *test, const struct file_operation *operation,
			 struct error *error)
{
	static const char *const users[] = {"0", "1000"};
	bool one_id = strcmp(test->rights, "one-id") == 0;
	char id[64];
	snprintf(id, sizeof(id), "file_%s", operation->name);
	if (links_make(test, error) < 0)
		return -1;
	for (size_t u = 0; u < (one_id ? 1 : ARRAY_SIZE(users)); u++) {
		for (size_t w = 0; w < ARRAY_SIZE(path_ways); w++) {
			DONE_BUFFER struct buffer answer = BUFFER(ANSWER_MAX);
			struct path_attempt attempt = {.test = test, .id = id, .user = users[u]};
			DONE_BUFFER struct buffer folder = BUFFER(240);
			const char *hole = strstr(path_ways[w], "%s");
			if (buffer_printf(
				&folder, "%.*s%s",
				(int)(hole ? hole - path_ways[w] : (long)strlen(path_ways[w])),
				path_ways[w], hole ? test->folder : "") < 0)
				return error_set(error, ERROR_INTERNAL, "a path is too long");
			snprintf(attempt.folder, sizeof(attempt.folder), "%s", folder.data);
			snprintf(attempt.way, sizeof(attempt.way), "%s/marker", folder.data);
			attempt_judge(&attempt, operation->name, operation->try(&attempt, &answer),
				      &answer);
		}
	}
	return 0;
}

/* The swapping process prints a line once it swaps; before that there is no race. */
static int swaps_await(struct selftest *test, const char *id, const char *path, struct error *error)
{
	for (int tries = 0; tries < 200; tries++) {
		json_t *record = NULL;
		if (client_call(test->client, "GET", path, NULL, NULL, 0, &record, error) < 0)
			return -1;
		bool begun = member_integer(record, "stdout_bytes") > 0;
		json_decref(record);
		if (begun)
			return 0;
		usleep(50 * 1000);
	}
	selftest_note_result(test, id, false, "the swapping process did not start");
	return 0;
}

/* Runs an operation while a process inside swaps. The answers vary, but their effects may not. */
static int operation_run_raced(struct selftest *test, const struct file_operation *operation,
			       struct error *error)
{
	char id[64], below[256];
	DONE_BUFFER struct buffer path = BUFFER(4096);
	json_t *made = NULL;
	snprintf(id, sizeof(id), "race_%s", operation->name);
	if (selftest_shell(test, test->boxes.main, "rm -rf " SWAPS " && mkdir -m 777 " SWAPS, &made,
			   error) < 0 ||
	    selftest_request_path(&path, test->boxes.main, "/exec", NULL, error) < 0)
		return -1;
	json_decref(made);
	json_t *answer = NULL,
	       *body = json_pack("{s:[s,s,s,s,s], s:b, s:i}", "argv", "/tmp/caisson-probe",
				 "--swap", SWAPS, test->marker, SWAP_SECONDS, "background", 1,
				 "timeout_seconds", 20);
	int result = client_call(test->client, "POST", path.data, body, NULL, 0, &answer, error);
	json_decref(body);
	if (result < 0)
		return -1;
	char rest[128];
	snprintf(rest, sizeof(rest), "/execs/%s", member_text(answer, "exec_id"));
	json_decref(answer);
	buffer_clear(&path);
	if (selftest_request_path(&path, test->boxes.main, rest, NULL, error) < 0 ||
	    swaps_await(test, id, path.data, error) < 0)
		return -1;
	snprintf(below, sizeof(below), SWAPS "/tree%s", test->folder);
	for (int round = 0; round < SWAP_ROUNDS; round++) {
		DONE_BUFFER struct buffer first = BUFFER(ANSWER_MAX), second = BUFFER(ANSWER_MAX);
		struct path_attempt file = {.test = test, .id = id, .user = "0"}, tree = file;
		snprintf(file.way, sizeof(file.way), SWAPS "/file");
		snprintf(file.folder, sizeof(file.folder), SWAPS "/file");
		snprintf(tree.folder, sizeof(tree.folder), "%s", below);
		snprintf(tree.way, sizeof(tree.way), "%.240s/marker", below);
		attempt_judge(&file, operation->name, operation->try(&file, &first), &first);
		attempt_judge(&tree, operation->name, operation->try(&tree, &second), &second);
	}
	/* It may have ended already. */
	struct error ignored;
	(void)!client_call(test->client, "DELETE", path.data, NULL, NULL, 0, NULL, &ignored);
	return 0;
}

int selftest_run_files(struct selftest *test, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		char id[64], race[64];
		if (!test->marker[0])
			break;
		selftest_show_progress(test, "files: %s", operations[i].name);
		snprintf(id, sizeof(id), "file_%s", operations[i].name);
		snprintf(race, sizeof(race), "race_%s", operations[i].name);
		if (!selftest_item_is_elsewhere(test, id) &&
		    operation_run(test, &operations[i], error) < 0)
			return -1;
		if (operations[i].raced && !selftest_item_is_elsewhere(test, race) &&
		    operation_run_raced(test, &operations[i], error) < 0)
			return -1;
	}
	if (!test->marker[0])
		selftest_note_untried_side(test, "files", "the daemon is on another machine");
	return 0;
}
