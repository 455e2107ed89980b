/* The error value and the table of its kinds. Called by everything; never blocks. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct error_info error_infos[ERROR_KIND_COUNT] = {
#define KIND(name, code, http, rpc, exit_code, retryable, advice)                                  \
	[ERROR_##name] = {code, http, rpc, exit_code, retryable, advice},
#include "base/error_kinds.def"
#undef KIND
};

PRINTF_LIKE(4, 0)
static void error_set_text(struct error *error, enum error_kind kind, int errnum,
			   const char *format, va_list args)
{
	error->kind = kind;
	error->errnum = errnum;
	error->retry_after_ms = error->queue_position = 0;
	error->limit[0] = '\0';
	int length = vsnprintf(error->message, sizeof(error->message), format, args);
	if (errnum == 0 || length < 0 || (size_t)length >= sizeof(error->message))
		return;
	snprintf(error->message + length, sizeof(error->message) - (size_t)length, ": %s",
		 strerror(errnum));
}

int error_set(struct error *error, enum error_kind kind, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	error_set_text(error, kind, 0, format, args);
	va_end(args);
	return -1;
}

int error_set_errno(struct error *error, enum error_kind kind, int errnum, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	error_set_text(error, kind, errnum < 0 ? -errnum : errnum, format, args);
	va_end(args);
	return -1;
}

int error_prepend(struct error *error, const char *format, ...)
{
	char text[ERROR_MESSAGE_MAX];
	va_list args;
	va_start(args, format);
	int length = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (length < 0)
		return -1;
	size_t used = MIN((size_t)length, sizeof(text) - 1);
	snprintf(text + used, sizeof(text) - used, ": %s", error->message);
	memcpy(error->message, text, sizeof(text));
	return -1;
}

const struct error_info *error_info(enum error_kind kind)
{
	if ((unsigned)kind >= ERROR_KIND_COUNT)
		kind = ERROR_INTERNAL;
	return &error_infos[kind];
}

enum error_kind error_kind_of_code(const char *code)
{
	for (int kind = 0; kind < ERROR_KIND_COUNT; kind++)
		if (strcmp(error_infos[kind].code, code) == 0)
			return (enum error_kind)kind;
	return ERROR_INTERNAL;
}

enum error_kind error_kind_of_errno(int errnum)
{
	switch (errnum < 0 ? -errnum : errnum) {
	case 0:
		return ERROR_NONE;
	case ENOSPC:
	case EDQUOT:
		return ERROR_NO_SPACE;
	case ENOMEM:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
		return ERROR_NO_MEMORY;
	case EPERM:
	case EACCES:
		return ERROR_NO_PERMISSION;
	case ETIMEDOUT:
		return ERROR_TIMED_OUT;
	default:
		return ERROR_INTERNAL;
	}
}

enum error_kind error_kind_of_file_errno(int errnum)
{
	switch (errnum < 0 ? -errnum : errnum) {
	case 0:
		return ERROR_NONE;
	case ENOENT:
		return ERROR_FILE_NOT_FOUND;
	case EEXIST:
	case ENOTEMPTY:
		return ERROR_FILE_EXISTS;
	case EPERM:
	case EACCES:
	case EROFS:
		return ERROR_FILE_DENIED;
	case ENOTDIR:
	case EISDIR:
	case ENXIO:
	case ESPIPE:
		return ERROR_FILE_WRONG_TYPE;
	case ENOSPC:
	case EDQUOT:
		return ERROR_FILE_NO_SPACE;
	case EFBIG:
	case EOVERFLOW:
		return ERROR_FILE_TOO_LARGE;
	case ELOOP:
		return ERROR_FILE_LOOP;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EAGAIN:
		return ERROR_RESOURCE_LIMIT;
	case ETIMEDOUT:
		return ERROR_TIMED_OUT;
	default:
		return ERROR_FILE_INVALID;
	}
}
