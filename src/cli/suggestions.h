/* Suggests what the user may have meant: habits from other programs, and typing errors. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli/options.h"

/* For an unknown verb: the text to append to "there is no verb", starting with "; ". */
#define SUGGESTION_MAX 256
void verb_suggest(const char *word, char *text, size_t room);
/* The same for an unknown option of a verb, as it was typed ("--rm", "-p", "--memroy=1G"). */
void option_suggest(const struct option_spec *options, const char *word, char *text, size_t room);
/* True for a typical argument of `docker run`: the name of a well-known image, or NAME:TAG. */
bool word_looks_like_image(const char *word);
