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

/* Whom the daemon runs as where nobody said, if there is such a user. */
#define CONFIG_USER_DEFAULT "caisson"
#define CONFIG_LISTEN_DEFAULT "127.0.0.1:7878"
/* Names of secrets, then those that only speak of one: a file, a number, a kind. */
#define CONFIG_REDACT_DEFAULT                                                                      \
	"TOKEN *TOKEN API-TOKENS AUTH-TOKENS ACCESS-TOKENS *SECRET* *PASSWORD* *PASSWD* "          \
	"*PASSPHRASE* *CREDENTIAL* COOKIE *COOKIE COOKIES KEY API-KEYS *APIKEY *ACCESSKEY "        \
	"*PRIVATEKEY "                                                                             \
	"!*-FILE !*-PATH !*-DIR !*-NAME !*-TYPE !*-COUNT !*-LIMIT !*-LENGTH !*-SIZE !*-BUDGET "    \
	"!*-TTL !*-TIMEOUT !*-STDIN !TOKEN-ID !TOKEN-URL !NO-* !MAX !MIN !NUM !EOS !BOS !PAD "     \
	"!PUBLIC !PRIMARY !FOREIGN !SORT !PARTITION"

#define CONFIG_MCP_BLOCK_DEFAULT 50

struct config {
	/* [server] */
	char listen[256]; /* "HOST:PORT"; "none" for the Unix socket only. Default 127.0.0.1:7878 */
	char state[256];  /* /var/lib/caisson, or $XDG_STATE_HOME/caisson */
	char runtime[256]; /* /run/caisson, or $XDG_RUNTIME_DIR/caisson */
	char user[64];     /* whom the daemon runs as when started by root; "": see below */
	char tls_certificate[256], tls_key[256];
	/* Names by which a Host header may call the TCP door besides its own, and origins
	 * ("https://host[:port]") whose pages may call it; spaces or commas between. */
	char hosts[1024], origins[1024];
	uint32_t idle_exit_seconds; /* 0 = never; set by a client that starts the daemon */
	enum log_level log_level;
	bool log_level_fixed; /* by a flag or the environment: a reload leaves it alone */
	bool log_json;
	bool metrics_open; /* /metrics needs no token */
	/* [sandbox] what a create gets that does not say, and what it may ask for at most */
	struct limits defaults, maximum;
	uint32_t files_cap; /* without root: open files of a sandbox, at most; 0: no matter */
	uint32_t timeout_seconds, timeout_seconds_max;
	uint32_t idle_timeout_seconds;
	uint32_t auto_pause_seconds; /* idle for so long: paused; 0 = never */
	uint64_t output_head, output_tail;
	uint64_t output_max;    /* of the two together, for a client that asks for its own */
	uint64_t log_bytes_max; /* output of one sandbox, of running and ended execs */
	uint32_t sandboxes_max;
	uint32_t tombstone_days;
	/* [budget] of each workspace that has none of its own; 0 = none */
	struct budget_defaults {
		uint64_t sandboxes, cpu_millis, memory, disk; /* at once */
		/* per minute, day, month */
		uint64_t creates[3], execs[3], wall_seconds[3], cpu_seconds[3];
	} budget;
	uint32_t queue_max; /* creates of one workspace that may wait */
	/* [host] what is left to the host itself (0: a share of it), and how many times its RAM the
	 * memory limits of all sandboxes may come to (0: any) */
	uint64_t memory_reserve, disk_reserve;
	uint32_t memory_overcommit;
	/* [usage] */
	uint32_t usage_interval_seconds; /* how often it is counted */
	uint32_t usage_days;             /* how long it is kept; 0 = for ever */
	/* [pool] sandboxes that are ready before anybody asks: how many at least (0: none), and at
	 * most when many are asked for. Read by the spawner. */
	uint32_t pool_size, pool_max;
	/* [templates] substitute: `host` stands for known templates that are not installed. */
	bool templates_substitute;
	/* [activity] how long and how many entries of each sandbox are kept (0: no end), names
	 * whose values are not written down, and whether reads of files are. */
	uint32_t activity_days, activity_entries;
	char activity_redact[1024];
	bool activity_reads;
	/* [mcp] how long a tool's call waits for a command, before it becomes a job that goes on:
	 * clients give up on a call after a minute. */
	uint32_t mcp_block_seconds;
	/* [mounts] allow = paths below which -v may be given, ':' between; "" = the user's own
	 * judgement: whatever the calling user can open. Read by the spawner, from a root-owned
	 * file. */
	char mounts_allow[1024];
};

/* The directories are root's, or the user's own: state in $XDG_STATE_HOME/caisson or
 * ~/.local/state/caisson; sockets in $XDG_RUNTIME_DIR/caisson, /run/user/UID/caisson where that is
 * the user's, or <state>/run where its path is short enough for a socket, else /tmp/caisson-UID. */
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
