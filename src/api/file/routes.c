/* The routes of files in a sandbox. */
#include "api/routes.h"

#include "api/file/files.h"
#include "edge/file_fields.h"

/* Bytes in base64 within JSON, for clients that cannot stream. Larger files need PUT. */
#define FILE_JSON_BODY_MAX (12 * MIB)

const struct route file_routes[] = {
    {"GET", SB "/files", READ, ROUTE_SANDBOX, file_get, "path,offset,length,user"},
    {"PUT", SB "/files", WRITE, ROUTE_SANDBOX, file_put,
     "path,mode,mtime_ns,append,parents,no_replace,user"},
    {"POST", SB "/files", WRITE, ROUTE_SANDBOX | ROUTE_JSON, file_post, NULL, FILE_JSON_BODY_MAX,
     file_write_fields},
    {"DELETE", SB "/files", WRITE, ROUTE_SANDBOX, file_delete, "path,recursive,user"},
    {"GET", SB "/files/archive", READ, ROUTE_SANDBOX, file_archive_get, "path,format,user"},
    {"PUT", SB "/files/archive", WRITE, ROUTE_SANDBOX, file_archive_put, "path,format,user"},
    {"GET", SB "/files/stat", READ, ROUTE_SANDBOX, file_stat_get, "path,follow,user"},
    {"GET", SB "/files/list", READ, ROUTE_SANDBOX, file_list_get, "path,limit,user"},
    {"GET", SB "/files/readlink", READ, ROUTE_SANDBOX, file_readlink_get, "path,user"},
    {"GET", SB "/files/glob", READ, ROUTE_SANDBOX, file_glob_get, "pattern,path,hidden,limit,user"},
    {"GET", SB "/files/grep", READ, ROUTE_SANDBOX, file_grep_get,
     "pattern,path,regex,ignore_case,glob,limit,user"},
    {"GET", SB "/files/watch", READ, ROUTE_SANDBOX, file_watch_get, "path,recursive,user"},
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
