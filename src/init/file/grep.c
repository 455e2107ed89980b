/* Grep: sends the matching lines of one file, or of every regular file of a tree, as it finds
 * them. Called by operation_run(); may block on the disk and waits for credit. Skips binary
 * files (a NUL in the first 8 KiB) unless named directly, and files that it cannot read. Does
 * not follow links inside the tree; searches /proc and /sys only if the tree is in them. path2
 * is a glob for the file's name or, if it contains a slash, for its path below the tree's root. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pattern/pattern.h"
#include "init/file/internal.h"
#include "init/file/search.h"

#define CANCEL_LOOK 64

struct grep {
	struct operation *operation;
	struct text_search search;
	struct pattern *filter; /* NULL: every name */
	struct file_output output;
	struct file_prefix prefix;
	char path[3 * GUEST_PATH_MAX]; /* of the current file, as it is reported */
	size_t path_size;
	uint64_t matches, files, last_file;
	uint64_t file; /* number of files that were searched */
	uint32_t limit;
	bool truncated;
};

static void grep_done(struct grep *grep)
{
	search_done(&grep->search);
	pattern_free(&grep->filter);
	file_output_done(&grep->output);
}

static int grep_send_match(void *context, const struct search_match *match)
{
	struct grep *grep = context;
	if (grep->matches == grep->limit) {
		grep->truncated = true;
		return 1;
	}
	uint8_t record[sizeof(grep->path) + GREP_LINE_MAX + 64];
	struct writer writer = writer_on(record, sizeof(record));
	write_bytes(&writer, grep->path, grep->path_size);
	write_u64(&writer, match->line);
	write_u64(&writer, match->offset);
	write_bytes(&writer, match->text, match->size);
	grep->matches++;
	grep->files += grep->last_file != grep->file;
	grep->last_file = grep->file;
	return file_output_add(&grep->output, record, writer.size);
}

static bool grep_wants_file(struct grep *grep, const struct file_walk *walk)
{
	size_t size = strlen(walk->name);
	if (walk->path_size + size >= GUEST_PATH_MAX)
		return false;
	memcpy(grep->path, grep->prefix.text, grep->prefix.size);
	memcpy(grep->path + grep->prefix.size, walk->path, walk->path_size);
	memcpy(grep->path + grep->prefix.size + walk->path_size, walk->name, size);
	grep->path_size = grep->prefix.size + walk->path_size + size;
	if (!grep->filter)
		return true;
	if (!pattern_has_slash(grep->filter))
		return pattern_matches(grep->filter, walk->name, size);
	return pattern_matches(grep->filter, grep->path + grep->prefix.size,
			       walk->path_size + size);
}

static int grep_entry(struct grep *grep, const struct file_walk *walk)
{
	if (!grep_wants_file(grep, walk))
		return 0;
	int fd CLOSE_FD = openat(walk->directory, walk->name,
				 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode))
		return 0;
	grep->file++;
	int result = search_file(&grep->search, fd, &stat);
	/* An error while reading a file (most likely one of the kernel's) does not end the
	 * search. */
	return result == -EIO || result == -EAGAIN || result == -EINVAL || result == -EPERM ||
		       result == -EACCES || result == -EISDIR
		   ? 0
		   : result;
}

static int grep_directory(struct file_walk *walk)
{
	if (file_walk_skipped(walk))
		return 0;
	int fd CLOSE_FD = file_walk_open_entry(walk);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat) < 0)
		return 0;
	if (stat.st_dev != walk->levels[walk->depth - 1].device && file_is_kernel_tree(fd))
		return 0;
	return file_walk_enter(walk, &fd);
}

static int grep_tree(struct grep *grep, int *directory)
{
	struct file_walk walk DONE_WALK = {.directory = -1};
	grep->search.skip_binary = true;
	int result = file_walk_open(&walk, directory);
	walk.sorted = grep->operation->request.flags & FILE_SORTED;
	walk.skips_generated = grep->operation->request.flags & FILE_SKIP_GENERATED;
	for (uint64_t seen = 1; result == 0; seen++) {
		int event = file_walk_next(&walk);
		if (event == -ESTALE)
			grep->truncated = true;
		if (event == WALK_END || event == -ESTALE)
			break;
		if (event == WALK_ENTRY && walk.type == DT_REG)
			result = grep_entry(grep, &walk);
		else if (event == WALK_ENTRY && walk.type == DT_DIR &&
			 walk.path_size < GUEST_PATH_MAX)
			result = grep_directory(&walk);
		if (seen % CANCEL_LOOK == 0 && operation_cancelled(grep->operation))
			result = -ECANCELED;
	}
	return result;
}

/* The path itself: a tree, or a file, which is searched even if it is binary. */
static int grep_path(struct grep *grep, const struct file_path *path, struct failure *failure)
{
	struct bytes named = grep->operation->request.path;
	struct stat stat = {0};
	int fd CLOSE_FD = file_open_regular(AT_FDCWD, path->text, O_RDONLY, &stat);
	int result = fd;
	file_prefix_of(named, &grep->prefix);
	if (fd >= 0) {
		grep->path_size = MIN(named.size, sizeof(grep->path));
		memcpy(grep->path, named.data, grep->path_size);
		grep->file++;
		result = search_file(&grep->search, fd, &stat);
	} else if (fd == -EMEDIUMTYPE && S_ISDIR(stat.st_mode)) {
		fd = open(path->text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
		result = fd < 0 ? -errno : grep_tree(grep, &fd);
	} else if (fd == -EMEDIUMTYPE) {
		return file_wrong_type(failure, path->text, stat.st_mode, "a file or a directory");
	}
	/* 1: the limit was reached. */
	if (result >= 0)
		result = file_output_flush(&grep->output);
	return result < 0 ? file_failed(failure, result, path->text) : 0;
}

int file_grep(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct grep grep CLEANUP(grep_done) = {.operation = operation};
	bool limited = request->limit > 0 && request->limit < GREP_MATCHES_MAX;
	grep.limit = limited ? request->limit : GREP_MATCHES_MAX;
	grep.search.on_match = grep_send_match;
	grep.search.context = &grep;
	struct bytes named = request->path;
	if (named.size == 0)
		named = (struct bytes){(const uint8_t *)".", 1};
	struct file_path path;
	if (file_path_of(named, &path, failure) < 0)
		return -1;
	int result = 0;
	if (request->path2.size > 0)
		result = pattern_compile_glob((const char *)request->path2.data,
					      request->path2.size, true, &grep.filter);
	if (result == -EINVAL || result == -E2BIG)
		return file_refused(failure, ERROR_PATTERN_INVALID, "",
				    "the name filter is too long or holds a NUL byte");
	if (result == 0)
		result = file_output_open(&grep.output, operation);
	if (result < 0)
		return file_failed(failure, result, path.text);
	if (search_open(&grep.search, operation, failure) < 0 ||
	    grep_path(&grep, &path, failure) < 0)
		return -1;
	uint8_t payload[24];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, grep.matches);
	write_u64(&writer, grep.files);
	write_u8(&writer, grep.truncated);
	operation_result(operation, payload, writer.size);
	return 0;
}
