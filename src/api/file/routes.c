/* The routes of files in a sandbox. */
#include "api/routes.h"

#include "api/file/call.h"
#include "api/file/files.h"
#include "edge/fields/file_fields.h"

/* Bytes in base64 within JSON, for clients that cannot stream. Larger files need PUT. */
#define FILE_JSON_BODY_MAX (12 * MIB)

#define USER "user", FILE_TEXT_AT(user), .max = 63
#define PATTERN "pattern", FILE_TEXT_AT(pattern), FIELD_REQUIRED, 1, FILE_PATH_MAX
#define LIMIT "limit", FIELD_UINT_AT(struct file_call, request.limit), .min = 1
#define FLAG FIELD_BIT_AT(struct file_call, request.flags)

static const struct field path_query[] = {{FILE_PATH}, {USER}, {0}};

static const struct field get_query[] = {
    {FILE_PATH},
    {USER},
    {"offset", FIELD_UINT_AT(struct file_call, request.offset)},
    {"length", FIELD_UINT_AT(struct file_call, request.length), .min = 1},
    {0},
};

static const struct field put_query[] = {
    {FILE_PATH},
    {USER},
    {"mode", FILE_TEXT_AT(mode), .max = 7,
     .shape = "\"type\":\"string\",\"pattern\":\"^[0-7]{1,5}$\""},
    {"mtime_ns", FIELD_UINT_AT(struct file_call, request.offset), .min = 1, .max = INT64_MAX},
    {"append", FIELD_BOOL_AT(struct file_call, append)},
    {"parents", FLAG, .bit = FILE_PARENTS},
    {"no_replace", FLAG, .bit = FILE_NO_REPLACE},
    {0},
};

static const struct field tree_query[] = {
    {FILE_PATH}, {USER}, {"recursive", FLAG, .bit = FILE_RECURSIVE}, {0}};

static const struct field archive_query[] = {
    {FILE_PATH},
    {USER},
    {"format", FILE_TEXT_AT(format), FIELD_WORDS_TOLD, 1, 15, .words = "tar,tar.zst",
     .fallback_text = "tar"},
    {0},
};

static const struct field stat_query[] = {
    {FILE_PATH}, {USER}, {"follow", FIELD_BOOL_AT(struct file_call, follow)}, {0}};

static const struct field list_query[] = {
    {FILE_FOLDER}, {USER}, {LIMIT, .max = GLOB_RESULTS_MAX, .fallback = FILE_LIST_DEFAULT}, {0}};

static const struct field glob_query[] = {
    {FILE_FOLDER},
    {USER},
    {PATTERN},
    {LIMIT, .max = GLOB_RESULTS_MAX, .fallback = FILE_LIST_DEFAULT},
    {"hidden", FLAG, .bit = FILE_HIDDEN},
    {0},
};

static const struct field grep_query[] = {
    {FILE_FOLDER},
    {USER},
    {PATTERN},
    {LIMIT, .max = GREP_MATCHES_MAX, .fallback = 1000},
    {"regex", FLAG, .bit = FILE_REGEX},
    {"ignore_case", FLAG, .bit = FILE_IGNORE_CASE},
    {"glob", FILE_TEXT_AT(glob), .max = FILE_PATH_MAX},
    {0},
};

const struct route file_routes[] = {
    {"GET", SB "/files", READ, ROUTE_SANDBOX, file_get, get_query},
    {"PUT", SB "/files", WRITE, ROUTE_SANDBOX, file_put, put_query},
    {"POST", SB "/files", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_post, NULL, FILE_JSON_BODY_MAX,
     file_write_fields},
    {"DELETE", SB "/files", WRITE, ROUTE_SANDBOX, file_delete, tree_query},
    {"GET", SB "/files/archive", READ, ROUTE_SANDBOX, file_archive_get, archive_query},
    {"PUT", SB "/files/archive", WRITE, ROUTE_SANDBOX, file_archive_put, archive_query},
    {"GET", SB "/files/stat", READ, ROUTE_SANDBOX, file_stat_get, stat_query},
    {"GET", SB "/files/list", READ, ROUTE_SANDBOX, file_list_get, list_query},
    {"GET", SB "/files/readlink", READ, ROUTE_SANDBOX, file_readlink_get, path_query},
    {"GET", SB "/files/glob", READ, ROUTE_SANDBOX, file_glob_get, glob_query},
    {"GET", SB "/files/grep", READ, ROUTE_SANDBOX, file_grep_get, grep_query},
    {"GET", SB "/files/watch", READ, ROUTE_SANDBOX, file_watch_get, tree_query},
    {"POST", SB "/files/mkdir", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_mkdir_post,
     .body = file_mkdir_fields},
    {"POST", SB "/files/rename", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_rename_post,
     .body = file_rename_fields},
    {"POST", SB "/files/copy", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_copy_post,
     .body = file_copy_fields},
    {"POST", SB "/files/symlink", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_symlink_post,
     .body = file_symlink_fields},
    {"POST", SB "/files/chmod", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_chmod_post,
     .body = file_chmod_fields},
    {"POST", SB "/files/chown", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_chown_post,
     .body = file_chown_fields},
    {"POST", SB "/files/replace", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_replace_post,
     .body = file_replace_fields},
    {0},
};
