/* libarchive, loaded only when a backup is made or read: it loads thirteen other libraries, which
 * would double the start time of every `caisson` and the memory of each of our processes. Loaded by
 * backup.c and restore.c before they start a child. */
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include "base/error.h"

#define LIBRARY_FUNCTIONS(each)                                                                    \
	each(archive_write_new);                                                                   \
	each(archive_write_set_format_pax);                                                        \
	each(archive_write_add_filter_zstd);                                                       \
	each(archive_write_set_bytes_in_last_block);                                               \
	each(archive_write_open_fd);                                                               \
	each(archive_write_header);                                                                \
	each(archive_write_data);                                                                  \
	each(archive_write_close);                                                                 \
	each(archive_write_free);                                                                  \
	each(archive_read_new);                                                                    \
	each(archive_read_support_filter_zstd);                                                    \
	each(archive_read_support_format_tar);                                                     \
	each(archive_read_open_fd);                                                                \
	each(archive_read_next_header);                                                            \
	each(archive_read_data);                                                                   \
	each(archive_read_data_block);                                                             \
	each(archive_read_free);                                                                   \
	each(archive_errno);                                                                       \
	each(archive_error_string);                                                                \
	each(archive_entry_new);                                                                   \
	each(archive_entry_free);                                                                  \
	each(archive_entry_set_pathname);                                                          \
	each(archive_entry_set_filetype);                                                          \
	each(archive_entry_set_perm);                                                              \
	each(archive_entry_set_size);                                                              \
	each(archive_entry_set_mtime);                                                             \
	each(archive_entry_sparse_add_entry);                                                      \
	each(archive_entry_pathname);                                                              \
	each(archive_entry_filetype);                                                              \
	each(archive_entry_hardlink);                                                              \
	each(archive_entry_symlink);                                                               \
	each(archive_entry_size_is_set);                                                           \
	each(archive_read_next_header2);                                                           \
	each(archive_read_extract2);                                                               \
	each(archive_read_disk_new);                                                               \
	each(archive_read_disk_set_symlink_physical);                                              \
	each(archive_read_disk_set_behavior);                                                      \
	each(archive_read_disk_open);                                                              \
	each(archive_read_disk_descend);                                                           \
	each(archive_write_disk_new);                                                              \
	each(archive_write_disk_set_options);                                                      \
	each(archive_entry_clear);                                                                 \
	each(archive_entry_linkify);                                                               \
	each(archive_entry_linkresolver_new);                                                      \
	each(archive_entry_linkresolver_free);                                                     \
	each(archive_entry_linkresolver_set_strategy);                                             \
	each(archive_entry_rdevmajor);                                                             \
	each(archive_entry_uid);                                                                   \
	each(archive_entry_gid);                                                                   \
	each(archive_entry_xattr_reset);                                                           \
	each(archive_entry_xattr_next);                                                            \
	each(archive_entry_rdevminor);                                                             \
	each(archive_entry_size)

struct state_library {
#define MEMBER(name) typeof(name) *name
	LIBRARY_FUNCTIONS(MEMBER);
#undef MEMBER
};

/* Its functions, valid after libarchive_load(). */
extern struct state_library library;
NODISCARD int libarchive_load(struct error *error);
