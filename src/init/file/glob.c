/* Glob: sends the names below a directory that match a pattern as it finds them, in the order of
 * the directories or by name. Called by operation_run(); may block on the disk and waits for
 * credit. Memory does not grow with the number of names. A directory is entered only if
 * something below it can still match. A link to a directory is entered only where the pattern
 * names it, never by "**"; /proc and /sys only if the search starts in them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pattern/pattern.h"
#include "init/file/internal.h"

#define CANCEL_LOOK 1024

struct glob {
	struct operation *operation;
	struct pattern *pattern;
	struct file_output output;
	struct file_prefix prefix;
	struct pattern_state *states; /* one for each level of the walk */
	size_t depth, room;
	uint32_t count, limit;
	bool truncated;
};

static void glob_done(struct glob *glob)
{
	while (glob->depth > 0)
		pattern_state_done(&glob->states[--glob->depth]);
	free(glob->states);
	file_output_done(&glob->output);
	pattern_free(&glob->pattern);
}

/* Takes over the state. */
static int glob_push_state(struct glob *glob, struct pattern_state *state)
{
	if (glob->depth == glob->room) {
		size_t room = MAX(16, 2 * glob->room);
		void *states = realloc(glob->states, room * sizeof(*glob->states));
		if (!states)
			return -ENOMEM;
		glob->states = states;
		glob->room = room;
	}
	glob->states[glob->depth++] = *state;
	*state = (struct pattern_state){0};
	return 0;
}

static int glob_send_match(struct glob *glob, const struct file_walk *walk)
{
	if (glob->count == glob->limit) {
		glob->truncated = true;
		return 0;
	}
	char path[3 * GUEST_PATH_MAX];
	size_t name_size = strlen(walk->name), size = glob->prefix.size;
	memcpy(path, glob->prefix.text, size);
	memcpy(path + size, walk->path, walk->path_size);
	size += walk->path_size;
	memcpy(path + size, walk->name, name_size);
	uint8_t record[sizeof(path) + 4];
	struct writer writer = writer_on(record, sizeof(record));
	write_bytes(&writer, path, size + name_size);
	glob->count++;
	return file_output_add(&glob->output, record, writer.size);
}

static bool entry_leads_to_directory(const struct file_walk *walk)
{
	struct stat stat;
	return walk->type == DT_DIR ||
	       (walk->type == DT_LNK && fstatat(walk->directory, walk->name, &stat, 0) == 0 &&
		S_ISDIR(stat.st_mode));
}

/* Enters a directory, or follows a link to one, if something below it can still match. */
static int glob_descend(struct glob *glob, struct file_walk *walk, const struct pattern_state *here)
{
	struct pattern_state below DONE_STATE = {0};
	int result = pattern_advance(glob->pattern, here, "/", 1, &below);
	if (result < 0)
		return result;
	if (walk->type == DT_LNK)
		pattern_drop_recursion(glob->pattern, &below);
	if (below.count == 0 || file_walk_skipped(walk))
		return 0;
	int fd CLOSE_FD = -1;
	if (walk->type == DT_LNK)
		fd = openat(walk->directory, walk->name,
			    O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	else
		fd = file_walk_open_entry(walk);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat) < 0)
		return 0;
	if (stat.st_dev != walk->levels[walk->depth - 1].device && file_is_kernel_tree(fd))
		return 0;
	result = glob_push_state(glob, &below);
	return result < 0 ? result : file_walk_enter(walk, &fd);
}

static int glob_visit_entry(struct glob *glob, struct file_walk *walk)
{
	size_t size = strlen(walk->name);
	/* Longer than the longest path of a request. */
	if (walk->path_size + size >= GUEST_PATH_MAX)
		return 0;
	struct pattern_state here DONE_STATE = {0};
	int result =
	    pattern_advance(glob->pattern, &glob->states[glob->depth - 1], walk->name, size, &here);
	if (result < 0 || here.count == 0)
		return result;
	if (pattern_accepts(glob->pattern, &here) &&
	    (!pattern_wants_directory(glob->pattern) || entry_leads_to_directory(walk)))
		result = glob_send_match(glob, walk);
	if (result == 0 && (walk->type == DT_DIR || walk->type == DT_LNK))
		result = glob_descend(glob, walk, &here);
	return result;
}

