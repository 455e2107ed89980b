/* The log of a process: one line per event on standard error, as text or JSON. Called at the edges
 * only; never with a secret, a token, or a sandbox's own bytes unescaped. */
#pragma once

#include <stdbool.h>

#include "base/macros.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* `role` is the process ("spawner", "daemon", ...): a static string. */
void log_setup(const char *role, enum log_level level, bool json);
void log_set_level(enum log_level level);
NODISCARD int log_level_parse(const char *text, enum log_level *ret_level);

void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
