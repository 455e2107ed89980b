/* Formats text without a C library's streams. The init calls it through its own snprintf
 * (src/init/print.c); never blocks, never allocates. */
#include "base/format.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct format_output {
	char *to;
	size_t room, length;
};

struct conversion {
	bool zeros, left;
	bool wide; /* the argument is longer than an int */
	size_t width, precision;
};

/* A struct, so that a function can advance it for its caller: a va_list is an array on some
 * machines only. */
struct arguments {
	va_list list;
};

static void output_put(struct format_output *output, char c)
{
	if (output->length < output->room)
		output->to[output->length] = c;
	output->length++;
}

static void output_put_padded(struct format_output *output, const struct conversion *conversion,
			      const char *text, size_t size)
{
	size_t padding = conversion->width > size ? conversion->width - size : 0;
	for (size_t i = padding; i > 0 && !conversion->left; i--)
		output_put(output, conversion->zeros ? '0' : ' ');
	for (size_t i = 0; i < size; i++)
		output_put(output, text[i]);
	for (size_t i = padding; i > 0 && conversion->left; i--)
		output_put(output, ' ');
}

static void output_put_number(struct format_output *output, struct conversion *conversion,
			      uint64_t value, unsigned base, bool negative)
{
	char digits[24];
	size_t at = sizeof(digits);
	do
		digits[--at] = "0123456789abcdef"[value % base];
	while ((value /= base) > 0);
	if (negative && conversion->zeros) {
		/* The sign precedes the zeros. */
		output_put(output, '-');
		conversion->width -= conversion->width > 0;
	} else if (negative) {
		digits[--at] = '-';
	}
	output_put_padded(output, conversion, digits + at, sizeof(digits) - at);
}

static size_t format_read_number(const char **format)
{
	size_t value = 0;
	for (; **format >= '0' && **format <= '9' && value < 100000; (*format)++)
		value = value * 10 + (size_t)(**format - '0');
	return value;
}

/* Parses flags, width, precision and length. */
static const char *format_read_conversion(const char *format, struct arguments *arguments,
					  struct conversion *ret_conversion)
{
	struct conversion conversion = {.precision = SIZE_MAX};
	for (; *format == '0' || *format == '-'; format++)
		*(*format == '0' ? &conversion.zeros : &conversion.left) = true;
	conversion.zeros &= !conversion.left;
	conversion.width = format_read_number(&format);
	if (*format == '.') {
		format++;
		if (*format == '*') {
			int precision = va_arg(arguments->list, int);
			conversion.precision = precision < 0 ? SIZE_MAX : (size_t)precision;
			format++;
		} else {
			conversion.precision = format_read_number(&format);
		}
	}
	/* Arguments shorter than an int are passed as int; all longer ones have the same size. */
	_Static_assert(sizeof(long) == sizeof(long long) && sizeof(size_t) == sizeof(long long) &&
			   sizeof(ptrdiff_t) == sizeof(long long),
		       "one size for all long arguments");
	for (; *format && strchr("hljzt", *format); format++)
		conversion.wide |= *format != 'h';
	*ret_conversion = conversion;
	return format;
}

static void output_put_integer(struct format_output *output, struct conversion *conversion,
			       char letter, struct arguments *arguments)
{
	int64_t value =
	    conversion->wide ? va_arg(arguments->list, long long) : va_arg(arguments->list, int);
	bool negative = (letter == 'd' || letter == 'i') && value < 0;
	uint64_t bits = conversion->wide || negative ? (uint64_t)value : (uint32_t)value;
	output_put_number(output, conversion, negative ? -bits : bits,
			  letter == 'x'   ? 16
			  : letter == 'o' ? 8
					  : 10,
			  negative);
}

/* False for an unknown letter. */
static bool output_put_conversion(struct format_output *output, struct conversion *conversion,
				  char letter, struct arguments *arguments)
{
	const char *text;
	char c = '%';
	switch (letter) {
	case 'd':
	case 'i':
	case 'u':
	case 'x':
	case 'o':
		output_put_integer(output, conversion, letter, arguments);
		return true;
	case 's':
		text = va_arg(arguments->list, const char *);
		output_put_padded(output, conversion, text, strnlen(text, conversion->precision));
		return true;
	case 'c':
		c = (char)va_arg(arguments->list, int);
		output_put_padded(output, conversion, &c, 1);
		return true;
	case '%':
		output_put(output, c);
		return true;
	default:
		return false;
	}
}

int format_text(char *to, size_t room, const char *format, va_list args)
{
	struct format_output output = {.to = to, .room = room};
	struct arguments arguments;
	bool known = true;
	va_copy(arguments.list, args);
	for (; known && *format; format++) {
		if (*format != '%') {
			output_put(&output, *format);
			continue;
		}
		struct conversion conversion;
		format = format_read_conversion(format + 1, &arguments, &conversion);
		known = output_put_conversion(&output, &conversion, *format, &arguments);
		if (!known)
			output.length = 0;
	}
	va_end(arguments.list);
	if (room > 0)
		to[output.length < room ? output.length : room - 1] = '\0';
	return known ? (int)output.length : -1;
}
