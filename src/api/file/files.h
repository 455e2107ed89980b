/* The handlers of files in a sandbox: see routes.c. */
#pragma once

#include "edge/call.h"

void file_archive_get(struct call *call);
void file_archive_put(struct call *call);
void file_get(struct call *call);
void file_put(struct call *call);
void file_post(struct call *call);
void file_delete(struct call *call);
void file_stat_get(struct call *call);
void file_list_get(struct call *call);
void file_readlink_get(struct call *call);
void file_glob_get(struct call *call);
void file_grep_get(struct call *call);
void file_watch_get(struct call *call);
void file_mkdir_post(struct call *call);
void file_rename_post(struct call *call);
void file_copy_post(struct call *call);
void file_symlink_post(struct call *call);
void file_chmod_post(struct call *call);
void file_chown_post(struct call *call);
void file_replace_post(struct call *call);

/* Their bodies. */
extern const struct field file_mkdir_fields[], file_rename_fields[], file_copy_fields[],
    file_symlink_fields[], file_chmod_fields[], file_chown_fields[], file_replace_fields[];
