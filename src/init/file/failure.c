/* How a file operation reports a failure: the kind, and a sentence with the path and the reason.
 * Called by every operation; never blocks. No printf(): it would be the larger part of the init. */
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "init/file/internal.h"

static const char *errno_words(int errnum)
{
	switch (errnum) {
	case ENOENT:
		return "no such file or directory";
	case EEXIST:
		return "it exists already";
	case ENOTEMPTY:
		return "the directory is not empty";
	case EPERM:
		return "operation not permitted";
	case EACCES:
		return "permission denied";
	case EROFS:
		return "the file system is read-only";
	case ENOTDIR:
		return "not a directory";
	case EISDIR:
		return "is a directory";
	case ENXIO:
	case ESPIPE:
	case EMEDIUMTYPE:
		return "not a regular file";
	case ENOSPC:
		return "no space left on the sandbox's disk";
	case EDQUOT:
		return "the disk quota is used up";
	case EFBIG:
		return "the file would be too large";
	case EOVERFLOW:
		return "the value is too large";
	case ELOOP:
		return "too many levels of symbolic links";
	case ENOMEM:
		return "out of memory";
	case EMFILE:
	case ENFILE:
		return "too many open files";
	case EAGAIN:
		return "it is not available at the moment";
	case ENAMETOOLONG:
		return "the name is too long";
	case EBUSY:
		return "it is in use, or a mount point";
	case EXDEV:
		return "it is on another file system";
	case EIO:
		return "input/output error";
	case ETXTBSY:
		return "it is a program that is running";
	case EMLINK:
		return "too many links";
	case EINVAL:
		return "not possible with this kind of file, name or value";
	case EOPNOTSUPP:
		return "the file system does not support it";
	case ESTALE:
		return "it was moved or replaced meanwhile";
	default:
		return strerror(errnum);
	}
}

/* Names are bytes, but a message is for people: control characters, and bytes that are not
 * UTF-8, become '?'. A long path loses its middle, so that the name at its end is kept. */
static size_t failure_append_path(char *to, size_t room, const char *path)
{
	size_t size = strlen(path), cut = room / 3;
	bool shortened = size > room;
	size_t used = 0;
	for (size_t at = 0; at < size && used < room; at++) {
		if (shortened && used == cut) {
			memcpy(to + used, "...", 3);
			used += 3;
			at = size - (room - used);
		}
		unsigned char byte = (unsigned char)path[at];
		to[used++] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
	}
	bool readable = !shortened && text_is_utf8(to, used);
	for (size_t at = 0; at < used && !readable; at++)
		to[at] = (unsigned char)to[at] >= 0x80 ? '?' : to[at];
	return used;
}

static int failure_set(struct failure *failure, enum error_kind kind, int errnum, const char *path,
		       const char *words)
{
	size_t words_size = MIN(strlen(words), sizeof(failure->message) / 2);
	size_t room = sizeof(failure->message) - words_size - sizeof(": ");
	size_t used = failure_append_path(failure->message, room, path);
	if (used > 0) {
		memcpy(failure->message + used, ": ", 2);
		used += 2;
	}
	memcpy(failure->message + used, words, words_size);
	failure->message[used + words_size] = '\0';
	failure->kind = kind;
	failure->errnum = (uint32_t)errnum;
	return -1;
}

int file_failed(struct failure *failure, int errnum, const char *path)
{
	errnum = errnum < 0 ? -errnum : errnum;
	if (errnum == ECANCELED)
		return failure_set(failure, ERROR_CANCELLED, errnum, path, "cancelled");
	enum error_kind kind = error_kind_of_file_errno(errnum);
	if (errnum == EMEDIUMTYPE)
		kind = ERROR_FILE_WRONG_TYPE;
	return failure_set(failure, kind, errnum, path, errno_words(errnum));
}

int file_refused(struct failure *failure, enum error_kind kind, const char *path, const char *words)
{
	return failure_set(failure, kind, 0, path, words);
}

static const char *type_words(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "is a directory, not ";
	case S_IFLNK:
		return "is a symbolic link, not ";
	case S_IFIFO:
		return "is a FIFO, not ";
	case S_IFSOCK:
		return "is a socket, not ";
	case S_IFCHR:
	case S_IFBLK:
		return "is a device, not ";
	default:
		return "is a regular file, not ";
	}
}

int file_wrong_type(struct failure *failure, const char *path, mode_t mode, const char *wanted)
{
	char words[64];
	const char *is = type_words(mode);
	size_t is_size = strlen(is), wanted_size = MIN(strlen(wanted), sizeof(words) - is_size - 1);
	memcpy(words, is, is_size);
	memcpy(words + is_size, wanted, wanted_size);
	words[is_size + wanted_size] = '\0';
	return failure_set(failure, ERROR_FILE_WRONG_TYPE, 0, path, words);
}
