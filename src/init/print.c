/* snprintf and its like for the whole init, base/ and proto/ included: the linker takes these
 * before it looks into the C library, whose own ones are a tenth of the init's size. Declared, and
 * so their formats checked, by <stdio.h>. Not part of the sanitized init. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/format.h"
#include "base/macros.h"

/* The compiler makes calls of these by itself after it has seen who calls what. */
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
