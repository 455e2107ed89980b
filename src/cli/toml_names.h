/* Which keys and tables a TOML text has: a text that names one twice is no TOML. Used by
 * toml_scan.c with every name in its order. Bounded; does not block. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct toml_names;

struct toml_names *toml_names_new(void);
void toml_names_free(struct toml_names *names);

enum toml_end {
	TOML_IS_TABLE, /* [a] */
	TOML_IS_ARRAY, /* [[a]] */
	TOML_IS_VALUE, /* a = */
};

/* A head begins at the top, a key in the table that the last head has opened. */
void toml_names_begin(struct toml_names *names, enum toml_end end);
/* The names of one, all but its last and that; NULL, or why it cannot stand there. */
const char *toml_names_pass(struct toml_names *names, enum toml_end end, const char *name,
			    size_t size);
const char *toml_names_end(struct toml_names *names, enum toml_end end, const char *name,
			   size_t size);

/* Names between braces are their own: where to go on with them, for toml_names_in() before each.
 * 0: there are too many. */
unsigned toml_names_inline(struct toml_names *names);
void toml_names_in(struct toml_names *names, unsigned place);
