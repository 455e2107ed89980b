/* The log of a process. One write(2) per line, so that lines of several processes do not mix. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

#define LINE_MAX_BYTES 2048

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static struct {
	const char *role;
	enum log_level level;
	bool json;
} settings = {.role = "caisson", .level = LOG_INFO};

void log_setup(const char *role, enum log_level level, bool json)
{
	settings.role = role;
	settings.level = level;
	settings.json = json;
}

void log_set_level(enum log_level level)
{
	settings.level = level;
}

int log_level_parse(const char *text, enum log_level *ret_level)
{
	for (unsigned i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* Appends text with control characters and quotes escaped as in JSON. Both forms of the log use
 * it, so that a line stays a line whatever a sandbox put into it. */
static size_t line_append_escaped(char *line, size_t used, const char *text)
{
	for (; *text && used + 8 < LINE_MAX_BYTES; text++) {
		size_t length = text_control_length(text);
		if (length > 0) {
			used += (size_t)snprintf(line + used, 8, "\\u%04x",
						 text_control_code(text, length));
			text += length - 1;
			continue;
		}
		if (settings.json && (*text == '"' || *text == '\\'))
			line[used++] = '\\';
		line[used++] = *text;
	}
	return used;
}

void log_write(enum log_level level, const char *format, ...)
{
	if (level > settings.level)
		return;
	char text[LINE_MAX_BYTES], line[LINE_MAX_BYTES], time[CLOCK_TEXT_SIZE];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	clock_text(clock_wall(), time);

	size_t used = (size_t)snprintf(
	    line, sizeof(line),
	    settings.json ? "{\"time\":\"%s\",\"level\":\"%s\",\"role\":\"%s\",\"message\":\""
			  : "%s %-7s %s: ",
	    time, level_names[level], settings.role);
	used = line_append_escaped(line, used, text);
	used += (size_t)snprintf(line + used, sizeof(line) - used, settings.json ? "\"}\n" : "\n");
	ssize_t ignored UNUSED = write(STDERR_FILENO, line, used);
}
