/* The part of template `host` that is our own and not copied: directories, accounts, settings,
 * the Python environment. Called by skeleton.c alone; reads little, so it hardly blocks. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/macros.h"

/* Increase this when the code here makes other files, so that existing skeletons are made again.
 * Changes of the tables are noticed by themselves. */
#define SKELETON_LAYOUT 1
/* Passes every text of those tables to `add`. */
void skeleton_describe_files(void (*add)(void *data, const char *text), void *data);

/* The host's Python as "/usr/bin/python3.11", or "" without one. */
#define SKELETON_PYTHON_TEXT 64
void skeleton_find_python(int host_root, char python[SKELETON_PYTHON_TEXT]);
/* Whether the host has wheels of Python's packaging tools, for building without a network. */
bool skeleton_has_wheels(int host_root);

/* Makes the directories above `path`, below `directory`. 0 or -errno. */
NODISCARD int skeleton_make_parents(int directory, const char *path);
NODISCARD int skeleton_make_files(int host_root, int directory, struct error *error);
