/* Searching one file for lines. Called by grep; blocks on the disk.
 *
 * The file is read through a window of WINDOW bytes. Whole lines in it are searched together:
 * one call finds the first match among thousands of lines. A line longer than the window is
 * searched in overlapping pieces and reported once. Holes of a sparse file are skipped. */
#include "init/file/search.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define WINDOW (256 * 1024)
#define BINARY_LOOK (8 * 1024)
#define REGEX_OVERLAP (4 * 1024)

static char byte_to_lower(char byte)
{
	return byte >= 'A' && byte <= 'Z' ? (char)(byte + ('a' - 'A')) : byte;
}

static int search_compile_regex(struct text_search *search, struct bytes pattern,
				struct failure *failure)
{
	const char *reason = "";
	int result = pattern_compile_regex((const char *)pattern.data, pattern.size,
					   search->ignore_case, &search->regex, &reason);
	if (result == -EINVAL)
		return file_refused(failure, ERROR_PATTERN_INVALID,
				    "the regular expression cannot be used", reason);
	return result < 0 ? file_failed(failure, result, "") : 0;
}

int search_open(struct text_search *search, struct operation *operation, struct failure *failure)
{
	struct bytes pattern = operation->request.pattern;
	search->operation = operation;
	bool is_regex = operation->request.flags & FILE_REGEX;
	search->ignore_case = operation->request.flags & FILE_IGNORE_CASE;
	if (pattern.size == 0 || pattern.size > SEARCH_PATTERN_MAX)
		return file_refused(failure, ERROR_PATTERN_INVALID, "",
				    "the pattern is empty or longer than 64 KiB");
	if (memchr(pattern.data, '\n', pattern.size))
		return file_refused(
		    failure, ERROR_PATTERN_INVALID, "",
		    "the pattern holds a newline, but lines are searched one by one");
	search->pattern = malloc(pattern.size);
	search->buffer = malloc(WINDOW);
	bool folds = search->ignore_case && !is_regex;
	search->folded = folds ? malloc(WINDOW) : NULL;
	if (!search->pattern || !search->buffer || (folds && !search->folded))
		return file_failed(failure, ENOMEM, "");
	search->pattern_size = pattern.size;
	search->holes_cannot_match = !memchr(pattern.data, '\0', pattern.size);
	if (is_regex)
		return search_compile_regex(search, pattern, failure);
	for (size_t i = 0; i < pattern.size; i++)
		search->pattern[i] =
		    folds ? byte_to_lower((char)pattern.data[i]) : (char)pattern.data[i];
	return 0;
}

void search_done(struct text_search *search)
{
	pattern_free(&search->regex);
	free(search->pattern);
	free(search->buffer);
	free(search->folded);
	search->pattern = search->buffer = search->folded = NULL;
}

static bool search_is_cancelled(void *operation)
{
	return operation_cancelled(operation);
}

/* Finds the first match in [start, end). 1 with *ret_at, 0 or -ECANCELED. line_ends: a line ends
 * at `end`. */
static int search_find(struct text_search *search, size_t start, size_t end, bool line_ends,
		       size_t *ret_at)
{
	if (search->regex) {
		const struct pattern_text text = {
		    .text = search->buffer,
		    .start = start,
		    .end = end,
		    .begins = !search->continued,
		    .ends = line_ends,
		    .cancelled = search_is_cancelled,
		    .context = search->operation,
		};
		return pattern_find(search->regex, &text, ret_at);
	}
	const char *text = search->folded ? search->folded : search->buffer;
	const char *found =
	    memmem(text + start, end - start, search->pattern, search->pattern_size);
	if (found)
		*ret_at = (size_t)(found - text);
	return found != NULL;
}

static size_t count_newlines(const char *text, size_t size)
{
	size_t count = 0;
	for (size_t i = 0; i < size; i++)
		count += text[i] == '\n';
	return count;
}

/* Reports the line. Of a long line, reports a part that begins a little before the match and does
 * not cut a character in two. */
static int search_report(struct text_search *search, uint64_t line, size_t start, size_t end,
			 size_t at)
{
	const char *buffer = search->buffer;
	if (end - start > GREP_LINE_MAX) {
		if (at - start > GREP_LINE_MAX / 2)
			start = at - GREP_LINE_MAX / 4;
		for (int i = 0; i < 3 && start < at && (buffer[start] & 0xc0) == 0x80; i++)
			start++;
		size_t size = MIN(end - start, (size_t)GREP_LINE_MAX);
		end = start + text_utf8_prefix(buffer + start, size);
	}
	const struct search_match match = {
	    .line = line,
	    .offset = search->base + at,
	    .text = buffer + start,
	    .size = end - start,
	};
	return search->on_match(search->context, &match);
}

