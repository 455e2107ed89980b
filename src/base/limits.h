/* Maxima that several modules must agree on. Everything that is sized by input has one; a limit
 * of a single file is in that file. */
#pragma once

#define KIB 1024ULL
#define MIB (1024ULL * KIB)
#define GIB (1024ULL * MIB)

/* Ids and names (base/id.h). */
#define ID_LENGTH 16
#define NAME_MAX_LENGTH 63
#define WORKSPACE_MAX 63 /* length of a workspace's name */

/* Sandboxes. Defaults apply to what a create does not set. */
#define SANDBOX_CPU_MILLIS_DEFAULT 1000u
#define SANDBOX_CPU_MILLIS_MIN 10u
#define SANDBOX_CPU_MILLIS_MAX 256000u
#define SANDBOX_MEMORY_DEFAULT (512 * MIB)
#define SANDBOX_MEMORY_MIN (16 * MIB)
#define SANDBOX_MEMORY_MAX (4096 * GIB)
#define SANDBOX_DISK_DEFAULT (1024 * MIB)
#define SANDBOX_DISK_MIN (16 * MIB)
#define SANDBOX_DISK_MAX (16384 * GIB)
#define SANDBOX_INODES_DEFAULT (SANDBOX_DISK_DEFAULT / (16 * KIB))
#define SANDBOX_INODES_MIN 1024ULL
#define SANDBOX_INODES_MAX (4096 * MIB - 1)
#define SANDBOX_PIDS_DEFAULT 512u
#define SANDBOX_PIDS_MIN 16u
#define SANDBOX_PIDS_MAX 65536u
#define SANDBOX_FILES_DEFAULT 4096u /* RLIMIT_NOFILE inside */
#define SANDBOX_FILES_MIN 64u
#define SANDBOX_FILES_MAX 1048576u
#define SANDBOX_TIMEOUT_DEFAULT 600u
/* The sandbox of a one-shot run whose command goes on without its client is deleted when nothing
 * has run in it and no request has come for so long, or at its own time-out. */
#define ONESHOT_LEFT_IDLE_SECONDS 600
#define SANDBOX_TIMEOUT_MAX (366u * 24 * 3600)
#define SANDBOX_EXPIRY_WARNING 120 /* seconds: below, results carry expires_in_s */
#define SANDBOX_MOUNTS_MAX 16
#define SANDBOX_METADATA_MAX 64
#define SANDBOX_METADATA_BYTES_MAX (16 * 1024)
/* On one host, all instances together: each sandbox has its own uid range. An instance (a state
 * directory) owns a block of them (UID_BLOCKS in spawner/internal.h), which is also the maximum
 * of one daemon. */
#define SANDBOX_COUNT_MAX 4096
#define SANDBOX_COUNT_PER_STATE_MAX 256

/* Sandboxes made ahead of demand. */
#define POOL_SIZE_DEFAULT 2
#define POOL_MAX_DEFAULT 16
#define POOL_SIZE_MAX 128

/* The uid range of one sandbox. */
#define UID_RANGE_BASE 0x70000000u
#define UID_RANGE_SIZE 65536u

/* Execs. */
#define EXEC_ARGV_MAX 1024
#define EXEC_ENV_MAX 1024
#define EXEC_REQUEST_BYTES_MAX (120 * 1024) /* argv + env + cwd + user, encoded */
/* The environment of a pooled sandbox is sent with each exec, besides the exec's own. */
#define POOL_ENVIRONMENT_MAX 64
#define POOL_ENVIRONMENT_BYTES_MAX (4 * 1024)
#define EXEC_PER_SANDBOX_MAX 256 /* known to an init at once, including ended ones */
#define EXEC_RUNLIMITS_MAX 16

/* Output kept per stream: its beginning and its end. */
#define OUTPUT_HEAD_DEFAULT (8 * MIB)
#define OUTPUT_TAIL_DEFAULT (24 * MIB)
#define OUTPUT_KEEP_MAX (1 * GIB)
/* The most that a client may choose for both together, unless another maximum is configured. */
#define OUTPUT_MAX_DEFAULT (128 * MIB)
/* Each stream can keep this much, even when other streams of its sandbox use up the rest. */
#define OUTPUT_LEAST (64 * KIB)
/* The same for the control channel of a code context. It is one window of the gvisor tier. */
#define CODE_CHANNEL_LEAST (256 * KIB)

/* Paths and file operations. */
#define GUEST_PATH_MAX 4096
#define FILE_CHUNK_MAX (64 * 1024)
#define FILE_WINDOW (256 * 1024)
#define GLOB_RESULTS_MAX 100000
#define GREP_MATCHES_MAX 10000
#define GREP_LINE_MAX 4096

/* Protocol frames, to and from an init. */
#define FRAME_PAYLOAD_MAX (128 * 1024)

/* HTTP. */
#define HTTP_HEAD_MAX (16 * 1024)
#define HTTP_HEADERS_MAX 64
#define HTTP_JSON_BODY_MAX (1 * 1024 * 1024)
#define HTTP_JSON_DEPTH_MAX 32
/* A parsed tree may take eighty times the memory of its text (`{},` repeated). */
#define HTTP_JSON_VALUES_MAX 50000
#define HTTP_PASSED_FDS_MAX SANDBOX_MOUNTS_MAX
