/* See file_fields.h. Constant. */
#include "edge/fields/file_fields.h"

#include "core/file/files.h"

#define AT(kind, member) FIELD_##kind##_AT(struct file_write_fields, member)

const struct field file_write_fields[] = {
    {"path", AT(TEXT, path), FIELD_REQUIRED, 1, GUEST_PATH_MAX - 1},
    {"content", AT(TEXT, content)},
    {"content_base64", AT(TEXT, base64), .mcp = "instead of content: bytes"},
    {"append", AT(BOOL, append)},
    {"mode", AT(TEXT, mode), FIELD_REST_ONLY,
     .shape = "\"type\":\"string\",\"pattern\":\"^[0-7]{1,5}$\""},
    {"parents", AT(BOOL, parents), FIELD_REST_ONLY, .rest = "Default: true."},
    {"no_replace", AT(BOOL, no_replace), FIELD_REST_ONLY},
    {"user", AT(TEXT, user), FIELD_REST_ONLY, .shape = "\"type\":\"string\",\"maxLength\":63"},
    {0},
};