/* Searches the lines in [0, end). The newline of the last one is at `end`, or the file ends
 * there. */
static int search_lines(struct text_search *search, size_t end)
{
	const char *buffer = search->buffer;
	size_t at = 0;
	while (at <= end) {
		size_t hit = 0;
		int result = search_find(search, at, end, true, &hit);
		if (result < 0)
			return result;
		if (result == 0)
			break;
		const char *newline = memrchr(buffer + at, '\n', hit - at);
		size_t start = newline ? (size_t)(newline - buffer) + 1 : at;
		newline = memchr(buffer + hit, '\n', end - hit);
		size_t line_end = newline ? (size_t)(newline - buffer) : end;
		search->line += count_newlines(buffer + at, start - at);
		if (!(start == 0 && search->continued && search->reported)) {
			result = search_report(search, search->line, start, line_end, hit);
			if (result != 0)
				return result;
		}
		at = line_end + 1;
		search->line++;
	}
	if (at <= end)
		search->line += count_newlines(buffer + at, end - at) + 1;
	return 0;
}

/* Forgets the first `count` bytes. */
static void search_drop_front(struct text_search *search, size_t count)
{
	search->size -= count;
	search->base += count;
	memmove(search->buffer, search->buffer + count, search->size);
	if (search->folded)
		memmove(search->folded, search->folded + count, search->size);
}

/* Searches all whole lines in the window. */
static int search_whole_lines(struct text_search *search)
{
	const char *newline = memrchr(search->buffer, '\n', search->size);
	if (!newline)
		return 0;
	size_t end = (size_t)(newline - search->buffer);
	int result = search_lines(search, end);
	search_drop_front(search, end + 1);
	search->continued = search->reported = false;
	return result;
}

/* Searches a piece of a line that continues; keeps its end, in which a match could begin. */
static int search_piece(struct text_search *search, size_t overlap)
{
	size_t hit = 0;
	int result = 0;
	if (!search->reported && search->size > 0)
		result = search_find(search, 0, search->size, false, &hit);
	if (result > 0) {
		search->reported = true;
		result = search_report(search, search->line, 0, search->size, hit);
	}
	search_drop_front(search, search->size - MIN(overlap, search->size));
	search->continued = true;
	return result;
}

/* Skips a hole: it has no newline and, for a pattern without NULs, no match. */
static int search_skip_hole(struct text_search *search, int fd, const struct stat *stat,
			    bool *ret_end)
{
	off_t at = (off_t)(search->base + search->size);
	off_t data = lseek(fd, at, SEEK_DATA);
	bool end = data < 0 && errno == ENXIO && at < stat->st_size;
	if (data <= at && !end)
		return lseek(fd, at, SEEK_SET) < 0 ? -errno : 0;
	int result = search_piece(search, 0);
	search->base = (uint64_t)(end ? stat->st_size : data);
	*ret_end = end;
	return result;
}

/* Reads until the window is full or the file ends. */
static int search_fill_window(struct text_search *search, int fd, bool *ret_end)
{
	while (search->size < WINDOW && !*ret_end) {
		ssize_t got = read(fd, search->buffer + search->size, WINDOW - search->size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		*ret_end = got == 0;
		for (ssize_t i = 0; search->folded && i < got; i++)
			search->folded[search->size + (size_t)i] =
			    byte_to_lower(search->buffer[search->size + (size_t)i]);
		search->size += (size_t)got;
	}
	return 0;
}

int search_file(struct text_search *search, int fd, const struct stat *stat)
{
	search->size = 0;
	search->base = 0;
	search->line = 1;
	search->continued = search->reported = false;
	bool sparse = search->holes_cannot_match && stat->st_blocks < stat->st_size / 512;
	size_t overlap = search->regex ? REGEX_OVERLAP : search->pattern_size - 1;
	bool first = true, end = false;
	while (!end) {
		if (operation_cancelled(search->operation))
			return -ECANCELED;
		int result = sparse && !first ? search_skip_hole(search, fd, stat, &end) : 0;
		if (result == 0)
			result = search_fill_window(search, fd, &end);
		if (result != 0)
			return result;
		if (first && search->skip_binary &&
		    memchr(search->buffer, '\0', MIN(search->size, (size_t)BINARY_LOOK)))
			return 0;
		first = false;
		result = search_whole_lines(search);
		if (result == 0 && !end && search->size == WINDOW)
			result = search_piece(search, overlap);
		if (result != 0)
			return result;
	}
	/* Searches a last line without a newline. */
	if (search->size == 0 || (search->continued && search->reported))
		return 0;
	return search_lines(search, search->size);
}
