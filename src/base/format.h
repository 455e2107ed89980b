/* The part of printf that Caisson's own messages need. The init uses it instead of its C
 * library's, which adds 15 KB of floating point, wide characters and streams to every sandbox. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* As vsnprintf, for %d %i %u %x %o %c %s %% with the flags 0 and -, a width, a precision of
 * strings and the lengths hh h l ll j z t. Returns the length of the whole text, which may be
 * more than was written; -1 for any other conversion, with `to` empty
 * (tests/gates/init_formats.py finds those). */
int format_text(char *to, size_t room, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