static int glob_search(struct glob *glob, int *directory)
{
	struct file_walk walk DONE_WALK = {.directory = -1};
	struct pattern_state start DONE_STATE = {0};
	int result = pattern_start(&start);
	if (result == 0)
		result = glob_push_state(glob, &start);
	if (result == 0)
		result = file_walk_open(&walk, directory);
	walk.sorted = glob->operation->request.flags & FILE_SORTED;
	walk.skips_generated = glob->operation->request.flags & FILE_SKIP_GENERATED;
	for (uint64_t seen = 1; result == 0 && !glob->truncated; seen++) {
		int event = file_walk_next(&walk);
		/* The tree was moved away meanwhile: the matches are not complete. */
		glob->truncated |= event == -ESTALE;
		if (event == WALK_END || event == -ESTALE)
			break;
		if (event == WALK_ENTRY)
			result = glob_visit_entry(glob, &walk);
		else if (event == WALK_LEAVE)
			pattern_state_done(&glob->states[--glob->depth]);
		if (seen % CANCEL_LOOK == 0 && operation_cancelled(glob->operation))
			result = -ECANCELED;
	}
	return result < 0 ? result : file_output_flush(&glob->output);
}

/* Moves the part of the pattern without wildcards to the prefix. */
static int pattern_take_fixed_part(struct glob *glob, struct bytes *pattern)
{
	const char *text = (const char *)pattern->data;
	size_t size = glob_fixed_prefix(text, pattern->size);
	if (size > GUEST_PATH_MAX - glob->prefix.size)
		return -ENAMETOOLONG;
	memcpy(glob->prefix.text + glob->prefix.size, text, size);
	glob->prefix.size += size;
	glob->prefix.text[glob->prefix.size] = '\0';
	pattern->data += size;
	pattern->size -= size;
	return 0;
}

/* Opens the base, which must exist, and below it the pattern's fixed part, which need not. */
static int glob_open_start(struct glob *glob, struct bytes *pattern, int *ret_directory,
			   struct failure *failure)
{
	struct bytes base = glob->operation->request.path;
	if (pattern->size > 0 && pattern->data[0] == '/')
		base = (struct bytes){(const uint8_t *)"/", 1};
	while (pattern->size > 0 && pattern->data[0] == '/')
		*pattern = (struct bytes){pattern->data + 1, pattern->size - 1};
	struct bytes named = base.size > 0 ? base : (struct bytes){(const uint8_t *)".", 1};
	struct file_path path;
	if (file_path_of(named, &path, failure) < 0)
		return -1;
	int directory CLOSE_FD = open(path.text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (directory < 0)
		return file_failed(failure, errno, path.text);
	file_prefix_of(base, &glob->prefix);
	size_t fixed_at = glob->prefix.size;
	int result = pattern_take_fixed_part(glob, pattern);
	if (result < 0)
		return file_failed(failure, result, path.text);
	if (glob->prefix.size > fixed_at)
		*ret_directory = openat(directory, glob->prefix.text + fixed_at,
					O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	else
		*ret_directory = TAKE_FD(directory);
	return 0;
}

int file_glob(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct glob glob CLEANUP(glob_done) = {.operation = operation};
	bool limited = request->limit > 0 && request->limit < GLOB_RESULTS_MAX;
	glob.limit = limited ? request->limit : GLOB_RESULTS_MAX;
	int directory CLOSE_FD = -1;
	struct bytes pattern = request->pattern;
	if (pattern.size == 0)
		return file_refused(failure, ERROR_PATTERN_INVALID, "", "the pattern is empty");
	if (glob_open_start(&glob, &pattern, &directory, failure) < 0)
		return -1;
	int result = pattern_compile_glob((const char *)pattern.data, pattern.size,
					  request->flags & FILE_HIDDEN, &glob.pattern);
	if (result == -EINVAL || result == -E2BIG)
		return file_refused(failure, ERROR_PATTERN_INVALID, "",
				    "the pattern is empty, too long or holds a NUL byte");
	if (result == 0)
		result = file_output_open(&glob.output, operation);
	if (result == 0 && directory >= 0)
		result = glob_search(&glob, &directory);
	if (result < 0)
		return file_failed(failure, result, glob.prefix.text);
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, glob.count);
	write_u8(&writer, glob.truncated);
	operation_result(operation, payload, writer.size);
	return 0;
}
