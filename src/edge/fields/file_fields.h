/* What writing a whole file takes: POST .../files, write_file of MCP. */
#pragma once

#include "edge/fields/fields.h"

/* Texts are borrowed from the JSON. */
struct file_write_fields {
	const char *path, *content, *base64, *mode, *user;
	bool append, parents, no_replace;
};

extern const struct field file_write_fields[];
