/* What somebody may have meant: habits from other programs, and slips of the keyboard. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli/options.h"

/* For a verb that there is not: what to say behind "there is no verb", from "; " on. */
#define SUGGESTION_MAX 256
void verb_suggest(const char *word, char *text, size_t room);
/* The same for an option of a verb, given as it was written ("--rm", "-p", "--memroy=1G"). */
void option_suggest(const struct option_spec *options, const char *word, char *text, size_t room);
