/* Configuration: built-in defaults < file < environment < flags. Used by the spawner, the daemon
 * and the command line alike, so that they find each other.
 *
 * The file is /etc/caisson/caisson.conf (root) or $XDG_CONFIG_HOME/caisson/caisson.conf, or what
 * --config or CAISSON_CONFIG names; an unknown section or key is an error with its line number.
 * The environment: CAISSON_LISTEN, CAISSON_STATE, CAISSON_RUNTIME, CAISSON_CONFIG, CAISSON_LOG. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"

struct config {
	/* [server] */
	char listen[256]; /* "HOST:PORT"; "none" for the Unix socket only. Default 127.0.0.1:7878 */
	char state[256];  /* /var/lib/caisson, or $XDG_DATA_HOME/caisson */
	char runtime[256]; /* /run/caisson, or $XDG_RUNTIME_DIR/caisson */
	char user[64];     /* whom the daemon runs as when started by root. Default caisson */
	char tls_certificate[256], tls_key[256];
	uint32_t idle_exit_seconds; /* 0 = never; set by a client that starts the daemon */
	enum log_level log_level;
	bool log_level_fixed; /* by a flag or the environment: a reload leaves it alone */
	bool log_json;
	/* [sandbox] what a create gets that does not say, and what it may ask for at most */
	struct limits defaults, maximum;
	uint32_t timeout_seconds, timeout_seconds_max;
	uint32_t idle_timeout_seconds;
	uint64_t output_head, output_tail;
	uint64_t log_bytes_max; /* kept output of one sandbox, oldest ended execs go first */
	uint32_t sandboxes_max;
	uint32_t tombstone_days;
	/* [mounts] allow = paths below which -v may be given, ':' between; "" = the user's own
	 * judgement: whatever the calling user can open. Read by the spawner, from a root-owned
	 * file. */
	char mounts_allow[1024];
};

void config_defaults(struct config *config);
/* Which file it is; explicit: --config, or NULL. The environment is looked at. */
NODISCARD int config_path(const char *explicit_path, char *path, size_t room);
/* A missing file is fine unless it was named explicitly. */
NODISCARD int config_read_file(struct config *config, const char *path, bool must_exist,
			       struct error *error);
NODISCARD int config_read_environment(struct config *config, struct error *error);
/* Directories absolute, listen well-formed, defaults within maxima. */
NODISCARD int config_check(const struct config *config, struct error *error);
/* "HOST:PORT" or "[V6]:PORT" in two; HOST is a numeric address or "localhost". "none" is -ENOENT.
 */
#define CONFIG_HOST_MAX 64
NODISCARD int config_split_listen(const char *listen, char host[CONFIG_HOST_MAX],
				  uint16_t *ret_port);
/* <runtime>/caisson.sock */
NODISCARD int config_socket_path(const struct config *config, char *path, size_t room);
