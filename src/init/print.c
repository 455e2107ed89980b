/* snprintf() and the like for the whole init, base/ and proto/ included: the linker takes these
 * before those of the C library, which are a tenth of the init's size. <stdio.h> declares them,
 * so formats are checked. Not part of the sanitized init. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/format.h"
#include "base/macros.h"

/* Link-time optimization may add calls of these after it has removed unused functions. */
#define KEPT __attribute__((used))

KEPT int vsnprintf(char *to, size_t room, const char *format, va_list args)
{
	return format_text(to, room, format, args);
}

KEPT int snprintf(char *to, size_t room, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int length = format_text(to, room, format, args);
	va_end(args);
	return length;
}

KEPT int dprintf(int fd, const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	int length = format_text(text, sizeof(text), format, args);
	va_end(args);
	if (length < 0)
		return -1;
	return (int)write(fd, text, MIN((size_t)length, sizeof(text) - 1));
}
